//! The retry budget: limits the share of a cluster's traffic that may be retries.
//!
//! Retries help against single failures and harm when everything fails: each adds load to an overloaded cluster. So a
//! cluster has a budget with two bounds, both valid at every moment:
//!
//! * of the requests *in progress*, at most `percent` are retries (Envoy's `retry_budget`), but `min_concurrency` are
//!   always allowed. A retry is in progress from its permission, including its pause. So the base consists of the
//!   active requests and of those that begin within such a pause, of which at most 250 ms count. Otherwise hardly any
//!   retry with a pause of 25 ms would be granted for a service that responds within 10 ms;
//! * within `interval`, there are at most `percent` as many retries as requests (Linkerd's and Finagle's budget), but
//!   `min_per_second` are always allowed. This bound takes effect when retries fail so fast that few are in progress at
//!   a time. In a storm the attempts are at most 1 + `percent` times the requests.
//!
//! Hedged attempts count against the budget, too. A retry of a request that no application received does not, because
//! it adds no load (see [`retry`](super::retry)).
//!
//! The second bound is counted in tenths of `interval`, so it covers between nine and ten tenths.
//!
//! Invariants: granted permits that are alive = retries in progress; a permit is granted in one compare-and-swap, so
//! threads cannot exceed a bound together.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Percent;
use crate::Time;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// The maximum part of a pause that counts. Retries that wait for seconds are sent when the failures are over, and
/// would be a burst then.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The number of slots into which the interval is divided.
const SLOTS: usize = 10;

/// The parameters of a budget.
///
/// # Defaults
///
/// `percent`: 20, `min_concurrency`: 3 (Envoy's), `min_per_second`: 3 (Linkerd has 10), `interval`:
/// 10 s (Linkerd's), `max_retries`: none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BudgetParams {
    /// The maximum retries in percent of the requests in progress, and of the requests within `interval`.
    pub percent: Percent,
    /// The number of retries in progress that is always allowed.
    pub min_concurrency: u32,
    /// The number of retries per second that is always allowed.
    pub min_per_second: u32,
    /// The time over which requests and retries are compared; not zero.
    pub interval: Duration,
    /// The maximum number of retries in progress, whatever the budget allows (Envoy's `max_retries`); `None` = no
    /// limit.
    pub max_retries: Option<u32>,
}

impl Default for BudgetParams {
    fn default() -> Self {
        Self {
            percent: Percent::whole(20),
            min_concurrency: 3,
            min_per_second: 3,
            interval: Duration::from_secs(10),
            max_retries: None,
        }
    }
}

impl BudgetParams {
    /// Returns whether no retry can ever be granted.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        let none = self.percent.of(u64::MAX) == 0;
        (none && (self.min_concurrency == 0 || self.min_per_second == 0))
            || matches!(self.max_retries, Some(0))
    }

    /// Returns the number of retries that may be in progress with `active` requests.
    fn concurrency(&self, active: u32) -> u64 {
        let share = self.percent.of(u64::from(active));
        let most = self.max_retries.map_or(u64::MAX, u64::from);
        share.max(u64::from(self.min_concurrency)).min(most)
    }

    /// Returns the number of retries allowed within an interval with `requests`.
    fn within_interval(&self, requests: u32) -> u64 {
        let floor = f64::from(self.min_per_second) * self.interval.as_secs_f64();
        self.percent.of(u64::from(requests)).max(floor as u64)
    }
}

/// The budget of one cluster, shared by all threads.
#[derive(Debug)]
pub struct Budget {
    params: BudgetParams,
    slot_nanos: u64,
    /// The number of requests so far, modulo 2^32: only differences are used.
    requests: AtomicU32,
    /// The number of retries granted so far, modulo 2^32, in the upper half, and of those in progress in the lower
    /// half.
    retries: AtomicU64,
    /// The number of the slot that the last mark belongs to, counted from the epoch.
    slot: AtomicU64,
    /// The numbers of requests (lower half) and granted retries (upper half) at the beginning of each slot, by the
    /// slot's number modulo [`SLOTS`].
    marks: [AtomicU64; SLOTS],
    /// Held while marks are set: ten times per interval, for about ten nanoseconds.
    turning: Mutex<()>,
}

impl Budget {
    /// Creates an unused budget.
    #[must_use]
    pub fn new(params: BudgetParams) -> Self {
        let nanos = u64::try_from(params.interval.as_nanos()).unwrap_or(u64::MAX);
        Self {
            params,
            slot_nanos: (nanos / SLOTS as u64).max(1),
            requests: AtomicU32::new(0),
            retries: AtomicU64::new(0),
            slot: AtomicU64::new(0),
            marks: std::array::from_fn(|_| AtomicU64::new(0)),
            turning: Mutex::new(()),
        }
    }

