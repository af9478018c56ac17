//! Which requests are the slowest: an estimated quantile of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use maglor_balance::guard::Percent;

use super::entry::nanos;

/// Share of its value by which a duration above the threshold raises it. Larger steps follow changes of the load
/// sooner, smaller ones vary less.
const STEP: f64 = 0.05;

/// An estimate of the duration that a share of requests exceeds.
///
/// Stochastic approximation on a logarithmic scale (Robbins and Monro, 1951): a slower request raises the
/// threshold, a quicker one lowers it, by steps whose sizes balance where the share exceeds it. State: one
/// number a worker, so that no other worker's is read.
#[derive(Debug)]
pub(crate) struct Slowest {
    share: f64,
    /// Share of its value by which a threshold falls that was not exceeded, by 2⁶⁴.
    lowering: u64,
    workers: Vec<Threshold>,
}

/// Nanoseconds; 0 = no request so far. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Threshold(AtomicU64);

impl Slowest {
    /// Returns `None` for a share of zero.
    pub(crate) fn new(share: Percent, workers: usize) -> Option<Self> {
        let share = share.get() / 100.0;
        (share > 0.0).then(|| Self {
            share,
            lowering: (STEP * share * 2.0_f64.powi(64)) as u64,
            workers: (0..workers).map(|_| Threshold::default()).collect(),
        })
    }

    /// Returns whether a request is one of the slowest, and adjusts the threshold.
    #[inline]
    pub(crate) fn contains(&self, took: Duration, shard: usize) -> bool {
        let Some(Threshold(threshold)) = self.workers.get(shard) else {
            return false;
        };
        let took = nanos(took);
        // Relaxed, here and below: a single thread uses it.
        let before = threshold.load(Ordering::Relaxed);
        if took <= before && self.share < 1.0 {
            let step = (u128::from(before) * u128::from(self.lowering)) >> 64;
            // Rounded up, so that no threshold is too small to change.
            let after = before.saturating_sub(step as u64 + 1).max(1);
            threshold.store(after, Ordering::Relaxed);
            return false;
        }
        self.raise(threshold, before, took)
    }

    #[cold]
    fn raise(&self, threshold: &AtomicU64, before: u64, took: u64) -> bool {
        if before == 0 {
            threshold.store(took.max(1), Ordering::Relaxed);
            return self.share >= 1.0;
        }
        // Rounded up, so that no threshold is too small to change.
        let factor = 1.0 + STEP * (1.0 - self.share);
        let after = (before as f64 * factor).ceil() as u64;
        threshold.store(after, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use maglor_balance::Rng;

    use super::*;

    fn share_of(share: f64, durations: impl Iterator<Item = Duration>) -> f64 {
        let slowest = Slowest::new(Percent::new(share).unwrap(), 2).unwrap();
        let (mut slow, mut all) = (0.0, 0.0);
        for (at, took) in durations.enumerate() {
            let contained = slowest.contains(took, 1);
            // The beginning is far from the threshold.
            if at >= 50_000 {
                all += 1.0;
                slow += f64::from(u8::from(contained));
            }
        }
        100.0 * slow / all
    }

    #[test]
    fn the_share_is_kept_whatever_the_distribution() {
        let mut rng = Rng::seed(7);
        let mut draw = |scale: f64| {
            let unit = rng.unit().max(1e-9);
            Duration::from_secs_f64(scale * -unit.ln())
        };
        for (share, scale) in [(1.0, 1e-3), (1.0, 3.0), (10.0, 1e-5), (50.0, 0.02)] {
            let found = share_of(share, (0..400_000).map(|_| draw(scale)));
            let error = (found - share).abs() / share;
            assert!(error < 0.1, "{found} % instead of {share} %");
        }
        // The load becomes ten times slower.
        let found = share_of(
            1.0,
            (0..400_000).map(|at| draw(if at < 200_000 { 1e-3 } else { 1e-2 })),
        );
        assert!((0.8..1.3).contains(&found), "{found} %");
    }

    #[test]
    fn all_and_none() {
        assert!(Slowest::new(Percent::NONE, 1).is_none());
        let all = Slowest::new(Percent::ALL, 1).unwrap();
        assert!((0..100).all(|nanos| all.contains(Duration::from_nanos(100 - nanos), 0)));
    }

    #[test]
    fn one_slow_request_among_quick_ones_is_found() {
        let slowest = Slowest::new(Percent::whole(1), 1).unwrap();
        for _ in 0..100 {
            slowest.contains(Duration::from_micros(200), 0);
        }
        assert!(slowest.contains(Duration::from_millis(50), 0));
    }
}
