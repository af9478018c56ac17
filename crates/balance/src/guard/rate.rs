//! Local rate limits: a token bucket, or one for each key.
//!
//! A bucket of `burst` tokens is filled with `requests` tokens every `per`; a request takes one, or
//! is answered with 429. It never lets more than burst + rate · t requests pass in a time t, and
//! never fewer than arrive while it has tokens: exactly, for its arithmetic is that of integers.
//! Tokens are numbered from the epoch; by time t the numbers up to ⌊t · requests / per⌋ have been
//! filled in, and the whole state is the number that was taken last.
//!
//! One bucket is shared by all threads, in one word. `Relaxed`: the word is complete in itself.
//!
//! A [`Verdict`] has the numbers of the header fields `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers) and of `Retry-After`.

mod keyed;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use keyed::KeyedBuckets;

use crate::Time;

/// A rate and a burst.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateParams {
    /// Tokens that are filled in every `per`, 1 or more.
    pub requests: u32,
    /// Not zero, at most a day.
    pub per: Duration,
    /// Tokens that the bucket holds, 1 or more: what may pass at once after a silence.
    pub burst: u32,
}

/// Whether a request passes, and what its client is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// It passes.
    pub allowed: bool,
    /// Tokens left: `r` of `RateLimit`.
    pub remaining: u32,
    /// Until the bucket is full: `t` of `RateLimit`.
    pub reset: Duration,
    /// Until the next token: `Retry-After` of what does not pass; zero for what does.
    pub retry_after: Duration,
}

impl RateParams {
    /// Tokens filled in until `now`.
    fn filled(&self, now: Time) -> u64 {
        let product = u128::from(now.as_nanos()) * u128::from(self.requests);
        // The quotient fits: a token takes longer than the quotient of both limits, or 2^64 ns end.
        u64::try_from(product / self.per.as_nanos().max(1)).unwrap_or(u64::MAX >> 1)
    }

    /// When token number `number` is filled in.
    fn filled_at(&self, number: u64) -> Time {
        let product = u128::from(number) * self.per.as_nanos();
        let nanos = product.div_ceil(u128::from(self.requests.max(1)));
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes a token: the new number taken last, if there was one to take.
    fn take(&self, taken: u64, now: Time) -> (Option<u64>, Verdict) {
        let filled = self.filled(now);
        // A full bucket forgets older tokens. `taken` runs ahead of `filled` by the burst at most.
        let taken = taken.max(filled);
        let last = filled + u64::from(self.burst.max(1));
        let next = (taken < last).then_some(taken + 1);
        let now_taken = next.unwrap_or(taken);
        let verdict = Verdict {
            allowed: next.is_some(),
            remaining: u32::try_from(last.saturating_sub(now_taken)).unwrap_or(u32::MAX),
            reset: self.filled_at(now_taken).saturating_since(now),
            retry_after: match next {
                Some(_) => Duration::ZERO,
                None => self.filled_at(filled + 1).saturating_since(now),
            },
        };
        (next, verdict)
    }
}

/// A token bucket.
#[derive(Debug)]
pub struct TokenBucket {
    params: RateParams,
    taken: AtomicU64,
}

impl TokenBucket {
    /// A full one.
    #[must_use]
    pub const fn new(params: RateParams) -> Self {
        Self {
            params,
            taken: AtomicU64::new(0),
        }
    }

    /// What it was made of.
    #[must_use]
    pub fn params(&self) -> &RateParams {
        &self.params
    }

    /// Takes a token for a request, if there is one.
    pub fn take(&self, now: Time) -> Verdict {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let (next, verdict) = self.params.take(taken, now);
            let Some(next) = next else {
                return verdict;
            };
            let exchange =
                self.taken
                    .compare_exchange_weak(taken, next, Ordering::Relaxed, Ordering::Relaxed);
            match exchange {
                Ok(_) => return verdict,
                Err(seen) => taken = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_burst_then_the_rate() {
        let bucket = TokenBucket::new(RateParams {
            requests: 10,
            per: Duration::from_secs(1),
            burst: 3,
        });
        let start = 5_000_050;
        for left in [2, 1, 0] {
            let verdict = bucket.take(at(start));
            assert!(verdict.allowed && verdict.retry_after.is_zero());
            assert_eq!(verdict.remaining, left);
        }
        let refused = bucket.take(at(start));
        assert!(!refused.allowed);
        assert_eq!(refused.retry_after, Duration::from_millis(50));
        assert_eq!(refused.reset, Duration::from_millis(250));
        assert!(bucket.take(at(start + 50)).allowed);
        assert!(!bucket.take(at(start + 149)).allowed);
        assert!(bucket.take(at(start + 150)).allowed);
        // Silence fills it, but not beyond the burst.
        let later = start + 100_000;
        let passed = (0..10).filter(|_| bucket.take(at(later)).allowed).count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn odd_rates_are_exact() {
        for (requests, per) in [(3, 1), (7, 60), (1_000_000, 1), (999_999, 7), (1, 86_400)] {
            let params = RateParams {
                requests,
                per: Duration::from_secs(per),
                burst: 1,
            };
            let now = Time::from_nanos(31_536_000_123_456_789);
            let filled = params.filled(now);
            assert!(params.filled_at(filled) <= now);
            assert!(params.filled_at(filled + 1) > now);
            // After a year there is not one token too many or too few.
            let exact = 31_536_000.123_456_789 * f64::from(requests) / per as f64;
            assert!((filled as f64 - exact).abs() <= 1.0 + exact * 1e-15);
        }
    }

    #[test]
    fn the_ends_of_time_do_no_harm() {
        let bucket = TokenBucket::new(RateParams {
            requests: u32::MAX,
            per: Duration::from_nanos(1),
            burst: u32::MAX,
        });
        assert!(bucket.take(Time::ZERO).allowed);
        assert!(bucket.take(Time::from_nanos(u64::MAX)).allowed);
        assert!(bucket.take(Time::ZERO).remaining == 0, "an older clock");
    }
}
