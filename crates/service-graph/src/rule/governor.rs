//! Hysteresis for the rule: its result may be momentary, and a change has a cost.
//!
//! A [`Governor`] looks at a service periodically. It averages what it sees, asks the rule, and changes only what is
//! predicted to gain much, for long enough; after a change it leaves things alone for a while, looks whether the
//! latency is what was predicted, and takes back what did not help. Several share a [`Budget`] of changes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maglor_balance::Time;

use super::{Choice, Situation, Telemetry};

/// How eager a governor is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Nothing is changed for less than this share of the latency; 0–1.
    pub least_gain: f64,
    /// What saves less than this share, compared with `lor` in the sidecars, is taken away; below `least_gain`.
    pub kept_gain: f64,
    /// What is seen is averaged over about so long; a change is wanted for as long before it is made.
    pub patience: Duration,
    /// Between two changes of a service.
    pub cool_down: Duration,
    /// Time for which an unhelpful change is not retried.
    pub memory: Duration,
}

impl Limits {
    /// How often to look: twelve times within its patience.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.patience / 12
    }

    /// As eager as by default, with another patience, and times that are to it as by default.
    #[must_use]
    pub fn patient(patience: Duration) -> Self {
        Self {
            patience,
            cool_down: patience * 5,
            memory: patience * 180,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    /// # Defaults
    /// * `least_gain`: 0.2
    /// * `kept_gain`: 0.05
    /// * `patience`: 2 min
    /// * `cool_down`: 10 min
    /// * `memory`: 6 h
    fn default() -> Self {
        Self {
            least_gain: 0.2,
            kept_gain: 0.05,
            patience: Duration::from_secs(120),
            cool_down: Duration::from_secs(600),
            memory: Duration::from_secs(6 * 3600),
        }
    }
}

/// Changes that all services together may have.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    within: Duration,
    taken: VecDeque<Time>,
}

impl Budget {
    /// At most this many within so long.
    #[must_use]
    pub fn new(most: usize, within: Duration) -> Self {
        let taken = VecDeque::new();
        Self {
            most,
            within,
            taken,
        }
    }

    /// Takes one; false if there is none.
    pub fn take(&mut self, now: Time) -> bool {
        let over = |at: &Time| now.saturating_since(*at) >= self.within;
        while self.taken.front().is_some_and(over) {
            self.taken.pop_front();
        }
        let there = self.taken.len() < self.most;
        if there {
            self.taken.push_back(now);
        }
        there
    }
}

/// Why something is changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// It is predicted to save enough.
    Gain,
    /// What is there saves too little by now.
    Idle,
    /// What is there did not save what was predicted.
    NoHelp,
}

/// A change that is to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// What takes the place of what is there.
    pub to: Choice,
    /// Why.
    pub reason: Reason,
    /// The mean latency that is predicted for it.
    pub predicted: Duration,
}

/// Observations of a governor, for status and logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// What the rule would have of all there is, whether it can be taken or not.
    pub best: Choice,
    /// Its mean latency.
    pub predicted: Duration,
    /// The mean latency of what is there, averaged.
    pub measured: Duration,
    /// What `lor` in the sidecars would have.
    pub local: Duration,
    /// What proxies would have.
    pub proxied: Duration,
    /// ρ as it follows from what is seen.
    pub rho: f64,
}

/// What was expected of the last change.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The service as it was known then.
    situation: Situation,
    judged: bool,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Governor {
    limits: Limits,
    current: Choice,
    changed: Option<Time>,
    /// λ and r, averaged since the last change, and when they were last looked at.
    seen: Option<(f64, f64, Time)>,
    /// Since when something else is wanted.
    wanted: Option<(Choice, Time)>,
    trial: Option<Trial>,
    /// What did not help, and when.
    failed: BTreeMap<u8, Time>,
    view: Option<View>,
}

impl Governor {
    /// Of a service that is balanced so now.
    #[must_use]
    pub fn new(limits: Limits, current: Choice) -> Self {
        Self {
            limits,
            current,
            changed: None,
            seen: None,
            wanted: None,
            trial: None,
            failed: BTreeMap::new(),
            view: None,
        }
    }

    /// What is there now.
    #[must_use]
    pub fn current(&self) -> Choice {
        self.current
    }

