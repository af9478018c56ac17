//! The server's side: what its inbound proxy knows and no balancer does.
//!
//! A request that waits for calls of its own to other services costs its server nothing meanwhile.
//! An inbound proxy that sees those calls, as a sidecar does, says so ([`Admitted::wait`]), and the
//! request does not count until the calls have ended: in a chain of services counts would tell of the
//! queues below otherwise.
//!
//! Invariant: `in_flight` is exactly the number of live [`Admitted`] guards that do not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::message::{Admission, Load, Report, Ticket};
use crate::Time;

/// One in so many: the weight of a new sample in the averages of pace and latency.
const SMOOTHING: u64 = 16;

/// Numbers of requests ahead whose latency is averaged apart; the last one stands for all above.
const DEPTHS: usize = 8;

/// A server's true load. Shared by the workers of an inbound proxy.
///
/// All accesses are `Relaxed`: the numbers are advice, each complete in itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Inbound {
    in_flight: AtomicU32,
    /// The latest ticket, epoch in the upper half; 0 before the first one.
    ticket: AtomicU64,
    /// When the last request ended, or the first of a busy period came, in nanoseconds.
    progress_at: AtomicU64,
    /// Average nanoseconds between ends of requests while busy; 0 while unknown.
    pace: AtomicU64,
    /// Average nanoseconds from arrival to end, by how many requests were ahead at the arrival; 0
    /// while unknown. An average over all would say nothing about the next request.
    latency: [AtomicU64; DEPTHS],
}

/// A request that was let in: counts as in flight until finished or dropped, but not while it waits.
#[derive(Debug)]
pub struct Admitted {
    inbound: Arc<Inbound>,
    since: Time,
    /// How many were in flight before it.
    ahead: u32,
    waiting: bool,
}

impl Inbound {
    /// Nothing in flight, nothing known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a request in, or says how many are in flight when that is above its limit.
    ///
    /// # Errors
    ///
    /// The number in flight, for the balancer to try elsewhere.
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
        })
    }

    fn enter(&self, admission: Admission) -> Result<u32, u32> {
        match admission {
            Admission::Always => Ok(self.in_flight.fetch_add(1, Ordering::Relaxed)),
            // Two that come at once must not both be the last to fit.
            Admission::AtMost(limit) => {
                self.in_flight
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                        (n <= limit).then_some(n + 1)
                    })
            }
        }
    }

    /// Keeps the latest ticket: one that was overtaken on its way says nothing new, one of another
    /// epoch comes from a ledger that has restarted or moved.
    fn saw(&self, ticket: Ticket) {
        let word = u64::from(ticket.epoch) << 32 | u64::from(ticket.number);
        let _ = self
            .ticket
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
                let ahead = ticket.number.wrapping_sub(known as u32) as i32 > 0;
                (known >> 32 != u64::from(ticket.epoch) || ahead).then_some(word)
            });
    }

    /// The number of requests in flight.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The answer to [`Question::Load`](super::Question::Load).
    #[must_use]
    pub fn load(&self) -> Load {
        let in_flight = self.in_flight();
        let latency = self.latency[depth(in_flight)].load(Ordering::Relaxed);
        Load {
            in_flight,
            latency: Duration::from_nanos(latency),
        }
    }

    /// What a ledger or a balancer is told.
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
        }
    }

    /// The server has done what it had to do for a request, for now.
    fn progressed(&self, now: Time) {
        let progress = Time::from_nanos(self.progress_at.swap(now.as_nanos(), Ordering::Relaxed));
        smooth(&self.pace, now.saturating_since(progress));
    }
}

fn depth(ahead: u32) -> usize {
    (ahead as usize).min(DEPTHS - 1)
}

/// A moving average. Two workers at once may lose a sample, which an average survives.
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
    /// How many were in flight before it.
    #[must_use]
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// The request waits for calls of its own from now on. Gives what to report: the server has one
    /// less to work on.
    pub fn wait(&mut self, now: Time) -> Report {
        if !std::mem::replace(&mut self.waiting, true) {
            self.inbound.progressed(now);
            self.inbound.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        self.inbound.report()
    }

    /// None of its calls is under way any more: the server works on it again.
    pub fn resume(&mut self, now: Time) {
        if std::mem::replace(&mut self.waiting, false) {
            let before = self.inbound.in_flight.fetch_add(1, Ordering::Relaxed);
            if before == 0 {
                let progress = &self.inbound.progress_at;
                progress.store(now.as_nanos(), Ordering::Relaxed);
            }
        }
    }

    /// Ends the request: takes it into the averages and gives what to report. There is nothing to
    /// report when it was waiting to the end, for the server's load has not changed.
    pub fn finish(self, now: Time) -> Option<Report> {
        let latency = now.saturating_since(self.since);
        smooth(&self.inbound.latency[depth(self.ahead)], latency);
        if self.waiting {
            return None;
        }
        self.inbound.progressed(now);
        let inbound = Arc::clone(&self.inbound);
        drop(self);
        Some(inbound.report())
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
