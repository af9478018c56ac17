//! The assignment of one request to an endpoint, for policies that query servers or ledgers.
//!
//! The caller keeps a [`Decision`] with the request, executes each [`Step`] and passes its result back, until the
//! request is sent and admitted. A local policy needs one step. The caller owns the state, so that threads can share a
//! policy and a request can be dropped at any point.
//!
//! Invariant: a decision ends. Each answer, rejection or timeout brings it nearer to a step
//! `Send { admission: Always, … }`, which cannot be rejected.

use std::time::Duration;

use smallvec::SmallVec;

use super::classes::Classes;
use super::message::{Admission, Question, Ticket};
use crate::hash::mix;
use crate::policy::{Index, PickCtx};
use crate::weighted_load::Candidate;
use crate::{Rng, Time, View};

/// The endpoints that are queried at once: usually one, with `probe(choices=2)` two.
pub type Asked = SmallVec<[Index; 4]>;

/// The next action for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Send a query to the inbound proxies of these endpoints, and pass each answer to
    /// [`Balancer::answered`](crate::Balancer::answered) as it arrives. If some answers do not arrive within `timeout`,
    /// call [`Balancer::timed_out`](crate::Balancer::timed_out) and drop later ones.
    Ask {
        /// The endpoints to query.
        to: Asked,
        /// The query.
        question: Question,
        /// The maximum time for which the request waits for answers.
        timeout: Duration,
    },
    /// Fail the request, because no endpoint is usable.
    Fail,
    /// Send the request, with the condition and the ticket in its head. If the endpoint rejects it,
    /// call [`Balancer::refused`](crate::Balancer::refused).
    Send {
        /// The endpoint to send the request to.
        to: Index,
        /// The condition under which the endpoint admits the request.
        admission: Admission,
        /// The ticket from the ledger; `None` if no ledger has selected the endpoint.
        ticket: Option<Ticket>,
    },
    /// Continue to wait, because some answers have not arrived yet.
    Wait,
}

impl Step {
    /// Returns a step that sends the request without condition, so that it cannot be rejected; [`Fail`](Self::Fail)
    /// without an endpoint.
    #[must_use]
    pub fn send(to: Option<Index>) -> Self {
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

/// The state of a request's assignment. If it is reused for further requests, it does not allocate.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The endpoints whose true load is known, from an answer or a rejection.
    pub(crate) seen: SmallVec<[KnownLoad; 4]>,
    /// The ledger's group of servers to which the request is restricted; `None` = all servers.
    pub(crate) scope: Option<u32>,
    /// The part of the view, of one priority level and locality, to which the request is restricted: a comparison
    /// across its bounds would violate shares and priorities.
    pub(crate) part: Option<u32>,
    /// The class of endpoints to which the request is restricted, if a part has several classes.
    pub(crate) class: Option<u32>,
    /// The number of outstanding answers.
    pub(crate) waiting: u32,
    /// When the query was sent.
    pub(crate) asked_at: Time,
    /// Whether the policy's first plan has failed, so that the fallback decides.
    pub(crate) fallen_back: bool,
    /// The endpoints that the next draws return, if the request may go there.
    pub(crate) first: SmallVec<[Index; 2]>,
    /// The seed of the candidates and the random numbers for unequal shares; 0 before it is drawn. At each step, the
    /// candidates are drawn again from the seed instead of being stored, which would take memory in every request.
    seed: u64,
}

/// An endpoint's true load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct KnownLoad {
    pub(crate) index: Index,
    pub(crate) in_flight: u32,
}

impl Decision {
    /// Creates the state of a request about which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Resets the state, for the next request or the next attempt of this one.
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

    /// Chooses the class of endpoints to compare for the request, by drawing the first of them.
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

    /// Returns the endpoints to compare for the request; `None` = those of a part of the view.
    pub(crate) fn members_of_class<'c>(&self, classes: Option<&'c Classes>) -> Option<&'c [Index]> {
        let class = classes?.get(self.class?)?;
        Some(&class.members)
    }

    /// Returns whether the policy's first plan has failed: no answer arrived in time, or a useless one.
    #[must_use]
    pub fn has_fallen_back(&self) -> bool {
        self.fallen_back
    }

    /// Records that the policy's first plan has failed.
    pub fn fall_back(&mut self) {
        self.fallen_back = true;
    }

    /// Returns the group of servers to which the request is restricted; `None` = all servers.
    #[must_use]
    pub fn scope(&self) -> Option<u32> {
        self.scope
    }

    /// Restricts the request to a group of servers.
    pub fn stay_with(&mut self, scope: Option<u32>) {
        self.scope = scope;
    }

    /// Returns when the query was sent.
    #[must_use]
    pub fn asked_at(&self) -> Time {
        self.asked_at
    }

    pub(crate) fn saw(&mut self, index: Index, in_flight: u32) {
        self.seen.push(KnownLoad { index, in_flight });
    }

    /// Returns the least loaded of the endpoints with known load; the first of equals, because they were drawn
    /// independently.
    pub(crate) fn best(&self) -> Option<KnownLoad> {
        self.seen.iter().copied().min_by_key(|seen| seen.in_flight)
    }

    /// Sends a query to `to` and records the time.
    pub fn ask(&mut self, to: Asked, question: Question, timeout: Duration, now: Time) -> Step {
        self.waiting = to.len() as u32;
        self.asked_at = now;
        Step::Ask {
            to,
            question,
            timeout,
        }
    }

    /// Draws an endpoint that the request has not attempted, whose load is not known, and that is not in `but`; `None`
    /// if there is none. `members` restricts the choice to a group; without it, all draws of a request are from the
    /// same part of the view.
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

    /// Returns the candidates of a request with unequal shares: `attempts` places, as in [`places`](crate::weighted_load),
    /// which are drawn by weight, each at most once. So a server can be drawn several times, but more rarely the closer
    /// the weights are to each other, and never if they are equal. If only distinct servers were drawn, a light one
    /// would be the second choice of nearly all requests.
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

    /// Returns the random numbers for the candidates, in their order.
    pub(crate) fn tosses(&self) -> Rng {
        Rng::seed(mix(self.seed))
    }

    /// Returns the number of requests in flight at an endpoint, if it is known.
    pub(crate) fn load_of(&self, index: Index) -> Option<u32> {
        let seen = self.seen.iter().find(|seen| seen.index == index);
        seen.map(|seen| seen.in_flight)
    }

    /// Returns whether a further [`draw`](Self::draw) could return an endpoint other than `next`.
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

/// Places drawn by weight, usually at most four.
pub(crate) type Candidates = SmallVec<[Candidate<Index>; 4]>;

/// The number of draws of places already drawn after which a draw is given up.
const REPEATS: u32 = 16;

/// Draws `attempts` places with `draw`, which draws servers by weight; `unit` is the size of a place.
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

/// Draws places among the members of a group.
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

/// The number of random draws after which the members are checked one by one.
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
