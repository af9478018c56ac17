//! A group: the endpoints of one priority level (and locality) among which a policy chooses.
//!
//! Invariant: a group is never empty, and a draw takes O(1) for any weights.

use std::hint::select_unpredictable;
use std::sync::Arc;

use crate::policy::Index;
use crate::{EndpointStats, Rng};

/// The part of an endpoint that a pick reads, 16 bytes, adjacent in memory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) stats: Arc<EndpointStats>,
    pub(crate) index: Index,
    pub(crate) weight: u32,
}

/// Endpoints that share traffic in proportion to their weights.
#[derive(Debug)]
pub(crate) struct Group {
    /// The upper end of this group's part of [0, 2^32); a part with no width is never drawn.
    pub(super) threshold: u64,
    pub(super) level: usize,
    slots: Box<[Slot]>,
    /// The alias table; `None` if all weights are equal.
    alias: Option<Box<[AliasEntry]>>,
    least_weight: u32,
}

impl Group {
    pub(super) fn new(slots: Vec<Slot>, level: usize, threshold: u64) -> Self {
        debug_assert!(!slots.is_empty(), "a group has at least one endpoint");
        let equal = slots
            .windows(2)
            .all(|pair| pair[0].weight == pair[1].weight);
        let alias = (!equal).then(|| alias_table(&slots));
        let least_weight = slots.iter().map(|slot| slot.weight).min().unwrap_or(1);
        Self {
            threshold,
            level,
            slots: slots.into_boxed_slice(),
            alias,
            least_weight,
        }
    }

    /// Draws one endpoint with probability proportional to its weight.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> &Slot {
        match &self.alias {
            None => &self.slots[rng.below(self.slots.len() as u32) as usize],
            Some(alias) => &self.slots[draw_column(alias, rng)],
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn least_weight(&self) -> u32 {
        self.least_weight
    }

    #[inline]
    pub(crate) fn equal_weights(&self) -> bool {
        self.alias.is_none()
    }
}

/// A column of the alias table: it yields itself with probability `threshold / 2^32`, and `alias` otherwise.
#[derive(Clone, Copy, Debug)]
struct AliasEntry {
    threshold: u32,
    alias: u32,
}

/// Draws an index with one random word: the upper half chooses the column (bias below n / 2^32), and the lower half
/// decides between the column and its alias.
fn draw_column(alias: &[AliasEntry], rng: &mut Rng) -> usize {
    let bits = rng.next_u64();
    let column = (((bits >> 32) * alias.len() as u64) >> 32) as usize;
    let entry = &alias[column];
    // A fair coin is unpredictable for branch predictors.
    let stays = (bits as u32) < entry.threshold;
    select_unpredictable(stays, column, entry.alias as usize)
}

/// Builds the table by Vose's alias method (1991) in exact integer arithmetic.
fn alias_table(slots: &[Slot]) -> Box<[AliasEntry]> {
    let n = slots.len() as u128;
    let total: u128 = slots.iter().map(|slot| u128::from(slot.weight)).sum();
    // Column i holds weight·n out of `total`; columns below `total` are filled up by those above.
    let mut height: Vec<u128> = slots
        .iter()
        .map(|slot| u128::from(slot.weight) * n)
        .collect();
    let mut table: Vec<AliasEntry> = (0..slots.len())
        .map(|i| AliasEntry {
            threshold: u32::MAX,
            alias: i as u32,
        })
        .collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..slots.len()).partition(|&i| height[i] < total);
    while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
        small.pop();
        table[low] = AliasEntry {
            threshold: ((height[low] << 32) / total) as u32,
            alias: high as u32,
        };
        height[high] -= total - height[low];
        if height[high] < total {
            large.pop();
            small.push(high);
        }
    }
    table.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weights: &[u32]) -> Group {
        let slots = weights
            .iter()
            .enumerate()
            .map(|(i, &weight)| Slot {
                stats: Arc::default(),
                index: Index::new(i),
                weight,
            })
            .collect();
        Group::new(slots, 0, 1 << 32)
    }

    /// Returns the probability of each endpoint according to the table.
    fn law(group: &Group) -> Vec<f64> {
        let n = group.slots.len();
        let mut law = vec![0.0; n];
        for (i, entry) in group.alias.iter().flatten().enumerate() {
            let stay = f64::from(entry.threshold) / f64::from(u32::MAX);
            law[i] += stay / n as f64;
            law[entry.alias as usize] += (1.0 - stay) / n as f64;
        }
        law
    }

    #[test]
    fn the_alias_table_holds_the_weights_exactly() {
        for weights in [
            vec![5, 1, 1],
            vec![1, 2, 3, 4],
            vec![u32::MAX, 1],
            vec![7, 7, 8],
        ] {
            let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
            for (share, &w) in law(&group(&weights)).iter().zip(&weights) {
                assert!((share - f64::from(w) / total).abs() < 1e-9, "{weights:?}");
            }
        }
    }

    #[test]
    fn equal_weights_need_no_table() {
        assert!(group(&[3, 3, 3]).equal_weights());
        assert!(!group(&[3, 3, 4]).equal_weights());
    }
}
