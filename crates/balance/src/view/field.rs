//! The candidates of one pick: a group without the endpoints that the request has attempted, and without those that
//! slow start holds back.
//!
//! Invariant: every draw is proportional to `weight × slow-start factor` among the endpoints that are not excluded.
//! Without exclusions and slow start it costs one test more than a plain draw.

use super::group::{Group, Slot};
use super::{SlowStart, View};
use crate::policy::{Index, PickCtx};
use crate::{Rng, Time};

/// The number of rejections after which a draw changes to an exact scan. If half of the weight is admissible, the scan
/// is needed once in 65 536 draws.
const MAX_REJECTIONS: u32 = 16;

/// The candidates of one pick. The type is small and passed by value, so that a plain pick keeps it in registers.
#[derive(Clone, Copy)]
pub(crate) struct Field<'v> {
    view: &'v View,
    pub(crate) group: &'v Group,
    ctx: &'v PickCtx<'v>,
    narrowing: Narrowing,
}

/// The restrictions of the group to its candidates.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Narrowing {
    /// Attempted endpoints are excluded, and slow start applies.
    Full,
    /// The whole group, without restriction.
    None,
    /// Only slow start applies, because all endpoints have been attempted.
    RampOnly,
}

/// Slow start at a point in time.
#[derive(Clone, Copy)]
struct Ramp<'v> {
    slow_start: &'v SlowStart,
    now: Time,
    /// The factor of the oldest endpoint. Factors are relative to it: only ratios of weights matter, so a set that is
    /// entirely new is not restricted at all.
    best: f64,
}

impl Ramp<'_> {
    fn factor(&self, added_at: Time) -> f64 {
        (self.slow_start.factor(added_at, self.now) / self.best).min(1.0)
    }
}

