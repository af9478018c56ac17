//! The view: which endpoints may be picked now, and how much traffic each part of them gets.
//!
//! Membership, health, priority levels, locality weights and panic are evaluated when a view is
//! built; only slow start continues over time. Rebuilding costs O(n) and happens off the hot path.
//!
//! Invariants: each usable endpoint is in exactly one group; groups are ordered by priority; their
//! parts of the traffic sum to one unless no endpoint is usable.

mod field;
mod group;
mod layout;
mod levels;
mod params;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use field::Field;
pub(crate) use group::{Group, Slot};
pub use params::{Locality, LocalityWeights, SlowStart, ViewParams};

use crate::policy::{Index, PickCtx};
use crate::{Endpoint, Time};
use levels::Census;

/// An immutable snapshot of the endpoints that a policy may pick.
#[derive(Debug)]
pub struct View {
    endpoints: Arc<[Endpoint]>,
    groups: Box<[Group]>,
    levels: Box<[Level]>,
    /// The endpoints that are in a group, one bit for each endpoint.
    usable: Box<[u64]>,
    usable_count: usize,
    sole_level: Option<usize>,
    available: usize,
    /// Whether usable endpoints of one group have unequal weights.
    uneven: bool,
    slow_start: Option<SlowStart>,
    /// When the last slow start ends; `Time::ZERO` if there is none.
    ramp_end: Time,
    locality_weights: Option<LocalityWeights>,
}

/// One priority level.
#[derive(Debug)]
pub(crate) struct Level {
    priority: u8,
    /// Members, in the order of the view's endpoints, regardless of health.
    pub(crate) members: Box<[Index]>,
    /// The upper end of this level's part of [0, 2^32).
    threshold: u64,
    /// When the oldest usable endpoint of the level joined.
    oldest: Time,
    panic: bool,
}

impl View {
    /// Computes which of `endpoints` may be picked as of `now`, from their health flags and `params`.
    ///
    /// Any set is accepted. From an empty view, or one without usable endpoints, nothing can be picked.
    #[must_use]
    pub fn build(endpoints: impl Into<Arc<[Endpoint]>>, params: &ViewParams, now: Time) -> Self {
        let endpoints = endpoints.into();
        let factor = params.overprovisioning_factor.max(1.0);
        let by_level = layout::by_priority(&endpoints);
        let census: Vec<Census> = by_level
            .iter()
            .map(|m| layout::count(&endpoints, m))
            .collect();
        let loads = levels::divide(&census, factor, params.panic_threshold_percent);

        let mut view = Self {
            usable: vec![0; endpoints.len().div_ceil(64)].into_boxed_slice(),
            usable_count: 0,
            sole_level: loads.iter().position(|load| load.share >= 1.0),
            available: census.iter().map(|level| level.available).sum(),
            uneven: false,
            groups: Box::default(),
            levels: Box::default(),
            slow_start: params.slow_start.clone(),
            ramp_end: Time::ZERO,
            locality_weights: params.locality_weights.clone(),
            endpoints,
        };
        view.lay_out(by_level, &loads, factor);
        view.find_ramp_end(now);
        view
    }

    /// Returns all endpoints, usable or not, in the order in which they were given.
    #[must_use]
    pub fn endpoints(&self) -> &Arc<[Endpoint]> {
        &self.endpoints
    }

    /// Returns the endpoint at `index`; `None` if the index comes from a larger view.
    #[must_use]
    pub fn endpoint(&self, index: Index) -> Option<&Endpoint> {
        self.endpoints.get(index.get())
    }

    /// Returns the number of endpoints, usable or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Returns whether there are no endpoints at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Returns the number of endpoints that were healthy, not ejected and not draining when the view was built.
    #[must_use]
    pub fn available(&self) -> usize {
        self.available
    }

    /// Returns the number of endpoints that a pick may return: the available ones, and those that are used in panic.
    #[must_use]
    pub fn usable(&self) -> usize {
        self.usable_count
    }

    /// Returns whether a pick may return this endpoint.
    #[must_use]
    #[inline]
    pub fn is_usable(&self, index: Index) -> bool {
        let at = index.get();
        self.usable
            .get(at / 64)
            .is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Returns whether a level that gets traffic has too few available endpoints, and so uses all of its endpoints.
    #[must_use]
    pub fn in_panic(&self) -> bool {
        self.levels.iter().any(|level| level.panic)
    }

    /// Returns the parameters of slow start; `None` if it is disabled.
    #[must_use]
    pub fn slow_start(&self) -> Option<&SlowStart> {
        self.slow_start.as_ref()
    }

    /// Returns the level that takes all traffic; `None` if several levels share it.
    #[inline]
    pub(crate) fn sole_level(&self) -> Option<usize> {
        self.sole_level
    }

    /// Returns whether a pick need not check single endpoints: all are usable, and none is excluded or in slow start.
    #[inline]
    pub(crate) fn is_undisturbed(&self, ctx: &PickCtx<'_>) -> bool {
        self.usable_count == self.endpoints.len()
            && ctx.excluded.is_empty()
            && ctx.now >= self.ramp_end
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the groups of one level.
    pub(crate) fn groups_of(&self, level: usize) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| group.level == level)
    }

    /// Returns the usable endpoints of one level.
    pub(crate) fn slots_of(&self, level: usize) -> impl Iterator<Item = &Slot> {
        self.groups_of(level).flat_map(Group::slots)
    }

    /// Returns the groups of one level, each with its share (0–1) of the level's traffic.
    pub(crate) fn parts_of(&self, level: usize) -> impl Iterator<Item = (&Group, f64)> {
        let mut before = if level == 0 {
            0
        } else {
            self.levels[level - 1].threshold
        };
        let width = (self.levels[level].threshold - before).max(1) as f64;
        self.groups_of(level).map(move |group| {
            let part = group.threshold.saturating_sub(before) as f64 / width;
            before = group.threshold;
            (group, part)
        })
    }

    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Returns the level of a key, by the shares of the traffic; `None` if no endpoint is usable.
    pub(crate) fn level_at(&self, bits: u32) -> Option<usize> {
        self.levels
            .iter()
            .position(|level| u64::from(bits) < level.threshold)
    }

    /// Returns the weights of a level's members for hash tables, in the order of `members`: the weight of the endpoint
    /// times that of its locality. They do not depend on health, so that tables stay when it changes.
    pub(crate) fn table_weights(&self, level: usize) -> Vec<f64> {
        let members = &self.levels[level].members;
        let plain = |&i: &Index| f64::from(self.endpoints[i.get()].weight.get());
        let Some(weights) = &self.locality_weights else {
            return members.iter().map(plain).collect();
        };
        let mut sums: BTreeMap<Option<&Locality>, f64> = BTreeMap::new();
        for i in members {
            *sums
                .entry(self.endpoints[i.get()].locality.as_ref())
                .or_default() += plain(i);
        }
        if sums.keys().all(|locality| weights.weight(*locality) == 0) {
            return members.iter().map(plain).collect();
        }
        let shared = |i: &Index| {
            let locality = self.endpoints[i.get()].locality.as_ref();
            f64::from(weights.weight(locality)) * plain(i) / sums[&locality]
        };
        members.iter().map(shared).collect()
    }
}

#[cfg(test)]
mod tests;
