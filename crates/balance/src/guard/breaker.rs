//! The circuit breaker of a cluster: while it is open, requests fail immediately instead of waiting for
//! a probable failure, and the cluster gets time to recover.
//!
//! ```text
//!            failures in a row, or too large a part
//!   Closed ──────────────────────────────────────────► Open ◄──────────┐
//!     ▲                                                 │ interval over │ one probe fails
//!     │      `success_threshold` probes succeed         ▼               │
//!     └───────────────────────────────────────────── HalfOpen ─────────┘
//! ```
//!
//! The terms are the textbook's: closed means that requests pass. The *open interval* is adaptive,
//! after Sivakumar, Sebastian and Thilagam, "Self-Adaptive Circuit Breaker Open-State Interval for
//! Enhancing Resiliency of Microservices" (OCIT 2024; the reference \[20\] of the paper on traffic
//! management): a fixed one either overloads a recovering service with probes or leaves it idle
//! long after it has recovered. Here it follows how recovery proceeds:
//!
//! * The first interval of an outage is derived from the last outages, at first `base_open`.
//! * When half-open fails, the next interval is longer: doubled when no probe succeeded, by less
//!   the nearer it came to closing. At most `max_open`.
//! * When it closes, half of the outage's length is averaged into the next first interval with
//!   weight ½: probing begins when half of a usual outage has passed.
//! * While it stays closed the next first interval decays to `base_open`, with a half-life of
//!   `max_open`.
//!
//! Every interval is jittered by ±10 %, so that proxies do not probe together.
//!
//! One breaker is shared by all threads. Closed, it costs a load at entry, and an addition at the
//! end; the lock is taken when a request fails or the breaker is not closed.
//!
//! Invariants: in half-open at most `half_open_requests` are in progress; a result counts only in
//! the state in which its request entered, so a late failure cannot open a breaker that has just
//! closed.

mod state;

use std::sync::PoisonError;
use std::time::Duration;

use super::Percent;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::{Rng, Time};
use state::State;

/// The parameters of a breaker: when it opens, for how long, and when it closes.
///
/// # Defaults
///
/// `consecutive_failures`: 5; `failure_percent`: 50, `minimum_requests`: 20, `interval`: 10 s; `base_open`: 1 s,
/// `max_open`: 30 s; `half_open_requests`: 3, `success_threshold`: 3.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BreakerParams {
    /// The number of consecutive failures that opens the breaker; 0: disabled.
    pub consecutive_failures: u32,
    /// The share of failures within `interval` that opens the breaker; 0 %: disabled.
    pub failure_percent: Percent,
    /// The minimum number of requests within `interval` for evaluating `failure_percent`, 1 or more.
    pub minimum_requests: u32,
    /// The length of the intervals in which requests are counted.
    pub interval: Duration,
    /// The shortest open interval.
    pub base_open: Duration,
    /// The longest open interval.
    pub max_open: Duration,
    /// The maximum number of concurrent probes in the half-open state, 1 or more.
    pub half_open_requests: u32,
    /// The number of consecutive successful probes that closes the breaker, 1 or more.
    pub success_threshold: u32,
}

impl Default for BreakerParams {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            failure_percent: Percent::whole(50),
            minimum_requests: 20,
            interval: Duration::from_secs(10),
            base_open: Duration::from_secs(1),
            max_open: Duration::from_secs(30),
            half_open_requests: 3,
            success_threshold: 3,
        }
    }
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Phase {
    /// All requests pass.
    Closed = 0,
    /// A limited number of requests pass, as probes.
    HalfOpen = 1,
    /// No request passes.
    Open = 2,
}

impl Phase {
    /// Returns the name of the state in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

/// A change of state, for metrics and logs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transition {
    /// The new state.
    pub to: Phase,
    /// The length of the open interval if the new state is [`Phase::Open`]; zero otherwise.
    pub open_for: Duration,
}

/// The decision about a request.
#[derive(Debug)]
pub enum Entry {
    /// The request may pass. Hand the pass to [`Breaker::record`] or [`Breaker::abandon`] at its end.
    Passed(Pass),
    /// The request is rejected with 503; the duration is for `Retry-After`.
    Rejected(Duration),
}

/// The admission of one request.
#[derive(Debug)]
#[must_use = "a pass is recorded or abandoned"]
pub struct Pass {
    /// The period in which the request was admitted.
    period: u32,
    probe: bool,
}

impl Pass {
    /// Returns whether the request is one of the probes that decide about closing.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.probe
    }
}

