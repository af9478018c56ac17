//! `bounce`: the request itself asks. It goes to a candidate with an admission limit in its head; the
//! inbound proxy there knows the true count, and above the limit sends the request back at once,
//! before its body, with that count. After `tries` candidates the least loaded one must take it.
//!
//! All tries but the last one ask for an idle server, the last one for one that is no busier than
//! the best seen. With fewer candidates than tries the last candidate is the last try, and an only
//! one must take the request. What comes out is the choice of the shortest of `tries` queues (Mitzenmacher,
//! 2001) with true counts at any number of balancers, but the search ends early where it can: two
//! messages a bounce, none while servers are idle. It needs nothing but sidecars.

use super::least_outstanding::LeastOutstanding;
use super::{Choices, Index, PickCtx, Policy};
use crate::exchange::{Decision, Step};
use crate::{Rng, View};

#[derive(Debug)]
pub(crate) struct Bounce {
    tries: u32,
    local: LeastOutstanding,
}

impl Bounce {
    pub(crate) fn new(tries: u32) -> Self {
        Self {
            tries,
            local: LeastOutstanding::new(Choices::TWO),
        }
    }

    /// The next candidate, or the least loaded one seen when there are no further ones.
    pub(crate) fn next(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let best = decision.best();
        let tried = decision.seen.len() as u32;
        let next = if tried < self.tries {
            decision.draw(view, members, &[], ctx, rng)
        } else {
            None
        };
        let Some(next) = next else {
            return Step::send(best.map(|seen| seen.index));
        };
        if tried + 1 < self.tries && decision.has_more_than(next, view, members, ctx) {
            return Step::try_at(next, 0);
        }
        match best {
            Some(best) => Step::try_at(next, best.in_flight),
            // A single try must succeed.
            None => Step::send(Some(next)),
        }
    }
}

impl Policy for Bounce {
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
        match self.next(decision, view, None, ctx, rng) {
            // Everything has been tried before: repeating beats giving up.
            Step::Fail => Step::send(self.pick(view, ctx, rng)),
            step => step,
        }
    }

    fn refused(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        self.next(decision, view, None, ctx, rng)
    }
}
