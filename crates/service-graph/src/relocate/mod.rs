//! Decides which replicas move now, and which are moved back: applies [`partition`](crate::partition) to a running
//! cluster.
//!
//! In each round, a [`Relocation`] evaluates the present placement. A plan that has been worth its moves for several
//! consecutive rounds is adopted: its placement becomes the target of its services, which is reached by a few moves per
//! round. When the averages have settled, the calls of the services are compared with those before. A service that is
//! worse moves back, and rests for longer each time; a moved service is not changed for a while.
//!
//! ```text
//! watching ──worth it, m rounds in a row──► moving ──all are there──► judged ──► kept
//!     ▲                                     │ it would not pay any more           │ worse
//!     └──────────────── rest ◄──────────────┴────── rolled back ◄── undoing ◄─────┘
//! ```
//!
//! Time is an argument, and services and nodes are identified by names, since both are added and
//! removed between rounds. The state that has to survive a crash is in [`Record`]s: a new leader
//! restores them and continues.

mod judge;
mod measured;
mod moves;
mod params;
mod record;
mod worth;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_balance::Time;

use crate::graph::Graph;
use crate::node::Nodes;
use crate::partition::{Outcome, PartitionError, Plan, partition, rated};
use crate::placement::Placement;
use crate::placement_constraints::Bars;

pub use judge::Guard;
use judge::{Judgement, Tally};
pub use measured::Measured;
pub use moves::Move;
pub use params::Params;
pub use record::{Record, Spread, Stage};
pub use worth::Reason;

/// The maximum time without moves after failed ones.
const LONGEST_REST: Duration = Duration::from_secs(86_400);

/// The observations of a round.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The services and their calls.
    pub graph: &'a Graph,
    /// The nodes with their capacity.
    pub nodes: &'a Nodes,
    /// The present placement.
    pub present: &'a Placement,
    /// The nodes on which replicas may not be started.
    pub bars: &'a Bars,
    /// The measurements of each service's calls, in the order of the services of the graph.
    pub measured: &'a [Measured],
    /// Whether moves of earlier rounds are still in progress.
    pub busy: bool,
    /// Whether plans are carried out, and not only reported.
    pub apply: bool,
}

/// The result of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// The number of all calls per second.
    pub calls: f64,
    /// The number of calls per second that leave their node.
    pub cut: f64,
    /// The plan; `None` if none was made, or none fits.
    pub plan: Option<Plan>,
    /// The moves to begin in this round.
    pub moves: Vec<Move>,
    /// The reason for the moves, or for making none.
    pub reason: Reason,
    /// The services that begin to move back in this round, each with the reason.
    pub undone: Vec<(String, Judgement)>,
}

/// The state of the control loop; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Relocation {
    params: Params,
    /// The number of consecutive rounds in which a plan was worth its moves.
    worth: u32,
    /// The number of consecutive rounds in which the plan in progress would not be worth its moves.
    doubts: u32,
    records: BTreeMap<String, Record>,
    /// When the present evaluation began; `None` if there is none.
    judged_since: Option<Time>,
    tallies: BTreeMap<String, Tally>,
}

