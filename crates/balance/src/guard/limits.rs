//! Limits of requests and connections of a cluster or of one endpoint, with a bounded queue.
//!
//! [`Slots`] decides admission; waiting itself (sleeping and waking tasks) is the caller's. The
//! life of a request at a limit:
//!
//! ```text
//! admit ─► Admitted ─────────────────────────► release ─► true: wake one that waits
//!       ├► Waiting ─► claim ─► Claimed ──────► release
//!       │             (woken)  └ wake: pass the wake on
//!       │          └► leave (queue timeout, client gone) ─► true: wake another
//!       └► Overflow: answer immediately, 503 with a reason and `Retry-After`
//! ```
//!
//! First come, first served: while a request waits, new ones wait behind it. No wake is lost,
//! because the numbers of active and waiting requests are in one word: a release before a request
//! waits leaves a slot that [`admit`](Slots::admit) grants at once, a later one sees the waiting
//! request. If several releases reach a sleeper as one wake, the claim passes the wake on.
//!
//! Invariants: `active` never exceeds the limit of the call; `waiting` never exceeds `max_waiting`;
//! both are exact as long as each admission is released once, and each wait ended once by `claim`
//! or `leave`.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The limits of a cluster (Envoy's `circuit_breakers.thresholds`, Istio's `connectionPool`).
///
/// # Defaults
///
/// `max_connections`, `max_requests`: none; `max_pending_requests`: 1024 (Envoy's);
/// `queue_timeout`: 1 s; `endpoint`: no limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitParams {
    /// The maximum number of connections to all endpoints together, including idle ones; `None` = no limit.
    pub max_connections: Option<u32>,
    /// The maximum number of requests in progress, from admission to the end of the response; `None` = no limit.
    pub max_requests: Option<u32>,
    /// The maximum number of requests that wait for a slot, and also of those that wait for a connection.
    pub max_pending_requests: u32,
    /// The maximum time for which a request waits.
    pub queue_timeout: Duration,
    /// The limits of each endpoint.
    pub endpoint: EndpointLimits,
}

/// The limits of one endpoint. A request above them is sent to another endpoint, or waits until one has capacity.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EndpointLimits {
    /// The maximum number of connections to the endpoint, including idle ones (Envoy's `per_host_thresholds`); `None` =
    /// no limit.
    pub max_connections: Option<u32>,
    /// The maximum number of requests in progress at the endpoint; `None` = no limit.
    pub max_requests: Option<u32>,
}

impl Default for LimitParams {
    fn default() -> Self {
        Self {
            max_connections: None,
            max_requests: None,
            max_pending_requests: 1024,
            queue_timeout: Duration::from_secs(1),
            endpoint: EndpointLimits::default(),
        }
    }
}

impl LimitParams {
    /// Creates the slots for requests.
    #[must_use]
    pub fn requests(&self) -> Slots {
        Slots::new(self.max_requests, self.max_pending_requests)
    }

    /// Creates the slots for connections.
    #[must_use]
    pub fn connections(&self) -> Slots {
        Slots::new(self.max_connections, self.max_pending_requests)
    }

    /// Creates the queue of requests that wait until some endpoint has capacity. The capacity is counted per endpoint.
    #[must_use]
    pub fn seats(&self) -> Slots {
        Slots::new(None, self.max_pending_requests)
    }
}

/// The decision about a request that needs a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "what was admitted is released, what waits claims or leaves"]
pub enum Admission {
    /// The request is admitted: call [`Slots::release`] at its end.
    Admitted,
    /// The request waits: call [`Slots::claim`] when it is woken, or [`Slots::leave`].
    Waiting,
    /// There is no free slot, and the queue is full.
    Overflow,
}

/// The decision about a woken request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "what was claimed is released"]
pub enum Claim {
    /// The request has a slot now.
    Claimed {
        /// Whether there is another free slot and another waiting request, which should be woken.
        wake: bool,
    },
    /// Another request has taken the slot: the request still waits.
    Waiting,
}

