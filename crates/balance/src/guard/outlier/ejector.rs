//! Decides which endpoints are ejected, for how long, and when they return. A detector has one owner; see the module
//! above.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::difference::{Answers, differing};
use super::monitor::Totals;
use super::rates::{Counts, outliers};
use super::{EjectionState, Event, Finding, Monitor, OutlierParams, Spared};
use crate::{Rng, Time};

/// The time without a result of a probe after which another probe is sent.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of responses per endpoint that a window for comparing statuses should have, and the maximum number of
/// intervals in a window. The window is extended so that endpoints with little traffic are evaluated, too.
const WINDOW_ANSWERS: u64 = 50;
const WINDOW_INTERVALS: u32 = 6;

/// An endpoint as identified by the caller.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The id, unique in the set and stable for the lifetime of the endpoint.
    pub id: u64,
    /// The monitor of the endpoint.
    pub monitor: Arc<Monitor>,
}

/// The ejections of one cluster.
#[derive(Debug)]
pub struct Detector {
    params: OutlierParams,
    hosts: Vec<Host>,
    next_sweep: Time,
    /// When it was last checked whether any endpoint responds successfully.
    last_look: Time,
    /// The number of intervals so far in the window for comparing statuses.
    window: u32,
}

#[derive(Debug)]
struct Host {
    watched: Watched,
    ejection_state: EjectionState,
    /// The number of recent ejections: incremented with each ejection, decremented with each interval in service.
    count: u32,
    /// The time of the next probe while the endpoint is ejected, if the ejection time is over or no endpoint responds
    /// successfully.
    probe_due: Time,
    /// The totals of the monitor at the last evaluation of rates, at the last check for successful responses, and at
    /// the beginning of the window.
    swept: Totals,
    looked: Totals,
    window: Totals,
}

impl Host {
    fn new(watched: Watched) -> Self {
        let totals = watched.monitor.totals();
        Self {
            watched,
            ejection_state: EjectionState::Serving,
            count: 0,
            probe_due: Time::ZERO,
            swept: totals,
            looked: totals,
            window: totals,
        }
    }

    fn is_ejected(&self) -> bool {
        matches!(self.ejection_state, EjectionState::Ejected { .. })
    }

    fn eject(
        &mut self,
        finding: Finding,
        params: &OutlierParams,
        now: Time,
        rng: &mut Rng,
    ) -> Event {
        self.count = self.count.saturating_add(1);
        let extra = params.max_ejection_time_jitter.mul_f64(rng.unit());
        let time = params.ejection_time(self.count).saturating_add(extra);
        self.ejection_state = EjectionState::Ejected {
            since: now,
            until: now + time,
            finding,
        };
        self.probe_due = now + params.probe_interval;
        Event::Ejected {
            id: self.watched.id,
            finding,
            time,
            count: self.count,
        }
    }

    /// Returns the responses since the beginning of the window.
    fn answers(&self) -> Answers {
        let (now, then) = (self.watched.monitor.totals(), self.window);
        let successes = now.successes.wrapping_sub(then.successes);
        let client_errors = now.client_errors.wrapping_sub(then.client_errors);
        let failures = now.failures.wrapping_sub(then.failures);
        // Counters of one response are read at different moments.
        Answers {
            all: successes.saturating_add(failures),
            errors: failures.saturating_add(client_errors.min(successes)),
        }
    }

    fn back(&mut self, now: Time) -> Event {
        let since = match self.ejection_state {
            EjectionState::Ejected { since, .. } => since,
            EjectionState::Serving => now,
        };
        self.ejection_state = EjectionState::Serving;
        self.watched.monitor.forgive();
        // Results of the time when it was ejected (in panic mode, say) are not counted.
        self.swept = self.watched.monitor.totals();
        self.looked = self.swept;
        Event::Returned {
            id: self.watched.id,
            after: now.saturating_since(since),
        }
    }
}

impl Detector {
    /// Creates the detector of a cluster without endpoints.
    #[must_use]
    pub fn new(params: OutlierParams, now: Time) -> Self {
        let next_sweep = now + params.interval;
        Self {
            params,
            hosts: Vec::new(),
            next_sweep,
            last_look: now,
            window: 0,
        }
    }

    /// Returns the parameters of the detector.
    #[must_use]
    pub fn params(&self) -> &OutlierParams {
        &self.params
    }

    /// Replaces the set of endpoints. Endpoints that stay keep their ejection state; new ones are in service. If too
    /// many are ejected for a smaller set, those whose ejection ends first return.
    pub fn set_endpoints(
        &mut self,
        endpoints: impl IntoIterator<Item = Watched>,
        now: Time,
    ) -> Vec<Event> {
        let old = std::mem::take(&mut self.hosts).into_iter();
        let mut old: HashMap<u64, Host> = old.map(|host| (host.watched.id, host)).collect();
        let mut changed = false;
        for watched in endpoints {
            let known = old.remove(&watched.id);
            changed |= known.is_none();
            self.hosts.push(known.unwrap_or_else(|| Host::new(watched)));
        }
        let mut events = Vec::new();
        while self.ejected() > self.params.max_ejections(self.hosts.len()) {
            let end = |host: &Host| match host.ejection_state {
                EjectionState::Ejected { until, .. } => Some(until),
                EjectionState::Serving => None,
            };
            let first = self.hosts.iter_mut().filter(|host| host.is_ejected());
            let Some(first) = first.min_by_key(|host| end(host)) else {
                break;
            };
            events.push(first.back(now));
            changed = true;
        }
        if changed {
            self.begin_window();
        }
        events
    }