impl View {
    /// Returns the candidates of a pick; `None` if no endpoint is usable.
    ///
    /// The group is drawn by its share of the traffic. If the request has attempted all of its endpoints, the highest
    /// group with an unattempted endpoint is taken instead, even one that gets no traffic of its own. If all endpoints
    /// have been attempted, the exclusions are ignored, because a repeated attempt is better than none.
    #[inline]
    pub(crate) fn field<'v>(&'v self, ctx: &'v PickCtx<'_>, rng: &mut Rng) -> Option<Field<'v>> {
        let group = match &*self.groups {
            [only] => only,
            groups => draw_group(groups, rng)?,
        };
        if ctx.excluded.is_empty() && ctx.now >= self.ramp_end {
            return Some(Field {
                view: self,
                group,
                ctx,
                narrowing: Narrowing::None,
            });
        }
        Some(self.narrowed(group, ctx))
    }

    /// Returns the candidates of a further pick of a request that compares endpoints one by one: those of the same
    /// [`part`](Field::part) as the first pick, even if all of them have been attempted.
    pub(crate) fn field_within<'v>(&'v self, part: u32, ctx: &'v PickCtx<'_>) -> Option<Field<'v>> {
        Some(Field {
            view: self,
            group: self.groups.get(part as usize)?,
            ctx,
            narrowing: Narrowing::Full,
        })
    }

    /// Returns the usable endpoints of a [`part`](Field::part).
    pub(crate) fn members_of(&self, part: u32) -> impl Iterator<Item = Index> {
        let group = self.groups.get(part as usize);
        group
            .into_iter()
            .flat_map(Group::slots)
            .map(|slot| slot.index)
    }

    /// Returns whether endpoints have unequal shares as of `now`.
    #[inline]
    pub(crate) fn is_uneven(&self, now: Time) -> bool {
        self.uneven || now < self.ramp_end
    }

    /// Returns an endpoint's weight as of `now`; 0 if the index belongs to another view.
    pub(crate) fn weight_of(&self, index: Index, now: Time) -> f64 {
        let Some(endpoint) = self.endpoint(index) else {
            return 0.0;
        };
        let weight = f64::from(endpoint.weight.get());
        if now >= self.ramp_end {
            return weight;
        }
        let level = self
            .levels
            .iter()
            .position(|level| level.priority == endpoint.priority);
        let ramp = level.and_then(|level| self.ramp(level, now));
        weight * ramp.map_or(1.0, |ramp| ramp.factor(endpoint.added_at))
    }

    #[cold]
    fn narrowed<'v>(&'v self, drawn: &'v Group, ctx: &'v PickCtx<'_>) -> Field<'v> {
        let mut untried = std::iter::once(drawn)
            .chain(&self.groups)
            .filter(|group| has_untried(group, ctx.excluded));
        let (group, narrowing) = match untried.next() {
            Some(group) => (group, Narrowing::Full),
            None => (drawn, Narrowing::RampOnly),
        };
        Field {
            view: self,
            group,
            ctx,
            narrowing,
        }
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

    /// Returns whether slow start admits a request to this endpoint whose key has the uniform `bits`. A key is admitted
    /// from a certain moment on, so hashed traffic ramps up without flapping. The lower half of the bits decides,
    /// because the upper half has chosen the level.
    pub(crate) fn admits(&self, index: Index, level: usize, now: Time, bits: u64) -> bool {
        let Some(ramp) = self.ramp(level, now) else {
            return true;
        };
        let added_at = self.endpoints[index.get()].added_at;
        crate::rng::unit_from_bits(bits.rotate_left(32)) < ramp.factor(added_at)
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
    /// Draws one candidate, independently of earlier draws (with replacement).
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> &'v Slot {
        if self.is_plain() {
            self.group.draw(rng)
        } else {
            self.draw_narrowed(rng)
        }
    }

    /// Returns the number of the group.
    pub(crate) fn part(&self) -> Option<u32> {
        let groups = self.view.groups.iter();
        let at = groups
            .map(std::ptr::from_ref)
            .position(|group| std::ptr::eq(group, self.group));
        at.map(|at| at as u32)
    }

    /// Returns whether every endpoint of the group is a candidate at its full weight.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.narrowing == Narrowing::None
    }

    /// Returns whether all candidates have the same share.
    #[inline]
    pub(crate) fn is_even(&self) -> bool {
        self.group.equal_weights() && (self.is_plain() || self.ramp().is_none())
    }

    /// Returns an endpoint's weight as of the time of the pick.
    pub(crate) fn weight(&self, slot: &Slot) -> f64 {
        let weight = f64::from(slot.weight);
        if self.is_plain() {
            weight
        } else {
            weight * self.factor(slot, self.ramp())
        }
    }

    /// Returns a lower bound on the candidates' weights.
    pub(crate) fn least_weight(&self) -> f64 {
        let floor = self.ramp().map_or(1.0, |ramp| ramp.slow_start.floor());
        f64::from(self.group.least_weight()) * floor
    }

    /// Returns whether this endpoint is a candidate of this pick: it is not excluded, and a random draw of slow start
    /// admits it.
    pub(crate) fn admits(&self, slot: &Slot, rng: &mut Rng) -> bool {
        self.is_untried(slot) && self.passes(slot, self.ramp(), rng)
    }

    /// Returns whether the request has not attempted this endpoint yet, or has attempted all endpoints.
    pub(crate) fn is_untried(&self, slot: &Slot) -> bool {
        self.narrowing != Narrowing::Full || !self.ctx.excluded.contains(&slot.index)
    }

    fn passes(&self, slot: &Slot, ramp: Option<Ramp<'_>>, rng: &mut Rng) -> bool {
        let factor = self.factor(slot, ramp);
        factor >= 1.0 || rng.unit() < factor
    }

    fn ramp(&self) -> Option<Ramp<'v>> {
        self.view.ramp(self.group.level, self.ctx.now)
    }

    fn factor(&self, slot: &Slot, ramp: Option<Ramp<'_>>) -> f64 {
        ramp.map_or(1.0, |r| {
            r.factor(self.view.endpoints[slot.index.get()].added_at)
        })
    }

    #[cold]
    fn draw_narrowed(&self, rng: &mut Rng) -> &'v Slot {
        let ramp = self.ramp();
        for _ in 0..MAX_REJECTIONS {
            let slot = self.group.draw(rng);
            if self.is_untried(slot) && self.passes(slot, ramp, rng) {
                return slot;
            }
        }
        self.scan(ramp, rng)
    }

    /// Draws with the same distribution as by rejection, in one pass over the cumulative weights.
    fn scan(&self, ramp: Option<Ramp<'_>>, rng: &mut Rng) -> &'v Slot {
        let slots = self.group.slots();
        let weight = |slot: &Slot| {
            let untried = self.is_untried(slot);
            if untried {
                f64::from(slot.weight) * self.factor(slot, ramp)
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
