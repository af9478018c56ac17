//! `bounce`: the request itself is the query. It is sent to a candidate with an admission limit in its head. The
//! inbound proxy of the candidate knows the true number of requests in flight; above the limit, it rejects the request
//! at once, before its body, with that number. After `attempts` candidates, the least loaded of them must accept the
//! request.
//!
//! All attempts but the last one require an idle server, and the last one a server that is no busier than the best
//! candidate so far. With fewer candidates than attempts, the attempt at the last candidate is the last one; a single
//! candidate must accept the request. The result is the choice of the shortest of `attempts` queues (Mitzenmacher,
//! 2001) with true counts, at any number of balancers, but the search ends early if possible: a rejection costs two
//! messages, and there are none while servers are idle. The policy needs only sidecars.

use super::least_outstanding::LeastOutstanding;
use super::{Choices, Index, PickCtx, Policy};
use crate::queue_protocol::{Classes, Decision, Step};
use crate::weighted_load::{limit, rounded, unit_of};
use crate::{Rng, View};

#[derive(Debug)]
pub(crate) struct Bounce {
    attempts: u32,
    /// The localities of the endpoints; `None` if the weights are not those of localities.
    classes: Option<Classes>,
    local: LeastOutstanding,
}

impl Bounce {
    /// Creates a policy for callers that select the endpoints to compare.
    pub(crate) fn new(attempts: u32) -> Self {
        Self {
            attempts,
            classes: None,
            local: LeastOutstanding::new(Choices::TWO),
        }
    }

    pub(crate) fn of(view: &View, attempts: u32) -> Self {
        Self {
            classes: Classes::by_locality(view),
            ..Self::new(attempts)
        }
    }

    /// Returns the next candidate, or the least loaded candidate so far if there are no further ones.
    pub(crate) fn next(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        if view.is_uneven(ctx.now) {
            return self.next_uneven(decision, view, members, ctx, rng);
        }
        let best = decision.best();
        let attempted = decision.seen.len() as u32;
        let next = if attempted < self.attempts {
            decision.draw(view, members, &[], ctx, rng)
        } else {
            None
        };
        let Some(next) = next else {
            return Step::send(best.map(|seen| seen.index));
        };
        if attempted + 1 < self.attempts && decision.has_more_than(next, view, members, ctx) {
            return Step::try_at(next, 0);
        }
        match best {
            Some(best) => Step::try_at(next, best.in_flight),
            // A single attempt must succeed.
            None => Step::send(Some(next)),
        }
    }

    /// Returns the next candidate for unequal shares: limits are requests per place ([`places`](crate::weighted_load)).
    fn next_uneven(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let candidates = decision.candidates(view, members, self.attempts, ctx, rng);
        let (unit, mut tosses) = (unit_of(&candidates), decision.tosses());
        let mut best: Option<(Index, f64)> = None;
        let mut left = &*candidates;
        while let Some(next) = left.first() {
            // Consecutive places of a server are requested together: one of them idle is enough.
            let run = left.iter().take_while(|place| place.of == next.of).count();
            let toss = (0..run).map(|_| tosses.unit()).fold(1.0, f64::min);
            left = &left[run..];
            let places = next.weight / unit;
            let Some(load) = decision.load_of(next.of) else {
                let most = match best {
                    _ if !left.is_empty() => 0.0,
                    Some((_, least)) => least,
                    // A single attempt must succeed.
                    None => return Step::send(Some(next.of)),
                };
                return Step::try_at(next.of, limit(most, places, toss));
            };
            let rounded = rounded(load, places, toss);
            if rounded <= 0.0 {
                return Step::send(Some(next.of));
            }
            if best.is_none_or(|(_, least)| rounded < least) {
                best = Some((next.of, rounded));
            }
        }
        Step::send(best.map(|(of, _)| of))
    }
}

impl Policy for Bounce {
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
        match self.next(decision, view, members, ctx, rng) {
            // All endpoints have been attempted before: repeating is better than giving up.
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
        let members = decision.members_of_class(self.classes.as_ref());
        self.next(decision, view, members, ctx, rng)
    }
}
