//! The fallback of a policy whose host cannot be queried, either within one group or over all endpoints.

use std::fmt;
use std::sync::Arc;

use super::bounce::Bounce;
use super::probe::Probe;
use super::{Index, PickCtx};
use crate::queue_protocol::{Answer, AnswerTimeout, Decision, Step};
use crate::weighted_load::{least, unit_of};
use crate::{Rng, View};

/// The policy that decides when a ledger does not respond.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fallback {
    /// `bounce(tries=3)`.
    Bounce,
    /// `lor(choices=2)`.
    LeastOutstanding,
    /// `probe(choices=2)`.
    Probe,
}

impl Fallback {
    /// The names of the fallbacks.
    pub(crate) const WORDS: &'static [&'static str] = &["bounce", "lor", "probe"];

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "bounce" => Some(Self::Bounce),
            "lor" => Some(Self::LeastOutstanding),
            "probe" => Some(Self::Probe),
            _ => None,
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bounce => "bounce",
            Self::LeastOutstanding => "lor",
            Self::Probe => "probe",
        })
    }
}

/// The number of candidates of the fallback when it is `lor` or `probe`.
const CHOICES: u32 = 2;

/// The number of attempts of the fallback when it is `bounce`.
const ATTEMPTS: u32 = 3;

/// A fallback with its state.
///
/// The methods are those of a [`Policy`](super::Policy), for the part of a decision after [`Decision::fall_back`].
/// `members` restricts the choice to a group.
#[derive(Debug)]
pub struct FallbackPlan(Kind);

#[derive(Debug)]
enum Kind {
    Bounce(Bounce),
    LeastOutstanding,
    Probe(Probe),
}

impl FallbackPlan {
    /// Creates a fallback; `timeout` is the timeout of its own queries.
    #[must_use]
    pub fn new(fallback: Fallback, timeout: Arc<AnswerTimeout>) -> Self {
        Self(match fallback {
            Fallback::Bounce => Kind::Bounce(Bounce::new(ATTEMPTS)),
            Fallback::LeastOutstanding => Kind::LeastOutstanding,
            Fallback::Probe => Kind::Probe(Probe::new(CHOICES, timeout)),
        })
    }

    /// Returns the first step.
    pub fn begin(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let step = match &self.0 {
            Kind::Bounce(bounce) => bounce.next(decision, view, members, ctx, rng),
            Kind::LeastOutstanding => least_of_members(decision, view, members, ctx, rng),
            Kind::Probe(probe) => probe.ask(decision, view, members, ctx, rng),
        };
        if step != Step::Fail || members.is_none() {
            return step;
        }
        // The group is exhausted or unusable; the others may not be.
        decision.scope = None;
        self.begin(decision, view, None, ctx, rng)
    }

    /// Returns the next step after an endpoint has answered.
    pub fn answered(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        answer: (Index, Answer),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        match &self.0 {
            Kind::Probe(probe) => probe.heard_from(decision, view, members, answer, ctx, rng),
            Kind::Bounce(_) | Kind::LeastOutstanding => Step::Wait,
        }
    }

    /// Returns the next step after an endpoint has rejected the request.
    pub fn refused(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        match &self.0 {
            Kind::Bounce(bounce) => bounce.next(decision, view, members, ctx, rng),
            Kind::LeastOutstanding | Kind::Probe(_) => {
                least_of_members(decision, view, members, ctx, rng)
            }
        }
    }

    /// Returns the next step after some answers have not arrived in time.
    pub fn timed_out(
        &self,
        decision: &mut Decision,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        let best = match &self.0 {
            Kind::Probe(probe) => probe.settle(decision, view, members, ctx, rng),
            Kind::Bounce(_) | Kind::LeastOutstanding => None,
        };
        match best {
            Some(best) => Step::send(Some(best)),
            None => least_of_members(decision, view, members, ctx, rng),
        }
    }
}

/// Picks by `lor(choices=2)` among members.
fn least_of_members(
    decision: &mut Decision,
    view: &View,
    members: Option<&[Index]>,
    ctx: &PickCtx<'_>,
    rng: &mut Rng,
) -> Step {
    if view.is_uneven(ctx.now) {
        let mut candidates = decision.candidates(view, members, CHOICES, ctx, rng);
        for candidate in &mut candidates {
            let endpoint = view.endpoint(candidate.of);
            candidate.load = endpoint.map_or(0, |endpoint| endpoint.stats.outstanding());
        }
        let unit = unit_of(&candidates);
        return Step::send(least(&candidates, unit, &mut decision.tosses()));
    }
    let outstanding = |index: &Index| view.endpoint(*index).map(|e| e.stats.outstanding());
    let drawn = (0..CHOICES).filter_map(|_| decision.draw(view, members, &[], ctx, rng));
    Step::send(drawn.min_by_key(outstanding))
}
