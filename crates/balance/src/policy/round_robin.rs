//! `round-robin`: smooth weighted round robin that threads share without a lock.
//!
//! For each group, one period of the order is computed when the policy is built, and an atomic cursor advances over it
//! from a random start. The order is that of Tijdeman, "The chairman assignment problem" (1980): among the endpoints
//! that have earned a turn, the one whose turn is due first.
//!
//! Invariant: in every prefix of the period the number of turns of each of n endpoints differs from its exact share by
//! at most 1 − 1/(2n − 2), the best possible bound. nginx's smooth order, which is equal or similar for small sets,
//! guarantees no bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Index, PickCtx, Policy};
use crate::view::{Group, Slot};
use crate::{Rng, View};

/// The maximum length of a period. Sums of weights above it (after division by their greatest common divisor) are
/// scaled down, with at least one turn for each weight.
const MAX_PERIOD: u64 = 1 << 16;

/// The number of skipped turns (of endpoints that are excluded, or held back by slow start) after which an endpoint is
/// drawn at random.
const MAX_SKIPS: u32 = 64;

#[derive(Debug)]
pub(crate) struct RoundRobin {
    /// The turns of each group, in the order of the view's groups.
    turns: Box<[Turns]>,
}

/// The order of one group and the position in it.
#[derive(Debug)]
#[repr(align(64))]
struct Turns {
    /// The order as positions in the group; `None` = the order of the group.
    order: Option<Box<[u32]>>,
    period: u64,
    /// The next turn; 0 = not started. The start is random, so that proxies started together are not synchronized.
    cursor: AtomicU64,
}

impl RoundRobin {
    pub(crate) fn new(view: &View) -> Self {
        Self {
            turns: view.groups().iter().map(Turns::new).collect(),
        }
    }
}

impl Policy for RoundRobin {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let field = view.field(ctx, rng)?;
        let at = view
            .groups()
            .iter()
            .position(|group| std::ptr::eq(group, field.group))?;
        let Some(turns) = self.turns.get(at) else {
            return Some(field.draw(rng).index);
        };
        let slots = field.group.slots();
        for _ in 0..MAX_SKIPS {
            let Some(slot) = slots.get(turns.next(rng)) else {
                break;
            };
            if field.is_plain() || field.admits(slot, rng) {
                return Some(slot.index);
            }
        }
        Some(field.draw(rng).index)
    }
}

impl Turns {
    fn new(group: &Group) -> Self {
        let slots = group.slots();
        let order = (!group.equal_weights()).then(|| smooth_order(&turns_of(slots)));
        let period = order.as_ref().map_or(slots.len(), |order| order.len()) as u64;
        Self {
            order,
            period,
            cursor: AtomicU64::new(0),
        }
    }

    fn next(&self, rng: &mut Rng) -> usize {
        // Relaxed throughout: the cursor orders no other data.
        if self.cursor.load(Ordering::Relaxed) == 0 {
            let start = 1 + u64::from(rng.next_u32());
            // If another thread was first, its start is used.
            let _ = self
                .cursor
                .compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
        }
        let turn = (self.cursor.fetch_add(1, Ordering::Relaxed) % self.period) as usize;
        self.order
            .as_ref()
            .map_or(turn, |order| order[turn] as usize)
    }
}

