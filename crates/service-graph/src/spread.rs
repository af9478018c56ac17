//! The spread of response times, estimated from the means of many intervals.
//!
//! Squares of response times are not reported. But the mean of n independent calls has the variance σ²/n, so the means
//! of many intervals yield σ² (the mean square between groups of a one-way analysis of variance). If the calls of an
//! interval are similar (varying load), σ is overestimated. If intervals are more similar than random ones (a balancer
//! that alternates between a fast and a slow server), σ is underestimated; so conclusions from it are never narrower
//! than the ranges of response times permit, see [`widest`].

/// The minimum degrees of freedom for an estimate.
const LEAST: f64 = 3.0;
/// The 5 % quantile of the standard normal distribution.
const Z: f64 = -1.645;

/// Sums over intervals with calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The number of intervals.
    pub intervals: f64,
    /// The number of calls in these intervals.
    pub calls: f64,
    /// The sum of the response times of these calls, in milliseconds.
    pub sum: f64,
    /// The sum, over the intervals, of the number of calls times the square of the mean.
    pub squares: f64,
}

impl Spread {
    /// Returns the sums of one interval.
    #[must_use]
    pub fn of(calls: u64, latency_ms: f64) -> Self {
        let count = calls as f64;
        if calls == 0 || !latency_ms.is_finite() || latency_ms < 0.0 {
            return Self::default();
        }
        Self {
            intervals: 1.0,
            calls: count,
            sum: latency_ms,
            squares: latency_ms * latency_ms / count,
        }
    }

    /// Adds the sums of other intervals.
    pub fn add(&mut self, others: &Self) {
        self.intervals += others.intervals;
        self.calls += others.calls;
        self.sum += others.sum;
        self.squares += others.squares;
    }

    /// Returns an upper limit of the standard deviation of a call's response time in milliseconds, which is exceeded by
    /// chance in one of twenty cases; `None` if there are too few intervals.
    #[must_use]
    pub fn deviation_ms(&self) -> Option<f64> {
        let free = self.intervals - 1.0;
        if free < LEAST || self.calls <= 0.0 {
            return None;
        }
        let between = (self.squares - self.sum * self.sum / self.calls).max(0.0);
        // χ² by the approximation of Wilson and Hilferty.
        let part = 2.0 / (9.0 * free);
        let chi = free * (1.0 - part + Z * part.sqrt()).powi(3);
        Some((between / chi.max(f64::MIN_POSITIVE)).sqrt())
    }
}

/// Returns the number of standard deviations above the mean that a normally distributed value exceeds with probability
/// `above`, up to one half (Abramowitz and Stegun, 26.2.23; the error is below 0.00045).
pub(crate) fn normal(above: f64) -> f64 {
    let t = (-2.0 * above.clamp(f64::MIN_POSITIVE, 0.5).ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - numerator / denominator
}

#[cfg(test)]
mod tests {
    use maglor_balance::Rng;

    use super::*;

    fn spread(values: &[f64], intervals: usize) -> Spread {
        let mut spread = Spread::default();
        for part in values.chunks(values.len() / intervals) {
            spread.add(&Spread::of(part.len() as u64, part.iter().sum()));
        }
        spread
    }

    #[test]
    fn normal_quantiles_are_those_of_tables() {
        for (above, expected) in [(0.5, 0.0), (0.05, 1.645), (0.01, 2.326), (0.001, 3.090)] {
            assert!((normal(above) - expected).abs() < 1e-3, "{above}");
        }
    }

    /// The limit is exceeded by chance in one of twenty cases, and is close to the deviation if there are many
    /// intervals.
    #[test]
    fn deviations_follow_from_means() {
        println!("seeds 0 to 999");
        for (intervals, least, most) in [(6, 1.0, 2.0), (60, 1.0, 1.3)] {
            let (mut below, mut sum) = (0, 0.0);
            for seed in 0..1000 {
                let mut rng = Rng::seed(seed);
                let values: Vec<f64> = (0..1200).map(|_| -20.0 * (1.0 - rng.unit()).ln()).collect();
                let found = spread(&values, intervals).deviation_ms().unwrap();
                below += u32::from(found < 20.0);
                sum += found / 20.0 / 1000.0;
            }
            assert!((20..=90).contains(&below), "{intervals}: {below}");
            assert!((least..most).contains(&sum), "{intervals}: {sum}");
        }
        assert!(spread(&[7.0; 100], 10).deviation_ms().unwrap() < 1e-6);
        assert_eq!(spread(&[7.0; 30], 3).deviation_ms(), None, "too few");
        assert_eq!(Spread::of(0, 5.0), Spread::default());
        assert_eq!(Spread::of(1, f64::NAN), Spread::default());
    }
}
