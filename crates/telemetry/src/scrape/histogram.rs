//! Computes latencies from the buckets of a Prometheus histogram.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Sample;

/// A histogram: the number of durations up to each bound.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// The upper bounds in microseconds (`u64::MAX` for the last one), each with its cumulative count.
    buckets: BTreeMap<u64, f64>,
}

impl Histogram {
    /// Adds a sample of a metric `…_bucket`.
    pub fn add(&mut self, sample: &Sample<'_>) {
        let bound = sample.label("le").and_then(|le| le.parse::<f64>().ok());
        // `+Inf` becomes the largest number.
        let bound = (bound.unwrap_or(f64::INFINITY) * 1e6).round() as u64;
        *self.buckets.entry(bound).or_default() += sample.value;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (&bound, count) in &other.buckets {
            *self.buckets.entry(bound).or_default() += count;
        }
    }

    /// Returns a percentile, interpolated linearly within its bucket, as by Prometheus' `histogram_quantile`; `None` if
    /// the histogram is empty.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let all = *self.buckets.values().last()?;
        let rank = all * percent / 100.0;
        let (mut lower, mut below) = (0, 0.0);
        for (&upper, &count) in &self.buckets {
            if count >= rank && count > 0.0 {
                if upper == u64::MAX {
                    return Some(Duration::from_micros(lower));
                }
                let share = (rank - below) / (count - below).max(f64::MIN_POSITIVE);
                let micros = lower as f64 + (upper - lower) as f64 * share.clamp(0.0, 1.0);
                return Some(Duration::from_secs_f64(micros / 1e6));
            }
            (lower, below) = (upper, count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrape::Meter;

    #[test]
    fn percentiles_are_interpolated() {
        let page = [("0.001", 0), ("0.01", 50), ("0.1", 99), ("+Inf", 100)];
        let page: String = page
            .map(|(le, count)| format!("a_bucket{{le=\"{le}\"}} {count}\n"))
            .concat();
        let mut histogram = Histogram::default();
        for sample in &Meter::default().grown(&page) {
            histogram.add(sample);
        }
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        for histogram in [histogram, twice] {
            let millis = |percent| histogram.percentile(percent).unwrap().as_secs_f64() * 1e3;
            assert!((millis(25.0) - 5.5).abs() < 0.01, "{}", millis(25.0));
            assert!((millis(50.0) - 10.0).abs() < 0.01);
            assert!(
                (millis(100.0) - 100.0).abs() < 0.01,
                "beyond the last bound"
            );
        }
        assert_eq!(Histogram::default().percentile(50.0), None);
    }
}
