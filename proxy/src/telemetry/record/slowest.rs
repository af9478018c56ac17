//! Which requests are the slowest: an estimated quantile of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use maglor_balance::guard::Percent;

use super::entry::nanos;

/// Share of its value by which a duration above the threshold raises it. Larger steps follow changes of the load
/// sooner, smaller ones vary less.
const STEP: f64 = 0.05;
/// Number of slow requests that are expected among quick ones until their absence means that the threshold is far too
/// high: that of a proxy's first request, which opened connections, is. By chance, it happens once in 400 times.
const MISSED: f64 = 6.0;
/// Number of slow requests, expected since then, with which the steps downward become longer by those of the usual length.
const LONGER: f64 = 0.25;

/// An estimate of the duration that a share of requests exceeds.
///
/// Stochastic approximation on a logarithmic scale (Robbins and Monro, 1951): a slower request raises the
/// threshold, a quicker one lowers it, by steps whose sizes balance where the share exceeds it. Steps become longer when
/// no request is slow for very long. State: two numbers a worker, so that no other worker's are read.
#[derive(Debug)]
pub(crate) struct Slowest {
    share: f64,
    /// Share of its value by which a threshold falls that was not exceeded, by 2⁶⁴.
    lowering: u64,
    /// Number of quick requests, one after another, from which on steps become longer, and with which by one step.
    patience: u64,
    longer: u64,
    workers: Vec<Threshold>,
}

/// The threshold of a worker, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Threshold {
    /// 0 = no request so far.
    nanos: AtomicU64,
    /// Number of requests since the last slow one.
    quick: AtomicU64,
}

impl Slowest {
    /// Returns `None` for a share of zero.
    pub(crate) fn new(share: Percent, workers: usize) -> Option<Self> {
        let share = share.get() / 100.0;
        (share > 0.0).then(|| Self {
            share,
            lowering: (STEP * share * 2.0_f64.powi(64)) as u64,
            patience: (MISSED / share) as u64,
            longer: (LONGER / share).ceil() as u64,
            workers: (0..workers).map(|_| Threshold::default()).collect(),
        })
    }

    /// Returns whether a request is one of the slowest, and adjusts the threshold.
    #[inline]
    pub(crate) fn contains(&self, took: Duration, shard: usize) -> bool {
        let Some(threshold) = self.workers.get(shard) else {
            return false;
        };
        let took = nanos(took);
        // Relaxed, here and below: a single thread uses it.
        let before = threshold.nanos.load(Ordering::Relaxed);
        if took <= before && self.share < 1.0 {
            let quick = threshold.quick.load(Ordering::Relaxed) + 1;
            threshold.quick.store(quick, Ordering::Relaxed);
            // Rounded up, so that no threshold is too small to change.
            let mut step = ((u128::from(before) * u128::from(self.lowering)) >> 64) as u64 + 1;
            if quick > self.patience {
                let times = 1 + (quick - self.patience) / self.longer;
                step = step.saturating_mul(times).min(before / 2);
            }
            let after = before.saturating_sub(step).max(1);
            threshold.nanos.store(after, Ordering::Relaxed);
            return false;
        }
        self.raise(threshold, before, took)
    }

    #[cold]
    fn raise(&self, threshold: &Threshold, before: u64, took: u64) -> bool {
        threshold.quick.store(0, Ordering::Relaxed);
        if before == 0 {
            threshold.nanos.store(took.max(1), Ordering::Relaxed);
            return self.share >= 1.0;
        }
        // Rounded up, so that no threshold is too small to change.
        let factor = 1.0 + STEP * (1.0 - self.share);
        let after = (before as f64 * factor).ceil() as u64;
        threshold.nanos.store(after, Ordering::Relaxed);
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

    /// The first request of a proxy opens connections, by handshakes of mutual TLS.
    #[test]
    fn a_slow_first_request_does_not_hide_later_ones_for_long() {
        let mut rng = Rng::seed(11);
        let slowest = Slowest::new(Percent::whole(1), 1).unwrap();
        slowest.contains(Duration::from_millis(100), 0);
        let slow = |slowest: &Slowest, rng: &mut Rng| {
            let took = Duration::from_secs_f64(1e-3 * -rng.unit().max(1e-9).ln());
            slowest.contains(took, 0)
        };
        let first = (1..).find(|_| slow(&slowest, &mut rng));
        assert!(first < Some(1500), "{first:?}");
        let all = (0..2000).filter(|_| slow(&slowest, &mut rng)).count();
        assert!((10..50).contains(&all), "{all} of 2000");
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
