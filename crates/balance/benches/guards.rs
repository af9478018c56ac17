//! The cost of the guards for a successful request.
//!
//! Run with `cargo bench -p maglor-balance --bench guards`. The bar: 60 ns for all that are on by
//! default together, a five-hundredth of what a proxied request takes.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use maglor_balance::guard::breaker::{Breaker, BreakerParams, Entry};
use maglor_balance::guard::concurrency::{ConcurrencyLimit, ConcurrencyParams};
use maglor_balance::guard::limits::{Admission, LimitParams, Slots};
use maglor_balance::guard::outlier::{Monitor, OutlierParams, Sample};
use maglor_balance::guard::rate::{KeyedBuckets, RateParams, TokenBucket};
use maglor_balance::guard::retry::{Answer, Outcome, RetryPolicy};
use maglor_balance::guard::retry_budget::{Budget, BudgetParams};
use maglor_balance::{Rng, Time};

/// Takes a place and returns it.
fn pass(slots: &Slots) {
    if black_box(slots.admit(u32::MAX)) == Admission::Admitted {
        let _ = black_box(slots.release());
    }
}

/// All that is on by default.
struct Defaults {
    budget: Arc<Budget>,
    cluster: Slots,
    endpoint: Slots,
    monitor: Monitor,
    outlier: OutlierParams,
    retry: RetryPolicy,
}

impl Defaults {
    fn new() -> Self {
        let limits = LimitParams::default();
        Self {
            budget: Arc::new(Budget::new(BudgetParams::default())),
            cluster: limits.requests(),
            endpoint: Slots::new(None, 0),
            monitor: Monitor::new(),
            outlier: OutlierParams::default(),
            retry: RetryPolicy::default(),
        }
    }

    fn good_request(&self, now: Time) {
        self.budget.request(now);
        let _ = black_box(self.cluster.admit(u32::MAX));
        let _ = black_box(self.endpoint.admit(u32::MAX));
        let outcome = black_box(Outcome::Answer(Answer::status(200)));
        black_box(self.retry.covers(&outcome));
        black_box(self.monitor.record(Sample::of_status(200), &self.outlier));
        let _ = black_box(self.endpoint.release());
        let _ = black_box(self.cluster.release());
    }
}

fn guards(c: &mut Criterion) {
    let mut group = c.benchmark_group("guard");
    let mut nanos = 0_u64;
    let mut now = move || {
        nanos += 1000;
        Time::from_nanos(nanos)
    };
    let all = Defaults::new();
    group.bench_function("defaults together", |b| {
        b.iter(|| all.good_request(now()));
    });
    group.bench_function("budget", |b| b.iter(|| all.budget.request(now())));
    group.bench_function("limits", |b| b.iter(|| pass(&all.cluster)));
    let limited = Slots::new(Some(100), 10);
    group.bench_function("limits (max_requests)", |b| b.iter(|| pass(&limited)));
    group.bench_function("outlier", |b| {
        b.iter(|| black_box(all.monitor.record(Sample::Success, &all.outlier)));
    });
    let (breaker, mut rng) = (Breaker::new(BreakerParams::default()), Rng::seed(1));
    group.bench_function("breaker", |b| {
        b.iter(|| {
            let now = now();
            if let (Entry::Passed(pass), _) = breaker.enter(now) {
                black_box(breaker.record(pass, true, now, &mut rng));
            }
        });
    });
    let adaptive = ConcurrencyLimit::new(ConcurrencyParams::default());
    group.bench_function("concurrency", |b| {
        b.iter(|| black_box(adaptive.sample(Duration::from_millis(1), 5, now(), &mut rng)));
    });
    let params = RateParams {
        requests: 1_000_000_000,
        per: Duration::from_secs(1),
        burst: 1000,
    };
    let bucket = TokenBucket::new(params);
    group.bench_function("rate", |b| b.iter(|| black_box(bucket.take(now()))));
    let keyed = KeyedBuckets::new(params, 10_000, &mut rng);
    group.bench_function("rate (keyed)", |b| {
        b.iter(|| black_box(keyed.take(u64::from(rng.below(5000)), now())));
    });
    group.finish();
}

criterion_group!(benches, guards);
criterion_main!(benches);
