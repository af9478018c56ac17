//! Local rate limits: a token bucket, or one for each key.
//!
//! A bucket of `burst` tokens is refilled with `requests` tokens every `per`; a request takes one,
//! or gets a 429 response. The bucket is stored as the time at which it will be full (the generic
//! cell rate algorithm, ITU-T I.371): a token moves that time by T = per / requests, and there is
//! one as long as it is at most burst · T away.
//!
//! In any time t at most burst + t / T requests pass, exactly. T is rounded up to 1/64 ns, so the
//! throughput of a bucket under permanent demand is too low by less than one in a million, up to a
//! rate of 10 000 a second, and less than one in 1000 up to 10 000 000.
//!
//! One bucket is shared by all threads, in one word. `Relaxed`: the word is complete in itself.
//!
//! A [`Verdict`] has the values of the header fields `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers) and of `Retry-After`.

mod keyed;

use std::time::Duration;

pub use keyed::KeyedBuckets;

use crate::Time;
use crate::sync::{AtomicU64, Ordering};

/// A rate and a burst.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateParams {
    /// The number of tokens refilled every `per`, 1 or more.
    pub requests: u32,
    /// The interval in which `requests` tokens are refilled; not zero, at most a day.
    pub per: Duration,
    /// The capacity of the bucket, 1 or more: the number of requests that may pass at once after an idle time.
    pub burst: u32,
}

/// Whether a request passes, and the limits to report to its client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// Whether the request passes.
    pub allowed: bool,
    /// The number of remaining tokens: `r` of `RateLimit`.
    pub remaining: u32,
    /// The time until the bucket is full: `t` of `RateLimit`.
    pub reset: Duration,
    /// The time until the next token, for `Retry-After` of a rejected request; zero if the request passes.
    pub retry_after: Duration,
}

/// The number of binary digits for the fraction of a nanosecond. The other 58 bits cover 9 years, longer than any
/// process runs.
const FRACTION: u32 = 6;

impl RateParams {
    /// Returns T, the time per token, rounded up to 1/64 ns.
    fn token(&self) -> u64 {
        let per = self.per.as_nanos() << FRACTION;
        let token = per.div_ceil(u128::from(self.requests.max(1)));
        u64::try_from(token).unwrap_or(u64::MAX).max(1)
    }

    /// Takes a token from a bucket that will be full at `full`. Returns the time at which the bucket will be full
    /// afterwards, or `None` if there was no token.
    fn take(&self, full: u64, now: Time) -> (Option<u64>, Verdict) {
        let token = self.token();
        let capacity = token.saturating_mul(u64::from(self.burst.max(1)));
        let now = now.as_nanos().min(u64::MAX >> FRACTION) << FRACTION;
        // Another thread's clock may be a little ahead: `full - now` is still correct.
        let missing = full.saturating_sub(now);
        let after = missing
            .checked_add(token)
            .filter(|after| *after <= capacity);
        // Beyond the end of time there is no token either.
        let next = after.and_then(|after| now.checked_add(after));
        let missing_then = after.filter(|_| next.is_some()).unwrap_or(missing);
        let verdict = Verdict {
            allowed: next.is_some(),
            remaining: u32::try_from(capacity.saturating_sub(missing_then) / token)
                .unwrap_or(u32::MAX),
            reset: span(missing_then),
            retry_after: match next {
                Some(_) => Duration::ZERO,
                None => span(missing.saturating_add(token).saturating_sub(capacity)),
            },
        };
        (next, verdict)
    }
}

fn span(fractions: u64) -> Duration {
    Duration::from_nanos(fractions.div_ceil(1 << FRACTION))
}

/// A token bucket.
#[derive(Debug)]
pub struct TokenBucket {
    params: RateParams,
    /// The time at which the bucket will be full, in 1/64 ns.
    full: AtomicU64,
}

impl TokenBucket {
    /// Creates a full bucket.
    #[must_use]
    pub fn new(params: RateParams) -> Self {
        Self {
            params,
            full: AtomicU64::new(0),
        }
    }

    /// Returns the parameters of the bucket.
    #[must_use]
    pub fn params(&self) -> &RateParams {
        &self.params
    }

    /// Takes a token for a request, if there is one.
    pub fn take(&self, now: Time) -> Verdict {
        let mut full = self.full.load(Ordering::Relaxed);
        loop {
            let (next, verdict) = self.params.take(full, now);
            let Some(next) = next else {
                return verdict;
            };
            let swapped =
                self.full
                    .compare_exchange_weak(full, next, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return verdict,
                Err(seen) => full = seen,
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
            assert_eq!(
                verdict.reset,
                Duration::from_millis(300 - 100 * u64::from(left))
            );
        }
        let refused = bucket.take(at(start));
        assert!(!refused.allowed);
        assert_eq!(refused.retry_after, Duration::from_millis(100));
        assert_eq!(refused.reset, Duration::from_millis(300));
        assert_eq!(
            bucket.take(at(start + 60)).retry_after,
            Duration::from_millis(40)
        );
        assert!(!bucket.take(at(start + 99)).allowed);
        assert!(bucket.take(at(start + 100)).allowed);
        assert!(!bucket.take(at(start + 199)).allowed);
        assert!(bucket.take(at(start + 200)).allowed);
        // Silence fills it, but not beyond the burst.
        let later = start + 100_000;
        let passed = (0..10).filter(|_| bucket.take(at(later)).allowed).count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn odd_rates_are_kept_after_a_year() {
        for (requests, per) in [(3, 1), (7, 60), (10_000, 1), (9_999, 7), (1, 86_400)] {
            let params = RateParams {
                requests,
                per: Duration::from_secs(per),
                burst: 1,
            };
            let exact = per as f64 * 1e9 * 64.0 / f64::from(requests);
            let token = params.token() as f64;
            assert!(
                token >= exact && token - exact <= exact * 1e-6,
                "{requests}/{per}"
            );
            let year = Time::from_nanos(31_536_000_123_456_789);
            let bucket = TokenBucket::new(params);
            assert!(bucket.take(year).allowed && !bucket.take(year).allowed);
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
        let passed = (0..200).filter(|_| bucket.take(Time::from_nanos(u64::MAX)).allowed);
        assert!(passed.count() < 64, "no token is due later than that");
        let slow = TokenBucket::new(RateParams {
            requests: 1,
            per: Duration::MAX,
            burst: u32::MAX,
        });
        assert!(slow.take(Time::ZERO).allowed);
        assert!(!slow.take(Time::ZERO).allowed);
    }
}
