//! Decides which recommendations are applied now, and which are rolled back: applies [`advise`](crate::advise) to a
//! running cluster.
//!
//! In each round, a [`Tuning`] compares the settings of each service with the recommendations, and begins a few of the
//! necessary changes, the most urgent ones first. When all replicas are updated, the service is compared with its
//! measurements before. A change that has made the service worse, or was never completed, is rolled back, and not
//! retried for a time that grows with each rollback.
//!
//! ```text
//! steady ──worth it──► changing ──all replicas are so──► judged ──► kept ──cool-down──► steady
//!    ▲                    │ not in time                    │ worse
//!    └─────── rest ◄──────┴────────── rolled back ◄─────────┘
//! ```
//!
//! Additional replicas wait only for capacity and for the limit of changes per round. All other changes wait until the
//! service has been observed for long enough and has not been changed recently, and until no change of a service that
//! it calls, or of one of its callers, is being evaluated, because effects could not be attributed. Requests of
//! replicas are changed for one service at a time, since that replaces all of its replicas.
//!
//! Time is an argument. The state that has to survive a crash is in [`Record`]s.

mod params;
mod record;
mod wants;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use maglor_balance::Time;

use crate::advise::{Advice, Health, Room, Trial, Verdict};

pub use params::Params;
pub use record::{Of, Record, Stage};
use wants::{Wanted, wanted};

/// The time for which the number of failed changes is remembered.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// A part of a service's settings that is changed independently.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Part {
    /// The number of replicas.
    Replicas,
    /// The requests of each replica.
    Requests,
    /// The traffic settings of the service's callers.
    Traffic,
}

impl Part {
    /// All parts of the settings.
    pub const ALL: [Self; 3] = [Self::Replicas, Self::Requests, Self::Traffic];
}

/// The present settings of a service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// The configured number of replicas.
    pub replicas: u32,
    /// The CPU request of each replica, in thousandths of a core; 0 = none.
    pub cpu_millis: u64,
    /// The memory request of each replica, in MiB; 0 = none.
    pub memory_mib: u64,
}

/// Whether each setting of a service is managed by another writer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// Whether the number of replicas is managed by another writer.
    pub replicas: bool,
    /// Whether the CPU requests are managed by another writer.
    pub cpu: bool,
    /// Whether the memory requests are managed by another writer.
    pub memory: bool,
    /// Whether the callers' traffic settings for this service are managed by another writer.
    pub traffic: bool,
}

/// The progress of the rollout of a service's replicas.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rollout {
    /// Whether all replicas exist and have the present settings.
    pub updated: bool,
    /// The number of replicas that are not available.
    pub unavailable: u32,
}

impl Rollout {
    /// The state in which all replicas are updated and available.
    pub const COMPLETE: Self = Self {
        updated: true,
        unavailable: 0,
    };

    /// Returns whether all replicas are updated, and no more of them are unavailable than `before` a change.
    fn is_complete(self, before: u32) -> bool {
        self.updated && self.unavailable <= before
    }
}

/// The observations of a service in a round.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The name of the service.
    pub name: &'a str,
    /// The present settings.
    pub present: Settings,
    /// The recommendations; `None` if there are none.
    pub advice: Option<&'a Advice>,
    /// Whether the traffic settings of callers differ from the recommendation.
    pub traffic_differs: bool,
    /// The reason for distributing the requests differently among containers; `None` if there is none.
    pub shares_differ: Option<String>,
    /// The rollout of its replicas.
    pub rollout: Rollout,
    /// The measurements of the service, over the window of the averages.
    pub health: Health,
    /// The settings that must not be changed, because another writer manages them.
    pub held: Held,
    /// The free capacity of each node that accepts replicas of the service.
    pub rooms: Vec<Room>,
}

/// The observations of a round.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The services that may be changed.
    pub services: &'a [Seen<'a>],
    /// The pairs of caller and called service, by name.
    pub calls: &'a [(String, String)],
    /// Whether changes are made, and not only reported.
    pub apply: bool,
}

/// A change of a service's settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// A change of the number of replicas.
    Replicas {
        /// The present number.
        from: u32,
        /// The new number.
        to: u32,
    },
    /// A change of the requests of each replica.
    Requests {
        /// The new CPU request, in thousandths of a core.
        cpu_millis: u64,
        /// The new memory request, in MiB.
        memory_mib: u64,
    },
    /// A change of the traffic settings of callers, to the recommendation.
    Traffic,
}

/// The reason why a wanted change is not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Changes are not made, only reported.
    Advised,
    /// The limit of changes per round is reached.
    Budget,
    /// The service was changed recently.
    CoolDown,
    /// A service that this service calls, or a caller of it, is being evaluated.
    Neighbour,
    /// No node has capacity for another replica of this size.
    NoRoom,
    /// The service has not been observed for long enough.
    Observing,
    /// Another change of the service, or a rollout of its replicas, is in progress.
    OnTheWay,
    /// The same change was rolled back recently.
    Resting,
    /// The replicas of another service are being replaced.
    Rollout,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Advised => "recommended only",
            Self::Budget => "enough changes in this round",
            Self::CoolDown => "changed recently",
            Self::Neighbour => "a change of a calling or called service is under evaluation",
            Self::NoRoom => "no node has room for another replica of that size",
            Self::Observing => "not observed long enough",
            Self::OnTheWay => "another change is in progress",
            Self::Resting => "the same change was rolled back recently",
            Self::Rollout => "the replicas of another service are being replaced",
        })
    }
}

