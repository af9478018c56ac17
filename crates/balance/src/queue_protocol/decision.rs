//! One request's way to an endpoint, for policies that talk to others.
//!
//! The caller keeps a [`Decision`] beside the request, does what a [`Step`] says and hands back what
//! came of it, until the request is sent and admitted. A local policy needs one step. The state is
//! the caller's, so that a policy can be shared by threads and a request can be dropped at any point.
//!
//! Invariant: a decision ends. Each answer, refusal or time-out brings it nearer to a step
//! `Send { admission: Always, … }`, which cannot be refused.

use std::time::Duration;

use smallvec::SmallVec;

use super::classes::Classes;
use super::message::{Admission, Question, Ticket};
use crate::hash::mix;
use crate::places::Candidate;
use crate::policy::{Index, PickCtx};
use crate::{Rng, Time, View};

/// Endpoints that are asked at once: most often one, with `probe(choices=2)` two.
pub type Asked = SmallVec<[Index; 4]>;

/// What to do next for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Put a question to the inbound proxies of these endpoints, and hand each answer to
    /// [`Balancer::answered`](crate::Balancer::answered) as it comes. After `patience` without the
    /// last of them, call [`Balancer::timed_out`](crate::Balancer::timed_out) and drop later ones.
    Ask {
        /// Whom.
        to: Asked,
        /// What.
        question: Question,
        /// How long the request waits for answers.
        patience: Duration,
    },
    /// No endpoint is usable.
    Fail,
    /// Send the request, with the condition and the ticket in its head. If the endpoint refuses,
    /// call [`Balancer::refused`](crate::Balancer::refused).
    Send {
        /// Where to.
        to: Index,
        /// When the endpoint may refuse.
        admission: Admission,
        /// From the ledger.
        ticket: Option<Ticket>,
    },
    /// Go on waiting: not everybody has answered yet.
    Wait,
}

impl Step {
    /// A step that cannot be refused.
    pub(crate) fn send(to: Option<Index>) -> Self {
        to.map_or(Self::Fail, |to| Self::Send {
            to,
            admission: Admission::Always,
            ticket: None,
        })
    }

    pub(crate) fn try_at(to: Index, limit: u32) -> Self {
        Self::Send {
            to,
            admission: Admission::AtMost(limit),
            ticket: None,
        }
    }
}

/// What a request has learnt on its way. Reused from request to request it does not allocate.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Endpoints whose true load is known, by answer or by refusal.
    pub(crate) seen: SmallVec<[Seen; 4]>,
    /// The servers of a ledger or board that the request stays with.
    pub(crate) scope: Option<u32>,
    /// The part of the view, of one priority level and locality, that it stays in: comparing over
    /// its bounds would send traffic where shares and priorities send none.
    pub(crate) part: Option<u32>,
    /// The class of endpoints that it stays in, where a part has several.
    pub(crate) class: Option<u32>,
    /// Answers that are still to come.
    pub(crate) waiting: u32,
    /// When the question was asked.
    pub(crate) asked_at: Time,
    /// Whether the first plan failed and the fallback decides.
    pub(crate) fallen_back: bool,
    /// What the next draws give, if the request may go there.
    pub(crate) first: SmallVec<[Index; 2]>,
    /// Determines the candidates and the toss where shares are unequal; 0 before it is drawn. The candidates
    /// are drawn anew from it at each step rather than kept: every request would carry the room for them.
    seed: u64,
}

/// An endpoint's true load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) index: Index,
    pub(crate) in_flight: u32,
}

impl Decision {
    /// A request that nothing is known about.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, for the next request or the next try of this one.
    pub fn reset(&mut self) {
        self.seen.clear();
        self.scope = None;
        self.part = None;
        self.class = None;
        self.waiting = 0;
        self.fallen_back = false;
        self.first.clear();
        self.seed = 0;
    }