    /// Returns the parameters of the budget.
    #[must_use]
    pub fn params(&self) -> &BudgetParams {
        &self.params
    }

    /// Counts a request; called at its first attempt.
    #[inline]
    pub fn request(&self, now: Time) {
        self.turn(now);
        // Relaxed: a counter.
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Grants a retry that begins within `pause`, or a hedged attempt, if the budget allows it with `active` requests
    /// in progress.
    #[must_use]
    pub fn retry(self: &Arc<Self>, active: u32, pause: Duration, now: Time) -> Option<RetryPermit> {
        self.turn(now);
        let (requests, granted) = self.interval();
        let most = self.params.within_interval(requests);
        let beside = active.saturating_add(self.during(pause, requests, now));
        let at_once = self.params.concurrency(beside);
        let grant = |word: u64| {
            let (total, in_progress) = unpack(word);
            let used = total.wrapping_sub(granted);
            let room = u64::from(used) < most && u64::from(in_progress) < at_once;
            // The upper half wraps around; the lower cannot overflow into it: `at_once` < 2^32.
            room.then(|| word.wrapping_add((1 << 32) | 1))
        };
        // Relaxed: the word is complete in itself.
        let granted = self
            .retries
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant);
        granted.is_ok().then(|| RetryPermit {
            budget: Arc::clone(self),
        })
    }

    /// Returns the number of retries in progress.
    #[must_use]
    pub fn in_progress(&self) -> u32 {
        // Relaxed: a gauge.
        unpack(self.retries.load(Ordering::Relaxed)).1
    }

    /// Returns the number of retries that may be in progress with `active` requests, for display.
    #[must_use]
    pub fn allowed(&self, active: u32) -> u64 {
        self.params.concurrency(active)
    }

    /// Estimates the number of requests that begin within a pause, from the rate of the last interval. Only the part of
    /// the interval after its first request counts; otherwise the rate would be too low after a start or an idle time.
    fn during(&self, pause: Duration, requests: u32, now: Time) -> u32 {
        let slot = self.slot.load(Ordering::Acquire);
        let mark = |slot: u64| {
            let mark = &self.marks[(slot % SLOTS as u64) as usize];
            unpack(mark.load(Ordering::Relaxed)).1
        };
        let oldest = slot.saturating_sub(SLOTS as u64 - 1);
        let silent = (oldest + 1..=slot).take_while(|later| mark(*later) == mark(oldest));
        let begin = silent
            .last()
            .unwrap_or(oldest)
            .saturating_mul(self.slot_nanos);
        let pause = pause.min(LONGEST_PAUSE).as_nanos();
        // A time shorter than the pause is no basis for an estimate.
        let elapsed = u128::from(now.as_nanos().saturating_sub(begin)).max(pause);
        let begun = u128::from(requests) * pause / elapsed.max(1);
        u32::try_from(begun).unwrap_or(u32::MAX)
    }

    /// Returns the number of requests within the interval, and the number of retries granted before it.
    fn interval(&self) -> (u32, u32) {
        // Acquire: the marks of this slot are visible (see `set_marks`).
        let slot = self.slot.load(Ordering::Acquire);
        // The oldest mark is at the place of the next slot's.
        let oldest = (slot.wrapping_add(1) % SLOTS as u64) as usize;
        let (granted, requests) = unpack(self.marks[oldest].load(Ordering::Relaxed));
        let all = self.requests.load(Ordering::Relaxed);
        (all.wrapping_sub(requests), granted)
    }

    /// Begins a new slot if it is due.
    #[inline]
    fn turn(&self, now: Time) {
        let slot = now.as_nanos() / self.slot_nanos;
        // Relaxed: `set_marks` checks again under the lock. A clock behind that of another thread
        // turns nothing back.
        if slot > self.slot.load(Ordering::Relaxed) {
            self.set_marks(slot);
        }
    }

