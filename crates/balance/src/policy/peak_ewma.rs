//! `peak-ewma`: the candidate, of d, with the least expected wait, latency average × (outstanding + 1).
//!
//! The policy is that of Linkerd's balancer and tower's `PeakEwma`, but candidates are drawn with replacement, as in
//! the other policies here. With weights, `outstanding` is counted per place ([`places`](crate::weighted_load)), so that
//! equally fast endpoints share requests in proportion to their weights. Faster endpoints get more; so this policy
//! guarantees no shares.

use std::num::NonZeroU32;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Index, PickCtx, Policy};
use crate::endpoint::DEFAULT_DECAY;
use crate::view::{Field, Slot};
use crate::weighted_load::{Candidate, rounded, unit_of};
use crate::{Choices, Rng, Time, View};

/// Parameters of `peak-ewma`.
///
/// # Defaults
///
/// * `choices`: 2
/// * `decay`: 10 s (Linkerd)
/// * `default_rtt`: 30 ms (Linkerd)
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PeakEwmaParams {
    /// The number of compared candidates, 1–1024.
    pub choices: NonZeroU32,
    /// The time constant of the average: 1 ms – 1 h, whole milliseconds.
    pub decay: Duration,
    /// The assumed latency of an endpoint without samples: 1 ms – 1 h, whole milliseconds.
    pub default_rtt: Duration,
}

impl Default for PeakEwmaParams {
    fn default() -> Self {
        Self {
            choices: NonZeroU32::MIN.saturating_add(1),
            decay: DEFAULT_DECAY,
            default_rtt: Duration::from_millis(30),
        }
    }
}

impl PeakEwmaParams {
    pub(crate) const MAX_CHOICES: u32 = Choices::MAX;
    pub(crate) const MAX_MS: u32 = 3_600_000;
}

#[derive(Debug)]
pub(crate) struct PeakEwma {
    choices: u32,
    default_nanos: f32,
}

impl PeakEwma {
    /// Creates the policy, and sets the time constant of the endpoints' latency averages.
    pub(crate) fn new(params: &PeakEwmaParams, view: &View) -> Self {
        for endpoint in view.endpoints().iter() {
            endpoint.stats.set_latency_decay(params.decay);
        }
        Self {
            choices: params.choices.get(),
            default_nanos: params.default_rtt.as_nanos() as f32,
        }
    }

    fn latency(&self, slot: &Slot, now: Time) -> f32 {
        slot.stats.latency_nanos(now).unwrap_or(self.default_nanos)
    }

    #[inline]
    fn cost(&self, slot: &Slot, now: Time) -> f32 {
        self.latency(slot, now) * (slot.stats.outstanding() as f32 + 1.0)
    }

    /// Picks for unequal shares. It allocates for more than eight candidates.
    fn pick_uneven(&self, field: &Field<'_>, now: Time, rng: &mut Rng) -> Option<Index> {
        let drawn: SmallVec<[_; 8]> = (0..self.choices)
            .map(|_| field.draw(rng))
            .map(|of| Candidate {
                of,
                load: of.stats.outstanding(),
                weight: field.weight(of),
            })
            .collect();
        let unit = unit_of(&drawn);
        let costs = drawn.iter().map(|candidate| {
            let ahead = rounded(candidate.load, candidate.weight / unit, rng.unit()) as f32;
            let cost = self.latency(candidate.of, now) * (ahead + 1.0);
            (candidate.of.index, cost)
        });
        let least = costs.reduce(|best, next| if next.1 < best.1 { next } else { best });
        least.map(|(index, _)| index)
    }
}

impl Policy for PeakEwma {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let field = view.field(ctx, rng)?;
        if self.choices > 1 && !field.is_even() {
            return self.pick_uneven(&field, ctx.now, rng);
        }
        let mut best = field.draw(rng);
        if self.choices == 1 {
            return Some(best.index);
        }
        let mut least = self.cost(best, ctx.now);
        for _ in 1..self.choices {
            let next = field.draw(rng);
            let cost = self.cost(next, ctx.now);
            if cost < least {
                (best, least) = (next, cost);
            }
        }
        Some(best.index)
    }
}
