//! Decides which recommendations are applied now, and which are rolled back: applies [`advise`](crate::advise) to a
//! running cluster.
//!
//! Round by round a [`Tuning`] compares what is set of each service with what is advised. Of what differs a few
//! changes are begun, the most urgent first. A change is compared with before once all replicas are as they are to
//! be; what is worse, or never came to be, is rolled back and left alone for longer each time.
//!
//! ```text
//! steady ──worth it──► changing ──all replicas are so──► judged ──► kept ──cool-down──► steady
//!    ▲                    │ not in time                    │ worse
//!    └─────── rest ◄──────┴────────── rolled back ◄─────────┘
//! ```
//!
//! More replicas wait for nothing but room and the changes of a round. All else waits until a service was observed
//! for long enough, nothing of it was changed lately, and no change of one that it calls, or that calls it, is being
//! under evaluation, because effects could not be attributed. Requests of replicas are changed for one service at a
//! time, since that replaces all of them.
//!
//! Time is an argument. What has to survive a crash is in [`Record`]s.

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

/// How often something was in vain is remembered for this long.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// What can be changed of a service.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Part {
    /// How many there are.
    Replicas,
    /// What each requests.
    Requests,
    /// How callers treat it.
    Traffic,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Replicas, Self::Requests, Self::Traffic];
}

/// What is set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// How many replicas there are to be.
    pub replicas: u32,
    /// CPU that each requests, in thousandths of a core; 0 = nothing.
    pub cpu_millis: u64,
    /// Memory that each requests, in MiB; 0 = nothing.
    pub memory_mib: u64,
}

/// What others manage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// How many replicas.
    pub replicas: bool,
    /// Requests of CPU.
    pub cpu: bool,
    /// Requests of memory.
    pub memory: bool,
    /// How callers treat it.
    pub traffic: bool,
}

/// How far the replicas of a service are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rollout {
    /// All replicas exist, and are made of what is set now.
    pub updated: bool,
    /// Replicas that take no requests.
    pub unavailable: u32,
}

impl Rollout {
    /// All replicas are as they should be.
    pub const COMPLETE: Self = Self {
        updated: true,
        unavailable: 0,
    };

    /// Whether no more replicas are unavailable than `before` a change.
    fn is_complete(self, before: u32) -> bool {
        self.updated && self.unavailable <= before
    }
}

/// A service at a round.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is set.
    pub present: Settings,
    /// What is advised, if anything is known.
    pub advice: Option<&'a Advice>,
    /// Whether what is set for callers is something else than what is advised.
    pub traffic_differs: bool,
    /// Why what is requested is to be shared out otherwise among containers, where it is.
    pub shares_differ: Option<String>,
    /// How far its replicas are.
    pub rollout: Rollout,
    /// How it fares, over the window of the averages.
    pub health: Health,
    /// What is not to be changed.
    pub held: Held,
    /// What each of the nodes that take its replicas has left.
    pub rooms: Vec<Room>,
}

/// What is seen at a round.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The services that may be changed.
    pub services: &'a [Seen<'a>],
    /// Who calls whom, by name.
    pub calls: &'a [(String, String)],
    /// What is worth it is done.
    pub apply: bool,
}

/// What is to be changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// How many replicas there are.
    Replicas {
        /// As there are.
        from: u32,
        /// As there are to be.
        to: u32,
    },
    /// What each requests.
    Requests {
        /// In thousandths of a core.
        cpu_millis: u64,
        /// In MiB.
        memory_mib: u64,
    },
    /// How callers treat it: as is advised.
    Traffic,
}

/// Why a change that is wanted is not made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Nothing is done at all.
    Advised,
    /// Enough is begun in this round.
    Budget,
    /// It was changed lately.
    CoolDown,
    /// One that it calls, or that calls it, is being judged.
    Neighbour,
    /// No node has room for another replica of that size.
    NoRoom,
    /// It is not known for long enough.
    Observing,
    /// Another change of it, or its replicas, are on the way.
    OnTheWay,
    /// The same was rolled back lately.
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

/// A change that is begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// Of which service.
    pub service: String,
    /// What.
    pub change: Change,
    /// Why.
    pub reason: String,
}

/// A change that is rolled back.
#[derive(Clone, Debug, PartialEq)]
pub struct Undone {
    /// Of which service.
    pub service: String,
    /// What of it.
    pub part: Part,
    /// Why.
    pub reason: String,
}

/// What a round comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// What is changed now.
    pub begun: Vec<Begun>,
    /// What goes back now.
    pub undone: Vec<Undone>,
    /// What else is wanted most of a service, and why it is not made.
    pub waiting: BTreeMap<String, (Part, Wait)>,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Tuning {
    params: Params,
    records: BTreeMap<Of, Record>,
    /// Since when services are seen.
    seen: BTreeMap<String, Time>,
    /// Since when services have replicas that are not available.
    unavailable: BTreeMap<String, Time>,
}

impl Tuning {
    /// Goes on from what another one has remembered.
    #[must_use]
    pub fn restored(params: Params, records: BTreeMap<Of, Record>) -> Self {
        Self {
            params,
            records,
            seen: BTreeMap::new(),
            unavailable: BTreeMap::new(),
        }
    }

    /// Goes on with others; what was seen holds.
    pub fn set_params(&mut self, params: Params) {
        for record in self.records.values_mut() {
            record.trial.set_params(params.trial);
        }
        self.params = params;
    }

    /// What is remembered.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<Of, Record> {
        &self.records
    }

    /// A change of the last round could not be made: the service is not what was seen. It is checked again.
    pub fn missed(&mut self, service: &str, part: Part) {
        let of = (service.to_owned(), part);
        match self.records.get_mut(&of) {
            Some(record) if record.trial.failed() > 0 => record.stage = Stage::TakenBack,
            _ => drop(self.records.remove(&of)),
        }
    }

    /// What was to be rolled back could not be: the next round says so again.
    pub fn pending(&mut self, service: &str, part: Part) {
        if let Some(record) = self.records.get_mut(&(service.to_owned(), part)) {
            record.pending = true;
        }
    }

    /// Looks at what there is.
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

    /// Takes a change further.
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
                // Where too few calls say how it was, it cannot be judged, and stays.
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
                // Two looks at the same calls are one.
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

    /// Begins what is wanted most.
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

    /// Writes down that a change is begun.
    fn note(&mut self, now: Time, seen: &Seen<'_>, one: &Wanted) {
        let of = (seen.name.to_owned(), one.part());
        // One more replica ends the judgement of the one before; how often it was in vain counts on.
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

    /// Whether replicas are on their way. One that has not been available for longer than any takes to be
    /// ready is not: it fails, and a change need not wait for it.
    fn is_rolling_out(&self, now: Time, seen: &Seen<'_>) -> bool {
        let since = self.unavailable.get(seen.name);
        let starting = since.is_some_and(|since| now.saturating_since(*since) < self.params.ready);
        !seen.rollout.updated || starting
    }

    /// Whether the replicas of some service are being replaced by us, there or back.
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
