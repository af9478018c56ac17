//! Token buckets: never more than burst + rate · t in any time t, and never fewer than that allows.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use maglor_balance::guard::rate::{KeyedBuckets, RateParams, TokenBucket};
use maglor_balance::{Rng, Time};
use proptest::prelude::*;

use crate::at;
use crate::support::{check, seed};

fn any_params() -> impl Strategy<Value = RateParams> {
    (1_u32..500, 1_u64..5000, 1_u32..50).prop_map(|(requests, millis, burst)| RateParams {
        requests,
        per: Duration::from_millis(millis),
        burst,
    })
}

/// A bucket in exact fractions: `level / per` tokens, with `per` in nanoseconds.
struct Exact {
    params: RateParams,
    level: u128,
    at: Time,
}

impl Exact {
    fn take(&mut self, now: Time) -> bool {
        let per = self.params.per.as_nanos();
        let passed = now.saturating_since(self.at).as_nanos();
        let filled = self.level + passed * u128::from(self.params.requests);
        self.level = filled.min(per * u128::from(self.params.burst));
        self.at = now;
        let enough = self.level >= per;
        if enough {
            self.level -= per;
        }
        enough
    }
}

#[test]
fn schedules_pass_as_an_exact_bucket_would() {
    let gaps = proptest::collection::vec(prop_oneof![Just(0), 0_u64..30_000_000], 1..400);
    let strategy = (any_params(), any::<u32>(), gaps);
    check(83, &strategy, |(params, start, gaps)| {
        let bucket = TokenBucket::new(params);
        let mut now = Time::from_nanos(u64::from(start));
        let mut exact = Exact {
            params,
            level: params.per.as_nanos() * u128::from(params.burst),
            at: now,
        };
        let (mut passed, mut expected, mut times) = (0_i64, 0_i64, Vec::new());
        for gap in gaps {
            now = now + Duration::from_nanos(gap);
            let verdict = bucket.take(now);
            if verdict.allowed {
                passed += 1;
                times.push(now);
            }
            expected += i64::from(exact.take(now));
            assert!((passed - expected).abs() <= 1, "{passed} for {expected}");
        }
        // Every window between two that passed.
        let rate = f64::from(params.requests) / params.per.as_secs_f64();
        for (first, from) in times.iter().enumerate() {
            for (count, to) in times[first..].iter().enumerate() {
                let time = to.saturating_since(*from).as_secs_f64();
                let most = f64::from(params.burst) + rate * time + 1e-6;
                assert!((count + 1) as f64 <= most, "{} in {time} s", count + 1);
            }
        }
    });
}

#[test]
fn the_next_token_comes_when_it_was_promised() {
    let mut rng = Rng::seed(seed(84));
    for _ in 0..2000 {
        let params = RateParams {
            requests: 1 + rng.below(1000),
            per: Duration::from_micros(1 + u64::from(rng.below(10_000_000))),
            burst: 1 + rng.below(5),
        };
        let bucket = TokenBucket::new(params);
        let start = Time::from_nanos(rng.next_u64() >> 12);
        let mut now = start;
        for _ in 0..20 {
            let verdict = bucket.take(now);
            if verdict.allowed {
                assert_eq!(verdict.retry_after, Duration::ZERO);
                continue;
            }
            assert_eq!(verdict.remaining, 0);
            assert!(verdict.reset >= verdict.retry_after);
            let early = verdict.retry_after.saturating_sub(Duration::from_nanos(2));
            assert!(early.is_zero() || !bucket.take(now + early).allowed);
            now = now + verdict.retry_after;
            assert!(bucket.take(now).allowed, "{params:?}");
        }
        let full = bucket.take(now + Duration::from_secs(1_000_000));
        assert_eq!(full.remaining, params.burst - 1, "silence fills it");
    }
}

#[test]
fn a_saturated_bucket_keeps_its_rate() {
    for (requests, millis) in [(100, 1000), (7, 300), (3, 1), (10_000, 1000)] {
        let params = RateParams {
            requests,
            per: Duration::from_millis(millis),
            // With 1 it would lose what comes between two arrivals.
            burst: 2,
        };
        let (bucket, mut passed) = (TokenBucket::new(params), 0_u64);
        let (token, mut now) = (params.per / requests, Time::ZERO);
        // Asked ten times a token, for 20 000 tokens.
        for _ in 0..200_000 {
            passed += u64::from(bucket.take(now).allowed);
            now = now + token / 10;
        }
        let rate = f64::from(requests) / params.per.as_secs_f64();
        let exact = 2.0 + rate * now.saturating_since(Time::ZERO).as_secs_f64();
        assert!((passed as f64 - exact).abs() <= 1.5, "{passed} for {exact}");
    }
}

#[test]
fn threads_share_one_bucket() {
    let params = RateParams {
        requests: 1,
        per: Duration::from_secs(3600),
        burst: 1000,
    };
    let keyed = KeyedBuckets::new(params, 100, &mut Rng::seed(1));
    let (bucket, passed, by_key) = (
        TokenBucket::new(params),
        AtomicU32::new(0),
        AtomicU32::new(0),
    );
    let work = || {
        for _ in 0..1000 {
            passed.fetch_add(u32::from(bucket.take(at(1)).allowed), Ordering::Relaxed);
            by_key.fetch_add(u32::from(keyed.take(7, at(1)).allowed), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    assert_eq!(passed.load(Ordering::Relaxed), 1000);
    assert_eq!(by_key.load(Ordering::Relaxed), 1000);
}
