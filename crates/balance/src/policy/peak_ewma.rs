//! `peak-ewma`: the least of d candidates by expected wait, latency average × (outstanding + 1).
//!
//! As Linkerd's balancer and tower's `PeakEwma`, but candidates are drawn with replacement like
//! everywhere in this crate. With weights, `outstanding` is scaled by mean weight / weight, so that
//! endpoints that are idle and equally fast still share in proportion to their weights.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Index, PickCtx, Policy};
use crate::endpoint::DEFAULT_DECAY;
use crate::view::{Field, Slot};
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
    /// Candidates compared, 1–1024.
    pub choices: NonZeroU32,
    /// Time constant of the average: 1 ms – 1 h, whole milliseconds.
    pub decay: Duration,
    /// What an endpoint without samples is taken to need: 1 ms – 1 h, whole milliseconds.
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
    /// Also tells the endpoints' statistics the time constant to average with.
    pub(crate) fn new(params: &PeakEwmaParams, view: &View) -> Self {
        for endpoint in view.endpoints().iter() {
            endpoint.stats.set_latency_decay(params.decay);
        }
        Self {
            choices: params.choices.get(),
            default_nanos: params.default_rtt.as_nanos() as f32,
        }
    }

    #[inline]
    fn cost(&self, field: &Field<'_>, slot: &Slot, now: Time) -> f32 {
        let latency = slot.stats.latency_nanos(now).unwrap_or(self.default_nanos);
        let relative_weight = slot.weight as f32 / field.group.mean_weight();
        latency * (slot.stats.outstanding() as f32 / relative_weight + 1.0)
    }
}

impl Policy for PeakEwma {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let field = view.field(ctx, rng)?;
        let mut best = field.draw(rng);
        if self.choices == 1 {
            return Some(best.index);
        }
        let mut least = self.cost(&field, best, ctx.now);
        for _ in 1..self.choices {
            let next = field.draw(rng);
            let cost = self.cost(&field, next, ctx.now);
            if cost < least {
                (best, least) = (next, cost);
            }
        }
        Some(best.index)
    }
}
