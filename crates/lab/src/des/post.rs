//! Messages in transit.
//!
//! Nearly all take one of two constant times, one way or a round trip. Those are in order
//! automatically, in a queue each; only the rest needs a heap.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use maglor_balance::queue_protocol::{Answer, Load, Question, Report};

use super::tournament::NEVER;

/// A scheduled event of a policy. Servers are numbered within their service.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mail {
    Answer {
        job: u32,
        generation: u32,
        from: u32,
        answer: Answer,
    },
    /// A query that no request waits for.
    Aside {
        service: u16,
        balancer: u32,
        to: u32,
    },
    Audit {
        service: u16,
        to: u32,
    },
    /// A report of a server to a balancer.
    Heard {
        service: u16,
        balancer: u32,
        from: u32,
        load: Load,
    },
    Idle {
        service: u16,
        from: u32,
    },
    /// The ledgers of a service are informed that a server has left or returned.
    Membership {
        service: u16,
        server: u32,
        absent: bool,
    },
    Question {
        job: u32,
        generation: u32,
        to: u32,
        question: Question,
    },
    Refusal {
        job: u32,
        from: u32,
        in_flight: u32,
    },
    /// The time of a slot that was held after an error expires.
    Release {
        at: u32,
    },
    Report {
        service: u16,
        from: u32,
        report: Report,
    },
    /// The delay before another attempt ends.
    Retry {
        job: u32,
    },
    /// A detector of outliers runs its sweep.
    Sweep {
        service: u16,
        balancer: u32,
    },
    TimeOut {
        job: u32,
        generation: u32,
    },
    /// A balancer is informed that a server has left or returned.
    View {
        service: u16,
        balancer: u32,
        server: u32,
        absent: bool,
    },
}

/// The messages in transit; see the module's documentation.
#[derive(Debug)]
pub(super) struct Post {
    /// The delay one way, in nanoseconds.
    delay: u64,
    ways: VecDeque<(u64, Mail)>,
    round_trips: VecDeque<(u64, Mail)>,
    others: BinaryHeap<Reverse<Timed>>,
    /// Numbers the entries of the heap, so that equal times have an order.
    sent: u64,
    next_at: u64,
}

#[derive(Debug)]
struct Timed {
    at: u64,
    number: u64,
    mail: Mail,
}

impl Post {
    pub(super) fn new(delay: u64) -> Self {
        Self {
            delay,
            ways: VecDeque::new(),
            round_trips: VecDeque::new(),
            others: BinaryHeap::new(),
            sent: 0,
            next_at: NEVER,
        }
    }

    /// Returns the delay one way, in nanoseconds.
    pub(super) fn delay(&self) -> u64 {
        self.delay
    }

    /// Delivers a message after one way.
    pub(super) fn send(&mut self, now: u64, mail: Mail) {
        let at = now + self.delay;
        self.ways.push_back((at, mail));
        self.next_at = self.next_at.min(at);
    }

    /// Delivers a message after a round trip.
    pub(super) fn send_back(&mut self, now: u64, mail: Mail) {
        let at = now + 2 * self.delay;
        self.round_trips.push_back((at, mail));
        self.next_at = self.next_at.min(at);
    }

    /// Delivers a message at a given time.
    pub(super) fn remind(&mut self, at: u64, mail: Mail) {
        let number = self.sent;
        self.sent += 1;
        self.others.push(Reverse(Timed { at, number, mail }));
        self.next_at = self.next_at.min(at);
    }

    /// Returns the time of the next message.
    #[inline]
    pub(super) fn next_at(&self) -> u64 {
        self.next_at
    }

    /// Removes and returns the next message.
    pub(super) fn take(&mut self) -> Option<Mail> {
        let way = self.ways.front().map_or(NEVER, |(at, _)| *at);
        let round = self.round_trips.front().map_or(NEVER, |(at, _)| *at);
        let other = self.others.peek().map_or(NEVER, |timed| timed.0.at);
        let mail = if way <= round && way <= other {
            self.ways.pop_front().map(|(_, mail)| mail)
        } else if round <= other {
            self.round_trips.pop_front().map(|(_, mail)| mail)
        } else {
            self.others.pop().map(|timed| timed.0.mail)
        };
        let front = |queue: &VecDeque<(u64, Mail)>| queue.front().map_or(NEVER, |(at, _)| *at);
        let other = self.others.peek().map_or(NEVER, |timed| timed.0.at);
        self.next_at = front(&self.ways).min(front(&self.round_trips)).min(other);
        mail
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(job: u32) -> Mail {
        Mail::TimeOut { job, generation: 0 }
    }

    #[test]
    fn mail_comes_in_the_order_of_its_times() {
        let mut post = Post::new(10);
        assert_eq!(post.next_at(), NEVER);
        post.send_back(0, mark(20));
        post.send(0, mark(10));
        post.remind(5, mark(5));
        post.send(8, mark(18));
        post.remind(19, mark(19));
        let mut times = Vec::new();
        while let Some(Mail::TimeOut { job, .. }) = {
            let at = post.next_at();
            times.push(at);
            post.take()
        } {
            assert_eq!(u64::from(job), times[times.len() - 1]);
        }
        assert_eq!(times, [5, 10, 18, 19, 20, NEVER]);
    }
}
