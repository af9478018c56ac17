//! The cost of a metric in the data path: `cargo bench -p maglor-telemetry`.
//!
//! `contended` is what an unsharded metric would cost: the same counter changed by an atomic
//! addition, here even without a second thread.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use maglor_telemetry::{Buckets, Registry};

fn add(c: &mut Criterion) {
    let mut group = c.benchmark_group("counter");
    for workers in [1, 4] {
        let registry = Registry::new(workers);
        let counter = registry
            .counter("bench_total", "Bench.", &["n"])
            .with(&["1"]);
        group.bench_function(format!("add/{workers} workers"), |b| {
            b.iter(|| counter.add(black_box(0), black_box(1)));
        });
        group.bench_function(format!("contended/{workers} workers"), |b| {
            b.iter(|| counter.add_shared(black_box(1)));
        });
    }
    group.finish();
}

fn observe(c: &mut Criterion) {
    let mut group = c.benchmark_group("histogram");
    for workers in [1, 4] {
        let registry = Registry::new(workers);
        let family = registry.histogram("bench_seconds", "Bench.", &["n"], Buckets::latency());
        let histogram = family.with(&["1"]);
        // A few hundred values over four decades, in no order a predictor could learn in a row.
        let values: Vec<u64> = (0..256u64).map(|n| 50_000 << (n * 37 % 14)).collect();
        let mut next = 0;
        let mut value = move || {
            next = (next + 1) % values.len();
            values[next]
        };
        group.bench_function(format!("the loop itself/{workers} workers"), |b| {
            b.iter(|| black_box(value()));
        });
        group.bench_function(format!("observe_nanos/{workers} workers"), |b| {
            b.iter(|| histogram.observe_nanos(black_box(0), value()));
        });
        group.bench_function(format!("observe/{workers} workers"), |b| {
            b.iter(|| histogram.observe(black_box(0), value() as f64 * 1e-9));
        });
    }
    group.finish();
}

fn encode(c: &mut Criterion) {
    let registry = Registry::new(1);
    let requests = registry.counter("requests_total", "Bench.", &["cluster", "endpoint"]);
    let latency = registry.histogram(
        "latency_seconds",
        "Bench.",
        &["cluster", "endpoint"],
        Buckets::latency(),
    );
    let endpoints = (0..1000).map(|n| format!("10.0.{}.{}:8080", n / 250, n % 250));
    let handles: Vec<_> = endpoints
        .map(|endpoint| {
            (
                requests.with(&["web", &endpoint]),
                latency.with(&["web", &endpoint]),
            )
        })
        .collect();
    c.bench_function("encode/1000 endpoints", |b| b.iter(|| registry.encode()));
    drop(handles);
}

criterion_group!(benches, add, observe, encode);
criterion_main!(benches);