impl Relocation {
    /// Creates the initial state.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self::restored(params, BTreeMap::new(), None)
    }

    /// Restores the state that an earlier process has stored.
    #[must_use]
    pub fn restored(
        params: Params,
        records: BTreeMap<String, Record>,
        judged_since: Option<Time>,
    ) -> Self {
        Self {
            params,
            worth: 0,
            doubts: 0,
            records,
            judged_since,
            tallies: BTreeMap::new(),
        }
    }

    /// Replaces the parameters; the state is kept.
    pub fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// Returns the stored records, by service.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<String, Record> {
        &self.records
    }

    /// Returns when the present evaluation began; `None` if there is none.
    #[must_use]
    pub fn judged_since(&self) -> Option<Time> {
        self.judged_since
    }

    /// Records that a move of a service failed. The present placement of the service becomes its target.
    pub fn failed(&mut self, service: &str, now: Time) {
        let Some(record) = self.records.get_mut(service) else {
            return;
        };
        record.failures = record.failures.saturating_add(1);
        record.rests_until = now + rest(self.params.cool_down, record.failures);
        record.wanted.clear();
    }

    /// Evaluates the observations of a round.
    ///
    /// # Errors
    /// As those of [`partition`].
    pub fn round(&mut self, now: Time, view: &View<'_>) -> Result<Round, PartitionError> {
        self.settle(view);
        let mut round = Round {
            calls: view.graph.rps(),
            cut: view.present.cut_by(view.graph, self.params.options.routing),
            plan: None,
            moves: Vec::new(),
            reason: Reason::Settled,
            undone: Vec::new(),
        };
        // Reports are missing: that is no reason to roll back.
        if round.calls <= 0.0 {
            round.reason = Reason::NoCalls;
            return Ok(round);
        }
        self.measure(now, view);
        if self.is(Stage::Judged) {
            self.judge(now, view, &mut round);
        }
        if self.is(Stage::Moving) || self.is(Stage::Undoing) {
            self.advance(now, view, &mut round);
        } else if !self.is(Stage::Judged) {
            self.watch(now, view, &mut round)?;
        }
        Ok(round)
    }

    fn is(&self, stage: Stage) -> bool {
        self.records.values().any(|record| record.stage == stage)
    }

    /// Drops removed services and moves that cannot be continued. If a target is impossible, the present placement
    /// replaces it.
    fn settle(&mut self, view: &View<'_>) {
        self.records.retain(|name, record| {
            let index = view.graph.service(name);
            let under_way = record.stage != Stage::Kept && record.stage != Stage::RolledBack;
            let Some(index) = index.filter(|_| view.apply || !under_way) else {
                return false;
            };
            // A move has failed, or the number of replicas has changed since the plan.
            let replicas = view
                .graph
                .services()
                .get(index)
                .map(|one| one.replicas.get());
            let differs = replicas != Some(record.wanted.values().sum());
            if under_way && differs && !view.busy {
                record.wanted = view.present.by_node(index, view.nodes);
            }
            true
        });
        if !self.is(Stage::Judged) {
            self.judged_since = None;
        }
    }

    /// Adds the present measurements to the averages.
    fn measure(&mut self, now: Time, view: &View<'_>) {
        let settled = self
            .judged_since
            .is_none_or(|since| now.saturating_since(since) >= self.params.guard.settle);
        let measuring = match (self.is(Stage::Moving) || self.is(Stage::Undoing), settled) {
            // Neither before nor after.
            (true, _) | (_, false) => return self.tallies.clear(),
            (false, true) => self.judged_since,
        };
        let services = view.graph.services().iter();
        for (service, measured) in services.zip(view.measured) {
            let tally = self.tallies.entry(service.name.clone()).or_default();
            tally.add(
                now,
                *measured,
                self.params.guard.window,
                measuring.is_some(),
            );
        }
        self.tallies
            .retain(|name, _| view.graph.service(name).is_some());
    }

    /// Begins the next moves, and the evaluation of services that have reached their target.
    fn advance(&mut self, now: Time, view: &View<'_>, round: &mut Round) {
        if view.busy {
            round.reason = Reason::Moving;
            return;
        }
        let target = self.target(view);
        let undoing = self.is(Stage::Undoing);
        let mending = self
            .records
            .values()
            .any(|one| one.stage == Stage::Moving && one.former.is_none());
        let left = target.moves_from(view.present) > 0;
        let pays = || self.cost(view, &target) < self.cost(view, view.present);
        if left && !(undoing || mending || pays()) {
            // As long as it takes to begin: reports of a moment may be missing.
            self.doubts += 1;
            if self.doubts < self.params.rounds {
                round.reason = Reason::Moving;
                return;
            }
        } else if left {
            self.doubts = 0;
            round.moves = moves::next(view, &target, &self.params);
            round.reason = match (round.moves.is_empty(), undoing) {
                (false, true) => Reason::Undoing,
                (false, false) => Reason::Moving,
                (true, _) => Reason::NoRoom,
            };
            if !round.moves.is_empty() {
                return;
            }
        }
        self.arrive(now, view, round);
    }

    fn cost(&self, view: &View<'_>, placement: &Placement) -> f64 {
        let (_, state) = rated(view.graph, view.nodes, placement, &self.params.options);
        state.cost()
    }

    /// Ends the moves if the target is reached, cannot be reached, or is no longer worth its moves.
    fn arrive(&mut self, now: Time, view: &View<'_>, round: &mut Round) {
        self.doubts = 0;
        let rest_after = self.params.cool_down;
        for (name, record) in &mut self.records {
            let Some(index) = view.graph.service(name) else {
                continue;
            };
            match record.stage {
                Stage::Moving => {
                    record.wanted = view.present.by_node(index, view.nodes);
                    let moved = record
                        .former
                        .as_ref()
                        .is_some_and(|one| *one != record.wanted);
                    record.stage = if moved { Stage::Judged } else { Stage::Kept };
                    record.rests_until = record.rests_until.max(now + rest_after);
                }
                Stage::Undoing => {
                    record.wanted = view.present.by_node(index, view.nodes);
                    record.stage = Stage::RolledBack;
                    record.rests_until = now + rest(rest_after, record.failures);
                }
                Stage::Judged | Stage::Kept | Stage::RolledBack => {}
            }
        }
        self.tallies.clear();
        if self.is(Stage::Judged) {
            self.judged_since = Some(now);
            round.reason = Reason::Judging;
        }
    }

    /// Compares the measurements with those before the moves, when there are enough.
    fn judge(&mut self, now: Time, view: &View<'_>, round: &mut Round) {
        round.reason = Reason::Judging;
        let since = *self.judged_since.get_or_insert(now);
        let guard = &self.params.guard;
        let seen = now.saturating_since(since) >= guard.settle + guard.window;
        let judged: Vec<String> = {
            let judged = self
                .records
                .iter()
                .filter(|(_, one)| one.stage == Stage::Judged);
            judged.map(|(name, _)| name.clone()).collect()
        };
        let ripe = |name: &String| self.tallies.get(name).is_some_and(Tally::is_ripe);
        if !seen || !judged.iter().all(ripe) || view.busy {
            return;
        }
        for name in &judged {
            if let Some(record) = self.records.get_mut(name) {
                record.after = self.tallies.get(name).map(Tally::mean);
            }
        }
        let all = judged.iter().filter_map(|name| self.records.get(name));
        let together = judge::together(all, guard).or_else(|| self.would_be_better(view));
        for name in judged {
            let Some(record) = self.records.get_mut(&name) else {
                continue;
            };
            match together.or_else(|| judge::alone(record, guard)) {
                None => {
                    (record.stage, record.failures) = (Stage::Kept, 0);
                    record.former = None;
                    record.rests_until = now + self.params.cool_down;
                }
                Some(judgement) => {
                    record.stage = Stage::Undoing;
                    record.failures = record.failures.saturating_add(1);
                    record.wanted = record.former.take().unwrap_or_default();
                    round.undone.push((name, judgement));
                }
            }
        }
        self.judged_since = None;
        self.worth = 0;
        round.reason = Reason::Settled;
    }

    /// Returns a judgement if the number of calls that leave their node would not increase with the services where they
    /// were before.
    fn would_be_better(&self, view: &View<'_>) -> Option<Judgement> {
        let former = |record: &Record| {
            let judged = record.stage == Stage::Judged;
            record.former.clone().filter(|_| judged)
        };
        let before = self.placed(view, former);
        let moved = before != *view.present;
        let worse = moved && self.cost(view, &before) <= self.cost(view, view.present);
        worse.then_some(Judgement::Remote)
    }

    /// Makes a plan, and adopts it when it has been worth its moves for long enough.
    fn watch(
        &mut self,
        now: Time,
        view: &View<'_>,
        round: &mut Round,
    ) -> Result<(), PartitionError> {
        let mut bars = view.bars.clone();
        for (name, record) in &self.records {
            if let (true, Some(index)) = (now < record.rests_until, view.graph.service(name)) {
                bars.hold(index);
            }
        }
        let options = worth::options(&self.params, bars);
        let plan = match partition(view.graph, view.nodes, Some(view.present), &options)? {
            Outcome::Placed(plan) => plan,
            Outcome::Infeasible(infeasible) => {
                self.worth = 0;
                round.reason = Reason::Infeasible(infeasible.to_string());
                return Ok(());
            }
        };
        let (worth, reason) = worth::of(&self.params, view, &plan);
        self.worth = if worth { self.worth + 1 } else { 0 };
        round.reason = match (worth, self.worth < self.params.rounds, view.apply) {
            (false, ..) => reason,
            (true, true, _) => Reason::Waiting {
                seen: self.worth,
                needed: self.params.rounds,
            },
            (true, false, false) => Reason::Advised,
            (true, false, true) => {
                self.adopt(view, &plan);
                Reason::Moving
            }
        };
        round.plan = Some(plan);
        if self.is(Stage::Moving) {
            self.advance(now, view, round);
        }
        Ok(())
    }

    /// Makes the plan's placement the target of its services.
    fn adopt(&mut self, view: &View<'_>, plan: &Plan) {
        self.worth = 0;
        for (index, service) in view.graph.services().iter().enumerate() {
            if plan.placement.service(index) == view.present.service(index) {
                continue;
            }
            let record = self.records.entry(service.name.clone()).or_default();
            record.stage = Stage::Moving;
            record.wanted = plan.placement.by_node(index, view.nodes);
            let former = view.present.by_node(index, view.nodes);
            record.former = (!plan.mends).then_some(former);
            record.before = self.tallies.get(&service.name).map(Tally::mean);
            record.after = None;
        }
        self.tallies.clear();
    }

    /// Returns the target: the present placement, with the services that are in progress at their targets.
    fn target(&self, view: &View<'_>) -> Placement {
        self.placed(view, |record| {
            let under_way = matches!(record.stage, Stage::Moving | Stage::Undoing);
            under_way.then(|| record.wanted.clone())
        })
    }

    /// Returns the present placement, with services placed as in their records.
    fn placed(&self, view: &View<'_>, of: impl Fn(&Record) -> Option<Spread>) -> Placement {
        let mut placed = view.present.clone();
        for (name, record) in &self.records {
            let (Some(index), Some(spread)) = (view.graph.service(name), of(record)) else {
                continue;
            };
            let replicas = placed.service(index).iter().sum::<u32>();
            // A removed node runs nothing, and a spread with another number of replicas is
            // outdated.
            let gone = spread.keys().any(|node| view.nodes.node(node).is_none());
            if gone || replicas != spread.values().sum::<u32>() {
                continue;
            }
            for (node, at) in view.nodes.all().iter().enumerate() {
                placed.set(index, node, spread.get(&at.name).copied().unwrap_or(0));
            }
        }
        placed
    }

    /// Returns the services that are being moved, moved back, or evaluated.
    #[must_use]
    pub fn under_way(&self) -> BTreeSet<&str> {
        let settled = |record: &Record| matches!(record.stage, Stage::Kept | Stage::RolledBack);
        let under_way = self.records.iter().filter(|(_, record)| !settled(record));
        under_way.map(|(name, _)| &**name).collect()
    }
}

/// Returns the time without moves after a number of failures; each failure doubles it.
fn rest(cool_down: Duration, failures: u32) -> Duration {
    let doubled = cool_down.saturating_mul(2_u32.saturating_pow(failures.min(20)));
    doubled.min(LONGEST_REST.max(cool_down))
}
