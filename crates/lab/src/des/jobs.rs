//! Requests in progress: records are reused, so that a run allocates only while it grows.

use maglor_balance::Outstanding;
use maglor_balance::queue_protocol::{Admitted, Decision};

use super::cluster::Attempt;

/// No job.
pub(super) const NONE: u32 = u32::MAX;

/// A request to one service. A user's request is a tree of them.
#[derive(Debug)]
pub(super) struct Job {
    /// When it was created, in nanoseconds.
    pub(super) born: u64,
    /// Its work at its server, in nanoseconds at speed 1.
    pub(super) work: f64,
    /// Counts it at its balancer until dropped.
    pub(super) outstanding: Option<Outstanding>,
    /// Counts it at its server's inbound proxy, under policies that need one.
    pub(super) admitted: Option<Admitted>,
    /// The time until which it waits for responses.
    pub(super) deadline: u64,
    /// The request that has made this call.
    pub(super) parent: u32,
    /// The balancer that sends it, by index in its service.
    pub(super) balancer: u32,
    /// The server that processes it, by index in its service.
    pub(super) server: u32,
    pub(super) service: u16,
    /// Whether its server responds with an error.
    pub(super) fails: bool,
    /// The index of its next own call.
    pub(super) next_call: u16,
    /// Changes with each query, and with each reuse: messages with an older one are outdated.
    pub(super) generation: u32,
}

/// All jobs, by number.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    /// Separate from the jobs, because most policies do not need them.
    decisions: Vec<Decision>,
    /// Separate, because scenarios without failures and guards do not need them.
    attempts: Vec<Attempt>,
    free: Vec<u32>,
}

impl Jobs {
    #[inline]
    pub(super) fn add(&mut self, mut job: Job) -> u32 {
        match self.free.pop() {
            Some(at) => {
                let place = &mut self.jobs[at as usize];
                job.generation = place.generation;
                *place = job;
                at
            }
            None => {
                self.jobs.push(job);
                (self.jobs.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Job {
        &self.jobs[at as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Job {
        &mut self.jobs[at as usize]
    }

    /// Returns the job with its decision.
    pub(super) fn deciding(&mut self, at: u32) -> (&mut Job, &mut Decision) {
        if self.decisions.len() < self.jobs.len() {
            self.decisions.resize_with(self.jobs.len(), Decision::new);
        }
        (
            &mut self.jobs[at as usize],
            &mut self.decisions[at as usize],
        )
    }

    /// Returns the job with the guards' state.
    pub(super) fn attempting(&mut self, at: u32) -> (&mut Job, &mut Attempt) {
        if self.attempts.len() < self.jobs.len() {
            self.attempts.resize_with(self.jobs.len(), Attempt::default);
        }
        (&mut self.jobs[at as usize], &mut self.attempts[at as usize])
    }

    /// Returns whether this is still the job, and the query, that a message refers to.
    pub(super) fn is_current(&self, at: u32, generation: u32) -> bool {
        self.get(at).generation == generation
    }

    #[inline]
    pub(super) fn remove(&mut self, at: u32) {
        let job = self.get_mut(at);
        job.generation = job.generation.wrapping_add(1);
        self.free.push(at);
    }
}
