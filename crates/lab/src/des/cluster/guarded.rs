//! Failures and guards: how a failed request is classified, retried, or given up.
//!
//! All decisions are made by [`maglor_balance::guard`]. The parts that belong to the proxy are
//! simplified: every request may be retried, a pause is a scheduled event, a probe of an ejected
//! server gets the response that a request would get. A call that fails for good does not fail its
//! caller.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::breaker::{Breaker, Entry, Pass};
use maglor_balance::guard::limits::{Admission, Slots};
use maglor_balance::guard::outlier::{Detector, Event, Monitor, Sample, Watched};
use maglor_balance::guard::retry::{self, Answer, Attempts};
use maglor_balance::guard::retry_budget::{Budget, RetryPermit};
use maglor_balance::{Excluded, Index, Time};

use super::Cluster;
use crate::des::guards::{Faults, Guards};
use crate::des::post::Mail;
use crate::des::scenario::Scenario;

/// The guards of one balancer.
#[derive(Debug)]
pub(super) struct Guarded {
    budget: Arc<Budget>,
    slots: Slots,
    breaker: Option<Breaker>,
    /// The monitor of each server.
    monitors: Vec<Arc<Monitor>>,
    detector: Option<Detector>,
}

/// The guards' state of a request.
#[derive(Debug, Default)]
pub(in crate::des) struct Attempt {
    pub(in crate::des) attempted: Excluded,
    attempts: Attempts,
    permit: Option<RetryPermit>,
    pass: Option<Pass>,
    /// Whether it occupies a slot of the balancer.
    placed: bool,
}

impl Guarded {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let Guards {
            budget,
            ejection,
            breaker,
            max_requests,
            ..
        } = &scenario.guards;
        let monitors: Vec<_> = (0..scenario.servers)
            .map(|_| Arc::new(Monitor::new()))
            .collect();
        let detector = ejection.as_ref().map(|params| {
            let mut detector = Detector::new(params.clone(), Time::ZERO);
            let watched = monitors.iter().enumerate().map(|(id, monitor)| Watched {
                id: id as u64,
                monitor: Arc::clone(monitor),
            });
            // No endpoint of a new set is ejected.
            let _ = detector.set_endpoints(watched, Time::ZERO);
            detector
        });
        Self {
            budget: Arc::new(Budget::new(*budget)),
            slots: Slots::new(*max_requests, 0),
            breaker: breaker.map(Breaker::new),
            monitors,
            detector,
        }
    }

    /// Returns the interval at which the detector has to be called.
    fn period(&self) -> Option<Duration> {
        let params = self.detector.as_ref()?.params();
        Some(
            params
                .interval
                .min(params.probe_interval)
                .max(Duration::from_millis(1)),
        )
    }
}