/// The breaker of one cluster.
#[derive(Debug)]
pub struct Breaker {
    params: BreakerParams,
    /// A copy of the state's phase, for the path without a lock. Relaxed: a thread that reads an
    /// old value admits one request more, or takes the lock unnecessarily.
    phase: AtomicU8,
    /// A copy of the number of the present period, with the same tolerance of old values.
    period: AtomicU32,
    /// The number of consecutive failures while closed. Relaxed: a counter.
    streak: AtomicU32,
    /// The successes (upper half) and failures (lower half) of the present interval. Relaxed: counters in one word.
    counts: AtomicU64,
    /// The end of the interval. Relaxed: a late result counts into the next one.
    stretch_end: AtomicU64,
    state: Mutex<State>,
}

impl Breaker {
    /// Creates a closed breaker.
    #[must_use]
    pub fn new(params: BreakerParams) -> Self {
        Self {
            params,
            phase: AtomicU8::new(Phase::Closed as u8),
            period: AtomicU32::new(0),
            streak: AtomicU32::new(0),
            counts: AtomicU64::new(0),
            stretch_end: AtomicU64::new(0),
            state: Mutex::new(State::new(&params)),
        }
    }

    /// Returns the parameters of the breaker.
    #[must_use]
    pub fn params(&self) -> &BreakerParams {
        &self.params
    }

    /// Returns the state as of the last request. An open breaker becomes half-open with the first request after its
    /// open interval.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Closed,
            1 => Phase::HalfOpen,
            _ => Phase::Open,
        }
    }

    /// Decides about a request. Also returns the change of state, if there is one.
    #[inline]
    pub fn enter(&self, now: Time) -> (Entry, Option<Transition>) {
        let period = self.period.load(Ordering::Relaxed);
        if self.phase() == Phase::Closed {
            let probe = false;
            return (Entry::Passed(Pass { period, probe }), None);
        }
        self.enter_carefully(now)
    }

    #[cold]
    fn enter_carefully(&self, now: Time) -> (Entry, Option<Transition>) {
        let mut state = self.lock();
        let transition = state.wake(now);
        let entry = match state.admit(&self.params, now) {
            Ok(probe) => Entry::Passed(Pass {
                period: state.period(),
                probe,
            }),
            Err(wait) => Entry::Rejected(wait),
        };
        self.publish(&state);
        (entry, transition)
    }

    /// Records the result of a request; returns the change of state, if any.
    pub fn record(
        &self,
        Pass { period, probe }: Pass,
        success: bool,
        now: Time,
        rng: &mut Rng,
    ) -> Option<Transition> {
        if !probe && self.phase() == Phase::Closed {
            if period != self.period.load(Ordering::Relaxed) {
                return None;
            }
            self.count(success, now);
            if success {
                return None;
            }
        } else if !probe {
            return None;
        }
        self.record_carefully(period, success, now, rng)
    }

    #[cold]
    fn record_carefully(
        &self,
        period: u32,
        success: bool,
        now: Time,
        rng: &mut Rng,
    ) -> Option<Transition> {
        let mut state = self.lock();
        if period != state.period() {
            return None;
        }
        let transition = match state.phase() {
            Phase::Closed => self
                .is_too_much()
                .then(|| state.trip(&self.params, now, rng)),
            Phase::HalfOpen => state.probed(&self.params, success, now, rng),
            Phase::Open => None,
        };
        if transition.is_some() {
            self.streak.store(0, Ordering::Relaxed);
            self.counts.store(0, Ordering::Relaxed);
        }
        self.publish(&state);
        transition
    }

    /// Records the end of a request without a result that counts, for example because its client disconnected. If it
    /// was a probe, its slot becomes free.
    pub fn abandon(&self, pass: &Pass) {
        if pass.probe {
            self.lock().abandoned(pass.period);
        }
    }

    fn count(&self, success: bool, now: Time) {
        let now = now.as_nanos();
        if now >= self.stretch_end.load(Ordering::Relaxed) {
            let length = u64::try_from(self.params.interval.as_nanos()).unwrap_or(u64::MAX);
            self.stretch_end
                .store(now.saturating_add(length), Ordering::Relaxed);
            self.counts.store(0, Ordering::Relaxed);
        }
        if success {
            self.counts.fetch_add(1 << 32, Ordering::Relaxed);
            if self.streak.load(Ordering::Relaxed) != 0 {
                self.streak.store(0, Ordering::Relaxed);
            }
        } else {
            self.counts.fetch_add(1, Ordering::Relaxed);
            self.streak.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_too_much(&self) -> bool {
        let in_a_row = self.params.consecutive_failures;
        if in_a_row > 0 && self.streak.load(Ordering::Relaxed) >= in_a_row {
            return true;
        }
        let counts = self.counts.load(Ordering::Relaxed);
        let failures = counts & u64::from(u32::MAX);
        let all = (counts >> 32) + failures;
        let part = self.params.failure_percent;
        part > Percent::NONE
            && all >= u64::from(self.params.minimum_requests)
            && 100.0 * failures as f64 >= part.get() * all as f64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock panics; the state would be consistent anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) {
        self.period.store(state.period(), Ordering::Relaxed);
        self.phase.store(state.phase() as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