    #[cold]
    fn set_marks(&self, slot: u64) {
        // No code in here panics, so a poisoned lock protects consistent data.
        let _turning = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.slot.load(Ordering::Relaxed);
        if slot <= last {
            return;
        }
        let (granted, _) = unpack(self.retries.load(Ordering::Relaxed));
        let requests = self.requests.load(Ordering::Relaxed);
        let mark = u64::from(granted) << 32 | u64::from(requests);
        // There were no requests in skipped slots, so the totals are those of their beginnings.
        let first = slot.saturating_sub(SLOTS as u64 - 1).max(last + 1);
        for passed in first..=slot {
            self.marks[(passed % SLOTS as u64) as usize].store(mark, Ordering::Relaxed);
        }
        // Release: a thread that sees the slot sees its marks.
        self.slot.store(slot, Ordering::Release);
    }
}

/// Splits a word into its upper and lower half.
fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// A retry in progress: counts against the budget until dropped.
#[derive(Debug)]
#[must_use = "the retry is in progress only while the permit lives"]
pub struct RetryPermit {
    budget: Arc<Budget>,
}

impl Drop for RetryPermit {
    fn drop(&mut self) {
        // Relaxed: a counter. The lower half is above 0 while a permit lives.
        self.budget.retries.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn budget(params: BudgetParams) -> Arc<Budget> {
        Arc::new(Budget::new(params))
    }

    fn grants(budget: &Arc<Budget>, active: u32, now: Time) -> usize {
        std::iter::from_fn(|| budget.retry(active, Duration::ZERO, now))
            .take(100_000)
            .map(drop)
            .count()
    }

    #[test]
    fn a_fifth_of_the_requests_in_progress() {
        let budget = budget(BudgetParams::default());
        for _ in 0..10_000 {
            budget.request(at(0));
        }
        let held: Vec<_> =
            std::iter::from_fn(|| budget.retry(100, Duration::ZERO, at(0))).collect();
        assert_eq!((held.len(), budget.in_progress()), (20, 20));
        drop(held);
        assert_eq!(budget.in_progress(), 0);
        let few: Vec<_> = std::iter::from_fn(|| budget.retry(1, Duration::ZERO, at(0))).collect();
        assert_eq!(few.len(), 3, "the minimum");
    }

    #[test]
    fn pauses_count_with_the_requests_that_begin_in_them() {
        let budget = budget(BudgetParams::default());
        for millis in 0..10_000 {
            budget.request(at(millis));
        }
        let held: Vec<_> =
            std::iter::from_fn(|| budget.retry(10, Duration::from_millis(90), at(9_999))).collect();
        assert_eq!(held.len(), 20, "a fifth of 10 and of 1000/s for 90 ms");
        assert!(budget.retry(10, Duration::ZERO, at(9_999)).is_none());
        drop(held);
        for millis in 60_000..60_500 {
            budget.request(at(millis));
        }
        let pause = Duration::from_millis(90);
        let held: Vec<_> = std::iter::from_fn(|| budget.retry(10, pause, at(60_500))).collect();
        assert_eq!(held.len(), 20, "the same rate after a silence");
    }

    #[test]
    fn a_fifth_of_the_requests_of_an_interval() {
        let budget = budget(BudgetParams::default());
        assert_eq!(grants(&budget, 1000, at(50)), 30, "3 a second for 10 s");
        for i in 0..1000 {
            budget.request(at(100 + i));
        }
        assert_eq!(
            grants(&budget, 1000, at(1200)),
            170,
            "200 with those before"
        );
        assert_eq!(grants(&budget, 1000, at(9900)), 0);
        // The first 30 are forgotten, and so are the 900 requests of the first second.
        assert_eq!(grants(&budget, 1000, at(10_000)), 0);
        assert_eq!(grants(&budget, 1000, at(11_500)), 30);
        assert_eq!(grants(&budget, 1000, at(1_000_000)), 30, "long silence");
    }

    #[test]
    fn limits_of_the_parameters() {
        let most = BudgetParams {
            max_retries: Some(2),
            ..BudgetParams::default()
        };
        let held = budget(most);
        let permits: Vec<_> =
            std::iter::from_fn(|| held.retry(1000, Duration::ZERO, at(0))).collect();
        assert_eq!(permits.len(), 2);
        let zero = BudgetParams {
            percent: Percent::NONE,
            min_per_second: 0,
            ..BudgetParams::default()
        };
        assert!(zero.is_zero() && !most.is_zero() && !BudgetParams::default().is_zero());
        assert!(budget(zero).retry(1000, Duration::ZERO, at(0)).is_none());
    }

    #[test]
    fn clocks_that_lag_turn_nothing_back() {
        let budget = budget(BudgetParams::default());
        budget.request(at(5000));
        budget.request(at(1000));
        assert_eq!(budget.interval().0, 2);
    }
}
