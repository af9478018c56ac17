//! `ledger`: queries one host about a group of servers.
//!
//! A server is drawn as in any policy, by weight, health and slow start, and the host of its group is queried. So every
//! group gets traffic in proportion to the shares of its servers. Groups are the same at every node, but the servers of
//! a group that a request may go to are not: the query is restricted to the [cell](Cell) of the drawn server. Without
//! an answer in time, or with a useless one, the fallback decides. A host that fails to answer several times in a row
//! is not queried for a while. During that time the policy chooses among the servers of the cell, because the servers
//! of other ledgers already get their own share of the traffic.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::fallback::{Fallback, FallbackPlan};
use super::least_outstanding::LeastOutstanding;
use super::{Choices, Index, PickCtx, Policy, SharedTables};
use crate::queue_protocol::{
    Admission, Answer, Asked, Classes, Decision, Groups, KnownHosts, Name, Question, Step, Ticket,
    Trust,
};
use crate::{Rng, View};

/// The value for an endpoint that is not usable and belongs to no cell.
const NONE: u32 = u32::MAX;

/// The policy that queries the host of a group.
#[derive(Debug)]
pub(crate) struct Hosted {
    groups: Groups,
    cells: Vec<Cell>,
    /// The index of the cell of each endpoint.
    cell_of: Box<[u32]>,
    hosts: Arc<KnownHosts>,
    fallback: FallbackPlan,
    local: LeastOutstanding,
}

/// The usable servers of a group among which requests may be compared; see [`Classes`].
#[derive(Debug)]
struct Cell {
    group: u32,
    members: Box<[Index]>,
    /// Whether the servers should have equal shares.
    equal: bool,
    /// The query for these servers; `None` = the ledger cannot be queried about them.
    question: Option<Question>,
}

impl Hosted {
    /// Creates `ledger(group=…)`.
    pub(crate) fn new(
        view: &View,
        size: u32,
        fallback: Fallback,
        previous: Option<SharedTables>,
    ) -> Self {
        let groups = Groups::of_size(view, size);
        let previous = previous.and_then(|previous| previous.downcast::<KnownHosts>().ok());
        let hosts = KnownHosts::new(view, &groups, previous.as_deref());
        let mut hosted = Self {
            groups,
            cells: Vec::new(),
            cell_of: vec![NONE; view.len()].into(),
            fallback: FallbackPlan::new(fallback, Arc::clone(&hosts.probe)),
            hosts: Arc::new(hosts),
            local: LeastOutstanding::new(Choices::TWO),
        };
        hosted.lay_out(view);
        hosted
    }

    fn lay_out(&mut self, view: &View) {
        let classes = Classes::new(view);
        let mut cells: BTreeMap<(u32, u32), Vec<Index>> = BTreeMap::new();
        for index in (0..view.len()).map(Index::new) {
            if let (Some(class), Some(group)) = (classes.of(index), self.groups.of(index)) {
                cells.entry((class, group)).or_default().push(index);
            }
        }
        for ((class, group), members) in cells {
            for member in &members {
                self.cell_of[member.get()] = self.cells.len() as u32;
            }
            let equal = classes.get(class).is_some_and(|class| class.equal);
            let question = self.question_about(view, group, &members, equal);
            self.cells.push(Cell {
                group,
                members: members.into(),
                equal,
                question,
            });
        }
    }

    fn question_about(
        &self,
        view: &View,
        group: u32,
        members: &[Index],
        equal: bool,
    ) -> Option<Question> {
        let all = self.groups.members(group).len();
        // Weights known to the ledger may be those of its own node.
        let alike = !equal || view.endpoints().iter().all(|one| one.locality.is_none());
        if members.len() == all && alike {
            return Some(Question::Referral);
        }
        match self.groups.among(group, members, equal) {
            Some(among) => Some(Question::ReferralAmong(among)),
            // The named server is usable most often.
            None => (4 * members.len() >= 3 * all).then_some(Question::Referral),
        }
    }

    /// Returns the query for this request, which excludes the servers that the request has attempted.
    fn question(&self, cell: &Cell, ctx: &PickCtx<'_>) -> Option<Question> {
        if ctx.excluded.is_empty() {
            return cell.question;
        }
        let left = cell.members.iter().copied();
        let left: Vec<Index> = left.filter(|at| !ctx.excluded.contains(at)).collect();
        let among = self.groups.among(cell.group, &left, cell.equal);
        among.map(Question::ReferralAmong).or(cell.question)
    }

    fn fall_back(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.fall_back();
        match self
            .fallback
            .begin(decision, view, self.members(decision), ctx, rng)
        {
            // All endpoints have been attempted before: repeating is better than giving up.
            Step::Fail => Step::send(self.pick(view, ctx, rng)),
            step => step,
        }
    }

