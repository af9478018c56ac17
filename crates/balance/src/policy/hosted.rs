//! `ledger` and `join-idle-queue`: policies that ask one host about a group of servers.
//!
//! A server is drawn as any policy draws, by weight, health and slow start; its group's host is
//! asked. So every group gets traffic in proportion to what its servers deserve. Without an answer
//! in time, or with an answer of no use, the fallback decides. A host that is silent several times in
//! a row is left alone for a while; `ledger` then keeps to the servers of its group, for the other
//! ledgers' servers have their own share of the traffic already.

use super::fallback::{Fallback, Plan};
use super::least_outstanding::LeastOutstanding;
use super::{Choices, Index, PickCtx, Policy};
use crate::exchange::{
    Admission, Answer, Asked, Decision, Groups, Patience, Question, Step, Ticket, Trust,
};
use crate::{Rng, View};

/// A policy that asks a group's host.
#[derive(Debug)]
pub(crate) struct Hosted {
    question: Question,
    groups: Groups,
    /// One a group.
    trust: Box<[Trust]>,
    patience: Patience,
    fallback: Plan,
    local: LeastOutstanding,
}

impl Hosted {
    /// `ledger(group=…)`.
    pub(crate) fn ledger(view: &View, size: u32, fallback: Fallback) -> Self {
        Self::new(Question::Referral, Groups::of_size(view, size), fallback)
    }

    /// `join-idle-queue(boards=…)`.
    pub(crate) fn board(view: &View, boards: u32, fallback: Fallback) -> Self {
        Self::new(Question::Idle, Groups::of_count(view, boards), fallback)
    }

    fn new(question: Question, groups: Groups, fallback: Fallback) -> Self {
        Self {
            question,
            trust: (0..groups.len()).map(|_| Trust::default()).collect(),
            groups,
            patience: Patience::default(),
            fallback: Plan::new(fallback),
            local: LeastOutstanding::new(Choices::TWO),
        }
    }

    fn fall_back(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.fallen_back = true;
        match self
            .fallback
            .begin(decision, view, self.members(decision), ctx, rng)
        {
            // Everything has been tried before: repeating beats giving up.
            Step::Fail => Step::send(self.pick(view, ctx, rng)),
            step => step,
        }
    }

    /// The servers that the fallback may choose from.
    fn members(&self, decision: &Decision) -> Option<&[Index]> {
        match self.question {
            Question::Referral => decision.scope.map(|group| self.groups.members(group)),
            // A board hands out idle servers only: its group has no share of the rest.
            Question::Idle | Question::Load => None,
        }
    }

    /// The server that an answer names, if the request may go there.
    fn named(
        &self,
        answer: Answer,
        view: &View,
        ctx: &PickCtx<'_>,
    ) -> Option<(Index, Option<Ticket>)> {
        let (name, ticket) = match answer {
            Answer::Idle(name) => (name?, None),
            Answer::Referral(referral) => {
                let referral = referral?;
                (referral.server, Some(referral.ticket?))
            }
            Answer::Load(_) => return None,
        };
        let index = self.groups.named(name)?;
        let fits = view.is_usable(index) && !ctx.excluded.contains(&index);
        fits.then_some((index, ticket))
    }

    /// The server whose turn it is, where its load is not known.
    fn turn_of(&self, answer: Answer) -> Option<Index> {
        match answer {
            Answer::Referral(Some(referral)) if referral.ticket.is_none() => {
                self.groups.named(referral.server)
            }
            Answer::Referral(_) | Answer::Idle(_) | Answer::Load(_) => None,
        }
    }

    fn trust(&self, decision: &Decision) -> Option<&Trust> {
        self.trust.get(decision.scope? as usize)
    }
}

impl Policy for Hosted {
    /// Without the help of inbound proxies: `lor(choices=2)`.
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
        decision.scope = self.groups.of(drawn);
        if self
            .members(decision)
            .is_some_and(|members| members == [drawn])
        {
            // The ledger of a single server could name no other: a round trip for nothing.
            return Step::send(Some(drawn));
        }
        let host = decision.scope.and_then(|group| self.groups.host(group));
        let trusted = self
            .trust(decision)
            .is_some_and(|trust| trust.allows(ctx.now));
        match host {
            Some(host) if trusted => {
                let to = Asked::from_slice(&[host]);
                decision.ask(to, self.question, self.patience.get(), ctx.now)
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
        self.patience.learn(decision.asked_at, ctx.now);
        if let Some(trust) = self.trust(decision) {
            trust.answered();
        }
        match self.named(answer, view, ctx) {
            Some((to, ticket)) => Step::Send {
                to,
                admission: Admission::Always,
                ticket,
            },
            None => {
                decision.first = self.turn_of(answer);
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
        self.patience.waited_in_vain();
        if let Some(trust) = self.trust(decision) {
            trust.silent(decision.asked_at, ctx.now);
        }
        self.fall_back(decision, view, ctx, rng)
    }
}
