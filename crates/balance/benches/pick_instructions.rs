//! Instructions of a thousand picks among 1000 endpoints: the same on every machine, so that CI can
//! refuse a regression.
//!
//! Run with `cargo bench -p maglor-balance --bench pick_instructions`; needs valgrind and
//! `gungraun-runner` of the version of the `gungraun` dependency.
#![allow(
    missing_docs,
    unused_qualifications,
    reason = "gungraun's macros expand to both"
)]

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use maglor_balance::{Balancer, Endpoint, PickCtx, PolicySpec, Rng, Time, ViewParams};

const PICKS: u64 = 1000;

fn balancer(spec: &str) -> (Balancer, Rng) {
    let spec: PolicySpec = spec.parse().expect("a valid policy");
    let endpoints: Vec<Endpoint> = (0..1000)
        .map(|i| Endpoint::new(format!("10.0.{}.{}:8080", i / 250, i % 250)))
        .collect();
    let balancer = Balancer::build(&spec, endpoints, &ViewParams::default(), Time::ZERO)
        .expect("a valid policy");
    let mut rng = Rng::seed(1);
    for endpoint in balancer.view().endpoints().iter() {
        for _ in 0..rng.below(4) {
            std::mem::forget(endpoint.stats.begin(Time::ZERO));
        }
    }
    (balancer, rng)
}

#[library_benchmark(setup = balancer)]
#[bench::random("random")]
#[bench::round_robin("round-robin")]
#[bench::lor_2("lor(choices=2)")]
#[bench::peak_ewma("peak-ewma")]
#[bench::maglev("maglev")]
#[bench::ring_hash("ring-hash")]
fn thousand_picks((balancer, mut rng): (Balancer, Rng)) -> (Balancer, Rng) {
    let mut hash = 0_u64;
    for _ in 0..PICKS {
        hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let ctx = PickCtx::new(Time::ZERO).with_hash(hash);
        black_box(balancer.pick(black_box(&ctx), &mut rng));
    }
    // Handed back, so that dropping is not counted.
    (balancer, rng)
}

library_benchmark_group!(name = picks; benchmarks = thousand_picks);
main!(library_benchmark_groups = picks);
