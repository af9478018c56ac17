//! An adaptive limit of the requests in progress: as many as a cluster can process without
//! queueing.
//!
//! Latency indicates queueing: as long as it is near its minimum, no request waits in the cluster.
//! The *gradient* is the latency without load, with some tolerance, over the present latency; a
//! limit above the capacity of the cluster makes it fall below 1. At the end of each window
//!
//! ```text
//! gradient = clamp(0.5, (1 + buffer) · baseline / median, 1)      of the window
//! limit    = gradient · limit + √limit                            √limit: room to grow
//! ```
//!
//! (Envoy's `adaptive_concurrency`, Netflix's concurrency-limits.) The limit grows only while it is
//! used: when no more than half of it is in progress, latency contains no information about it.
//! Until the first slow window an exhausted limit grows by half. Windows of less than 100 latencies
//! show less of the effect of growth, and the limit grows by that much less. While fewer requests
//! arrive than end, the requests in progress drain: those that end last take longest, which is no
//! reason to lower the limit.
//!
//! Latencies are compared by medians, as in Envoy, and noise is no reason to lower a limit: the
//! relevant value is the least ratio of both medians that the latencies are compatible with (two
//! standard deviations, σ / √n, from ranks, so for any distribution). Those of the latest windows
//! are merged up to 100, until the limit falls. The mean of a window would nearly always be above
//! the least mean of all windows: with 90 % of 2 ms and 10 % of 182 ms, and no waiting, such a
//! limit fell to 4 where 40 were in progress.
//!
//! The *baseline* is measured every `min_rtt_interval`, and more often at first: if more than a
//! tenth of the windows were slow, the limit is halved, so that waiting requests drain, and the
//! median of the next 100 latencies, or of those of half a second, is the new baseline. If it was
//! lower than before, requests had waited and perhaps still do: the limit is halved again, unless
//! the latencies are those of the known baseline. Afterwards the limit is at most four times the
//! one at which it was measured. (Envoy goes down to three requests for this, which an edge cluster
//! would notice.) A window that is certainly faster replaces the baseline at once, and so does the
//! measurement at the least limit, which cannot be lowered further.
//!
//! Short requests end first: while the service has been busy for less than three times the duration
//! of its slower requests, finished requests do not lower the baseline, and before one was measured
//! later than that the limit does not fall.
//!
//! One limit is shared by all threads. A sample costs two additions; at the end of a window one
//! thread computes the new limit. All accesses are `Relaxed`: samples that fall between two windows
//! may count in either.

mod estimate;
mod histogram;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use super::Percent;
use crate::{Rng, Time};
use estimate::{Estimate, Window};
use histogram::Histogram;

/// The parameters of an adaptive limit.
///
/// # Defaults
///
/// `min_limit`: 3, `initial_limit`: 20, `max_limit`: 1000; `window`: 100 ms with at least
/// `minimum_samples`: 10; `buffer`: 25 %; `min_rtt_interval`: 60 s, jittered by up to 15 %
/// (Envoy's, except for the limits).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConcurrencyParams {
    /// The minimum limit, 1 or more.
    pub min_limit: u32,
    /// The initial limit.
    pub initial_limit: u32,
    /// The maximum limit.
    pub max_limit: u32,
    /// The interval at which the limit is adapted.
    pub window: Duration,
    /// The minimum number of samples in a window, 1 or more; a window with fewer samples is extended.
    pub minimum_samples: u32,
    /// The tolerated increase of latency over the latency without load.
    pub buffer: Percent,
    /// The interval between measurements of the latency without load.
    pub min_rtt_interval: Duration,
    /// The maximum random extension of `min_rtt_interval`, so that proxies do not measure at the same time.
    pub jitter: Percent,
}

impl Default for ConcurrencyParams {
    fn default() -> Self {
        Self {
            min_limit: 3,
            initial_limit: 20,
            max_limit: 1000,
            window: Duration::from_millis(100),
            minimum_samples: 10,
            buffer: Percent::whole(25),
            min_rtt_interval: Duration::from_secs(60),
            jitter: Percent::whole(15),
        }
    }
}

/// The adaptive limit of one cluster. [`limit`](Self::limit) is the `ceiling` of
/// [`Slots::admit`](super::limits::Slots::admit).
#[derive(Debug)]
pub struct ConcurrencyLimit {
    params: ConcurrencyParams,
    limit: AtomicU32,
    /// The measurements of the present window: latencies, their number, and the most and the fewest requests in
    /// progress.
    latencies: Histogram,
    samples: AtomicU32,
    most: AtomicU32,
    least: AtomicU32,
    window_end: AtomicU64,
    estimate: Mutex<Estimate>,
}

impl ConcurrencyLimit {
    /// Creates a limit with its initial value.
    #[must_use]
    pub fn new(params: ConcurrencyParams) -> Self {
        let limit = params
            .initial_limit
            .clamp(params.min_limit, params.max_limit.max(params.min_limit));
        Self {
            params,
            limit: AtomicU32::new(limit),
            latencies: Histogram::new(),
            samples: AtomicU32::new(0),
            most: AtomicU32::new(0),
            least: AtomicU32::new(u32::MAX),
            window_end: AtomicU64::new(0),
            estimate: Mutex::new(Estimate::new(limit)),
        }
    }

    /// Returns the parameters of the limit.
    #[must_use]
    pub fn params(&self) -> &ConcurrencyParams {
        &self.params
    }

    /// Returns the present limit of requests in progress.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the latency without load; `None` = unknown.
    #[must_use]
    pub fn baseline(&self) -> Option<Duration> {
        let estimate = self.estimate.lock().ok()?;
        estimate
            .baseline()
            .map(|micros| Duration::from_secs_f64(micros / 1e6))
    }

