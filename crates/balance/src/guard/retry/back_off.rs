//! The pause before a retry.

use std::time::Duration;

use crate::Rng;

/// Jittered exponential back-off, Envoy's `retry_back_off`.
///
/// The pause before retry N (from 1) is uniform between 0 and `min(base · 2^(N − 1), max)`: *full*
/// jitter, which spreads clients that failed at the same moment over the whole interval.
///
/// # Defaults
///
/// `base_interval`: 25 ms, `max_interval`: 250 ms (Envoy's).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackOff {
    /// The upper bound of the first pause.
    pub base_interval: Duration,
    /// The upper bound of every pause.
    pub max_interval: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            base_interval: Duration::from_millis(25),
            max_interval: Duration::from_millis(250),
        }
    }
}

impl BackOff {
    /// Returns the upper bound of the pause before retry `number`, from 1.
    #[must_use]
    pub fn ceiling(&self, number: u32) -> Duration {
        let doublings = number.saturating_sub(1).min(31);
        self.base_interval
            .saturating_mul(1 << doublings)
            .min(self.max_interval)
    }

    /// Draws the pause before retry `number`, from 1.
    pub fn pause(&self, number: u32, rng: &mut Rng) -> Duration {
        self.ceiling(number).mul_f64(rng.unit())
    }
}

/// Extends `wait` by up to a half, so that clients with the same wait time from a server do not all return at once
/// (Envoy does this with `Retry-After`, too).
pub(super) fn spread(wait: Duration, rng: &mut Rng) -> Duration {
    wait.saturating_add(wait.mul_f64(rng.unit() / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_fill_their_intervals_evenly() {
        let (back_off, mut rng) = (BackOff::default(), Rng::seed(5));
        for (number, millis) in [(1, 25), (2, 50), (3, 100), (4, 200), (5, 250), (99, 250)] {
            let ceiling = Duration::from_millis(millis);
            assert_eq!(back_off.ceiling(number), ceiling);
            let mut quarters = [0_u32; 4];
            for _ in 0..4000 {
                let pause = back_off.pause(number, &mut rng);
                assert!(pause < ceiling);
                quarters[(4.0 * pause.as_secs_f64() / ceiling.as_secs_f64()) as usize] += 1;
            }
            // 5 standard deviations of a binomial with n = 4000, p = 1/4.
            assert!(
                quarters.iter().all(|q| q.abs_diff(1000) < 137),
                "{quarters:?}"
            );
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let back_off = BackOff {
            base_interval: Duration::MAX,
            max_interval: Duration::MAX,
        };
        assert_eq!(back_off.ceiling(u32::MAX), Duration::MAX);
        let zero = BackOff {
            base_interval: Duration::ZERO,
            ..back_off
        };
        assert_eq!(zero.pause(7, &mut Rng::seed(1)), Duration::ZERO);
    }
}
