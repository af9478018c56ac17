//! A decaying histogram of a series: quantiles of its recent values.
//!
//! Usage is kept as in the recommender of Kubernetes' Vertical Pod Autoscaler: buckets grow exponentially, and a
//! sample's weight halves with every half-life of its age.

use std::collections::BTreeMap;
use std::time::Duration;

use maglor_balance::Time;

/// The ratio of the upper to the lower bound of a bucket. A quantile is too high by at most this factor, and is never
/// above the largest sample.
const RATIO: f64 = 1.02;
/// The value below which samples count as zero.
const LEAST: f64 = 1e-6;
/// The number of half-lives after which weights are rescaled, long before they overflow.
const RENEW: f64 = 64.0;

/// The contents of a bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    weight: f64,
    /// The largest sample in the bucket, so that a constant series is represented exactly: requests of 50 are not more
    /// than 50.
    most: f64,
}

/// A histogram of samples of a non-negative quantity.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    half_life: Duration,
    /// The reference time of the weights: a sample taken then has weight 1.
    epoch: Time,
    buckets: BTreeMap<u32, Bucket>,
}

impl Histogram {
    pub(super) fn new(half_life: Duration) -> Self {
        Self {
            half_life: half_life.max(Duration::from_secs(1)),
            epoch: Time::ZERO,
            buckets: BTreeMap::new(),
        }
    }

    /// Adds a sample; negative values and NaN are skipped.
    pub(super) fn add(&mut self, now: Time, value: f64) {
        if !value.is_finite() || value < 0.0 {
            return;
        }
        if self.buckets.is_empty() {
            self.epoch = now;
        }
        let mut age = self.half_lives(now);
        if age > RENEW {
            for bucket in self.buckets.values_mut() {
                bucket.weight *= (-age).exp2();
            }
            self.buckets.retain(|_, bucket| bucket.weight > 1e-12);
            (self.epoch, age) = (now, 0.0);
        }
        let bucket = self.buckets.entry(bucket(value)).or_default();
        bucket.weight += age.exp2();
        bucket.most = bucket.most.max(value);
    }

    /// Returns the least value that `share` of the weight does not exceed. It is at most 2 % too high, and not above
    /// the largest sample; 0 without samples.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let all: f64 = self.buckets.values().map(|bucket| bucket.weight).sum();
        let (mut below, mut most) = (0.0, 0.0);
        for bucket in self.buckets.values() {
            below += bucket.weight;
            most = bucket.most;
            if below >= share * all {
                break;
            }
        }
        most
    }

    fn half_lives(&self, now: Time) -> f64 {
        now.saturating_since(self.epoch).as_secs_f64() / self.half_life.as_secs_f64()
    }
}

fn bucket(value: f64) -> u32 {
    if value <= LEAST {
        return 0;
    }
    // Values are far below 10^15, so this is below 2500.
    1 + ((value / LEAST).ln() / RATIO.ln()) as u32
}

/// A decaying share of counted events among all events: the weighted average of a rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    at: Time,
    all: f64,
    counted: f64,
}

impl Share {
    /// Adds the present rates of all events and of the counted ones.
    pub(super) fn add(&mut self, now: Time, half_life: Duration, all: f64, counted: f64) {
        let age = now.saturating_since(self.at).as_secs_f64() / half_life.as_secs_f64().max(1.0);
        let kept = (-age).exp2();
        self.all = self.all * kept + all;
        self.counted = self.counted * kept + counted;
        self.at = now;
    }

    /// Returns `counted` over `all`, 0–1.
    pub(super) fn get(&self) -> f64 {
        if self.all > 0.0 {
            (self.counted / self.all).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn quantiles_are_at_most_a_bucket_too_high() {
        let mut histogram = Histogram::new(Duration::from_secs(1_000_000));
        assert_eq!(histogram.quantile(0.9), 0.0);
        for value in 1..=1000 {
            histogram.add(at(0), f64::from(value));
        }
        for (share, exact) in [(0.0, 1.0), (0.5, 500.0), (0.9, 900.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share);
            assert!(
                (exact..=exact * 1.0201).contains(&found),
                "{share}: {found}"
            );
        }
    }

    #[test]
    fn what_stands_still_is_known_exactly() {
        for value in [0.0, 1e-9, 49.9, 50.0, 1e15] {
            let mut histogram = Histogram::new(Duration::from_secs(60));
            histogram.add(at(0), value);
            histogram.add(at(9000), value);
            assert_eq!(histogram.quantile(0.9), value);
        }
    }

    #[test]
    fn what_is_old_counts_less() {
        let mut histogram = Histogram::new(Duration::from_secs(60));
        for second in 0..600 {
            histogram.add(at(second), 10.0);
        }
        // A tenth of the weight is new after 0.15 half-lives, half of it after one.
        for second in 600..612 {
            histogram.add(at(second), 100.0);
        }
        assert!(histogram.quantile(0.9) > 99.0);
        assert!(histogram.quantile(0.5) < 11.0);
        for second in 612..662 {
            histogram.add(at(second), 100.0);
        }
        assert!(histogram.quantile(0.5) > 99.0);
    }

    #[test]
    fn weights_never_overflow() {
        let mut histogram = Histogram::new(Duration::from_secs(1));
        for second in 0..100_000 {
            histogram.add(at(second), 5.0);
            histogram.add(at(second), f64::NAN);
            histogram.add(at(second), -1.0);
        }
        assert_eq!(histogram.quantile(1.0), 5.0);
        let mut buckets = histogram.buckets.values();
        assert!(buckets.all(|bucket| bucket.weight.is_finite()));
    }
}
