//! `lor`: least outstanding requests among d candidates, or among all.
//!
//! Candidates are drawn with replacement, and ties are broken at random, as in the model of the LOR paper (§II) and in
//! Envoy. With weights, or during slow start, candidates are drawn in proportion to their shares and compared place by
//! place ([`places`](crate::weighted_load)).
//!
//! Law (equal weights, n endpoints, m of them at load ≤ k and m' at load < k): the pick has load k with probability
//! `(1 − m'/n)^d − (1 − m/n)^d`, evenly among those at load k.
//!
//! `a-lsq` is the same policy with counts that servers correct periodically (§V): this process's outstanding requests,
//! plus those of other balancers when the server last reported.

use std::hint::select_unpredictable;

use smallvec::SmallVec;

use super::{Choices, Index, PickCtx, Policy};
use crate::view::{Field, Slot};
use crate::weighted_load::{Candidate, Contest, Tie, least, unit_of};
use crate::{Rng, View};

/// `ESTIMATED`: whether the load is the endpoint's estimated load from all balancers (`a-lsq`), rather than the
/// outstanding requests of this process.
#[derive(Debug)]
pub(crate) struct LeastOutstanding<const ESTIMATED: bool = false> {
    choices: Choices,
}

impl<const ESTIMATED: bool> LeastOutstanding<ESTIMATED> {
    pub(crate) fn new(choices: Choices) -> Self {
        Self { choices }
    }
}

impl<const ESTIMATED: bool> Policy for LeastOutstanding<ESTIMATED> {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let field = view.field(ctx, rng)?;
        let slot = match self.choices {
            Choices::Some(d) if field.is_even() => least_of::<ESTIMATED>(&field, d.get(), rng),
            Choices::Some(d) => least_of_uneven(&field, d.get(), load::<ESTIMATED>, rng),
            Choices::All if field.is_even() => least_of_all::<ESTIMATED>(&field, rng),
            Choices::All => least_of_all_uneven::<ESTIMATED>(&field, rng),
        };
        Some(slot.index)
    }
}

/// Returns the least loaded of `d` draws, the first of equals. Draws are independent and identically distributed, so
/// among equals each is the first with the same probability, and no further draw is needed.
#[inline]
fn least_of<'v, const ESTIMATED: bool>(field: &Field<'v>, d: u32, rng: &mut Rng) -> &'v Slot {
    let mut best = field.draw(rng);
    let mut least = load::<ESTIMATED>(best);
    for _ in 1..d {
        let next = field.draw(rng);
        let outstanding = load::<ESTIMATED>(next);
        // A branch predictor cannot predict which of two random endpoints is less loaded.
        let better = outstanding < least;
        best = select_unpredictable(better, next, best);
        least = select_unpredictable(better, outstanding, least);
    }
    best
}

/// Returns the least loaded of `d` draws for unequal shares. It allocates for more than eight candidates.
fn least_of_uneven<'v>(
    field: &Field<'v>,
    d: u32,
    load: impl Fn(&Slot) -> u32,
    rng: &mut Rng,
) -> &'v Slot {
    let drawn: SmallVec<[_; 8]> = (0..d)
        .map(|_| field.draw(rng))
        .map(|of| Candidate {
            of,
            load: load(of),
            weight: field.weight(of),
        })
        .collect();
    least(&drawn, unit_of(&drawn), rng).unwrap_or(&field.group.slots()[0])
}

/// Returns the least loaded of all candidates; ties are broken at random.
fn least_of_all<'v, const ESTIMATED: bool>(field: &Field<'v>, rng: &mut Rng) -> &'v Slot {
    let mut best: Option<(&Slot, u32)> = None;
    let mut ties = 0_u32;
    for slot in field.group.slots() {
        if !field.is_plain() && !field.is_untried(slot) {
            continue;
        }
        let outstanding = load::<ESTIMATED>(slot);
        match best {
            Some((_, least)) if outstanding > least => {}
            Some((_, least)) if outstanding == least => {
                // A running choice among equals: each replaces it with probability 1 / equals so
                // far.
                ties += 1;
                if rng.unit() * f64::from(ties) < 1.0 {
                    best = Some((slot, outstanding));
                }
            }
            _ => (best, ties) = (Some((slot, outstanding)), 1),
        }
    }
    best.map_or(&field.group.slots()[0], |(slot, _)| slot)
}

/// Returns the least loaded of all candidates for unequal shares. It allocates for more than 32 endpoints.
fn least_of_all_uneven<'v, const ESTIMATED: bool>(field: &Field<'v>, rng: &mut Rng) -> &'v Slot {
    let slots = field.group.slots();
    let mut candidates: SmallVec<[Candidate<&'v Slot>; 32]> = slots
        .iter()
        .filter(|slot| field.is_untried(slot))
        .map(|of| Candidate {
            of,
            load: load::<ESTIMATED>(of),
            weight: field.weight(of),
        })
        .collect();
    candidates.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight));
    let mut contest = Contest::new();
    for candidate in candidates {
        contest.offer(candidate, rng, |_| Tie::Equal);
    }
    contest.winner(rng).unwrap_or(&slots[0])
}

#[inline]
fn load<const ESTIMATED: bool>(slot: &Slot) -> u32 {
    if ESTIMATED {
        slot.stats.estimated_load()
    } else {
        slot.stats.outstanding()
    }
}
