//! `maglev`: Maglev hashing (Eisenbud et al., NSDI 2016, §3.4), weighted.
//!
//! Each endpoint has a permutation of the table's slots, `offset + j · skip` modulo the prime table size; in turns,
//! each endpoint takes the next free slot of its permutation. A heavier endpoint has more turns, as in Envoy: at most
//! one per round, and after k turns the next one not before the round `⌈k · greatest weight / weight⌉`. Offset and skip
//! are XXH64 of the key with seeds 0 and 1, also as in Envoy, so that both fill equal tables for equal endpoints.
//!
//! Invariant: with equal weights the numbers of slots of any two endpoints differ by at most one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Index;
use super::hashing::{Member, Table};
use crate::hash::hash_seeded;
use crate::prime;

/// Parameters of `maglev`.
///
/// # Defaults
///
/// * `table_size`: 65537
/// * `hash_balance_factor`: none (off)
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MaglevParams {
    /// The number of slots: a prime, 2–5000011. At least a hundred slots per endpoint keep shares within 1 % of each
    /// other.
    pub table_size: u32,
    /// Bounded load: the maximum percentage of its fair share of outstanding requests that an endpoint gets,
    /// 100–100000; `None` = unlimited.
    pub hash_balance_factor: Option<u32>,
}

impl Default for MaglevParams {
    fn default() -> Self {
        Self {
            table_size: 65_537,
            hash_balance_factor: None,
        }
    }
}

impl MaglevParams {
    /// Envoy's limit; it is prime.
    pub(crate) const MAX_TABLE_SIZE: u32 = 5_000_011;

    /// The number of slots for each endpoint that keeps shares within 1 % of each other (Maglev
    /// paper, §3.4).
    const SLOTS_PER_ENDPOINT: usize = 100;

    /// Returns, if this table is too small, the size of the smallest table that keeps the shares of `endpoints` within
    /// 1 % of each other; the largest possible size if there are more endpoints than any table can serve.
    #[must_use]
    pub fn wanted_table_size(&self, endpoints: usize) -> Option<u32> {
        let wanted = endpoints.saturating_mul(Self::SLOTS_PER_ENDPOINT);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if self.table_size >= wanted.min(Self::MAX_TABLE_SIZE) {
            return None;
        }
        prime::next_prime(wanted.min(Self::MAX_TABLE_SIZE))
    }
}

/// The owner of each slot, in half the memory if the indices are small enough.
#[derive(Debug)]
pub(crate) enum MaglevTable {
    Narrow(Box<[u16]>),
    Wide(Box<[u32]>),
}

impl Table for MaglevTable {
    type Params = u32;

    fn build(members: &[Member], &table_size: &u32) -> Self {
        let narrow = members.iter().all(|m| u16::try_from(m.index.get()).is_ok());
        let owners = populate(members, if members.is_empty() { 0 } else { table_size });
        if narrow {
            Self::Narrow(owners.iter().map(|&i| i as u16).collect())
        } else {
            Self::Wide(owners.into_boxed_slice())
        }
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Narrow(owners) => owners.len(),
            Self::Wide(owners) => owners.len(),
        }
    }

    #[inline]
    fn slot(&self, hash: u64) -> usize {
        (hash % self.len() as u64) as usize
    }

    #[inline]
    fn owner(&self, slot: usize) -> Index {
        Index::new(match self {
            Self::Narrow(owners) => usize::from(owners[slot]),
            Self::Wide(owners) => owners[slot] as usize,
        })
    }
}

/// The state of a member's walk through its permutation.
struct Walker {
    slot: u32,
    skip: u32,
    owner: u32,
}

/// Fills the table (pseudocode 1 of the paper).
fn populate(members: &[Member], size: u32) -> Vec<u32> {
    let mut walkers: Vec<Walker> = members.iter().map(|m| Walker::new(m, size)).collect();
    let mut table = Slots {
        owners: vec![0; size as usize],
        taken: Taken::new(size),
    };
    let heaviest = members.iter().map(|m| m.weight).fold(0.0, f64::max);
    if members.iter().all(|m| m.weight == heaviest) {
        for turn in 0..size as usize {
            table.assign_next(&mut walkers[turn % members.len()]);
        }
        return table.owners;
    }
    // Members by the round of their next turn, then by key: the round in the upper half of a word.
    let mut turns: BinaryHeap<_> = (0..members.len() as u64)
        .map(|i| Reverse(1 << 32 | i))
        .collect();
    let mut had = vec![0_u32; members.len()];
    for _ in 0..size {
        let Some(mut first) = turns.peek_mut() else {
            break;
        };
        let i = first.0 as u32 as usize;
        table.assign_next(&mut walkers[i]);
        had[i] += 1;
        // Saturates for absurdly large ratios of weights: such a member gets no further turn.
        let round = (f64::from(had[i]) * heaviest / members[i].weight).ceil() as u32;
        let next = ((first.0 >> 32) as u32).saturating_add(1);
        let round = round.max(next);
        *first = Reverse(u64::from(round) << 32 | i as u64);
    }
    table.owners
}

