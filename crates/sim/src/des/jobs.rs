//! Requests under way: records that are reused, so that a run allocates while it grows only.

use maglor_balance::Outstanding;
use maglor_balance::queue_protocol::{Admitted, Decision};

use super::cluster::Attempt;

/// No job.
pub(super) const NONE: u32 = u32::MAX;

/// One request to one service. A request of a user is a tree of them.
#[derive(Debug)]
pub(super) struct Job {
    /// When it was made, in nanoseconds.
    pub(super) born: u64,
    /// What it costs its server, in nanoseconds at speed 1.
    pub(super) work: f64,
    /// Counts it at its balancer.
    pub(super) outstanding: Option<Outstanding>,
    /// Counts it at its server's inbound proxy, under policies that need one.
    pub(super) admitted: Option<Admitted>,
    /// Until when it waits for answers.
    pub(super) deadline: u64,
    /// Whose call it is.
    pub(super) parent: u32,
    /// The balancer that sends it, among those of its service.
    pub(super) balancer: u32,
    /// The server that it is at, among those of its service.
    pub(super) server: u32,
    pub(super) service: u16,
    /// Whether its server answers with an error.
    pub(super) fails: bool,
    /// The next one of the service's own calls.
    pub(super) next_call: u16,
    /// Changes with each question, and with each reuse: mail of an older one is out of date.
    pub(super) generation: u32,
}

/// All jobs, by number.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    /// Beside the jobs, because most policies do not need them.
    decisions: Vec<Decision>,
    /// Likewise for scenarios without failures and guards.
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

    /// The job with its decision.
    pub(super) fn deciding(&mut self, at: u32) -> (&mut Job, &mut Decision) {
        if self.decisions.len() < self.jobs.len() {
            self.decisions.resize_with(self.jobs.len(), Decision::new);
        }
        (
            &mut self.jobs[at as usize],
            &mut self.decisions[at as usize],
        )
    }

    /// The job with what guards know of it.
    pub(super) fn attempting(&mut self, at: u32) -> (&mut Job, &mut Attempt) {
        if self.attempts.len() < self.jobs.len() {
            self.attempts.resize_with(self.jobs.len(), Attempt::default);
        }
        (&mut self.jobs[at as usize], &mut self.attempts[at as usize])
    }

    /// Whether this is still the job, and the question, that a message refers to.
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
