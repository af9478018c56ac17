//! `lor`: least outstanding requests among d candidates, or among all.
//!
//! Candidates are drawn with replacement and ties broken at random, as in the model of the LOR
//! paper (§II) and in Envoy. With weights the candidates are drawn in proportion to them and
//! `outstanding / weight` is compared.
//!
//! Law (equal weights, n endpoints, m of them at load ≤ k and m' at load < k): the pick has load k
//! with probability `(1 − m'/n)^d − (1 − m/n)^d`, evenly among those at load k.
//!
//! `a-lsq` is the same rule on counts that servers correct from time to time (§V): the own
//! outstanding requests plus what others had there when the server last reported.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use super::{Choices, Index, PickCtx, Policy};
use crate::view::{Field, Slot};
use crate::{Rng, View};

/// `BELIEVED`: whether the load is what the endpoint is believed to have from all balancers
/// (`a-lsq`), or what this process has outstanding there.
#[derive(Debug)]
pub(crate) struct LeastOutstanding<const BELIEVED: bool = false> {
    choices: Choices,
}

impl<const BELIEVED: bool> LeastOutstanding<BELIEVED> {
    pub(crate) fn new(choices: Choices) -> Self {
        Self { choices }
    }
}

impl<const BELIEVED: bool> Policy for LeastOutstanding<BELIEVED> {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let field = view.field(ctx, rng)?;
        let slot = match self.choices {
            Choices::Some(d) => least_of::<BELIEVED>(&field, d.get(), rng),
            Choices::All => least_of_all::<BELIEVED>(&field, rng),
        };
        Some(slot.index)
    }
}

/// The least loaded of `d` draws. The first of equals wins: draws are independent and alike, so
/// among equals the first is each with the same chance, and no further coin is needed.
#[inline]
fn least_of<'v, const BELIEVED: bool>(field: &Field<'v>, d: u32, rng: &mut Rng) -> &'v Slot {
    let mut best = Loaded::of::<BELIEVED>(field.draw(rng));
    for _ in 1..d {
        let next = Loaded::of::<BELIEVED>(field.draw(rng));
        // Which of two random endpoints is less loaded no branch predictor can know.
        best = select_unpredictable(next.compare(&best) == Ordering::Less, next, best);
    }
    best.slot
}

/// The least loaded of all candidates, ties at random in proportion to the weights.
fn least_of_all<'v, const BELIEVED: bool>(field: &Field<'v>, rng: &mut Rng) -> &'v Slot {
    if field.is_plain() {
        return least_where::<BELIEVED>(field, rng, |_, _| true).unwrap_or(&field.group.slots()[0]);
    }
    // An endpoint in slow start takes part in a scan as often as its factor says: else it would be
    // flooded, being the least loaded.
    least_where::<BELIEVED>(field, rng, |slot, rng| field.admits(slot, rng))
        .or_else(|| least_where::<BELIEVED>(field, rng, |slot, _| field.is_untried(slot)))
        .unwrap_or(&field.group.slots()[0])
}

/// One pass: a running choice among equals, each replacing it with chance `weight / weights so far`.
fn least_where<'v, const BELIEVED: bool>(
    field: &Field<'v>,
    rng: &mut Rng,
    mut admits: impl FnMut(&Slot, &mut Rng) -> bool,
) -> Option<&'v Slot> {
    let mut best: Option<Loaded<'v>> = None;
    let mut ties = 0_u64;
    for slot in field.group.slots() {
        if !admits(slot, rng) {
            continue;
        }
        let next = Loaded::of::<BELIEVED>(slot);
        match best
            .as_ref()
            .map_or(Ordering::Less, |best| next.compare(best))
        {
            Ordering::Less => {
                ties = u64::from(slot.weight);
                best = Some(next);
            }
            Ordering::Equal => {
                ties += u64::from(slot.weight);
                // (2^53 random bits) / weight: exact enough for any sum of weights.
                if rng.unit() * (ties as f64) < f64::from(slot.weight) {
                    best = Some(next);
                }
            }
            Ordering::Greater => {}
        }
    }
    best.map(|best| best.slot)
}

/// A candidate with its load as read once, so that comparisons within a pick are consistent.
#[derive(Clone, Copy)]
struct Loaded<'v> {
    slot: &'v Slot,
    outstanding: u32,
}

impl<'v> Loaded<'v> {
    #[inline]
    fn of<const BELIEVED: bool>(slot: &'v Slot) -> Self {
        let outstanding = if BELIEVED {
            slot.stats.believed()
        } else {
            slot.stats.outstanding()
        };
        Self { slot, outstanding }
    }

    /// Compares `outstanding / weight` without dividing.
    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        let scaled = |a: &Self, b: &Self| u64::from(a.outstanding) * u64::from(b.slot.weight);
        scaled(self, other).cmp(&scaled(other, self))
    }
}
