//! Primality for Maglev table sizes. Trial division: sizes are below 5 000 011, so at most 2236
//! steps, once per configuration.

/// Returns whether `n` is prime.
pub(crate) fn is_prime(n: u32) -> bool {
    if n < 4 {
        return n >= 2;
    }
    !n.is_multiple_of(2)
        && (3..)
            .step_by(2)
            .take_while(|d| d * d <= u64::from(n))
            .all(|d| !u64::from(n).is_multiple_of(d))
}

/// Returns the smallest prime that is at least `n`; `None` above the largest 32-bit prime, 4 294 967 291, which callers
/// stay far below.
pub(crate) fn next_prime(n: u32) -> Option<u32> {
    (n..=u32::MAX).find(|&candidate| is_prime(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_known_primes() {
        let small: Vec<u32> = (0..30).filter(|&n| is_prime(n)).collect();
        assert_eq!(small, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert!(is_prime(65_537) && is_prime(5_000_011) && is_prime(655_373));
        assert!(!is_prime(65_536) && !is_prime(65_539 * 3) && !is_prime(25));
    }

    #[test]
    fn next_prime_rounds_up() {
        assert_eq!(next_prime(65_536), Some(65_537));
        assert_eq!(next_prime(65_537), Some(65_537));
        assert_eq!(next_prime(0), Some(2));
        assert_eq!(next_prime(4_294_967_292), None);
    }
}