    /// Returns the servers that the fallback may choose from.
    fn members(&self, decision: &Decision) -> Option<&[Index]> {
        self.cell(decision).map(|cell| &*cell.members)
    }

    fn cell(&self, decision: &Decision) -> Option<&Cell> {
        self.cells.get(decision.scope? as usize)
    }

    /// Returns the endpoint with this name, if it is among those compared for the request.
    fn known(&self, name: Name, decision: &Decision) -> Option<Index> {
        let index = self.groups.named(name)?;
        let cell = self.cell_of.get(index.get());
        let fits = cell.is_some_and(|cell| decision.scope == Some(*cell));
        fits.then_some(index)
    }

    /// Returns the server that an answer names, if it is among those compared for the request.
    fn named(
        &self,
        answer: Answer,
        decision: &Decision,
        view: &View,
        ctx: &PickCtx<'_>,
    ) -> Option<(Index, Ticket)> {
        let Answer::Referral(Some(referral)) = answer else {
            return None;
        };
        let ticket = referral.ticket?;
        let index = self.known(referral.server, decision)?;
        let fits = view.is_usable(index) && !ctx.excluded.contains(&index);
        fits.then_some((index, ticket))
    }

    /// Returns the server whose turn it is although its load is unknown, and the server to compare it with.
    fn turn_of(&self, answer: Answer, decision: &Decision) -> SmallVec<[Index; 2]> {
        match answer {
            Answer::Referral(Some(referral)) if referral.ticket.is_none() => {
                let names = [Some(referral.server), referral.second]
                    .into_iter()
                    .flatten();
                names
                    .filter_map(|name| self.known(name, decision))
                    .collect()
            }
            Answer::Referral(_) | Answer::Load(_) => SmallVec::new(),
        }
    }

    fn trust(&self, decision: &Decision) -> Option<&Trust> {
        self.hosts.trust(self.cell(decision)?.group)
    }
}

impl Policy for Hosted {
    /// Picks without the help of inbound proxies: `lor(choices=2)`.
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        self.local.pick(view, ctx, rng)
    }

    fn begin(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.reset();
        let Some(field) = view.field(ctx, rng) else {
            return Step::Fail;
        };
        let drawn = field.draw(rng).index;
        let cell = self.cell_of.get(drawn.get()).copied();
        decision.scope = cell.filter(|cell| *cell != NONE);
        if self
            .members(decision)
            .is_some_and(|members| members == [drawn])
        {
            // The ledger of a single server could name no other: an unnecessary round trip.
            return Step::send(Some(drawn));
        }
        let host = self.cell(decision).and_then(|cell| {
            let question = self.question(cell, ctx)?;
            Some((self.groups.host(cell.group)?, question))
        });
        match host {
            Some((host, question))
                if self
                    .trust(decision)
                    .is_some_and(|trust| trust.allows(ctx.now)) =>
            {
                let (to, timeout) = (Asked::from_slice(&[host]), self.hosts.timeout.get());
                decision.ask(to, question, timeout, ctx.now)
            }
            _ => self.fall_back(decision, view, ctx, rng),
        }
    }

    fn answered(
        &self,
        decision: &mut Decision,
        view: &View,
        (from, answer): (Index, Answer),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        if decision.fallen_back {
            let (members, answer) = (self.members(decision), (from, answer));
            return self
                .fallback
                .answered(decision, view, members, answer, ctx, rng);
        }
        self.hosts.timeout.learn(decision.asked_at, ctx.now);
        if let Some(trust) = self.trust(decision) {
            trust.answered();
        }
        match self.named(answer, decision, view, ctx) {
            Some((to, ticket)) => Step::Send {
                to,
                admission: Admission::Always,
                ticket: Some(ticket),
            },
            None => {
                decision.first = self.turn_of(answer, decision);
                self.fall_back(decision, view, ctx, rng)
            }
        }
    }

    fn refused(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let members = self.members(decision);
        self.fallback.refused(decision, view, members, ctx, rng)
    }

    fn timed_out(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        if decision.fallen_back {
            let members = self.members(decision);
            return self.fallback.timed_out(decision, view, members, ctx, rng);
        }
        self.hosts.timeout.expired();
        if let Some(trust) = self.trust(decision) {
            trust.silent(decision.asked_at, ctx.now);
        }
        self.fall_back(decision, view, ctx, rng)
    }

    fn tables(&self) -> Option<SharedTables> {
        Some(Arc::clone(&self.hosts) as SharedTables)
    }
}
