//! Detects outliers by their rates: success rates below those of the others, and failure percentages above a threshold.

use super::{Finding, OutlierParams};

/// The responses of one endpoint within an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) successes: u32,
    pub(super) failures: u32,
}

impl Counts {
    fn volume(self) -> u64 {
        u64::from(self.successes) + u64::from(self.failures)
    }

    /// Returns the success rate in percent, 0–100; the volume must be above 0.
    fn success_percent(self) -> f64 {
        100.0 * f64::from(self.successes) / self.volume() as f64
    }
}

/// Returns the endpoints that are outliers, in their order, each with the finding about it.
pub(super) fn outliers(counts: &[Counts], params: &OutlierParams) -> Vec<(usize, Finding)> {
    let mut found = by_success_rate(counts, params);
    for (at, finding) in by_failure_percentage(counts, params) {
        if !found.iter().any(|(other, _)| *other == at) {
            found.push((at, finding));
        }
    }
    found
}

/// Returns the success rates of the endpoints with at least `volume` requests; none if there are fewer than `hosts` of
/// these.
fn rates(counts: &[Counts], volume: u32, hosts: u32) -> Vec<(usize, f64)> {
    let volume = u64::from(volume.max(1));
    let rates: Vec<_> = counts
        .iter()
        .enumerate()
        .filter(|(_, counts)| counts.volume() >= volume)
        .map(|(at, counts)| (at, counts.success_percent()))
        .collect();
    if rates.len() < hosts.max(1) as usize {
        return Vec::new();
    }
    rates
}

fn by_success_rate(counts: &[Counts], params: &OutlierParams) -> Vec<(usize, Finding)> {
    let rates = rates(
        counts,
        params.success_rate_request_volume,
        params.success_rate_minimum_hosts,
    );
    let n = rates.len().max(1) as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / n;
    let variance = rates
        .iter()
        .map(|(_, rate)| (rate - mean).powi(2))
        .sum::<f64>()
        / n;
    let factor = f64::from(params.success_rate_stdev_factor) / 1000.0;
    let threshold = mean - factor * variance.sqrt();
    // The margin is far below one request in 2^32 and above the error of the sums: equal rates are
    // not outliers of each other.
    let below = |(at, rate): (usize, f64)| {
        let finding = Finding::SuccessRate { rate, threshold };
        (rate < threshold - 1e-9).then_some((at, finding))
    };
    rates.into_iter().filter_map(below).collect()
}

fn by_failure_percentage(counts: &[Counts], params: &OutlierParams) -> Vec<(usize, Finding)> {
    let threshold = f64::from(params.failure_percentage_threshold);
    if params.failure_percentage_threshold == 0 {
        return Vec::new();
    }
    let rates = rates(
        counts,
        params.failure_percentage_request_volume,
        params.failure_percentage_minimum_hosts,
    );
    let above = |(at, rate): (usize, f64)| {
        let percent = 100.0 - rate;
        (percent >= threshold - 1e-9).then_some((at, Finding::FailurePercentage { percent }))
    };
    rates.into_iter().filter_map(above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rates: &[u32]) -> Vec<Counts> {
        let of = |&percent: &u32| Counts {
            successes: 2 * percent,
            failures: 2 * (100 - percent),
        };
        rates.iter().map(of).collect()
    }

    fn found(rates: &[u32]) -> Vec<usize> {
        let found = outliers(&counts(rates), &OutlierParams::default());
        found.into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn success_rates_are_compared_with_the_others() {
        // Mean 80, standard deviation 40: the threshold is 80 − 1.9 · 40 = 4 (Envoy's example has
        // the same numbers).
        assert_eq!(found(&[100, 100, 100, 100, 0]), [4]);
        assert_eq!(found(&[100, 100, 100, 100, 5, 100, 100]), [4]);
        assert!(found(&[50, 50, 50, 50, 50]).is_empty(), "all are alike");
        assert!(found(&[99, 98, 99, 97, 98]).is_empty());
        assert!(found(&[100, 100, 100, 0]).is_empty(), "too few to compare");
        let mut few = counts(&[100, 100, 100, 100, 100, 0]);
        few[5] = Counts {
            successes: 0,
            failures: 99,
        };
        assert!(by_success_rate(&few, &OutlierParams::default()).is_empty());
    }

    #[test]
    fn equal_rates_with_rounding_are_alike() {
        for successes in 1..500 {
            let one = Counts {
                successes,
                failures: 1000 - successes,
            };
            let found = by_success_rate(&[one; 7], &OutlierParams::default());
            assert_eq!(found, []);
        }
    }

    #[test]
    fn failure_percentages_have_a_fixed_threshold() {
        let params = OutlierParams::default();
        let found = by_failure_percentage(&counts(&[15, 16, 0, 100, 100]), &params);
        let found: Vec<_> = found.into_iter().map(|(at, _)| at).collect();
        assert_eq!(found, [0, 2]);
        assert!(by_failure_percentage(&counts(&[0, 0, 0, 0]), &params).is_empty());
    }
}