/// A limited number of slots with a bounded queue, shared by all threads.
///
/// All accesses are `Relaxed`: the word is complete in itself, and waking (by the caller) orders
/// other data. The limits may change while slots are in use ([`Slots::set_limits`]).
#[derive(Debug)]
pub struct Slots {
    /// The number of waiting requests in the upper half, of active ones in the lower.
    word: AtomicU64,
    limit: AtomicU32,
    max_waiting: AtomicU32,
}

impl Slots {
    /// Creates `limit` slots (`None` = unlimited) and a queue for `max_waiting` requests.
    #[must_use]
    pub fn new(limit: Option<u32>, max_waiting: u32) -> Self {
        Self {
            word: AtomicU64::new(0),
            limit: AtomicU32::new(limit.unwrap_or(u32::MAX)),
            max_waiting: AtomicU32::new(max_waiting),
        }
    }

    /// Changes the limits. Slots in use above a lower limit are released as usual, and requests above a shorter queue
    /// continue to wait. Returns `true` if there may be free slots for waiting requests, all of which should then be
    /// woken.
    #[must_use = "true: wake all that wait"]
    pub fn set_limits(&self, limit: Option<u32>, max_waiting: u32) -> bool {
        self.limit
            .store(limit.unwrap_or(u32::MAX), Ordering::Relaxed);
        self.max_waiting.store(max_waiting, Ordering::Relaxed);
        self.waiting() > 0
    }

    #[inline]
    fn places(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Requests a slot. `ceiling` lowers the limit for this call, as an adaptive [`concurrency`](super::concurrency)
    /// limit does; `u32::MAX` leaves it unchanged.
    #[inline]
    pub fn admit(&self, ceiling: u32) -> Admission {
        let limit = self.places().min(ceiling);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (waiting, active) = unpack(word);
            let (next, answer) = if active < limit && waiting == 0 {
                (word + 1, Admission::Admitted)
            } else if waiting < self.most_waiting() {
                (word + WAITING, Admission::Waiting)
            } else {
                return Admission::Overflow;
            };
            match self.replace(word, next) {
                Ok(_) => return answer,
                Err(seen) => word = seen,
            }
        }
    }

    /// Enters the queue without a request for a slot, for example to wait for a connection. Returns `false` if the
    /// queue is full.
    #[must_use = "what waits claims or leaves"]
    pub fn queue(&self) -> bool {
        let enter = |word| (unpack(word).0 < self.most_waiting()).then_some(word + WAITING);
        self.word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok()
    }