    /// What it saw last; `None` before there were requests.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.view
    }

    /// Looks at what is seen now, of which `choice` is set to what is there; what is to be changed is counted as
    /// changed. `possible` are the choices that may be taken, `Local` always is.
    pub fn look(
        &mut self,
        now: Time,
        telemetry: &Telemetry,
        possible: &[Choice],
        budget: &mut Budget,
    ) -> Option<Change> {
        let averaged = self.averaged(now, telemetry)?;
        let situation = averaged.situation()?;
        let rested = |since: Option<Time>, rest| {
            since.is_none_or(|since| now.saturating_since(since) >= rest)
        };
        let allowed = |choice: &Choice| {
            let failed = self.failed.get(&(*choice as u8)).copied();
            *choice == self.current || rested(failed, self.limits.memory)
        };
        let possible = possible.iter().filter(|choice| allowed(choice));
        let mut best = Choice::Local;
        for choice in possible {
            if situation.predict(*choice) < situation.predict(best) {
                best = *choice;
            }
        }
        let winner = situation.decide().ok()?.winner();
        self.view = Some(View {
            best: winner.choice,
            predicted: winner.mean,
            measured: averaged.latency,
            local: situation.predict(Choice::Local),
            proxied: situation.predict(Choice::ProxyService),
            rho: situation.rho,
        });
        // An average that has just begun is none.
        if !rested(self.changed, self.limits.cool_down) {
            return None;
        }
        let wish = self
            .regret(&averaged)
            .or_else(|| self.wish(&situation, best));
        let Some((to, reason)) = wish else {
            self.wanted = None;
            return None;
        };
        let since = match self.wanted {
            Some((same, since)) if same == to => since,
            _ => now,
        };
        self.wanted = Some((to, since));
        if !rested(Some(since), self.limits.patience) || !budget.take(now) {
            return None;
        }
        if reason == Reason::NoHelp {
            self.failed.insert(self.current as u8, now);
        }
        let change = Change {
            to,
            reason,
            predicted: situation.predict(to),
        };
        self.trial = (reason == Reason::Gain).then_some(Trial {
            situation,
            judged: false,
        });
        (self.current, self.changed) = (to, Some(now));
        (self.seen, self.wanted) = (None, None);
        Some(change)
    }

    /// λ and r over the last while, exponentially weighted.
    fn averaged(&mut self, now: Time, telemetry: &Telemetry) -> Option<Telemetry> {
        let (rps, latency) = (telemetry.rps, telemetry.latency.as_secs_f64());
        if !(rps.is_finite() && rps > 0.0) || latency == 0.0 {
            return None;
        }
        let (rps, latency) = match self.seen {
            None => (rps, latency),
            Some((old_rps, old_latency, at)) => {
                let age = now.saturating_since(at).as_secs_f64();
                let keep = (-age / self.limits.patience.as_secs_f64().max(1e-9)).exp();
                let mean = |old: f64, new: f64| old * keep + new * (1.0 - keep);
                (mean(old_rps, rps), mean(old_latency, latency))
            }
        };
        self.seen = Some((rps, latency, now));
        Some(Telemetry {
            rps,
            latency: Duration::try_from_secs_f64(latency).unwrap_or(Duration::MAX),
            choice: self.current,
            ..*telemetry
        })
    }

    /// Takes back what is not better than what was there before would be, at the load and with the servers that are
    /// there now. Judged once: what is known of the service from before the change does not stay true for ever.
    fn regret(&mut self, averaged: &Telemetry) -> Option<(Choice, Reason)> {
        let trial = self.trial.as_mut().filter(|trial| !trial.judged)?;
        let now = Situation {
            servers: averaged.servers,
            ..trial.situation
        };
        let now = now.at_rate(averaged.rps);
        let without = now
            .predict(Choice::Local)
            .mul_f64(1.0 - self.limits.kept_gain);
        if averaged.latency <= without {
            trial.judged = true;
            return None;
        }
        Some((Choice::Local, Reason::NoHelp))
    }

    /// What the rule wants, where that is worth a change.
    fn wish(&self, situation: &Situation, best: Choice) -> Option<(Choice, Reason)> {
        let latency = |choice| situation.predict(choice).as_secs_f64();
        let here = latency(self.current);
        // What would be taken away again is no aim. That leaves `lor` itself to the second case: going back to it is
        // no trial, that would be compared with itself.
        let kept = latency(Choice::Local) * (1.0 - self.limits.kept_gain);
        let worth = latency(best) <= here * (1.0 - self.limits.least_gain);
        if best != self.current && worth && latency(best) <= kept {
            return Some((best, Reason::Gain));
        }
        (self.current != Choice::Local && here > kept).then_some((Choice::Local, Reason::Idle))
    }
}

#[cfg(test)]
mod tests;