/// Returns weights as whole turns of a period of at most about [`MAX_PERIOD`].
fn turns_of(slots: &[Slot]) -> Vec<u64> {
    let gcd = slots
        .iter()
        .fold(0, |gcd, slot| greatest_common_divisor(gcd, slot.weight));
    let weights = slots.iter().map(|slot| u64::from(slot.weight / gcd.max(1)));
    let total: u64 = weights.clone().sum();
    if total <= MAX_PERIOD {
        return weights.collect();
    }
    let scale = MAX_PERIOD as f64 / total as f64;
    weights
        .map(|w| ((w as f64 * scale).round() as u64).max(1))
        .collect()
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// Returns one period in which endpoint `i` has `turns[i]` turns.
///
/// With share x and after c turns, an endpoint earns its next turn at time (c + ε)/x, and the turn is due at (c + 1 −
/// ε)/x, where ε = 1/(2n − 2). Times count from 1; all values are exact integers.
fn smooth_order(turns: &[u64]) -> Box<[u32]> {
    if turns.len() < 2 {
        return vec![0; turns.iter().sum::<u64>() as usize].into_boxed_slice();
    }
    let period: u64 = turns.iter().sum();
    let unit = 2 * turns.len() as u64 - 2;
    let earned = |i: usize, had: u64| ((had * unit + 1) * period).div_ceil(turns[i] * unit);
    let due = |i: usize, had: u64| ((had * unit + unit - 1) * period) / (turns[i] * unit);

    let mut had = vec![0_u64; turns.len()];
    // Endpoints by the time at which they earn their next turn.
    let mut waiting = vec![Vec::new(); period as usize + 1];
    for i in 0..turns.len() {
        waiting[earned(i, 0) as usize].push(i);
    }
    let mut ready = BinaryHeap::new();
    let mut order = Vec::with_capacity(period as usize);
    for now in 1..=period {
        for i in std::mem::take(&mut waiting[now as usize]) {
            ready.push(Reverse((due(i, had[i]), i)));
        }
        // By Tijdeman's theorem some endpoint is ready at every time.
        let Some(Reverse((_, i))) = ready.pop() else {
            continue;
        };
        order.push(i as u32);
        had[i] += 1;
        if had[i] < turns[i] {
            // If it is earned already, it is ready from the next time on.
            waiting[earned(i, had[i]).max(now + 1) as usize].push(i);
        }
    }
    order.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that every prefix is within 1 − 1/(2n − 2) turns of the exact shares, and that the period is exact.
    fn assert_smooth(turns: &[u64]) {
        let order = smooth_order(turns);
        let period: u64 = turns.iter().sum();
        assert_eq!(order.len() as u64, period, "{turns:?}");
        let unit = (2 * turns.len() as i128 - 2).max(1);
        let mut taken = vec![0_i128; turns.len()];
        for (t, &i) in order.iter().enumerate() {
            taken[i as usize] += 1;
            for (&c, &w) in taken.iter().zip(turns) {
                let lag = c * i128::from(period) - (t as i128 + 1) * i128::from(w);
                assert!(
                    lag.abs() * unit <= i128::from(period) * (unit - 1),
                    "{turns:?} at {t}"
                );
            }
        }
        assert!(taken.iter().zip(turns).all(|(&c, &w)| c == i128::from(w)));
    }

    #[test]
    fn prefixes_stay_within_one_turn() {
        assert_smooth(&[5, 1, 1]);
        assert_smooth(&[1, 2, 3, 4]);
        assert_smooth(&[100, 1, 1, 1, 7, 13]);
        assert_smooth(&[3, 3]);
        let mut rng = Rng::seed(11);
        for _ in 0..200 {
            let n = 1 + rng.below(12) as usize;
            let turns: Vec<u64> = (0..n).map(|_| 1 + u64::from(rng.below(40))).collect();
            assert_smooth(&turns);
        }
    }

    #[test]
    fn the_order_of_five_one_one() {
        assert_eq!(*smooth_order(&[5, 1, 1]), [0, 0, 1, 0, 0, 2, 0]);
    }

    #[test]
    fn large_weights_are_reduced() {
        let slot = |weight| Slot {
            stats: std::sync::Arc::default(),
            index: Index::new(0),
            weight,
        };
        assert_eq!(turns_of(&[slot(3000), slot(1000)]), [3, 1]);
        let turns = turns_of(&[slot(u32::MAX), slot(u32::MAX - 1), slot(1)]);
        assert_eq!(turns, [32_768, 32_768, 1]);
    }
}
