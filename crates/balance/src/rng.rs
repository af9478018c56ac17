//! The random number generator of the crate: xoshiro256++ (Blackman and Vigna, 2019), seeded by SplitMix64.
//!
//! Invariant: the same seed and the same calls give the same numbers on every platform. The generator is a concrete
//! type, not a trait, so that `Policy` stays object safe and a draw costs 1–2 ns. It must not be used for secrets.

/// A small seedable generator with a period of 2^256 − 1.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Creates a generator whose whole sequence is determined by `seed`; any value is valid,
    /// including zero.
    #[must_use]
    pub fn seed(seed: u64) -> Self {
        // SplitMix64 as the authors recommend: neighbouring seeds result in unrelated states, never
        // zero.
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            crate::hash::mix(x)
        });
        Self { state }
    }

    /// Returns the next 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns the next 32 uniform bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        // The upper half: it is the better one in xoshiro's family.
        (self.next_u64() >> 32) as u32
    }

    /// Returns a uniform integer in `0..n`, exactly unbiased (Lemire, 2019); 0 when `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        let mut product = u64::from(self.next_u32()) * u64::from(n);
        if (product as u32) < n {
            // Reached with probability n / 2^32 only, so the division costs nothing on average.
            let threshold = n.wrapping_neg() % n;
            while (product as u32) < threshold {
                product = u64::from(self.next_u32()) * u64::from(n);
            }
        }
        (product >> 32) as u32
    }

    /// Returns a uniform number in [0, 1) with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit_from_bits(self.next_u64())
    }
}

/// Converts the upper 53 bits of `bits` to a number in [0, 1).
#[inline]
pub(crate) fn unit_from_bits(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_uniform_and_in_range() {
        let mut rng = Rng::seed(7);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        // 5 standard deviations of a binomial with n = 70 000, p = 1/7.
        assert!(
            counts.iter().all(|&c| c.abs_diff(10_000) < 470),
            "{counts:?}"
        );
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn the_sequence_is_fixed() {
        let mut rng = Rng::seed(1);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        let mut again = Rng::seed(1);
        assert!(first.iter().all(|&x| x == again.next_u64()));
        assert_ne!(Rng::seed(2).next_u64(), first[0]);
    }

    #[test]
    fn unit_stays_below_one() {
        assert!(unit_from_bits(u64::MAX) < 1.0);
        assert_eq!(unit_from_bits(0), 0.0);
    }
}
