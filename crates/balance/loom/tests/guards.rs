//! In every order in which two or three threads may meet: bounds hold, and no wake is lost.
#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use loom::sync::Notify;
use loom::thread;
use maglor_balance_loom::guard::Percent;
use maglor_balance_loom::guard::breaker::{Breaker, BreakerParams, Entry, Phase};
use maglor_balance_loom::guard::limits::{Admission, Claim, Slots};
use maglor_balance_loom::guard::outlier::{Monitor, OutlierParams, Sample};
use maglor_balance_loom::guard::rate::{KeyedBuckets, RateParams, TokenBucket};
use maglor_balance_loom::guard::retry_budget::{Budget, BudgetParams};
use maglor_balance_loom::{Rng, Time};

/// Counted outside of the model: what the threads of one run have seen.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self, more: bool) {
        self.0.fetch_add(u32::from(more), Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Runs the same in two concurrent threads.
fn twice(work: impl Fn() + Clone + Send + 'static) {
    let other = thread::spawn(work.clone());
    work();
    other.join().unwrap();
}

/// One slot: a waiting request is woken by a later release, or has not waited at all. A lost
/// wake would be a deadlock, which loom finds.
#[test]
fn a_place_goes_on_without_a_lost_wake() {
    loom::model(|| {
        let slots = Arc::new(Slots::new(Some(1), 2));
        let wake = Arc::new(Notify::new());
        assert_eq!(slots.admit(u32::MAX), Admission::Admitted);
        let waiter = {
            let (slots, wake) = (Arc::clone(&slots), Arc::clone(&wake));
            thread::spawn(move || {
                match slots.admit(u32::MAX) {
                    Admission::Admitted => {}
                    Admission::Overflow => unreachable!("there is a queue"),
                    Admission::Waiting => {
                        wake.wait();
                        assert_eq!(slots.claim(u32::MAX), Claim::Claimed { wake: false });
                    }
                }
                assert_eq!(slots.active(), 1);
                assert!(!slots.release());
            })
        };
        if slots.release() {
            wake.notify();
        }
        waiter.join().unwrap();
        assert_eq!((slots.active(), slots.waiting()), (0, 0));
    });
}

/// Three threads and one place: never two inside, and each gets its turn.
#[test]
fn a_place_is_for_one() {
    loom::model(|| {
        let (slots, admitted) = (Arc::new(Slots::new(Some(1), 0)), Count::default());
        let work = {
            let (slots, admitted) = (Arc::clone(&slots), admitted.clone());
            move || {
                if slots.admit(u32::MAX) == Admission::Admitted {
                    admitted.add(true);
                    assert_eq!(slots.active(), 1);
                    assert!(!slots.release());
                }
            }
        };
        let third = thread::spawn(work.clone());
        twice(work);
        third.join().unwrap();
        assert!((1..=3).contains(&admitted.get()));
        assert_eq!(slots.active(), 0);
    });
}

#[test]
fn a_budget_for_one_grants_one() {
    loom::model(|| {
        let params = BudgetParams {
            percent: Percent::NONE,
            min_concurrency: 1,
            ..BudgetParams::default()
        };
        let (budget, granted) = (Arc::new(Budget::new(params)), Count::default());
        let work = {
            let (budget, granted) = (Arc::clone(&budget), granted.clone());
            move || {
                budget.request(at(5));
                let permit = budget.retry(1, Duration::ZERO, at(5));
                granted.add(permit.is_some());
                // The last of them is still in progress when the other one asks.
                std::mem::forget(permit);
            }
        };
        twice(work);
        assert_eq!((granted.get(), budget.in_progress()), (1, 1));
    });
}

/// While one thread turns to the next part of the interval, the other's retries are still counted.
#[test]
fn a_budget_holds_while_its_interval_moves_on() {
    loom::model(|| {
        let params = BudgetParams {
            percent: Percent::NONE,
            min_concurrency: 9,
            min_per_second: 1,
            interval: Duration::from_secs(2),
            max_retries: None,
        };
        let (budget, granted) = (Arc::new(Budget::new(params)), Count::default());
        let other = {
            let (budget, granted) = (Arc::clone(&budget), granted.clone());
            thread::spawn(move || granted.add(budget.retry(1, Duration::ZERO, at(190)).is_some()))
        };
        for _ in 0..2 {
            granted.add(budget.retry(1, Duration::ZERO, at(210)).is_some());
        }
        other.join().unwrap();
        assert_eq!(granted.get(), 2, "two in two seconds");
    });
}

#[test]
fn a_bucket_with_one_token_grants_one() {
    loom::model(|| {
        let params = RateParams {
            requests: 1,
            per: Duration::from_secs(60),
            burst: 1,
        };
        let bucket = Arc::new(TokenBucket::new(params));
        let keyed = Arc::new(KeyedBuckets::new(params, 32, &mut Rng::seed(1)));
        let (all, by_key) = (Count::default(), Count::default());
        let work = {
            let (all, by_key) = (all.clone(), by_key.clone());
            move || {
                all.add(bucket.take(at(1)).allowed);
                by_key.add(keyed.take(7, at(1)).allowed);
            }
        };
        twice(work);
        assert_eq!((all.get(), by_key.get()), (1, 1));
    });
}

#[test]
fn a_streak_is_found_once() {
    loom::model(|| {
        let params = OutlierParams {
            consecutive_5xx: 2,
            ..OutlierParams::default()
        };
        let (monitor, found) = (Arc::new(Monitor::new()), Count::default());
        let work = {
            let found = found.clone();
            move || found.add(monitor.record(Sample::ServerError, &params).is_some())
        };
        twice(work);
        assert_eq!(found.get(), 1);
    });
}

fn breaker(consecutive_failures: u32) -> Arc<Breaker> {
    Arc::new(Breaker::new(BreakerParams {
        consecutive_failures,
        failure_percent: Percent::NONE,
        half_open_requests: 1,
        success_threshold: 1,
        ..BreakerParams::default()
    }))
}

fn fail(breaker: &Breaker, now: Time) -> bool {
    match breaker.enter(now).0 {
        Entry::Passed(pass) => breaker
            .record(pass, false, now, &mut Rng::seed(1))
            .is_some(),
        Entry::Rejected(_) => false,
    }
}

#[test]
fn a_breaker_opens_once() {
    loom::model(|| {
        let (breaker, opened) = (breaker(2), Count::default());
        let work = {
            let (breaker, opened) = (Arc::clone(&breaker), opened.clone());
            move || opened.add(fail(&breaker, at(1)))
        };
        twice(work);
        assert_eq!(opened.get(), 1);
        assert_eq!(breaker.phase(), Phase::Open);
    });
}

#[test]
fn half_open_lets_one_probe_through() {
    loom::model(|| {
        let (breaker, passed) = (breaker(1), Count::default());
        assert!(fail(&breaker, at(1)));
        let work = {
            let (breaker, passed) = (Arc::clone(&breaker), passed.clone());
            move || {
                let (entry, _) = breaker.enter(at(5000));
                passed.add(matches!(entry, Entry::Passed(ref pass) if pass.is_probe()));
                std::mem::forget(entry);
            }
        };
        twice(work);
        assert_eq!(passed.get(), 1);
        assert_eq!(breaker.phase(), Phase::HalfOpen);
    });
}
