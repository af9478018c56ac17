//! The retry budget is exact: it grants when both bounds have room, and only then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use maglor_balance::guard::Percent;
use maglor_balance::guard::retry_budget::{Budget, BudgetParams, RetryPermit};
use proptest::prelude::*;

use crate::at;
use crate::support::check;

#[derive(Clone, Debug)]
enum Step {
    Request(u8),
    Retry(u8),
    End(usize),
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1_u8..40).prop_map(Step::Request),
        (1_u8..20).prop_map(Step::Retry),
        any::<usize>().prop_map(Step::End),
        (0_u16..3000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

fn any_params() -> impl Strategy<Value = BudgetParams> {
    let most = prop::option::of(0_u32..10);
    (0_u8..=100, 0_u32..6, 0_u32..6, 1_u64..20, most).prop_map(
        |(percent, min_concurrency, min_per_second, seconds, max_retries)| BudgetParams {
            percent: Percent::whole(percent),
            min_concurrency,
            min_per_second,
            interval: Duration::from_secs(seconds),
            max_retries,
        },
    )
}

/// The events, by slot (a tenth of the interval).
#[derive(Default)]
struct History {
    requests: Vec<u64>,
    retries: Vec<u64>,
}

fn within(slots: &[u64], last: u64) -> u64 {
    let first = last.saturating_sub(9);
    slots
        .iter()
        .filter(|slot| (first..=last).contains(slot))
        .count() as u64
}

/// Requests that begin within `pause`, at the rate since the first request of the interval's slots.
fn begun(requests: &[u64], slot_millis: u64, pause: u64, now: u64) -> u64 {
    let (slot, pause) = (now / slot_millis, pause.min(250));
    let within: Vec<_> = requests.iter().filter(|at| **at + 9 >= slot).collect();
    let first = within.iter().copied().min().unwrap_or(&slot);
    let elapsed = (now - first * slot_millis).max(pause).max(1);
    within.len() as u64 * pause / elapsed
}

#[test]
fn both_bounds_hold_and_no_other() {
    let strategy = (any_params(), steps(), 0_u32..200, 0_u64..500);
    check(81, &strategy, |(params, steps, active, pause)| {
        let budget = Arc::new(Budget::new(params));
        let (mut history, mut held) = (History::default(), Vec::<RetryPermit>::new());
        let slot_millis = params.interval.as_millis() as u64 / 10;
        let mut now = 0;
        for step in steps {
            match step {
                Step::Wait(millis) => now += u64::from(millis),
                Step::Request(count) => {
                    for _ in 0..count {
                        budget.request(at(now));
                        history.requests.push(now / slot_millis);
                    }
                }
                Step::End(which) if !held.is_empty() => {
                    drop(held.swap_remove(which % held.len()));
                }
                Step::End(_) => {}
                Step::Retry(count) => {
                    for _ in 0..count {
                        let slot = now / slot_millis;
                        let requests = within(&history.requests, slot);
                        let retries = within(&history.retries, slot);
                        let floor = u64::from(params.min_per_second) * params.interval.as_secs();
                        let most = params.percent.of(requests).max(floor);
                        let begun = begun(&history.requests, slot_millis, pause, now);
                        let share = params.percent.of(u64::from(active) + begun);
                        let at_once = share
                            .max(u64::from(params.min_concurrency))
                            .min(params.max_retries.map_or(u64::MAX, u64::from));
                        let room = retries < most && (held.len() as u64) < at_once;
                        let granted = budget.retry(active, Duration::from_millis(pause), at(now));
                        assert_eq!(granted.is_some(), room, "at {now} ms");
                        if let Some(permit) = granted {
                            held.push(permit);
                            history.retries.push(slot);
                        }
                    }
                }
            }
            assert_eq!(budget.in_progress() as usize, held.len());
        }
    });
}

/// A storm: everything fails immediately, for every retry again, as fast as it can.
#[test]
fn a_storm_makes_a_fifth_more_attempts() {
    let budget = Arc::new(Budget::new(BudgetParams::default()));
    let (mut requests, mut retries) = (0_u32, 0_u32);
    for millis in 0..60_000 {
        // 1000 requests a second, each of which would be retried ten times.
        budget.request(at(millis));
        requests += 1;
        for _ in 0..10 {
            retries += u32::from(budget.retry(50, Duration::ZERO, at(millis)).is_some());
        }
    }
    let attempts = f64::from(requests + retries) / f64::from(requests);
    assert!((1.19..=1.201).contains(&attempts), "{attempts}");
}

#[test]
fn threads_cannot_exceed_it_together() {
    let budget = Arc::new(Budget::new(BudgetParams::default()));
    let (granted, highest) = (AtomicU32::new(0), AtomicU32::new(0));
    let work = || {
        for i in 0..5000_u32 {
            budget.request(at(5));
            if i % 2 == 0 {
                let held: Vec<_> = (0..3)
                    .filter_map(|_| budget.retry(40, Duration::ZERO, at(5)))
                    .collect();
                granted.fetch_add(held.len() as u32, Ordering::Relaxed);
                highest.fetch_max(budget.in_progress(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    assert!(highest.load(Ordering::Relaxed) <= 8, "a fifth of 40");
    assert!(granted.load(Ordering::Relaxed) <= 4000, "a fifth of 20 000");
    assert_eq!(budget.in_progress(), 0);
}
