//! Computes the layout of a view: from levels and their loads to groups of endpoints with parts of the traffic.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::{Group, Slot};
use super::levels::{Census, Load};
use super::{Level, Locality, View};
use crate::policy::Index;
use crate::{Endpoint, Time};

impl View {
    pub(super) fn lay_out(&mut self, by_level: Vec<Box<[Index]>>, loads: &[Load], factor: f64) {
        let mut groups = Vec::new();
        let mut levels = Vec::new();
        let mut before = 0.0;
        for (level, (members, load)) in by_level.into_iter().zip(loads).enumerate() {
            let mut at = before;
            for (chosen, share) in self.split(&members, *load, factor) {
                at += load.share * share;
                for &i in &chosen {
                    self.usable[i.get() / 64] |= 1 << (i.get() % 64);
                }
                self.usable_count += chosen.len();
                let slots = chosen.iter().map(|&i| self.slot(i)).collect();
                groups.push(Group::new(slots, level, part(at)));
            }
            before += load.share;
            let usable = members.iter().filter(|i| self.is_usable(**i));
            let oldest = usable.map(|i| self.endpoints[i.get()].added_at).min();
            let priority = members.first().map(|i| self.endpoints[i.get()].priority);
            levels.push(Level {
                priority: priority.unwrap_or_default(),
                threshold: part(before),
                oldest: oldest.unwrap_or(Time::ZERO),
                panic: load.panic,
                members,
            });
        }
        self.uneven = groups.iter().any(|group| !group.equal_weights());
        self.groups = groups.into_boxed_slice();
        self.levels = levels.into_boxed_slice();
    }

    /// Returns the usable members of a level by locality, each locality with its share of the level's traffic.
    fn split(&self, members: &[Index], load: Load, factor: f64) -> Vec<(Vec<Index>, f64)> {
        let usable = self.choose_usable(members, load.panic);
        if usable.is_empty() {
            return Vec::new();
        }
        let Some(weights) = &self.locality_weights else {
            return vec![(usable, 1.0)];
        };
        let mut by_locality: BTreeMap<Option<&Locality>, (Vec<Index>, Vec<Index>)> =
            BTreeMap::new();
        for &i in members {
            by_locality
                .entry(self.endpoints[i.get()].locality.as_ref())
                .or_default()
                .0
                .push(i);
        }
        for i in usable {
            by_locality
                .entry(self.endpoints[i.get()].locality.as_ref())
                .or_default()
                .1
                .push(i);
        }
        let mut parts = Vec::new();
        for (locality, (all, usable)) in by_locality {
            let health = if load.panic {
                1.0
            } else {
                count(&self.endpoints, &all).health(factor)
            };
            if !usable.is_empty() {
                parts.push((usable, f64::from(weights.weight(locality)) * health));
            }
        }
        let total: f64 = parts.iter().map(|(_, weight)| weight).sum();
        if total <= 0.0 {
            // No listed locality has an endpoint: the level counts as one.
            return vec![(
                parts.into_iter().flat_map(|(usable, _)| usable).collect(),
                1.0,
            )];
        }
        parts
            .into_iter()
            .map(|(usable, weight)| (usable, weight / total))
            .collect()
    }

    /// Returns the available members; in panic, all members that are not draining; if all are draining, all members.
    fn choose_usable(&self, members: &[Index], panic: bool) -> Vec<Index> {
        let keep = |test: &dyn Fn(&Endpoint) -> bool| -> Vec<Index> {
            members
                .iter()
                .copied()
                .filter(|i| test(&self.endpoints[i.get()]))
                .collect()
        };
        if !panic {
            return keep(&|e| e.stats.is_available());
        }
        let staying = keep(&|e| !e.stats.is_draining());
        if staying.is_empty() {
            members.to_vec()
        } else {
            staying
        }
    }

    fn slot(&self, index: Index) -> Slot {
        let endpoint = &self.endpoints[index.get()];
        Slot {
            stats: Arc::clone(&endpoint.stats),
            index,
            weight: endpoint.weight.get(),
        }
    }

    pub(super) fn find_ramp_end(&mut self, now: Time) {
        let Some(slow_start) = &self.slow_start else {
            return;
        };
        let joined = |level: &Level| -> Vec<Time> {
            let members = level.members.iter();
            members.map(|i| self.endpoints[i.get()].added_at).collect()
        };
        // Only ratios count: a level whose endpoints have joined together has no ramp.
        let uneven = |times: &Vec<Time>| times.windows(2).any(|pair| pair[0] != pair[1]);
        let ends = self.levels.iter().map(joined).filter(uneven).flatten();
        let ends = ends.map(|joined| joined + slow_start.window);
        self.ramp_end = ends.filter(|&end| end > now).max().unwrap_or(Time::ZERO);
    }
}

/// Converts a cumulative share to the upper end of a part of [0, 2^32).
fn part(share: f64) -> u64 {
    // Rounding to the nearest absorbs the error of the sums: the last share ends at 2^32 exactly.
    (share * (1_u64 << 32) as f64).round() as u64
}

pub(super) fn by_priority(endpoints: &[Endpoint]) -> Vec<Box<[Index]>> {
    let mut levels: BTreeMap<u8, Vec<Index>> = BTreeMap::new();
    for (i, endpoint) in endpoints.iter().enumerate() {
        levels
            .entry(endpoint.priority)
            .or_default()
            .push(Index::new(i));
    }
    levels.into_values().map(Vec::into_boxed_slice).collect()
}

pub(super) fn count(endpoints: &[Endpoint], members: &[Index]) -> Census {
    let stats = || members.iter().map(|i| &endpoints[i.get()].stats);
    Census {
        available: stats().filter(|s| s.is_available()).count(),
        total: stats().filter(|s| !s.is_draining()).count(),
        members: members.len(),
    }
}
