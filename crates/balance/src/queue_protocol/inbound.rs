//! The server's side: the inbound proxy's knowledge that no balancer has.
//!
//! A request that waits for calls of its own to other services does not load its server meanwhile.
//! An inbound proxy that sees those calls, as a sidecar does, records it ([`Admitted::wait`]), and
//! the request does not count until the calls have ended: in a chain of services counts would
//! describe the queues below otherwise.
//!
//! A request with an error response keeps its slot until a good response would have arrived
//! ([`Admitted::fail`], [`Usual`]), so that a server that fails fast looks neither idle nor fast.
//!
//! Invariant: `in_flight` is exactly the number of live [`Admitted`] guards that do not wait, and of live
//! [`Held`] ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::message::{Admission, Load, Report, Ticket};
use crate::{Time, Usual};

/// The inverse of the weight of a new sample in the averages of pace and latency.
const SMOOTHING: u64 = 16;

/// How long a slot is held after the first error of a server without any good response so far.
const FIRST_HOLD: Duration = Duration::from_millis(100);

/// The maximum number of slots held at once: each takes a timer.
const MOST_HELD: u32 = 1024;

/// The number of separate latency averages, by the number of requests ahead; the last one includes
/// all larger numbers.
const DEPTHS: usize = 8;

/// A server's true load. Shared by the workers of an inbound proxy.
///
/// All accesses are `Relaxed`: the numbers are advisory, each complete in itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Inbound {
    in_flight: AtomicU32,
    /// The latest ticket, epoch in the upper half; 0 before the first one.
    ticket: AtomicU64,
    /// When the last request ended, or the first of a busy period arrived, in nanoseconds.
    progress_at: AtomicU64,
    /// Average nanoseconds between ends of requests while busy; 0 while unknown.
    pace: AtomicU64,
    /// The average nanoseconds from arrival to end, by the number of requests ahead at the arrival;
    /// 0 while unknown. An average over all would not predict the next request.
    latency: [AtomicU64; DEPTHS],
    /// The usual duration of good responses, not counting calls of their own.
    usual: Usual,
    /// The number of slots held after errors; they are included in `in_flight`.
    held: AtomicU32,
}

/// The slot of a request whose error response came earlier than a good one would have: it counts as
/// in flight until it is dropped, at [`until`](Self::until).
#[derive(Debug)]
pub struct Held {
    inbound: Arc<Inbound>,
    until: Time,
}

/// An admitted request: counts as in flight until finished or dropped, but not while it waits.
#[derive(Debug)]
pub struct Admitted {
    inbound: Arc<Inbound>,
    since: Time,
    /// The number of requests in flight before it.
    ahead: u32,
    waiting: bool,
    /// When it last began to count.
    counts_since: Time,
    /// How long it counted before that.
    counted: Duration,
}

impl Inbound {
    /// Creates the state without requests and measurements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits a request, or returns the number in flight if that is above its limit.
    ///
    /// # Errors
    ///
    /// The number in flight, for the balancer's next attempt.
    pub fn admit(
        self: &Arc<Self>,
        admission: Admission,
        ticket: Option<Ticket>,
        now: Time,
    ) -> Result<Admitted, u32> {
        let before = self.enter(admission)?;
        if before == 0 {
            self.progress_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        if let Some(ticket) = ticket {
            self.saw(ticket);
        }
        Ok(Admitted {
            inbound: Arc::clone(self),
            since: now,
            ahead: before,
            waiting: false,
            counts_since: now,
            counted: Duration::ZERO,
        })
    }

    fn enter(&self, admission: Admission) -> Result<u32, u32> {
        match admission {
            Admission::Always => Ok(self.in_flight.fetch_add(1, Ordering::Relaxed)),
            // Two that arrive at once must not both be the last to fit.
            Admission::AtMost(limit) => {
                self.in_flight
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                        (n <= limit).then_some(n + 1)
                    })
            }
        }
    }

    /// Keeps the latest ticket: one that was overtaken in transit is outdated, one of another epoch
    /// comes from a ledger that has restarted or moved.
    fn saw(&self, ticket: Ticket) {
        let word = u64::from(ticket.epoch) << 32 | u64::from(ticket.number);
        let _ = self
            .ticket
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
                let ahead = ticket.number.wrapping_sub(known as u32) as i32 > 0;
                (known >> 32 != u64::from(ticket.epoch) || ahead).then_some(word)
            });
    }

    /// Returns the number of requests in flight.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Answers [`Question::Load`](super::Question::Load).
    #[must_use]
    pub fn load(&self) -> Load {
        let in_flight = self.in_flight();
        let latency = self.latency[depth(in_flight)].load(Ordering::Relaxed);
        Load {
            in_flight,
            latency: Duration::from_nanos(latency),
        }
    }

    /// Returns the report to a ledger or a balancer.
    #[must_use]
    pub fn report(&self) -> Report {
        let word = self.ticket.load(Ordering::Relaxed);
        Report {
            in_flight: self.in_flight(),
            latest: (word != 0).then_some(Ticket {
                epoch: (word >> 32) as u32,
                number: word as u32,
            }),
            pace: Duration::from_nanos(self.pace.load(Ordering::Relaxed)),
            age: None,
        }
    }

    /// Records that the server has finished its work on a request, for now.
    fn progressed(&self, now: Time) {
        let progress = Time::from_nanos(self.progress_at.swap(now.as_nanos(), Ordering::Relaxed));
        smooth(&self.pace, now.saturating_since(progress));
    }
}

