//! Common functions of the integration tests: reproducible seeds, sets of endpoints, statistics.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::num::NonZeroU32;

use maglor_balance::{Balancer, Endpoint, PickCtx, PolicySpec, Rng, Time, ViewParams};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Every policy, with parameters that reach different code.
pub(crate) const SPECS: &[&str] = &[
    "a-lsq",
    "a-lsq(choices=all)",
    "bounce",
    "bounce(tries=1)",
    "ledger",
    "ledger(group=2,fallback=probe)",
    "lor",
    "lor(choices=1)",
    "lor(choices=3)",
    "lor(choices=all)",
    "maglev",
    "maglev(hash_balance_factor=125)",
    "maglev(table_size=251)",
    "peak-ewma",
    "peak-ewma(choices=1)",
    "probe",
    "probe(choices=1)",
    "random",
    "ring-hash",
    "ring-hash(min=100000)",
    "ring-hash(min=100000,hash_balance_factor=125)",
    "round-robin",
    "subset",
];

/// The seed of this run: `SEED` from the environment, or `fallback`. Printed, so that a failure
/// shows what to replay.
pub(crate) fn seed(fallback: u64) -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(fallback);
    println!("SEED={seed}");
    seed
}

pub(crate) fn key(i: usize) -> String {
    format!("10.{}.{}.{}:8080", i >> 16, (i >> 8) & 255, i & 255)
}

/// `n` endpoints of weight 1.
pub(crate) fn equal(n: usize) -> Vec<Endpoint> {
    (0..n).map(|i| Endpoint::new(key(i))).collect()
}

/// Endpoints of these weights.
pub(crate) fn weighted(weights: &[u32]) -> Vec<Endpoint> {
    equal(weights.len())
        .into_iter()
        .zip(weights)
        .map(|(e, &w)| e.weight(NonZeroU32::new(w).unwrap()))
        .collect()
}

pub(crate) fn balancer(spec: &str, endpoints: Vec<Endpoint>) -> Balancer {
    balancer_with(spec, endpoints, &ViewParams::default())
}

pub(crate) fn balancer_with(spec: &str, endpoints: Vec<Endpoint>, params: &ViewParams) -> Balancer {
    let spec: PolicySpec = spec.parse().unwrap();
    Balancer::build(&spec, endpoints, params, Time::ZERO).unwrap()
}

/// How often each endpoint is picked in `picks` picks without a key.
pub(crate) fn counts(balancer: &Balancer, picks: u32, rng: &mut Rng) -> Vec<u64> {
    counts_with(balancer, &PickCtx::new(Time::ZERO), picks, rng)
}

pub(crate) fn counts_with(b: &Balancer, ctx: &PickCtx<'_>, picks: u32, rng: &mut Rng) -> Vec<u64> {
    let mut counts = vec![0; b.view().len()];
    for _ in 0..picks {
        counts[b.pick(ctx, rng).unwrap().get()] += 1;
    }
    counts
}

/// Pearson's χ² of counts against a law; endpoints of probability 0 must have count 0.
pub(crate) fn chi_square(counts: &[u64], law: &[f64]) -> f64 {
    let total = counts.iter().sum::<u64>() as f64;
    let mut sum = 0.0;
    for (&count, &p) in counts.iter().zip(law) {
        if p == 0.0 {
            assert_eq!(count, 0, "an endpoint of probability 0 was picked");
        } else {
            sum += (count as f64 - total * p).powi(2) / (total * p);
        }
    }
    sum
}

/// A bound that χ² with `cells − 1` degrees of freedom exceeds with probability below 10⁻⁶
/// (Wilson–Hilferty at 4.9 standard deviations).
pub(crate) fn chi_square_limit(cells: usize) -> f64 {
    let k = cells.max(2) as f64 - 1.0;
    let spread = 2.0 / (9.0 * k);
    k * (1.0 - spread + 4.9 * spread.sqrt()).powi(3)
}

#[track_caller]
pub(crate) fn assert_law(what: &str, counts: &[u64], law: &[f64]) {
    let sum: f64 = law.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{what}: the law sums to {sum}");
    let cells = law.iter().filter(|p| **p > 0.0).count();
    let chi = chi_square(counts, law);
    assert!(
        chi < chi_square_limit(cells),
        "{what}: χ² = {chi}, {counts:?} against {law:?}"
    );
}

/// Runs `property` on random values of `strategy`, seeded by `SEED` or `fallback`.
pub(crate) fn check<S: Strategy>(fallback: u64, strategy: &S, property: impl Fn(S::Value)) {
    check_cases(400, fallback, strategy, property);
}

pub(crate) fn check_cases<S: Strategy>(
    cases: u32,
    fallback: u64,
    strategy: &S,
    property: impl Fn(S::Value),
) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed(fallback).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let run = |value| {
        property(value);
        Ok(())
    };
    if let Err(error) = TestRunner::new_with_rng(config, rng).run(strategy, run) {
        panic!("{error}");
    }
}
