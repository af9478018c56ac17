//! The usual duration of good responses, and the hold time of errors: **a failed request keeps its slot for as long as
//! a good response takes**.
//!
//! A server that responds immediately with errors looks idle and fast, and policies that use counts or latency send it
//! more and more requests (a black hole). If the slot of a failed request is held until a good response would have
//! arrived, the server looks as busy as its peers, and gets no more than its share. There is no threshold that a client
//! could exceed: if all servers respond alike, the counts of all grow alike, and no more than with responses of usual
//! length.
//!
//! Prequal's error aversion (NSDI 2024, §4.3) and the error penalty of gRPC's weighted round robin have the same
//! purpose.

use std::time::Duration;

use crate::Time;
use crate::sync::{AtomicU64, Ordering};

/// The inverse of the weight of a new latency in the average.
const SMOOTHING: u64 = 32;

/// The limit of a latency, in multiples of the average, above which it counts as this limit.
const OUTLIER: u64 = 8;

/// The maximum hold time of an error, for which a recovered server may still look busy.
const LONGEST: Duration = Duration::from_secs(10);

/// The mean latency of good responses: of a cluster, measured by a balancer, or of one server.
///
/// Accesses are `Relaxed`: two threads at once may lose a sample, which is tolerable in an average. The state has a
/// cache line of its own, because threads write it with every good response.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Usual {
    /// The average latency in nanoseconds; 0 before the first good response.
    nanos: AtomicU64,
    /// The number of errors before the first good response.
    errors: AtomicU64,
}

impl Usual {
    /// Creates the state without samples.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the duration of a good response.
    #[inline]
    pub fn observe(&self, latency: Duration) {
        let sample = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1);
        let old = self.nanos.load(Ordering::Relaxed);
        let new = if old == 0 {
            sample
        } else {
            // A stream that continues for hours is not comparable with other responses.
            let sample = sample.min(old.saturating_mul(OUTLIER));
            (old - old / SMOOTHING).saturating_add(sample / SMOOTHING)
        };
        self.nanos.store(new.max(1), Ordering::Relaxed);
    }

    /// Returns the average latency; `None` before the first good response.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        match self.nanos.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// Returns the time until which the slot of a request that failed after `took` is held; `None` = the response took
    /// as long as a good one, or no good one is known for comparison.
    #[must_use]
    pub fn hold(&self, took: Duration, now: Time) -> Option<Time> {
        let left = self.latency()?.min(LONGEST).checked_sub(took)?;
        (!left.is_zero()).then(|| now + left)
    }

    /// Returns the hold time for a single server, which has no peers for comparison. Before the first good response,
    /// slots are held from `first` on, twice as long with each error.
    pub(crate) fn hold_alone(&self, took: Duration, now: Time, first: Duration) -> Option<Time> {
        if self.latency().is_some() {
            return self.hold(took, now);
        }
        let errors = self.errors.fetch_add(1, Ordering::Relaxed).min(16);
        Some(now + (first * (1 << errors)).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn an_error_is_held_as_long_as_a_good_answer_takes() {
        let usual = Usual::new();
        let ms = Duration::from_millis;
        assert_eq!(usual.hold(ms(1), at(1)), None, "nothing to compare with");
        usual.observe(ms(20));
        assert_eq!(usual.hold(ms(1), at(101)), Some(at(120)));
        assert_eq!(usual.hold(ms(20), at(120)), None);
        for _ in 0..1000 {
            usual.observe(Duration::from_secs(60));
        }
        assert_eq!(usual.hold(ms(1), at(1)), Some(at(10_000)), "no longer");
    }

    #[test]
    fn a_server_that_has_never_answered_well_is_avoided_more_and_more() {
        let usual = Usual::new();
        let first = Duration::from_millis(100);
        let took = Duration::from_millis(1);
        for expected in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            let until = usual.hold_alone(took, at(7), first);
            assert_eq!(until, Some(at(7 + expected)));
        }
        usual.observe(Duration::from_millis(5));
        assert_eq!(usual.hold_alone(took, at(11), first), Some(at(15)));
    }
}
