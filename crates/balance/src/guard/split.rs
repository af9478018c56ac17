//! Chooses one of several clusters by weight: independently for each request, or always the same for a client.

use crate::Rng;
use crate::hash::mix;
use crate::rng::unit_from_bits;

/// Draws an index with probability weight / sum of the weights; `None` if the sum is 0.
pub fn random<I>(weights: I, rng: &mut Rng) -> Option<usize>
where
    I: Iterator<Item = u32> + Clone,
{
    let sum: u64 = weights.clone().map(u64::from).sum();
    if sum == 0 {
        return None;
    }
    let mut at = ((u128::from(rng.next_u64()) * u128::from(sum)) >> 64) as u64;
    weights.into_iter().position(|weight| {
        let weight = u64::from(weight);
        let here = at < weight;
        at = at.saturating_sub(weight);
        here
    })
}

/// Returns the index of the target of the hash `key`, which is always the same. Over all keys, a target has the share
/// weight / sum of the weights; `None` if the sum is 0. Each target is given by the hash of its name and its weight.
///
/// Weighted rendezvous hashing: a target's score is −weight / ln u, with u uniform by key and name, and the highest
/// score wins. A change of weights moves the minimal number of keys: from 95/5 to 90/10 only one key in twenty changes
/// its target, and none changes back.
pub fn sticky(targets: impl Iterator<Item = (u64, u32)>, key: u64) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (position, (name, weight)) in targets.enumerate() {
        if weight == 0 {
            continue;
        }
        // In (0, 1): a half step keeps 0 out.
        let u = unit_from_bits(mix(key ^ mix(name))) + f64::EPSILON / 4.0;
        let score = -f64::from(weight) / u.ln();
        if best.is_none_or(|(highest, _)| score > highest) {
            best = Some((score, position));
        }
    }
    best.map(|(_, position)| position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_bytes;

    /// Returns whether `count` is within 5 standard deviations of a binomial distribution.
    fn near(count: u32, n: u32, p: f64) -> bool {
        let n = f64::from(n);
        (f64::from(count) - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt() + 1e-9
    }

    #[test]
    fn random_draws_follow_the_weights() {
        let (mut rng, weights) = (Rng::seed(21), [90, 0, 9, 1]);
        let mut counts = [0_u32; 4];
        for _ in 0..50_000 {
            counts[random(weights.into_iter(), &mut rng).unwrap()] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            assert!(near(count, 50_000, f64::from(weight) / 100.0), "{counts:?}");
        }
        assert_eq!(random([0, 0].into_iter(), &mut rng), None);
        assert_eq!(random([].into_iter(), &mut rng), None);
    }

    #[test]
    fn sticky_choices_follow_the_weights_and_move_little() {
        let (blue, green) = (hash_bytes(b"blue"), hash_bytes(b"green"));
        let choose = |key: u32, weights: [u32; 2]| {
            let key = hash_bytes(&key.to_le_bytes());
            sticky([(blue, weights[0]), (green, weights[1])].into_iter(), key).unwrap()
        };
        let (mut to_green, mut moved, mut back) = (0, 0, 0);
        for key in 0..40_000 {
            let (before, after) = (choose(key, [95, 5]), choose(key, [90, 10]));
            assert_eq!(before, choose(key, [95, 5]), "the same each time");
            to_green += u32::from(before == 1);
            moved += u32::from(before == 0 && after == 1);
            back += u32::from(before == 1 && after == 0);
        }
        assert!(near(to_green, 40_000, 0.05), "{to_green}");
        assert!(near(moved, 40_000, 0.05), "{moved}");
        assert_eq!(back, 0);
        assert_eq!(sticky([(blue, 0)].into_iter(), 1), None);
    }
}
