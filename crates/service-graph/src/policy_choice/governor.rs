//! Hysteresis for the rule: its result may be momentary, and a change has a cost.
//!
//! A [`Governor`] evaluates a service periodically. It averages the observations, applies the rule, and makes only
//! changes that have been predicted to gain much for long enough. After a change it waits for a while, compares the
//! latency with the prediction, and reverts the change if it did not help. Several governors share a [`Budget`] of
//! changes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maglor_balance::Time;

use super::{Choice, Situation, Telemetry};

/// The parameters of a governor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The minimum predicted share of the latency that a change must save, 0–1.
    pub least_gain: f64,
    /// The minimum share of the latency that a choice must save, compared with `lor` in the sidecars, to be kept; below
    /// `least_gain`.
    pub kept_gain: f64,
    /// The averaging time of observations, and the time for which a change must be wanted before it is made.
    pub patience: Duration,
    /// The minimum time between two changes of a service.
    pub cool_down: Duration,
    /// The time for which a change that did not help is not retried.
    pub memory: Duration,
}

impl Limits {
    /// Returns the interval of evaluations: one twelfth of the patience.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.patience / 12
    }

    /// Returns the default limits, scaled to another patience.
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

/// The budget of changes of all services together, within a period.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    within: Duration,
    taken: VecDeque<Time>,
}

impl Budget {
    /// Creates a budget of at most `most` changes within a period.
    #[must_use]
    pub fn new(most: usize, within: Duration) -> Self {
        let taken = VecDeque::new();
        Self {
            most,
            within,
            taken,
        }
    }

    /// Takes one change from the budget; returns false if the budget is exhausted.
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

/// The reason for a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The new choice is predicted to save enough latency.
    Gain,
    /// The present choice no longer saves enough latency.
    Idle,
    /// The present choice has not saved the predicted latency.
    NoHelp,
}

/// A change of the policy to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new choice.
    pub to: Choice,
    /// The reason for the change.
    pub reason: Reason,
    /// The predicted mean latency of the new choice.
    pub predicted: Duration,
}

/// The last observations of a governor, for status and logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The best of all choices, whether it is available or not.
    pub best: Choice,
    /// The predicted mean latency of the best choice.
    pub predicted: Duration,
    /// The averaged mean latency that was measured for the present choice.
    pub measured: Duration,
    /// The predicted mean latency of `lor` in the sidecars.
    pub local: Duration,
    /// The predicted mean latency of a Proxy-Service.
    pub proxied: Duration,
    /// The utilization ρ derived from the observations.
    pub rho: f64,
}

/// What the last change was expected to achieve.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The situation at the time of the change.
    situation: Situation,
    judged: bool,
}

/// The state of one service; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Governor {
    limits: Limits,
    current: Choice,
    changed: Option<Time>,
    /// λ and r, averaged since the last change, and the time of the last observation; `None` without observations.
    seen: Option<(f64, f64, Time)>,
    /// The wanted choice, and since when it has been wanted; `None` if no change is wanted.
    wanted: Option<(Choice, Time)>,
    trial: Option<Trial>,
    /// The choices that did not help, and when.
    failed: BTreeMap<u8, Time>,
    view: Option<View>,
}

impl Governor {
    /// Creates the governor of a service with its present choice.
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

    /// Returns the present choice.
    #[must_use]
    pub fn current(&self) -> Choice {
        self.current
    }

    /// Returns the last observations; `None` until there have been requests.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.view
    }

    /// Evaluates the present observations, whose `choice` is replaced by the present choice. A returned change counts
    /// as made. `possible` are the available choices; `Local` is always available.
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
        // The average has just begun.
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

    /// Returns the exponentially weighted averages of λ and r.
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

    /// Reverts a change if the former choice would not be slower at the present load with the present servers. This is
    /// evaluated once, because the parameters of the service from before the change become outdated.
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

    /// Returns the choice of the rule, with the reason, if it is worth a change.
    fn wish(&self, situation: &Situation, best: Choice) -> Option<(Choice, Reason)> {
        let latency = |choice| situation.predict(choice).as_secs_f64();
        let here = latency(self.current);
        // A choice that would be removed again is not chosen. That leaves `lor` itself to the
        // second case: going back to it is no trial, which would be compared with itself.
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
