//! Metrics of the quality of balancing decisions.

use maglor_telemetry::{Counter, CounterFamily, Gauge, GaugeFamily, Registry};

/// Metric families with a label for the cluster.
#[derive(Debug)]
pub(super) struct Families {
    sampled: CounterFamily,
    missed_idle: CounterFamily,
    imbalance: GaugeFamily,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help, &["cluster"]);
        Self {
            sampled: counter(
                "upstream_choices_sampled_total",
                "Endpoint choices that were evaluated, about one in 64.",
            ),
            missed_idle: counter(
                "upstream_choices_missed_idle_total",
                "Evaluated choices of a busy endpoint while another one was idle.",
            ),
            imbalance: registry.ratio_gauge(
                "upstream_imbalance_ratio",
                "Unevenness of requests among endpoints: one minus Jain's fairness index.",
                &["cluster"],
            ),
        }
    }

    pub(super) fn cluster(&self, cluster: &str) -> ChoiceMetrics {
        ChoiceMetrics {
            sampled: self.sampled.with(&[cluster]),
            missed_idle: self.missed_idle.with(&[cluster]),
            imbalance: self.imbalance.with(&[cluster]),
        }
    }
}

/// Handles for one cluster.
#[derive(Debug)]
pub(crate) struct ChoiceMetrics {
    sampled: Counter,
    missed_idle: Counter,
    imbalance: Gauge,
}

/// Divisor of the step by which a sample moves the gauge.
const SMOOTHING: i64 = 8;

impl ChoiceMetrics {
    /// Counts a sampled decision; `imbalance` is in thousandths.
    pub(crate) fn count(&self, missed_idle: bool, imbalance: u32) {
        self.sampled.add_shared(1);
        self.missed_idle.add_shared(missed_idle.into());
        let before = self.imbalance.value();
        let way = i64::from(imbalance) - before;
        // Rounded away from zero, so that the gauge can reach the sample. One of several simultaneous updates may be
        // lost.
        let step = (way.abs() + SMOOTHING - 1) / SMOOTHING * way.signum();
        self.imbalance.set(before + step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_follows() {
        let registry = Registry::new(1);
        let metrics = Families::new(&registry).cluster("c");
        for _ in 0..100 {
            metrics.count(true, 800);
        }
        assert_eq!(metrics.imbalance.value(), 800);
        for _ in 0..100 {
            metrics.count(false, 3);
        }
        assert_eq!(metrics.imbalance.value(), 3);
        assert_eq!(
            (metrics.sampled.value(), metrics.missed_idle.value()),
            (200, 100)
        );
    }
}