    /// Requests a slot again for a waiting request.
    pub fn claim(&self, ceiling: u32) -> Claim {
        let limit = self.places().min(ceiling);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (waiting, active) = unpack(word);
            debug_assert!(waiting > 0, "only waiting requests claim slots");
            if active >= limit || waiting == 0 {
                return Claim::Waiting;
            }
            match self.replace(word, word - WAITING + 1) {
                Ok(_) => {
                    let wake = waiting > 1 && active + 1 < limit;
                    return Claim::Claimed { wake };
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// Leaves the queue without a slot. Returns `true` if the caller should wake another waiting request, because the
    /// leaving request may have been woken for a free slot.
    #[must_use = "true: wake another"]
    pub fn leave(&self) -> bool {
        let before = self.word.fetch_sub(WAITING, Ordering::Relaxed);
        let (waiting, active) = unpack(before);
        debug_assert!(waiting > 0, "only waiting requests leave");
        waiting > 1 && active < self.places()
    }

    /// Releases a slot. Returns `true` if a waiting request should be woken.
    #[must_use = "true: wake one that waits"]
    #[inline]
    pub fn release(&self) -> bool {
        let before = self.word.fetch_sub(1, Ordering::Relaxed);
        let (waiting, active) = unpack(before);
        debug_assert!(active > 0, "only admitted requests release slots");
        waiting > 0
    }

    /// Returns the number of slots in use.
    #[must_use]
    #[inline]
    pub fn active(&self) -> u32 {
        unpack(self.word.load(Ordering::Relaxed)).1
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        unpack(self.word.load(Ordering::Relaxed)).0
    }

    /// Returns the number of slots; `None` = unlimited.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        let limit = self.places();
        (limit < u32::MAX).then_some(limit)
    }

    /// Returns the capacity of the queue.
    #[must_use]
    pub fn most_waiting(&self) -> u32 {
        self.max_waiting.load(Ordering::Relaxed)
    }

    fn replace(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.word
            .compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// The increment of the word for one waiting request.
const WAITING: u64 = 1 << 32;

/// Splits a word into the numbers of waiting and active requests.
#[inline]
fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: u32 = u32::MAX;

    #[test]
    fn places_then_queue_then_overflow() {
        let slots = Slots::new(Some(2), 1);
        assert_eq!(slots.admit(ANY), Admission::Admitted);
        assert_eq!(slots.admit(ANY), Admission::Admitted);
        assert_eq!(slots.admit(ANY), Admission::Waiting);
        assert_eq!(slots.admit(ANY), Admission::Overflow);
        assert_eq!(slots.claim(ANY), Claim::Waiting);
        assert!(slots.release(), "one waits");
        assert_eq!(slots.admit(ANY), Admission::Overflow, "none overtakes");
        assert_eq!(slots.claim(ANY), Claim::Claimed { wake: false });
        assert_eq!((slots.active(), slots.waiting()), (2, 0));
        assert!(!slots.release() && !slots.release());
        assert_eq!((slots.active(), slots.waiting()), (0, 0));
    }

    #[test]
    fn a_wake_is_passed_on() {
        let slots = Slots::new(Some(2), 9);
        for _ in 0..2 {
            assert_eq!(slots.admit(ANY), Admission::Admitted);
        }
        for _ in 0..3 {
            assert_eq!(slots.admit(ANY), Admission::Waiting);
        }
        assert!(slots.release() && slots.release());
        assert_eq!(slots.claim(ANY), Claim::Claimed { wake: true });
        assert!(slots.leave(), "one of those woken leaves");
        assert_eq!(slots.claim(ANY), Claim::Claimed { wake: false });
    }

    #[test]
    fn other_limits_hold_for_what_is_there() {
        let slots = Slots::new(Some(2), 1);
        for _ in 0..2 {
            assert_eq!(slots.admit(ANY), Admission::Admitted);
        }
        assert_eq!(slots.admit(ANY), Admission::Waiting);
        assert!(slots.set_limits(Some(3), 2), "one waits");
        assert_eq!(slots.claim(ANY), Claim::Claimed { wake: false });
        assert_eq!((slots.limit(), slots.most_waiting()), (Some(3), 2));
        assert!(!slots.set_limits(Some(1), 0));
        assert_eq!(slots.admit(ANY), Admission::Overflow);
        for _ in 0..3 {
            assert!(!slots.release());
        }
        assert_eq!(slots.admit(ANY), Admission::Admitted);
        assert!(!slots.set_limits(None, 0));
        assert_eq!(slots.admit(ANY), Admission::Admitted);
        assert_eq!((slots.active(), slots.waiting()), (2, 0));
    }

    #[test]
    fn without_limits_and_without_a_queue() {
        let free = Slots::new(None, 0);
        for _ in 0..1000 {
            assert_eq!(free.admit(ANY), Admission::Admitted);
        }
        assert_eq!(free.limit(), None);
        let none = Slots::new(Some(1), 0);
        assert_eq!(none.admit(ANY), Admission::Admitted);
        assert_eq!(none.admit(ANY), Admission::Overflow);
        assert!(!none.queue());
        assert!(!none.release());
        assert_eq!(none.admit(0), Admission::Overflow, "a lower ceiling");
        assert_eq!(none.admit(1), Admission::Admitted);
    }
}