impl Walker {
    fn new(member: &Member, size: u32) -> Self {
        let size = u64::from(size);
        let key = member.key.as_bytes();
        Self {
            slot: (hash_seeded(key, 0) % size) as u32,
            skip: (hash_seeded(key, 1) % (size - 1) + 1) as u32,
            owner: member.index.get() as u32,
        }
    }

    /// Advances along the permutation; `size` is prime, so every slot is visited once.
    fn step(&mut self, size: u32) {
        self.slot += self.skip;
        if self.slot >= size {
            self.slot -= size;
        }
    }
}

struct Slots {
    owners: Vec<u32>,
    taken: Taken,
}

impl Slots {
    /// Assigns the first free slot of its permutation to the walker. There is one, because callers grant no more turns
    /// than there are slots.
    fn assign_next(&mut self, walker: &mut Walker) {
        let size = self.owners.len() as u32;
        while self.taken.contains(walker.slot) {
            walker.step(size);
        }
        self.taken.insert(walker.slot);
        self.owners[walker.slot as usize] = walker.owner;
        walker.step(size);
    }
}

/// One bit per slot, so that the search for free slots stays in the first-level cache.
struct Taken(Vec<u64>);

impl Taken {
    fn new(size: u32) -> Self {
        Self(vec![0; size.div_ceil(64) as usize])
    }

    fn contains(&self, slot: u32) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    fn insert(&mut self, slot: u32) {
        self.0[slot as usize / 64] |= 1 << (slot % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(weights: &[f64]) -> Vec<Member> {
        let member = |(i, &weight): (usize, &f64)| Member {
            key: format!("10.0.0.{i}:80").into(),
            index: Index::new(i),
            weight,
        };
        weights.iter().enumerate().map(member).collect()
    }

    fn counts(members: &[Member], size: u32) -> Vec<u32> {
        let mut counts = vec![0; members.len()];
        for owner in populate(members, size) {
            counts[owner as usize] += 1;
        }
        counts
    }

    #[test]
    fn equal_weights_differ_by_one_slot() {
        for (n, size) in [(1, 2), (3, 7), (10, 65_537), (1000, 65_537), (7, 5)] {
            let counts = counts(&members(&vec![1.0; n]), size);
            let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(max - min <= 1, "{n} in {size}");
        }
    }

    #[test]
    fn weights_are_shares() {
        let counts = counts(&members(&[1.0, 2.0, 5.0]), 65_537);
        for (count, share) in counts.iter().zip([0.125, 0.25, 0.625]) {
            assert!((f64::from(*count) / 65_537.0 - share).abs() < 1e-3);
        }
    }

    /// Envoy's loop, verbatim.
    fn by_rounds(members: &[Member], size: u32) -> Vec<u32> {
        let mut walkers: Vec<Walker> = members.iter().map(|m| Walker::new(m, size)).collect();
        let mut table = Slots {
            owners: vec![0; size as usize],
            taken: Taken::new(size),
        };
        let heaviest = members.iter().map(|m| m.weight).fold(0.0, f64::max);
        let mut targets = vec![0.0; members.len()];
        let (mut filled, mut round) = (0, 0.0);
        while filled < size {
            round += 1.0;
            for (i, member) in members.iter().enumerate() {
                if filled < size && round * member.weight >= targets[i] {
                    targets[i] += heaviest;
                    table.assign_next(&mut walkers[i]);
                    filled += 1;
                }
            }
        }
        table.owners
    }

    #[test]
    fn turns_are_those_of_envoy() {
        for weights in [
            &[1.0, 1.0, 1.0][..],
            &[1.0, 2.0, 5.0],
            &[4.0, 4.0, 1.0],
            &[3.0],
            &[1.0, 1024.0],
            &[7.0, 7.0, 7.0, 6.0, 2.0, 1.0, 128.0, 127.0],
        ] {
            let members = members(weights);
            for size in [2, 7, 251, 65_537] {
                let owners = populate(&members, size);
                assert_eq!(owners, by_rounds(&members, size), "{weights:?} in {size}");
            }
        }
    }

    #[test]
    fn no_members_no_slots() {
        assert_eq!(MaglevTable::build(&[], &7).len(), 0);
    }

    #[test]
    fn the_table_is_narrow_when_it_can_be() {
        let mut far = members(&[1.0]);
        assert!(matches!(
            MaglevTable::build(&far, &7),
            MaglevTable::Narrow(_)
        ));
        far[0].index = Index::new(70_000);
        let wide = MaglevTable::build(&far, &7);
        assert!(matches!(wide, MaglevTable::Wide(_)));
        assert_eq!(wide.owner(wide.slot(123)), Index::new(70_000));
    }
}