    /// Chooses the class of endpoints that the request is compared over, by drawing the first one of them.
    pub(crate) fn enter_class(
        &mut self,
        classes: Option<&Classes>,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) {
        let Some(classes) = classes else { return };
        let drawn = view.field(ctx, rng).map(|field| field.draw(rng).index);
        self.class = drawn.and_then(|drawn| classes.of(drawn));
        self.first.extend(drawn);
    }

    /// The endpoints that it is compared over; `None`: those of a part of the view.
    pub(crate) fn members_of_class<'c>(&self, classes: Option<&'c Classes>) -> Option<&'c [Index]> {
        let class = classes?.get(self.class?)?;
        Some(&class.members)
    }

    /// Whether the policy's first plan failed: no answer in time, or an answer of no use.
    #[must_use]
    pub fn has_fallen_back(&self) -> bool {
        self.fallen_back
    }

    pub(crate) fn saw(&mut self, index: Index, in_flight: u32) {
        self.seen.push(Seen { index, in_flight });
    }

    /// The least loaded of those seen; the first of equals, as they were drawn independently.
    pub(crate) fn best(&self) -> Option<Seen> {
        self.seen.iter().copied().min_by_key(|seen| seen.in_flight)
    }

    /// Asks `to` and remembers when.
    pub(crate) fn ask(
        &mut self,
        to: Asked,
        question: Question,
        patience: Duration,
        now: Time,
    ) -> Step {
        self.waiting = to.len() as u32;
        self.asked_at = now;
        Step::Ask {
            to,
            question,
            patience,
        }
    }

    /// An endpoint that the request has neither attempted nor seen, nor one of `but`; `None` when there
    /// is none left. `members` narrows the choice down to a group; without them all draws of a
    /// request are from the part of the view that the first one was from.
    pub(crate) fn draw(
        &mut self,
        view: &View,
        members: Option<&[Index]>,
        but: &[Index],
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Option<Index> {
        let known = self.known(but, ctx);
        while !self.first.is_empty() {
            let first = self.first.remove(0);
            if view.is_usable(first) && !known.contains(&first) {
                return Some(first);
            }
        }
        let Some(members) = members else {
            let narrowed = ctx.excluding(&known);
            let field = match self.part {
                Some(part) => view.field_within(part, &narrowed)?,
                None => view.field(&narrowed, rng)?,
            };
            let index = field.draw(rng).index;
            if known.contains(&index) {
                return None;
            }
            self.part = field.part();
            return Some(index);
        };
        draw_member(view, members, &known, rng)
    }

    /// The candidates of a request where shares are unequal: `attempts` places, as in
    /// [`places`](crate::places), drawn by weight, each once at most. So a server can come up several times,
    /// and less often the nearer the weights are to each other, never where they are equal. Draws of
    /// distinct servers would make a light one the second choice of nearly all requests.
    pub(crate) fn candidates(
        &mut self,
        view: &View,
        members: Option<&[Index]>,
        attempts: u32,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Candidates {
        if self.seed == 0 {
            self.seed = rng.next_u64() | 1;
        }
        if members.is_none() && self.part.is_none() {
            self.part = view.field(ctx, rng).and_then(|field| field.part());
        }
        let mut drawn = Candidates::new();
        let fits = |at: &&Index| view.is_usable(**at) && !ctx.excluded.contains(at);
        let first = self.first.iter().filter(fits).take(attempts as usize);
        drawn.extend(first.map(|of| Candidate {
            of: *of,
            load: 0,
            weight: view.weight_of(*of, ctx.now),
        }));
        let mut rng = Rng::seed(self.seed);
        match members {
            Some(members) => draw_members(&mut drawn, view, members, attempts, ctx, &mut rng),
            None => {
                let part = self.part.and_then(|part| view.field_within(part, ctx));
                if let Some(field) = part {
                    let draw = |rng: &mut Rng| {
                        let slot = field.draw(rng);
                        let untried = !ctx.excluded.contains(&slot.index);
                        untried.then(|| (slot.index, field.weight(slot)))
                    };
                    draw_places(&mut drawn, field.least_weight(), attempts, draw, &mut rng);
                }
            }
        }
        drawn
    }

    /// The tosses of the candidates, by turns.
    pub(crate) fn tosses(&self) -> Rng {
        Rng::seed(mix(self.seed))
    }

    /// What is in flight at an endpoint, if it has been seen.
    pub(crate) fn load_of(&self, index: Index) -> Option<u32> {
        let seen = self.seen.iter().find(|seen| seen.index == index);
        seen.map(|seen| seen.in_flight)
    }

    /// Whether a further [`draw`](Self::draw) could give anything but `next`.
    pub(crate) fn has_more_than(
        &self,
        next: Index,
        view: &View,
        members: Option<&[Index]>,
        ctx: &PickCtx<'_>,
    ) -> bool {
        let known = self.known(&[next], ctx);
        let fits = |index: &Index| view.is_usable(*index) && !known.contains(index);
        match (members, self.part) {
            (Some(members), _) => members.iter().any(fits),
            (None, Some(part)) => view.members_of(part).any(|index| fits(&index)),
            (None, None) => true,
        }
    }

    fn known(&self, but: &[Index], ctx: &PickCtx<'_>) -> SmallVec<[Index; 8]> {
        let mut known: SmallVec<[Index; 8]> = SmallVec::from_slice(ctx.excluded);
        known.extend(self.seen.iter().map(|seen| seen.index));
        known.extend_from_slice(but);
        known
    }
}

/// Places drawn by weight, most often not more than four.
pub(crate) type Candidates = SmallVec<[Candidate<Index>; 4]>;

/// Places that were drawn before are drawn again so often before a draw is given up.
const REPEATS: u32 = 16;

/// Draws `attempts` places by `draw`, which draws servers by weight; `unit` is the size of a place.
fn draw_places(
    drawn: &mut Candidates,
    unit: f64,
    attempts: u32,
    draw: impl Fn(&mut Rng) -> Option<(Index, f64)>,
    rng: &mut Rng,
) {
    for _ in drawn.len()..attempts as usize {
        for _ in 0..REPEATS {
            let Some((of, weight)) = draw(rng) else {
                return;
            };
            let taken = drawn.iter().filter(|place| place.of == of).count();
            if taken == 0 || rng.unit() * weight >= taken as f64 * unit {
                drawn.push(Candidate {
                    of,
                    load: 0,
                    weight,
                });
                break;
            }
        }
    }
}

/// The same among the members of a group.
fn draw_members(
    drawn: &mut Candidates,
    view: &View,
    members: &[Index],
    attempts: u32,
    ctx: &PickCtx<'_>,
    rng: &mut Rng,
) {
    let fits = |index: &&Index| view.is_usable(**index) && !ctx.excluded.contains(index);
    let weight = |index: &Index| view.weight_of(*index, ctx.now);
    let weights = || members.iter().filter(fits).map(weight);
    let (sum, unit) = (
        weights().sum::<f64>(),
        weights().fold(f64::INFINITY, f64::min),
    );
    let draw = |rng: &mut Rng| {
        let mut left = rng.unit() * sum;
        let mut last = None;
        for index in members.iter().filter(fits) {
            let weight = weight(index);
            last = Some((*index, weight));
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
        last
    };
    draw_places(drawn, unit, attempts, draw, rng);
}

/// Draws before the members are looked at one by one.
const DRAWS: u32 = 8;

fn draw_member(view: &View, members: &[Index], known: &[Index], rng: &mut Rng) -> Option<Index> {
    let fits = |index: &Index| view.is_usable(*index) && !known.contains(index);
    for _ in 0..DRAWS {
        let drawn = members.get(rng.below(members.len() as u32) as usize)?;
        if fits(drawn) {
            return Some(*drawn);
        }
    }
    let left = members.iter().filter(|index| fits(index)).count() as u32;
    let at = rng.below(left) as usize;
    members.iter().copied().filter(fits).nth(at)
}
