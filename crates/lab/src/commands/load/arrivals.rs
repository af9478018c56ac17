//! The times at which the requests of an open loop are due.

use std::time::Duration;

use maglor_balance::Rng;

/// The intervals between requests.
#[derive(Debug, Clone, Copy, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Intervals {
    /// Equal ones.
    Constant,
    /// Exponentially distributed ones, as of many independent clients.
    Poisson,
}

/// Due times from the beginning, without an end. During the ramp the rate grows linearly from 0.
#[derive(Debug)]
pub(crate) struct Arrivals {
    rate: f64,
    ramp: f64,
    intervals: Intervals,
    rng: Rng,
    /// The requests that are expected until the next due time.
    expected: f64,
}

impl Arrivals {
    pub(crate) fn new(rate: f64, ramp: Duration, intervals: Intervals, seed: u64) -> Self {
        Self {
            rate,
            ramp: ramp.as_secs_f64(),
            intervals,
            rng: Rng::seed(seed),
            expected: 0.0,
        }
    }

    /// When this number of requests is reached: the inverse of the rate's integral.
    fn time(&self, expected: f64) -> f64 {
        let in_ramp = self.rate * self.ramp / 2.0;
        match expected < in_ramp {
            true => (2.0 * expected * self.ramp / self.rate).sqrt(),
            false => self.ramp + (expected - in_ramp) / self.rate,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.expected += match self.intervals {
            Intervals::Constant => 1.0,
            // 1 − u is above 0, so its logarithm is finite.
            Intervals::Poisson => -(1.0 - self.rng.unit()).ln(),
        };
        Duration::try_from_secs_f64(self.time(self.expected)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(arrivals: Arrivals, end: f64) -> Vec<f64> {
        let seconds = arrivals.map(|due| due.as_secs_f64());
        seconds.take_while(|due| *due <= end + 1e-9).collect()
    }

    #[test]
    fn equal_intervals_have_the_rate_after_a_linear_ramp() {
        let due = until(
            Arrivals::new(10.0, Duration::ZERO, Intervals::Constant, 1),
            2.0,
        );
        assert_eq!(due.len(), 20);
        assert!((due[0] - 0.1).abs() < 1e-9 && (due[19] - 2.0).abs() < 1e-9);

        let ramp = Duration::from_secs(10);
        let due = until(Arrivals::new(100.0, ramp, Intervals::Constant, 1), 20.0);
        // Half of the rate in the mean of the ramp; a quarter of its requests in its first half.
        let before = |end: f64| due.iter().filter(|due| **due <= end + 1e-9).count();
        assert_eq!([5.0, 10.0, 20.0].map(before), [125, 500, 1500]);
    }

    #[test]
    fn random_intervals_have_the_rate_in_the_mean() {
        let due = until(
            Arrivals::new(1000.0, Duration::ZERO, Intervals::Poisson, 1),
            20.0,
        );
        // Twenty thousand, with a deviation of 141.
        assert!((19_300..20_700).contains(&due.len()), "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|two| two[1] - two[0]).collect();
        let long = gaps.iter().filter(|gap| **gap > 0.001).count();
        // e^-1 of them are longer than the mean.
        let share = long as f64 / gaps.len() as f64;
        assert!((0.34..0.40).contains(&share), "{share}");
    }
}