/// A change that begins in this round.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// The name of the service.
    pub service: String,
    /// The change.
    pub change: Change,
    /// The reason for the change.
    pub reason: String,
}

/// A change that is rolled back in this round.
#[derive(Clone, Debug, PartialEq)]
pub struct Undone {
    /// The name of the service.
    pub service: String,
    /// The part of the settings that is restored.
    pub part: Part,
    /// The reason for the rollback.
    pub reason: String,
}

/// The result of a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The changes to make in this round.
    pub begun: Vec<Begun>,
    /// The changes to roll back in this round.
    pub undone: Vec<Undone>,
    /// The most important pending change of each service, with the reason why it is not made.
    pub waiting: BTreeMap<String, (Part, Wait)>,
}

/// The state of the control loop; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Tuning {
    params: Params,
    records: BTreeMap<Of, Record>,
    /// Since when each service has been observed.
    seen: BTreeMap<String, Time>,
    /// Since when each service has had unavailable replicas.
    unavailable: BTreeMap<String, Time>,
}

impl Tuning {
    /// Restores the state that an earlier process has stored.
    #[must_use]
    pub fn restored(params: Params, records: BTreeMap<Of, Record>) -> Self {
        Self {
            params,
            records,
            seen: BTreeMap::new(),
            unavailable: BTreeMap::new(),
        }
    }

    /// Replaces the parameters; the state is kept.
    pub fn set_params(&mut self, params: Params) {
        for record in self.records.values_mut() {
            record.trial.set_params(params.trial);
        }
        self.params = params;
    }