    /// Adds the latency of a request that the cluster answered, up to the head of the response, and the number of
    /// requests in progress, including this one. Returns `true` if the limit has risen, so that waiting requests should
    /// be woken.
    #[must_use = "true: wake the waiting requests"]
    pub fn sample(&self, latency: Duration, active: u32, now: Time, rng: &mut Rng) -> bool {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.add(micros);
        let samples = self.samples.fetch_add(1, Ordering::Relaxed) + 1;
        if active > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(active, Ordering::Relaxed);
        }
        if active < self.least.load(Ordering::Relaxed) {
            self.least.fetch_min(active, Ordering::Relaxed);
        }
        let due = now.as_nanos() >= self.window_end.load(Ordering::Relaxed);
        due && samples >= self.params.minimum_samples && self.end_window(active, now, rng)
    }

    #[cold]
    fn end_window(&self, active: u32, now: Time, rng: &mut Rng) -> bool {
        // One thread adapts the limit; for the others the next window has begun.
        let mut estimate = match self.estimate.try_lock() {
            Ok(estimate) => estimate,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let samples = self.samples.swap(0, Ordering::Relaxed);
        if samples < self.params.minimum_samples {
            // Another thread was faster.
            self.samples.fetch_add(samples, Ordering::Relaxed);
            return false;
        }
        let window = Window {
            latencies: self.latencies.take(),
            most: self.most.swap(0, Ordering::Relaxed),
            least: self.least.swap(u32::MAX, Ordering::Relaxed),
            last: active,
        };
        let before = self.limit();
        let limit = estimate.adapt(window, &self.params, now, rng);
        self.limit.store(limit, Ordering::Relaxed);
        let end = now + self.params.window;
        self.window_end.store(end.as_nanos(), Ordering::Relaxed);
        limit > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a server with `capacity` places, each of which takes 10 ms for a request; all requests of a window
    /// meet the same load. Returns the limit after each window.
    fn run(limit: &ConcurrencyLimit, offered: u32, capacity: u32, windows: u64) -> Vec<u32> {
        let mut rng = Rng::seed(1);
        let mut limits = Vec::new();
        let start = limit.window_end.load(Ordering::Relaxed);
        for i in 1..=windows {
            let active = offered.min(limit.limit());
            let slowdown = f64::from(active.max(capacity)) / f64::from(capacity);
            let latency = Duration::from_millis(10).mul_f64(slowdown);
            let now = Time::from_nanos(start + i * 100_000_000);
            for _ in 0..100 {
                let _ = limit.sample(latency, active, now, &mut rng);
            }
            limits.push(limit.limit());
        }
        limits
    }

    #[test]
    fn it_finds_the_capacity() {
        let limit = ConcurrencyLimit::new(ConcurrencyParams::default());
        let limits = run(&limit, 500, 60, 2000);
        // At the fixed point 1.25 · 60/L · L + √L = L: L ≈ 84, a queue of two fifths.
        let settled = &limits[100..];
        let measuring = settled.iter().filter(|limit| **limit < 60).count();
        assert!(measuring <= 60, "{measuring} windows at half the limit");
        let usual = settled
            .iter()
            .filter(|limit| (75..=95).contains(*limit))
            .count();
        assert!(usual >= settled.len() - 100, "{usual}");
        let baseline = limit.baseline().unwrap().as_micros();
        assert!((9_500..=10_500).contains(&baseline), "{baseline}");
    }

    #[test]
    fn it_does_not_grow_unused() {
        let limit = ConcurrencyLimit::new(ConcurrencyParams::default());
        assert!(run(&limit, 5, 60, 50).iter().all(|limit| *limit == 20));
        // It grows as long as 15 are half of it, and then by one step: 30 + √30.
        assert!(run(&limit, 15, 60, 50).iter().all(|limit| *limit <= 35));
    }

    #[test]
    fn it_follows_a_capacity_that_falls() {
        let limit = ConcurrencyLimit::new(ConcurrencyParams::default());
        run(&limit, 500, 60, 300);
        let limits = run(&limit, 500, 10, 40);
        assert!(limits[39] < 25, "{limits:?}");
    }

    #[test]
    fn it_stays_between_its_ends() {
        let params = ConcurrencyParams {
            min_limit: 5,
            max_limit: 40,
            ..ConcurrencyParams::default()
        };
        let limit = ConcurrencyLimit::new(params);
        assert_eq!(run(&limit, 500, 1000, 100)[99], 40);
        let limits = run(&limit, 500, 1, 400);
        assert_eq!(limits.iter().min(), Some(&5), "{limits:?}");
        // Where nothing is left to lower, what takes 5 times as long is the baseline of a slower service: 1.25 · 5/L ·
        // L + √L = L, about 9.
        let settled = &limits[100..];
        assert!(
            settled.iter().all(|limit| (7..=11).contains(limit)),
            "{limits:?}"
        );
    }

    #[test]
    fn windows_wait_for_samples() {
        let limit = ConcurrencyLimit::new(ConcurrencyParams::default());
        let mut rng = Rng::seed(2);
        for i in 0..9 {
            let now = Time::from_nanos(i * 1_000_000_000);
            assert!(!limit.sample(Duration::from_millis(1), 20, now, &mut rng));
        }
        let now = Time::from_nanos(10_000_000_000);
        assert!(
            limit.sample(Duration::from_millis(1), 20, now, &mut rng),
            "it has risen"
        );
    }
}
