//! `probe`: queries some servers for their true load when a request arrives, and takes the least loaded of those that
//! answer in time. This is the choice of the shortest of d queues, at any number of balancers, for 2·d messages and a
//! round trip.
//!
//! Candidates are distinct, unlike those of `lor`: a second query to a server adds nothing.

use std::sync::Arc;

use super::least_outstanding::LeastOutstanding;
use super::{Choices, Index, PickCtx, Policy, SharedTables};
use crate::queue_protocol::{Answer, AnswerTimeout, Asked, Classes, Decision, Question, Step};
use crate::weighted_load::{least, unit_of};
use crate::{Rng, View};

#[derive(Debug)]
pub(crate) struct Probe {
    choices: u32,
    /// The timeout of queries, which outlives the view.
    timeout: Arc<AnswerTimeout>,
    /// The localities of the endpoints; `None` if the weights are not those of localities.
    classes: Option<Classes>,
    local: LeastOutstanding,
}

impl Probe {
    /// The maximum number of servers that one request may query.
    pub(crate) const MAX_CHOICES: u32 = 16;

    /// Creates a policy for callers that select the endpoints to compare.
    pub(crate) fn new(choices: u32, timeout: Arc<AnswerTimeout>) -> Self {
        Self {
            choices,
            timeout,
            classes: None,
            local: LeastOutstanding::new(Choices::TWO),
        }
    }

    pub(crate) fn of(view: &View, choices: u32, previous: Option<SharedTables>) -> Self {
        let timeout = previous.and_then(|previous| previous.downcast().ok());
        Self {
            classes: Classes::by_locality(view),
            ..Self::new(choices, timeout.unwrap_or_default())
        }
    }

    pub(crate) fn ask(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let mut to = Asked::new();
        if view.is_uneven(ctx.now) {
            let candidates = decision.candidates(view, members, self.choices, ctx, rng);
            for candidate in &candidates {
                if !to.contains(&candidate.of) {
                    to.push(candidate.of);
                }
            }
        }
        while !view.is_uneven(ctx.now) && to.len() < self.choices as usize {
            match decision.draw(view, members, &to, ctx, rng) {
                Some(next) => to.push(next),
                None => break,
            }
        }
        match &*to {
            [] => Step::Fail,
            [only] => Step::send(Some(*only)),
            _ => decision.ask(to, Question::Load, self.timeout.get(), ctx.now),
        }
    }

    pub(crate) fn heard_from(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        (from, answer): (Index, Answer),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let Answer::Load(load) = answer else {
            return Step::Wait;
        };
        self.timeout.learn(decision.asked_at, ctx.now);
        decision.saw(from, load.in_flight);
        decision.waiting = decision.waiting.saturating_sub(1);
        if decision.waiting > 0 {
            return Step::Wait;
        }
        self.best(decision, view, members, ctx, rng)
            .map_or(Step::Wait, |best| Step::send(Some(best)))
    }

    /// Returns the least loaded of the servers that have answered.
    fn best(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Option<Index> {
        if view.is_uneven(ctx.now) {
            let mut candidates = decision.candidates(view, members, self.choices, ctx, rng);
            let unit = unit_of(&candidates);
            candidates.retain(|candidate| decision.load_of(candidate.of).is_some());
            for candidate in &mut candidates {
                candidate.load = decision.load_of(candidate.of).unwrap_or_default();
            }
            let best = least(&candidates, unit, &mut decision.tosses());
            if best.is_some() {
                return best;
            }
        }
        decision.best().map(|seen| seen.index)
    }
}

impl Probe {
    /// Returns the best of the answers received before the timeout.
    pub(crate) fn settle(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Option<Index> {
        let best = self.best(decision, view, members, ctx, rng);
        if best.is_none() {
            self.timeout.expired();
        }
        best
    }
}

impl Policy for Probe {
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
        let classes = self.classes.as_ref();
        decision.enter_class(classes, view, ctx, rng);
        let members = decision.members_of_class(classes);
        match self.ask(decision, view, members, ctx, rng) {
            Step::Fail => Step::send(self.pick(view, ctx, rng)),
            step => step,
        }
    }

    fn answered(
        &self,
        decision: &mut Decision,
        view: &View,
        answer: (Index, Answer),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let members = decision.members_of_class(self.classes.as_ref());
        self.heard_from(decision, view, members, answer, ctx, rng)
    }

    fn timed_out(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.fallen_back = true;
        let members = decision.members_of_class(self.classes.as_ref());
        let best = self.settle(decision, view, members, ctx, rng);
        Step::send(best.or_else(|| self.pick(view, ctx, rng)))
    }

    fn tables(&self) -> Option<SharedTables> {
        Some(Arc::<AnswerTimeout>::clone(&self.timeout))
    }
}