    /// Returns the stored records.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<Of, Record> {
        &self.records
    }

    /// Records that a change of the last round could not be made, because the service has changed in the meantime. The
    /// change is evaluated again.
    pub fn missed(&mut self, service: &str, part: Part) {
        let of = (service.to_owned(), part);
        match self.records.get_mut(&of) {
            Some(record) if record.trial.failed() > 0 => record.stage = Stage::TakenBack,
            _ => drop(self.records.remove(&of)),
        }
    }

    /// Records that a rollback could not be made, so that the next round returns it again.
    pub fn pending(&mut self, service: &str, part: Part) {
        if let Some(record) = self.records.get_mut(&(service.to_owned(), part)) {
            record.pending = true;
        }
    }

    /// Evaluates the observations of a round.
    pub fn round(&mut self, now: Time, view: &View<'_>) -> Round {
        let names: BTreeSet<&str> = view.services.iter().map(|one| one.name).collect();
        self.seen.retain(|name, _| names.contains(&**name));
        self.unavailable.retain(|name, _| names.contains(&**name));
        let mut round = Round::default();
        for one in view.services {
            self.seen.entry(one.name.to_owned()).or_insert(now);
            if one.rollout.unavailable == 0 {
                self.unavailable.remove(one.name);
            } else {
                self.unavailable.entry(one.name.to_owned()).or_insert(now);
            }
            for part in Part::ALL {
                self.follow(now, one, part, &mut round.undone);
            }
        }
        self.records.retain(|_, record| {
            let old = now.saturating_since(record.since) >= REMEMBERED;
            record.is_open() || !old || now < record.trial.until()
        });
        self.begin(now, view, &mut round);
        round
    }

    /// Advances the stage of a change.
    fn follow(&mut self, now: Time, seen: &Seen<'_>, part: Part, undone: &mut Vec<Undone>) {
        let params = &self.params;
        let Some(record) = self.records.get_mut(&(seen.name.to_owned(), part)) else {
            return;
        };
        let mut back = None;
        let complete = seen.rollout.is_complete(record.unavailable);
        let visible = record.can_be_looked_at(complete, now, params.ready);
        match record.stage {
            Stage::Changing if complete || part == Part::Traffic => {
                // With too few calls before it the change cannot be evaluated, and is kept.
                let stage = match record.trial.begin(now, record.before) {
                    true => Stage::Judged,
                    false => Stage::Kept,
                };
                record.enter(stage, now);
            }
            Stage::Changing if now.saturating_since(record.since) >= params.ready => {
                record.trial.take_back(now);
                let limit = params.ready.as_secs();
                back = Some(format!("not all replicas were ready after {limit} s"));
            }
            Stage::Judged if visible => {
                // Two evaluations of the same calls count as one.
                let fresh = |at: Time| now.saturating_since(at) >= params.trial.settle;
                if record.looked.is_none_or(fresh) {
                    record.looked = Some(now);
                    record.after = Some(seen.health);
                    match record.trial.look(now, &seen.health) {
                        Verdict::Wait => {}
                        Verdict::Keep => record.enter(Stage::Kept, now),
                        Verdict::RollBack { reason } => back = Some(reason),
                    }
                }
            }
            Stage::TakenBack if std::mem::take(&mut record.pending) => {
                let (service, reason) = (seen.name.to_owned(), record.reason.clone());
                undone.push(Undone {
                    service,
                    part,
                    reason,
                });
            }
            _ => {}
        }
        if let Some(reason) = back {
            record.enter(Stage::TakenBack, now);
            record.reason.clone_from(&reason);
            undone.push(Undone {
                service: seen.name.to_owned(),
                part,
                reason,
            });
        }
    }

    /// Begins the most important changes.
    fn begin(&mut self, now: Time, view: &View<'_>, round: &mut Round) {
        let mut all: Vec<(&Seen<'_>, Wanted)> = Vec::new();
        for seen in view.services {
            let each = wanted(seen, self.params.margin).into_iter();
            all.extend(each.map(|one| (seen, one)));
        }
        all.sort_by_key(|(seen, one)| (one.rank(), seen.name));
        for (seen, one) in all {
            let waits = one
                .barred
                .or_else(|| (!view.apply).then_some(Wait::Advised))
                .or_else(|| self.waits(now, view, seen, &one))
                .or_else(|| (round.begun.len() >= self.params.changes).then_some(Wait::Budget));
            if let Some(why) = waits {
                let entry = round.waiting.entry(seen.name.to_owned());
                entry.or_insert((one.part(), why));
                continue;
            }
            self.note(now, seen, &one);
            round.begun.push(Begun {
                service: seen.name.to_owned(),
                change: one.change,
                reason: one.reason,
            });
        }
    }

    /// Records that a change begins.
    fn note(&mut self, now: Time, seen: &Seen<'_>, one: &Wanted) {
        let of = (seen.name.to_owned(), one.part());
        // One more replica ends the evaluation of the one before; the number of failures is kept.
        let former = self.records.get(&of).map(|record| &record.trial);
        let (failed, until) = former.map_or((0, Time::ZERO), |one| (one.failed(), one.until()));
        let trial = Trial::restored(self.params.trial, None, failed, until);
        let (before, reason) = (seen.health, one.reason.clone());
        let mut record = Record::new(Stage::Changing, now, before, reason, trial);
        record.unavailable = seen.rollout.unavailable;
        self.records.insert(of, record);
    }

    fn waits(&self, now: Time, view: &View<'_>, seen: &Seen<'_>, one: &Wanted) -> Option<Wait> {
        let of = |name: &str, part| self.records.get(&(name.to_owned(), part));
        let own: Vec<(Part, &Record)> = Part::ALL
            .into_iter()
            .filter_map(|part| Some((part, of(seen.name, part)?)))
            .collect();
        let changing = own.iter().any(|(_, one)| one.stage == Stage::Changing);
        if changing || self.is_rolling_out(now, seen) {
            return Some(Wait::OnTheWay);
        }
        if of(seen.name, one.part()).is_some_and(|own| now < own.trial.until()) {
            return Some(Wait::Resting);
        }
        if one.is_urgent() {
            return None;
        }
        let known = self.seen.get(seen.name);
        let known = known.map_or(Duration::ZERO, |since| now.saturating_since(*since));
        if known < self.params.observe {
            return Some(Wait::Observing);
        }
        if own.iter().any(|(_, one)| one.is_open()) {
            return Some(Wait::OnTheWay);
        }
        let lately = |one: &Record| now.saturating_since(one.since) < self.params.cool_down;
        if own.iter().any(|(_, one)| lately(one)) {
            return Some(Wait::CoolDown);
        }
        let judged = |name: &str| {
            Part::ALL
                .iter()
                .any(|part| of(name, *part).is_some_and(Record::is_open))
        };
        let mut beside = view
            .calls
            .iter()
            .filter_map(|(from, to)| match from == seen.name {
                true => Some(to),
                false => (to == seen.name).then_some(from),
            });
        if beside.any(|name| judged(name)) {
            return Some(Wait::Neighbour);
        }
        (one.part() == Part::Requests && self.replaces(now, view)).then_some(Wait::Rollout)
    }

    /// Returns whether a rollout is in progress. A replica that has been unavailable for longer than the longest
    /// startup is ignored: it has failed, and no change needs to wait for it.
    fn is_rolling_out(&self, now: Time, seen: &Seen<'_>) -> bool {
        let since = self.unavailable.get(seen.name);
        let starting = since.is_some_and(|since| now.saturating_since(*since) < self.params.ready);
        !seen.rollout.updated || starting
    }

    /// Returns whether the replicas of any service are being replaced because of a change or a rollback.
    fn replaces(&self, now: Time, view: &View<'_>) -> bool {
        view.services.iter().any(|seen| {
            let record = self.records.get(&(seen.name.to_owned(), Part::Requests));
            record.is_some_and(|record| match record.stage {
                Stage::Changing => true,
                Stage::TakenBack => {
                    let age = now.saturating_since(record.since);
                    let complete = seen.rollout.is_complete(record.unavailable);
                    !complete && age < self.params.ready
                }
                Stage::Judged | Stage::Kept => false,
            })
        })
    }
}