impl Cluster<'_> {
    /// Schedules the first sweeps of the detectors.
    pub(super) fn start_guards(&mut self) {
        for service in 0..self.tiers.len() as u16 {
            for balancer in 0..self.tiers[usize::from(service)].guards.len() as u32 {
                self.sweep_later(service, balancer);
            }
        }
    }

    fn sweep_later(&mut self, service: u16, balancer: u32) {
        let guarded = &self.tiers[usize::from(service)].guards[balancer as usize];
        if let Some(period) = guarded.period() {
            let at = self.now + super::nanos(period);
            self.post.remind(at, Mail::Sweep { service, balancer });
        }
    }

    /// Returns whether the balancer admits a new request.
    pub(super) fn take_on(&mut self, at: u32) -> bool {
        let now = self.time();
        let (job, attempt) = self.jobs.attempting(at);
        let guarded = &self.tiers[usize::from(job.service)].guards[job.balancer as usize];
        *attempt = Attempt::default();
        guarded.budget.request(now);
        match guarded.slots.admit(u32::MAX) {
            Admission::Admitted => attempt.placed = true,
            // No request waits: the queue has no capacity.
            Admission::Waiting | Admission::Overflow => return false,
        }
        match guarded.breaker.as_ref().map(|breaker| breaker.enter(now).0) {
            Some(Entry::Rejected(_)) => false,
            Some(Entry::Passed(pass)) => {
                attempt.pass = Some(pass);
                true
            }
            None => true,
        }
    }

    /// Releases the resources of a request; `good` is the classification of its response, if known.
    pub(super) fn let_go(&mut self, at: u32, good: Option<bool>) {
        let now = self.time();
        let (job, attempt) = self.jobs.attempting(at);
        let guarded = &self.tiers[usize::from(job.service)].guards[job.balancer as usize];
        if std::mem::take(&mut attempt.placed) {
            // No request waits that could be woken.
            let _ = guarded.slots.release();
        }
        if let (Some(pass), Some(breaker)) = (attempt.pass.take(), &guarded.breaker) {
            match good {
                Some(good) => {
                    breaker.record(pass, good, now, &mut self.chance.policy);
                }
                None => breaker.abandon(&pass),
            }
        }
        attempt.permit = None;
    }

    /// Decides whether a request fails at the server that it has reached; returns its work there.
    pub(super) fn spoil(&mut self, at: u32, server: u32) -> f64 {
        let job = self.jobs.get_mut(at);
        job.fails = false;
        match &self.scenario.faults {
            Some(faults) if server < faults.servers => {
                job.fails = self.chance.network.unit() < faults.share;
                if job.fails {
                    job.work * faults.work
                } else {
                    job.work
                }
            }
            _ => job.work,
        }
    }

    /// Processes a response; returns `false` if the request will be retried.
    pub(super) fn judge(&mut self, at: u32) -> bool {
        let (fails, server) = (self.jobs.get(at).fails, self.jobs.get(at).server);
        self.note(at, server, fails);
        if !fails || !self.try_again(at, server) {
            self.let_go(at, Some(!fails));
            return true;
        }
        self.counts.retries += 1;
        self.release_server(at);
        false
    }

    /// Returns the status of an error response.
    fn error(&self) -> u16 {
        let faults = self.scenario.faults.as_ref();
        faults.map_or(Faults::STATUS, |faults| faults.status)
    }

    /// Reports a result to outlier ejection.
    fn note(&mut self, at: u32, server: u32, failed: bool) {
        let Some(params) = &self.scenario.guards.ejection else {
            return;
        };
        let now = self.time();
        let (service, balancer) = (self.jobs.get(at).service, self.jobs.get(at).balancer);
        let sample = Sample::of_status(if failed { self.error() } else { 200 });
        let guarded = &mut self.tiers[usize::from(service)].guards[balancer as usize];
        let Some(finding) = guarded.monitors[server as usize].record(sample, params) else {
            return;
        };
        let detector = guarded.detector.as_mut();
        let rng = &mut self.chance.policy;
        let event = detector.and_then(|d| d.found(u64::from(server), finding, now, rng));
        self.follow(service, balancer, event);
    }

    fn try_again(&mut self, at: u32, server: u32) -> bool {
        let Some(policy) = &self.scenario.guards.retries else {
            return false;
        };
        let (now, error) = (self.time(), self.error());
        let (job, attempt) = self.jobs.attempting(at);
        let tier = &self.tiers[usize::from(job.service)];
        let guarded = &tier.guards[job.balancer as usize];
        attempt.attempted.insert(Index::new(server as usize));
        let usable = tier.balancers[job.balancer as usize].view().usable();
        let context = retry::Context {
            policy,
            request: RETRIED,
            budget: &guarded.budget,
            active: guarded.slots.active(),
            replayable: true,
            elsewhere: usable > attempt.attempted.len(),
            now,
        };
        let outcome = retry::Outcome::Answer(Answer::status(error));
        match attempt
            .attempts
            .after(&outcome, &context, &mut self.chance.policy)
        {
            retry::Decision::GiveUp(_) => false,
            retry::Decision::Retry { after, permit } => {
                attempt.permit = permit;
                self.post
                    .remind(self.now + super::nanos(after), Mail::Retry { job: at });
                true
            }
        }
    }

    /// Runs a detector's periodic sweep.
    pub(super) fn sweep(&mut self, service: u16, balancer: u32) {
        let now = self.time();
        let guarded = &mut self.tiers[usize::from(service)].guards[balancer as usize];
        let detector = guarded.detector.as_mut();
        let events = detector.map_or_else(Vec::new, |d| d.tick(now, &mut self.chance.policy));
        self.follow(service, balancer, events);
        self.sweep_later(service, balancer);
    }

    /// Applies a detector's decisions.
    fn follow(&mut self, service: u16, balancer: u32, events: impl IntoIterator<Item = Event>) {
        let now = self.time();
        for event in events {
            let tier = &mut self.tiers[usize::from(service)];
            match event {
                Event::Ejected { id, .. } => {
                    self.counts.ejections += 1;
                    tier.set_ejected(balancer, id as usize, true, now);
                }
                Event::Probe { id } => {
                    let faults = self.scenario.faults.filter(|f| id < u64::from(f.servers));
                    let rng = &mut self.chance.network;
                    let answers = faults.is_none_or(|faults| rng.unit() >= faults.share);
                    let detector = tier.guards[balancer as usize].detector.as_mut();
                    if detector.and_then(|d| d.probed(id, answers, now)).is_some() {
                        tier.set_ejected(balancer, id as usize, false, now);
                    }
                }
                Event::Returned { id, .. } => {
                    tier.set_ejected(balancer, id as usize, false, now);
                }
                Event::Spared { .. } => {}
            }
        }
    }
}

/// The properties of a request for retries: it may be repeated, at any time before its response.
const RETRIED: retry::Request = retry::Request {
    idempotent: true,
    attempt: 1,
    deadline: None,
};
