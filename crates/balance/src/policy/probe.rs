//! `probe`: asks some servers for their true load when a request arrives, and takes the least loaded
//! of those that answer in time. The choice of the shortest of d queues at any number of balancers,
//! for 2·d messages and a round trip.
//!
//! Candidates are distinct, unlike those of `lor`: asking a server twice tells nothing.

use super::least_outstanding::LeastOutstanding;
use super::{Choices, Index, PickCtx, Policy};
use crate::exchange::{Answer, Asked, Decision, Patience, Question, Step};
use crate::{Rng, Time, View};

#[derive(Debug)]
pub(crate) struct Probe {
    choices: u32,
    patience: Patience,
    local: LeastOutstanding,
}

impl Probe {
    /// The most servers that one request may ask.
    pub(crate) const MAX_CHOICES: u32 = 16;

    pub(crate) fn new(choices: u32) -> Self {
        Self {
            choices,
            patience: Patience::default(),
            local: LeastOutstanding::new(Choices::TWO),
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
        while to.len() < self.choices as usize {
            match decision.draw(view, members, &to, ctx, rng) {
                Some(next) => to.push(next),
                None => break,
            }
        }
        match &*to {
            [] => Step::Fail,
            [only] => Step::send(Some(*only)),
            _ => decision.ask(to, Question::Load, self.patience.get(), ctx.now),
        }
    }

    pub(crate) fn heard_from(
        &self,
        decision: &mut Decision,
        from: Index,
        answer: Answer,
        now: Time,
    ) -> Step {
        let Answer::Load(load) = answer else {
            return Step::Wait;
        };
        self.patience.learn(decision.asked_at, now);
        decision.saw(from, load.in_flight);
        decision.waiting = decision.waiting.saturating_sub(1);
        match decision.best() {
            Some(best) if decision.waiting == 0 => Step::send(Some(best.index)),
            _ => Step::Wait,
        }
    }
}

impl Probe {
    /// The best of what has been heard when the time is over.
    pub(crate) fn give_up(&self, decision: &Decision) -> Option<Index> {
        let best = decision.best();
        if best.is_none() {
            self.patience.waited_in_vain();
        }
        best.map(|seen| seen.index)
    }
}

impl Policy for Probe {
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
        match self.ask(decision, view, None, ctx, rng) {
            Step::Fail => Step::send(self.pick(view, ctx, rng)),
            step => step,
        }
    }

    fn answered(
        &self,
        decision: &mut Decision,
        _view: &View,
        (from, answer): (Index, Answer),
        ctx: &PickCtx<'_>,
        _rng: &mut Rng,
    ) -> Step {
        self.heard_from(decision, from, answer, ctx.now)
    }

    fn timed_out(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.fallen_back = true;
        let best = self.give_up(decision);
        Step::send(best.or_else(|| self.pick(view, ctx, rng)))
    }
}
