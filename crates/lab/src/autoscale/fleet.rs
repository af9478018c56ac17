//! The replicas of a service: FIFO servers, chosen by least outstanding requests of two.

use std::collections::VecDeque;

use maglor_balance::Rng;

use super::{PERIOD, Seen};

/// A replica.
#[derive(Clone, Debug, Default)]
struct Replica {
    /// The time from which it accepts requests.
    ready: f64,
    /// The time when its last request will end.
    free: f64,
    /// The end times of its requests.
    ends: VecDeque<f64>,
}

/// The replicas of a service, with their counts of the present period.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet {
    replicas: Vec<Replica>,
    /// The work done per second in seconds: a CPU limit below a core makes a replica slower.
    speed: f64,
    /// The work in seconds that remained at the beginning of the period, and that was added in it.
    left: f64,
    came: f64,
    calls: f64,
    latency: f64,
}

impl Fleet {
    /// Sets the number of replicas; a new one is in startup for a period. Removed replicas finish
    /// their requests, so that users of other services wait for them.
    pub(super) fn scale(&mut self, count: u32, now: f64, speed: f64) {
        self.speed = speed.max(1e-3);
        self.replicas.truncate(count.max(1) as usize);
        let first = self.replicas.is_empty() && now <= 0.0;
        while self.replicas.len() < count as usize {
            let ready = if first { now } else { now + PERIOD };
            self.replicas.push(Replica {
                ready,
                free: ready,
                ends: VecDeque::new(),
            });
        }
        self.left = self.backlog(now);
    }

    fn backlog(&self, now: f64) -> f64 {
        let left = self.replicas.iter().filter(|replica| replica.ready <= now);
        let left: f64 = left.map(|replica| (replica.free - now).max(0.0)).sum();
        left * self.speed
    }

    /// Assigns a request that arrives now, and returns its end time.
    pub(super) fn serve(&mut self, now: f64, work: f64, rng: &mut Rng) -> f64 {
        // The oldest are in front: those in startup are at the end.
        let ready = self
            .replicas
            .iter()
            .take_while(|replica| replica.ready <= now);
        let ready = u32::try_from(ready.count()).unwrap_or(1).max(1);
        let (a, b) = (rng.below(ready) as usize, rng.below(ready) as usize);
        let at = if self.outstanding(a, now) <= self.outstanding(b, now) {
            a
        } else {
            b
        };
        let replica = &mut self.replicas[at];
        replica.free = replica.free.max(now) + work / self.speed;
        replica.ends.push_back(replica.free);
        self.came += work;
        self.calls += 1.0;
        self.latency += replica.free - now;
        replica.free
    }

    fn outstanding(&mut self, at: usize, now: f64) -> usize {
        let ends = &mut self.replicas[at].ends;
        while ends.front().is_some_and(|end| *end <= now) {
            ends.pop_front();
        }
        ends.len()
    }

    /// Returns the usage in the period that ends now; memory is an input.
    pub(super) fn seen(&mut self, now: f64, memory_used_mib: f64, replicas: u32) -> Seen {
        let done = (self.left + self.came - self.backlog(now)).max(0.0);
        let calls = self.calls.max(1.0);
        let seen = Seen {
            replicas,
            cpu_used_millis: done / PERIOD * 1e3,
            memory_used_mib,
            rps: self.calls / PERIOD,
            latency_ms: self.latency / calls * 1e3,
        };
        (self.came, self.calls, self.latency) = (0.0, 0.0, 0.0);
        seen
    }
}