fn depth(ahead: u32) -> usize {
    (ahead as usize).min(DEPTHS - 1)
}

/// Updates a moving average. Two workers at once may lose a sample, which is tolerable in an
/// average.
fn smooth(average: &AtomicU64, sample: Duration) {
    let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
    let old = average.load(Ordering::Relaxed);
    let new = if old == 0 {
        sample
    } else {
        (old - old / SMOOTHING).saturating_add(sample / SMOOTHING)
    };
    average.store(new.max(1), Ordering::Relaxed);
}

impl Admitted {
    /// Returns the number of requests in flight before it.
    #[must_use]
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Marks the request as waiting for calls of its own. Returns the report: the server has one
    /// request less to work on.
    pub fn wait(&mut self, now: Time) -> Report {
        if !std::mem::replace(&mut self.waiting, true) {
            self.counted += now.saturating_since(self.counts_since);
            self.inbound.progressed(now);
            self.inbound.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        self.inbound.report()
    }

    /// Marks the request as active again, when none of its calls is in progress any more.
    pub fn resume(&mut self, now: Time) {
        if std::mem::replace(&mut self.waiting, false) {
            self.counts_since = now;
            let before = self.inbound.in_flight.fetch_add(1, Ordering::Relaxed);
            if before == 0 {
                let progress = &self.inbound.progress_at;
                progress.store(now.as_nanos(), Ordering::Relaxed);
            }
        }
    }

    /// Ends the request: adds it to the averages and returns the report. There is none if it was
    /// waiting until its end, because the server's load has not changed.
    pub fn finish(mut self, now: Time) -> Option<Report> {
        let latency = now.saturating_since(self.since);
        smooth(&self.inbound.latency[depth(self.ahead)], latency);
        if !self.waiting {
            self.counted += now.saturating_since(self.counts_since);
        }
        self.inbound.usual.observe(self.counted);
        if self.waiting {
            return None;
        }
        self.inbound.progressed(now);
        self.leave()
    }

    /// Ends a request without measurements: its client has disconnected. Returns the report.
    pub fn abandon(self) -> Option<Report> {
        self.leave()
    }

    /// Ends a request with an error response or without any. That is no measurement of speed: it
    /// does not count in the pace, counts as slow in the latency, and keeps its slot until a good
    /// response would have arrived. Returns the report.
    ///
    /// # Errors
    ///
    /// The slot, to be dropped in time; then there is something to report.
    pub fn fail(mut self, now: Time) -> Result<Option<Report>, Held> {
        if !self.waiting {
            self.counted += now.saturating_since(self.counts_since);
        }
        let inbound = Arc::clone(&self.inbound);
        let until = inbound.usual.hold_alone(self.counted, now, FIRST_HOLD);
        let lasts = until.unwrap_or(now).saturating_since(self.since);
        smooth(&inbound.latency[depth(self.ahead)], lasts);
        if !self.waiting {
            inbound.progress_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        match until {
            Some(until) if inbound.held.load(Ordering::Relaxed) < MOST_HELD => {
                inbound.held.fetch_add(1, Ordering::Relaxed);
                inbound.in_flight.fetch_add(1, Ordering::Relaxed);
                drop(self);
                Err(Held { inbound, until })
            }
            _ => Ok(self.leave()),
        }
    }

    fn leave(self) -> Option<Report> {
        if self.waiting {
            return None;
        }
        let inbound = Arc::clone(&self.inbound);
        drop(self);
        Some(inbound.report())
    }
}

impl Held {
    /// Returns when to drop it.
    #[must_use]
    pub fn until(&self) -> Time {
        self.until
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inbound.held.fetch_sub(1, Ordering::Relaxed);
        self.inbound.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.waiting {
            self.inbound.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn ticket(epoch: u32, number: u32) -> Ticket {
        Ticket { epoch, number }
    }

    #[test]
    fn it_refuses_above_the_limit_with_its_count() {
        let inbound = Arc::new(Inbound::new());
        let first = inbound.admit(Admission::AtMost(0), None, at(0)).unwrap();
        assert_eq!(
            inbound
                .admit(Admission::AtMost(0), None, at(0))
                .unwrap_err(),
            1
        );
        let second = inbound.admit(Admission::AtMost(1), None, at(0)).unwrap();
        let third = inbound.admit(Admission::Always, None, at(0)).unwrap();
        assert_eq!(inbound.in_flight(), 3);
        assert_eq!(first.finish(at(1)).unwrap().in_flight, 2);
        drop((second, third));
        assert_eq!(inbound.in_flight(), 0);
    }

    #[test]
    fn the_latest_ticket_is_reported() {
        let inbound = Arc::new(Inbound::new());
        let report = |t| {
            let admitted = inbound.admit(Admission::Always, Some(t), at(0)).unwrap();
            admitted.finish(at(1)).unwrap().latest
        };
        assert_eq!(report(ticket(7, 2)), Some(ticket(7, 2)));
        assert_eq!(report(ticket(7, 1)), Some(ticket(7, 2)), "overtaken");
        assert_eq!(report(ticket(7, u32::MAX)), Some(ticket(7, 2)), "before");
        assert_eq!(report(ticket(8, 1)), Some(ticket(8, 1)), "a new ledger");
    }

    #[test]
    fn pace_counts_busy_time_only() {
        let inbound = Arc::new(Inbound::new());
        for start in [0, 1000, 5000] {
            let a = inbound.admit(Admission::Always, None, at(start)).unwrap();
            let b = inbound.admit(Admission::Always, None, at(start)).unwrap();
            a.finish(at(start + 10));
            let report = b.finish(at(start + 20)).unwrap();
            assert_eq!(report.pace, Duration::from_millis(10));
        }
        assert_eq!(
            inbound.load().latency,
            Duration::from_millis(10),
            "when idle"
        );
        let _one = inbound.admit(Admission::Always, None, at(9000)).unwrap();
        assert_eq!(
            inbound.load().latency,
            Duration::from_millis(20),
            "behind one"
        );
    }

    #[test]
    fn an_error_is_neither_idle_nor_fast() {
        let inbound = Arc::new(Inbound::new());
        let admit = |ms| inbound.admit(Admission::Always, None, at(ms)).unwrap();
        admit(0).finish(at(20));
        let (pace, latency) = (inbound.report().pace, inbound.load().latency);
        let held = admit(100).fail(at(101)).unwrap_err();
        assert_eq!((held.until(), inbound.in_flight()), (at(120), 1));
        assert_eq!(inbound.report().pace, pace, "no sign of speed");
        drop(held);
        assert_eq!(inbound.in_flight(), 0);
        assert_eq!(inbound.load().latency, latency, "as long as a good one");
        // One that took as long as a good answer has nothing to wait for.
        let report = admit(200).fail(at(230)).unwrap().unwrap();
        assert_eq!((report.in_flight, report.pace), (0, pace));
        // While it waited for calls of its own it did not count.
        let mut calling = admit(300);
        calling.wait(at(305));
        calling.resume(at(390));
        let held = calling.fail(at(400)).unwrap_err();
        assert_eq!(held.until(), at(405));
        drop(held);
        assert_eq!(admit(500).abandon().unwrap().in_flight, 0);
        let fresh = Arc::new(Inbound::new());
        let failed = fresh.admit(Admission::Always, None, at(0)).unwrap();
        assert_eq!(failed.fail(at(1)).unwrap_err().until(), at(101));
        assert_eq!(fresh.report().pace, Duration::ZERO);
    }

    #[test]
    fn places_that_are_kept_are_bounded() {
        let inbound = Arc::new(Inbound::new());
        let held: Vec<_> = (0..2 * MOST_HELD)
            .filter_map(|_| {
                let admitted = inbound.admit(Admission::Always, None, at(0)).unwrap();
                admitted.fail(at(0)).err()
            })
            .collect();
        assert_eq!(inbound.in_flight(), MOST_HELD);
        drop(held);
        assert_eq!(inbound.in_flight(), 0);
    }

    #[test]
    fn a_request_that_waits_for_others_does_not_count() {
        let inbound = Arc::new(Inbound::new());
        let mut first = inbound.admit(Admission::Always, None, at(0)).unwrap();
        assert_eq!(first.wait(at(5)).in_flight, 0);
        assert_eq!(first.wait(at(6)).in_flight, 0, "once is enough");
        let second = inbound.admit(Admission::AtMost(0), None, at(10)).unwrap();
        first.resume(at(12));
        assert_eq!(inbound.in_flight(), 2);
        let report = second.finish(at(15)).unwrap();
        assert_eq!(report.in_flight, 1);
        assert_eq!(report.pace, Duration::from_millis(5), "busy time only");
        first.wait(at(20));
        assert_eq!(first.finish(at(90)), None, "the load is what it was");
        assert_eq!(inbound.in_flight(), 0);
    }
}
