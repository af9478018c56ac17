//! A winner tree: the earliest of many clocks, each of which may be set at any time.
//!
//! Unlike a heap it needs no search for an entry that changes, and has no stale entries when a
//! clock is reset. Setting a clock costs one comparison per level.

use std::hint::select_unpredictable;

/// The time of a clock that is not set.
pub(super) const NEVER: u64 = u64::MAX;

/// The clocks 0 to n − 1, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    times: Box<[u64]>,
    /// Winners: the root at 1, the children of k at 2k and 2k + 1, the leaves in the upper half.
    winners: Box<[u32]>,
    /// Number of leaves, a power of two.
    leaves: usize,
}

impl Tournament {
    pub(super) fn new(n: usize) -> Self {
        let leaves = n.next_power_of_two().max(2);
        let mut winners = vec![0; 2 * leaves];
        for (at, winner) in winners.iter_mut().enumerate().skip(1) {
            // Every subtree is won by its leftmost leaf while all clocks are equal.
            let below = at << (leaves.ilog2() - at.ilog2());
            *winner = (below - leaves) as u32;
        }
        Self {
            times: vec![NEVER; leaves].into(),
            winners: winners.into(),
            leaves,
        }
    }

    /// Returns the earliest clock and its time; [`NEVER`] when none is set.
    #[inline]
    pub(super) fn first(&self) -> (u64, u32) {
        let winner = self.winners[1];
        (self.times[winner as usize], winner)
    }

    #[inline]
    pub(super) fn set(&mut self, clock: u32, time: u64) {
        self.times[clock as usize] = time;
        let mut at = (self.leaves + clock as usize) / 2;
        while at > 0 {
            let (left, right) = (self.winners[2 * at], self.winners[2 * at + 1]);
            let earlier = self.times[left as usize] <= self.times[right as usize];
            // A branch predictor cannot predict which of two random clocks is earlier.
            self.winners[at] = select_unpredictable(earlier, left, right);
            at /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maglor_balance::Rng;

    #[test]
    fn it_is_the_minimum_whatever_is_set() {
        let mut rng = Rng::seed(1);
        for n in [1, 2, 3, 40, 64, 65] {
            let mut tree = Tournament::new(n);
            let mut plain = vec![NEVER; n];
            assert_eq!(tree.first().0, NEVER);
            for _ in 0..2000 {
                let clock = rng.below(n as u32);
                let never = rng.below(4) == 0;
                let time = if never { NEVER } else { rng.next_u64() >> 40 };
                plain[clock as usize] = time;
                tree.set(clock, time);
                let (first, at) = tree.first();
                assert_eq!(Some(&first), plain.iter().min());
                assert!(first == NEVER || plain[at as usize] == first);
            }
        }
    }
}
