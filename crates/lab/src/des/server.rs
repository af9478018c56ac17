//! A server: one unit of capacity, shared among its requests one after the other or all at once, or
//! one unit for each of them.
//!
//! Invariant: `next_at` is exact until the next `push`, `pop` or `set_speed`.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::tournament::NEVER;

/// How a server divides its capacity among requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Discipline {
    /// First in, first out, one at a time, as in the paper's model.
    #[default]
    Fifo,
    /// All at once, each with the whole speed: nothing ever waits.
    Parallel,
    /// Processor sharing: all at once, each with an equal share.
    ProcessorSharing,
}

/// A server with its queue. Work and time are in nanoseconds; `speed` is work per nanosecond.
#[derive(Debug)]
pub(super) struct Server {
    speed: f64,
    queue: Queue,
}

#[derive(Debug)]
enum Queue {
    Fifo(VecDeque<Waiting>),
    Sharing(Sharing),
}

/// A request of a FIFO queue, whose end is known on arrival.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    departs: u64,
    job: u32,
}

/// Processor sharing by virtual time: a clock advances at the speed of each request's share of the
/// capacity. A request leaves when the clock has advanced by its work.
#[derive(Debug, Default)]
struct Sharing {
    /// Whether requests do not slow each other down.
    parallel: bool,
    clock: f64,
    updated: u64,
    ends: BinaryHeap<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    at: f64,
    job: u32,
}

impl Server {
    pub(super) fn new(discipline: Discipline, speed: f64) -> Self {
        let queue = match discipline {
            Discipline::Fifo => Queue::Fifo(VecDeque::new()),
            Discipline::Parallel => Queue::Sharing(Sharing {
                parallel: true,
                ..Sharing::default()
            }),
            Discipline::ProcessorSharing => Queue::Sharing(Sharing::default()),
        };
        Self { speed, queue }
    }

    pub(super) fn len(&self) -> usize {
        match &self.queue {
            Queue::Fifo(queue) => queue.len(),
            Queue::Sharing(sharing) => sharing.ends.len(),
        }
    }

    /// Adds a request; returns whether `next_at` has changed.
    #[inline]
    pub(super) fn push(&mut self, now: u64, work: f64, job: u32) -> bool {
        match &mut self.queue {
            Queue::Fifo(queue) => {
                let start = queue.back().map_or(now, |last| last.departs);
                let departs = start + (work / self.speed).round() as u64;
                queue.push_back(Waiting { departs, job });
                queue.len() == 1
            }
            Queue::Sharing(sharing) => {
                sharing.advance(now, self.speed);
                let at = sharing.clock + work;
                sharing.ends.push(Ending { at, job });
                true
            }
        }
    }

    /// Returns when the next request leaves.
    #[inline]
    pub(super) fn next_at(&self) -> u64 {
        match &self.queue {
            Queue::Fifo(queue) => queue.front().map_or(NEVER, |first| first.departs),
            Queue::Sharing(sharing) => sharing.next_at(self.speed),
        }
    }

    /// Removes the request that leaves now, at `next_at`.
    #[inline]
    pub(super) fn pop(&mut self, now: u64) -> Option<u32> {
        match &mut self.queue {
            Queue::Fifo(queue) => queue.pop_front().map(|first| first.job),
            Queue::Sharing(sharing) => {
                sharing.advance(now, self.speed);
                sharing.ends.pop().map(|first| first.job)
            }
        }
    }

    /// Changes the speed; completed work is kept.
    pub(super) fn set_speed(&mut self, now: u64, speed: f64) {
        match &mut self.queue {
            Queue::Fifo(queue) => {
                let scale = self.speed / speed;
                for waiting in queue {
                    let left = waiting.departs.saturating_sub(now) as f64 * scale;
                    waiting.departs = now + left.round() as u64;
                }
            }
            Queue::Sharing(sharing) => sharing.advance(now, self.speed),
        }
        self.speed = speed;
    }

    pub(super) fn speed(&self) -> f64 {
        self.speed
    }
}

impl Sharing {
    fn advance(&mut self, now: u64, speed: f64) {
        if self.ends.is_empty() {
            // No request refers to the clock: resetting it keeps it precise.
            self.clock = 0.0;
        } else {
            let elapsed = now.saturating_sub(self.updated) as f64;
            self.clock += elapsed * speed / self.sharers();
        }
        self.updated = now;
    }

    /// Returns the divisor of the speed.
    fn sharers(&self) -> f64 {
        if self.parallel {
            1.0
        } else {
            self.ends.len() as f64
        }
    }

    fn next_at(&self, speed: f64) -> u64 {
        self.ends.peek().map_or(NEVER, |first| {
            let left = (first.at - self.clock).max(0.0) * self.sharers() / speed;
            self.updated + left.ceil() as u64
        })
    }
}

/// The heap's greatest is the earliest end; of equal ends, the earlier job.
impl Ord for Ending {
    fn cmp(&self, other: &Self) -> Ordering {
        let earlier = other.at.total_cmp(&self.at);
        earlier.then_with(|| other.job.cmp(&self.job))
    }
}

impl PartialOrd for Ending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ending {}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each job leaves.
    fn drain(server: &mut Server) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| {
            let at = server.next_at();
            server.pop(at).map(|job| (at, job))
        })
        .collect()
    }

    #[test]
    fn fifo_serves_one_after_the_other() {
        let mut server = Server::new(Discipline::Fifo, 2.0);
        assert!(server.push(100, 20.0, 1));
        assert!(!server.push(105, 40.0, 2));
        assert_eq!((server.len(), server.next_at()), (2, 110));
        assert_eq!(drain(&mut server), [(110, 1), (130, 2)]);
        assert!(server.push(200, 2.0, 3) && server.next_at() == 201);
    }

    #[test]
    fn a_change_of_speed_scales_what_is_left() {
        let mut server = Server::new(Discipline::Fifo, 1.0);
        server.push(0, 100.0, 1);
        server.push(0, 100.0, 2);
        server.set_speed(50, 0.5);
        assert_eq!(drain(&mut server), [(150, 1), (350, 2)]);
    }

    #[test]
    fn sharing_is_the_same_for_all() {
        let mut server = Server::new(Discipline::ProcessorSharing, 1.0);
        server.push(0, 100.0, 1);
        server.push(0, 50.0, 2);
        // Together they need 150; the second has its 50 after 100.
        assert_eq!(server.next_at(), 100);
        // At 40 each has had 20: 80 and 30 are left, and a third with 10.
        server.push(40, 10.0, 3);
        assert_eq!(drain(&mut server), [(70, 3), (110, 2), (160, 1)]);
        server.push(1000, 10.0, 4);
        server.set_speed(1005, 0.5);
        assert_eq!(drain(&mut server), [(1015, 4)]);
    }
    #[test]
    fn in_parallel_nothing_waits() {
        let mut server = Server::new(Discipline::Parallel, 2.0);
        server.push(0, 100.0, 1);
        server.push(10, 20.0, 2);
        server.push(10, 60.0, 3);
        assert_eq!(drain(&mut server), [(20, 2), (40, 3), (50, 1)]);
        server.push(1000, 20.0, 4);
        server.set_speed(1005, 1.0);
        assert_eq!(drain(&mut server), [(1015, 4)]);
    }
}