    /// Processes a finding of a monitor about an endpoint. `None` = the endpoint is already ejected, or has left the
    /// set.
    pub fn found(&mut self, id: u64, finding: Finding, now: Time, rng: &mut Rng) -> Option<Event> {
        let at = self.position(id)?;
        if self.hosts[at].is_ejected() {
            return None;
        }
        Some(self.eject_or_spare(at, finding, now, rng))
    }

    fn eject_or_spare(&mut self, at: usize, finding: Finding, now: Time, rng: &mut Rng) -> Event {
        let room = self.ejected() < self.params.max_ejections(self.hosts.len());
        let why = if !finding.enforced(&self.params).hits(rng) {
            Spared::NotEnforced
        } else if !room {
            Spared::MaxEjectionPercent
        } else {
            return self.hosts[at].eject(finding, &self.params, now, rng);
        };
        Event::Spared {
            id: self.hosts[at].watched.id,
            finding,
            why,
        }
    }

    /// Performs the work that is due: compares rates once per interval, and returns the endpoints to probe. Call it at
    /// [`due`](Self::due), or more often.
    pub fn tick(&mut self, now: Time, rng: &mut Rng) -> Vec<Event> {
        let mut events = Vec::new();
        if now >= self.next_sweep {
            self.next_sweep = now + self.params.interval;
            self.sweep(now, rng, &mut events);
        }
        if self.ejected() > 0 {
            self.send_probes(now, &mut events);
        }
        events
    }

    fn sweep(&mut self, now: Time, rng: &mut Rng, events: &mut Vec<Event>) {
        let (mut serving, mut counts) = (Vec::new(), Vec::new());
        for (at, host) in self.hosts.iter_mut().enumerate() {
            let totals = host.watched.monitor.totals();
            let before = std::mem::replace(&mut host.swept, totals);
            if host.is_ejected() {
                continue;
            }
            host.count = host.count.saturating_sub(1);
            serving.push(at);
            counts.push(Counts {
                successes: totals.successes.wrapping_sub(before.successes),
                failures: totals.failures.wrapping_sub(before.failures),
            });
        }
        for (which, finding) in outliers(&counts, &self.params) {
            events.push(self.eject_or_spare(serving[which], finding, now, rng));
        }
        self.compare(now, rng, events);
    }

    /// Compares the responses since the beginning of the window.
    fn compare(&mut self, now: Time, rng: &mut Rng, events: &mut Vec<Event>) {
        let serving =
            |(at, host): (usize, &Host)| (!host.is_ejected()).then(|| (at, host.answers()));
        let (serving, answers): (Vec<usize>, Vec<Answers>) =
            self.hosts.iter().enumerate().filter_map(serving).unzip();
        for (which, finding) in differing(&answers, &self.params) {
            events.push(self.eject_or_spare(serving[which], finding, now, rng));
        }
        self.window += 1;
        let volume: u64 = answers.iter().map(|own| u64::from(own.all)).sum();
        if volume >= WINDOW_ANSWERS * answers.len() as u64 || self.window >= WINDOW_INTERVALS {
            self.begin_window();
        }
    }

    /// Restarts the window for all endpoints: clients' requests change over time, so that responses of different times
    /// cannot be compared.
    fn begin_window(&mut self) {
        self.window = 0;
        for host in &mut self.hosts {
            host.window = host.watched.monitor.totals();
        }
    }

    fn send_probes(&mut self, now: Time, events: &mut Vec<Event>) {
        let distress = self.none_answers(now);
        for host in &mut self.hosts {
            let EjectionState::Ejected { until, .. } = host.ejection_state else {
                continue;
            };
            if now >= host.probe_due && (distress || now >= until) {
                host.probe_due = now + PATIENCE.max(self.params.probe_interval);
                events.push(Event::Probe {
                    id: host.watched.id,
                });
            }
        }
    }

    /// Returns whether, since the last check, requests to endpoints in service failed and none
    /// succeeded.
    fn none_answers(&mut self, now: Time) -> bool {
        if now.saturating_since(self.last_look) < self.params.probe_interval {
            return false;
        }
        self.last_look = now;
        let (mut succeeded, mut failed) = (false, false);
        for host in &mut self.hosts {
            let totals = host.watched.monitor.totals();
            let before = std::mem::replace(&mut host.looked, totals);
            if !host.is_ejected() {
                succeeded |= totals.successes != before.successes;
                failed |= totals.failures != before.failures;
            }
        }
        failed && !succeeded
    }

    /// Processes the result of a probe, or of a health check that passed. Returns an event if the endpoint has returned
    /// to service.
    pub fn probed(&mut self, id: u64, answers: bool, now: Time) -> Option<Event> {
        let at = self.position(id)?;
        let host = &mut self.hosts[at];
        if !host.is_ejected() {
            return None;
        }
        if answers {
            let event = host.back(now);
            self.begin_window();
            return Some(event);
        }
        host.probe_due = now + self.params.probe_interval;
        None
    }

    /// Returns when [`tick`](Self::tick) must be called at the latest.
    #[must_use]
    pub fn due(&self) -> Time {
        if self.ejected() == 0 {
            return self.next_sweep;
        }
        self.next_sweep
            .min(self.last_look + self.params.probe_interval)
    }

    /// Returns the number of ejected endpoints.
    #[must_use]
    pub fn ejected(&self) -> usize {
        self.hosts.iter().filter(|host| host.is_ejected()).count()
    }

    /// Returns the state of an endpoint; `None` if it is not in the set.
    #[must_use]
    pub fn ejection_state(&self, id: u64) -> Option<EjectionState> {
        self.position(id).map(|at| self.hosts[at].ejection_state)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.hosts.iter().position(|host| host.watched.id == id)
    }
}
