//! Time of a pick, and of building a view with its policy, with 1000 endpoints.
//!
//! Run with `cargo bench -p maglor-balance --bench pick`. The bars: 30 ns for `lor(choices=2)`, 15 ns
//! for `maglev`, 5 ms for a Maglev table of 65537 slots.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;
use std::num::NonZeroU32;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use maglor_balance::queue_protocol::Decision;
use maglor_balance::{Balancer, Endpoint, Index, PickCtx, PolicySpec, Rng, Time, ViewParams};

const ENDPOINTS: usize = 1000;

const SPECS: &[&str] = &[
    "random",
    "round-robin",
    "lor(choices=1)",
    "lor(choices=2)",
    "lor(choices=5)",
    "lor(choices=all)",
    "peak-ewma",
    "a-lsq(choices=2,overhead=10)",
    "subset(size=20)",
    "maglev(table_size=65537)",
    "maglev(table_size=5000011)",
    "maglev(table_size=65537,hash_balance_factor=125)",
    "ring-hash(min=1024)",
    "ring-hash(min=100000)",
];

fn endpoints(weight: impl Fn(usize) -> u32) -> Vec<Endpoint> {
    let endpoint = |i: usize| {
        let key = format!("10.0.{}.{}:8080", i / 250, i % 250);
        Endpoint::new(key).weight(NonZeroU32::new(weight(i)).unwrap_or(NonZeroU32::MIN))
    };
    (0..ENDPOINTS).map(endpoint).collect()
}

/// A balancer in the midst of work: each endpoint with 0–3 outstanding and a latency.
fn busy(spec: &str, weight: impl Fn(usize) -> u32) -> Balancer {
    let spec: PolicySpec = spec.parse().expect("a valid policy");
    let balancer = Balancer::build(&spec, endpoints(weight), &ViewParams::default(), Time::ZERO)
        .expect("a valid policy");
    let mut rng = Rng::seed(1);
    for endpoint in balancer.view().endpoints().iter() {
        endpoint
            .stats
            .begin(Time::ZERO)
            .finish(Time::from_nanos(rng.next_u64() % 50_000_000));
        for _ in 0..rng.below(4) {
            std::mem::forget(endpoint.stats.begin(Time::ZERO));
        }
    }
    balancer
}

fn picks(c: &mut Criterion) {
    let mut group = c.benchmark_group("pick");
    for spec in SPECS {
        let balancer = busy(spec, |_| 1);
        let mut rng = Rng::seed(2);
        let mut hash = 0_u64;
        group.bench_function(*spec, |b| {
            b.iter(|| {
                hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let now = Time::from_nanos(1_000_000_000);
                balancer.pick(black_box(&PickCtx::new(now).with_hash(hash)), &mut rng)
            });
        });
    }
    for spec in ["lor(choices=2)", "round-robin"] {
        let balancer = busy(spec, |i| 1 + i as u32 % 3);
        let mut rng = Rng::seed(2);
        group.bench_function(format!("{spec} weighted"), |b| {
            b.iter(|| balancer.pick(black_box(&PickCtx::new(Time::ZERO)), &mut rng));
        });
    }
    let balancer = busy("lor(choices=2)", |_| 1);
    let mut rng = Rng::seed(2);
    let attempted = [Index::new(3)];
    group.bench_function("lor(choices=2) one excluded", |b| {
        let ctx = PickCtx::new(Time::ZERO).excluding(&attempted);
        b.iter(|| balancer.pick(black_box(&ctx), &mut rng));
    });
    first_steps(&mut group);
    let stats = &balancer.view().endpoints()[0].stats;
    group.bench_function("begin and drop", |b| {
        b.iter(|| black_box(stats.begin(Time::ZERO)));
    });
    let mut now = Time::ZERO;
    group.bench_function("begin and finish", |b| {
        b.iter(|| {
            let begun = stats.begin(now);
            now = now + std::time::Duration::from_millis(1);
            begun.finish(now);
        });
    });
    group.finish();
}

/// The work of a collaborative policy before its first message.
fn first_steps(group: &mut BenchmarkGroup<'_, WallTime>) {
    for spec in ["bounce(tries=3)", "ledger(group=40)", "probe(choices=2)"] {
        let balancer = busy(spec, |_| 1);
        let mut rng = Rng::seed(2);
        let mut decision = Decision::new();
        group.bench_function(format!("{spec} first step"), |b| {
            let ctx = PickCtx::new(Time::ZERO);
            b.iter(|| balancer.begin(&mut decision, black_box(&ctx), &mut rng));
        });
    }
}

fn builds(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    group.sample_size(20);
    for (name, spec, weights) in [
        ("maglev 65537", "maglev(table_size=65537)", 1),
        ("maglev 65537 weighted", "maglev(table_size=65537)", 100),
        ("ring-hash 1024", "ring-hash(min=1024)", 1),
        ("ring-hash 100000", "ring-hash(min=100000)", 1),
        ("round-robin weighted", "round-robin", 100),
        ("lor", "lor", 1),
    ] {
        let spec: PolicySpec = spec.parse().expect("a valid policy");
        let set = endpoints(|i| 1 + i as u32 % weights);
        let params = ViewParams::default();
        group.bench_function(name, |b| {
            b.iter(|| Balancer::build(&spec, set.clone(), &params, Time::ZERO));
        });
    }
    let first = busy("maglev", |_| 1);
    let set = first.view().endpoints();
    group.bench_function("maglev 65537 rebuild, health changed", |b| {
        b.iter(|| first.rebuild(set.clone(), &ViewParams::default(), Time::ZERO));
    });
    group.finish();
}

criterion_group!(benches, picks, builds);
criterion_main!(benches);
