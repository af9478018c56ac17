//! The field of candidates of one pick: a group, less what the request has tried, thinned by slow
//! start.
//!
//! Invariant: every draw is proportional to `weight × slow-start factor` among the endpoints that
//! are not excluded. Without exclusions and ramps it costs one test more than a plain draw.

use super::group::{Group, Slot};
use super::{SlowStart, View};
use crate::policy::{Index, PickCtx};
use crate::{Rng, Time};

/// Rejections before a draw goes over to an exact scan. With half of the weight admissible the
/// scan is reached once in 65 536 draws.
const MAX_REJECTIONS: u32 = 16;

/// The candidates of one pick.
pub(crate) struct Field<'v> {
    view: &'v View,
    pub(crate) group: &'v Group,
    excluded: &'v [Index],
    ramp: Option<Ramp<'v>>,
}

/// Slow start as of one moment.
#[derive(Clone, Copy)]
struct Ramp<'v> {
    slow_start: &'v SlowStart,
    now: Time,
    /// Factor of the longest-standing endpoint. Factors are taken relative to it, so that a set
    /// that is entirely new is not thinned at all: only ratios of weights matter.
    best: f64,
}

impl Ramp<'_> {
    fn factor(&self, added_at: Time) -> f64 {
        (self.slow_start.factor(added_at, self.now) / self.best).min(1.0)
    }
}

impl View {
    /// The candidates of a pick; `None` when no endpoint is usable.
    ///
    /// The group is drawn by its share of the traffic. When the request has tried all of it, the
    /// highest group with an untried endpoint is taken instead, even one that gets no traffic of
    /// its own; when everything has been tried, the exclusions are ignored: a repeated try beats
    /// none.
    #[inline]
    pub(crate) fn field<'v>(&'v self, ctx: &'v PickCtx<'_>, rng: &mut Rng) -> Option<Field<'v>> {
        let group = match &*self.groups {
            [only] => only,
            groups => draw_group(groups, rng)?,
        };
        let mut field = Field {
            view: self,
            group,
            excluded: &[],
            ramp: None,
        };
        if !ctx.excluded.is_empty() || ctx.now < self.ramp_end {
            self.narrow(&mut field, ctx);
        }
        Some(field)
    }

    #[cold]
    fn narrow<'v>(&'v self, field: &mut Field<'v>, ctx: &'v PickCtx<'_>) {
        field.excluded = ctx.excluded;
        if !has_untried(field.group, ctx.excluded) {
            match self
                .groups
                .iter()
                .find(|group| has_untried(group, ctx.excluded))
            {
                Some(group) => field.group = group,
                None => field.excluded = &[],
            }
        }
        field.ramp = self.ramp(field.group.level, ctx.now);
    }

    fn ramp(&self, level: usize, now: Time) -> Option<Ramp<'_>> {
        let slow_start = self.slow_start.as_ref().filter(|_| now < self.ramp_end)?;
        let best = slow_start.factor(self.levels[level].oldest, now);
        Some(Ramp {
            slow_start,
            now,
            best,
        })
    }

    /// Whether slow start lets this endpoint have a request whose key has the uniform `bits`. The
    /// same key gets in at the same moment for good, so hashed traffic ramps without flapping.
    pub(crate) fn admits(&self, index: Index, level: usize, now: Time, bits: u64) -> bool {
        let Some(ramp) = self.ramp(level, now) else {
            return true;
        };
        let added_at = self.endpoints[index.get()].added_at;
        crate::rng::unit_from_bits(bits) < ramp.factor(added_at)
    }
}

#[cold]
fn draw_group<'v>(groups: &'v [Group], rng: &mut Rng) -> Option<&'v Group> {
    let at = u64::from(rng.next_u32());
    groups.iter().find(|group| at < group.threshold)
}

fn has_untried(group: &Group, excluded: &[Index]) -> bool {
    excluded.len() < group.slots().len()
        || group
            .slots()
            .iter()
            .any(|slot| !excluded.contains(&slot.index))
}

impl<'v> Field<'v> {
    /// One candidate, independent of earlier ones (with replacement).
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> &'v Slot {
        if self.is_plain() {
            self.group.draw(rng)
        } else {
            self.draw_narrowed(rng)
        }
    }

    /// Whether every endpoint of the group is a candidate at its full weight.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.excluded.is_empty() && self.ramp.is_none()
    }

    /// Whether this endpoint is a candidate of this pick: not excluded, and let in by a toss of
    /// the slow-start coin.
    pub(crate) fn admits(&self, slot: &Slot, rng: &mut Rng) -> bool {
        if self.excluded.contains(&slot.index) {
            return false;
        }
        let factor = self.factor(slot);
        factor >= 1.0 || rng.unit() < factor
    }

    /// Whether the request has not tried this endpoint yet.
    pub(crate) fn is_untried(&self, slot: &Slot) -> bool {
        !self.excluded.contains(&slot.index)
    }

    fn factor(&self, slot: &Slot) -> f64 {
        self.ramp.map_or(1.0, |r| {
            r.factor(self.view.endpoints[slot.index.get()].added_at)
        })
    }

    #[cold]
    fn draw_narrowed(&self, rng: &mut Rng) -> &'v Slot {
        for _ in 0..MAX_REJECTIONS {
            let slot = self.group.draw(rng);
            if self.admits(slot, rng) {
                return slot;
            }
        }
        self.scan(rng)
    }

    /// The same law as a draw by rejection, by one pass over the running sum of weights.
    fn scan(&self, rng: &mut Rng) -> &'v Slot {
        let slots = self.group.slots();
        let weight = |slot: &Slot| {
            if self.is_untried(slot) {
                f64::from(slot.weight) * self.factor(slot)
            } else {
                0.0
            }
        };
        let mut left = rng.unit() * slots.iter().map(weight).sum::<f64>();
        let mut last = &slots[0];
        for slot in slots {
            let w = weight(slot);
            if w <= 0.0 {
                continue;
            }
            last = slot;
            left -= w;
            if left < 0.0 {
                break;
            }
        }
        last
    }
}
