//! The server's side: the load of a server, which only its inbound proxy knows.
//!
//! A request that waits for calls of its own to other services does not load its server meanwhile. An inbound proxy
//! that sees those calls, as a sidecar does, records the wait ([`Admitted::wait`]), and the request does not count
//! until the calls have ended. Otherwise, in a chain of services, counts would describe the queues of the services
//! below.
//!
//! A request with an error response keeps its slot until a good response would have arrived ([`Admitted::fail`],
//! [`Usual`]), so that a server that fails fast looks neither idle nor fast.
//!
//! Invariant: `in_flight` is exactly the number of live [`Admitted`] guards that do not wait, and of live [`Held`]
//! ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::message::{Admission, Load, Report, Ticket};
use crate::{Time, Usual};

/// The inverse of the weight of a new sample in the averages of pace and latency.
const SMOOTHING: u64 = 16;

/// How long a slot is held after the first error of a server without any good response so far.
const FIRST_HOLD: Duration = Duration::from_millis(100);

/// The maximum number of slots held at the same time, since each takes a timer.
const MOST_HELD: u32 = 1024;

/// The number of separate latency averages, by the number of requests ahead; the last average includes all larger
/// numbers.
const DEPTHS: usize = 8;

/// A server's true load, shared by the workers of its inbound proxy.
///
/// All accesses are `Relaxed`: the numbers are advisory, and each is complete in itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Inbound {
    in_flight: AtomicU32,
    /// The latest ticket, with the epoch in the upper half; 0 before the first one.
    ticket: AtomicU64,
    /// When the last request ended, or when the first request of a busy period arrived, in nanoseconds since the epoch.
    progress_at: AtomicU64,
    /// The average time in nanoseconds between ends of requests while the server is busy; 0 while unknown.
    pace: AtomicU64,
    /// The average time in nanoseconds from arrival to end, by the number of requests ahead at the arrival; 0 while
    /// unknown. A single average over all requests would not predict the next one.
    latency: [AtomicU64; DEPTHS],
    /// The usual duration of good responses, without the time of their own calls.
    usual: Usual,
    /// The number of slots held after errors; they are included in `in_flight`.
    held: AtomicU32,
}

/// The slot of a request whose error response came earlier than a good response would have. The request counts as in
/// flight until this guard is dropped, at [`until`](Self::until).
#[derive(Debug)]
pub struct Held {
    inbound: Arc<Inbound>,
    until: Time,
}

/// An admitted request, which counts as in flight until it is finished or dropped, except while it waits.
#[derive(Debug)]
pub struct Admitted {
    inbound: Arc<Inbound>,
    since: Time,
    /// The number of requests in flight before this one.
    ahead: u32,
    waiting: bool,
    /// When the request last began to count.
    counts_since: Time,
    /// For how long the request counted before that.
    counted: Duration,
}

impl Inbound {
    /// Creates the state of a server without requests and measurements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits a request, or rejects it if the number of requests in flight is above its limit.
    ///
    /// # Errors
    ///
    /// The number of requests in flight, for the balancer's next attempt.
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

    /// Keeps the latest ticket. A ticket that was overtaken in transit is outdated; one with another epoch comes from a
    /// ledger that has restarted or moved.
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

    /// Records that the server has, at least for now, finished its work on a request.
    fn progressed(&self, now: Time) {
        let progress = Time::from_nanos(self.progress_at.swap(now.as_nanos(), Ordering::Relaxed));
        smooth(&self.pace, now.saturating_since(progress));
    }
}

fn depth(ahead: u32) -> usize {
    (ahead as usize).min(DEPTHS - 1)
}

/// Updates a moving average. If two workers do so at the same time, a sample may be lost, which is tolerable in an
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
    /// Returns the number of requests in flight before this one.
    #[must_use]
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Marks the request as waiting for calls of its own. Returns the report, according to which the server has one
    /// request less to work on.
    pub fn wait(&mut self, now: Time) -> Report {
        if !std::mem::replace(&mut self.waiting, true) {
            self.counted += now.saturating_since(self.counts_since);
            self.inbound.progressed(now);
            self.inbound.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        self.inbound.report()
    }

    /// Marks the request as active again, when no call of its own is in progress any more.
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

    /// Ends the request, adds it to the averages, and returns the report. There is no report if the request was waiting
    /// until its end, because the server's load has not changed.
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

    /// Ends a request without measurements, because its client has disconnected. Returns the report, if the server's
    /// load has changed.
    pub fn abandon(self) -> Option<Report> {
        self.leave()
    }

    /// Ends a request with an error response or without a response, which is no measurement of speed. The request does
    /// not count in the pace, counts as slow in the latency, and keeps its slot until a good response would have
    /// arrived. Returns the report.
    ///
    /// # Errors
    ///
    /// The slot, to be dropped at its time; a report is due then.
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
    /// Returns the time at which to drop this guard.
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
