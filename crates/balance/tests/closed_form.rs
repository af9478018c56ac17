//! Exact laws of the policies against picks. Tolerances are χ² bounds that a correct policy exceeds
//! with probability below 10⁻⁶, over 200 000 picks.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::time::Duration;

use maglor_balance::{Endpoint, Index, Outstanding, PickCtx, Rng, SlowStart, Time, ViewParams};
use support::{assert_law, balancer, balancer_with, counts, counts_with, equal, seed, weighted};

const PICKS: u32 = 200_000;

/// Holds `loads[i]` requests outstanding at endpoint `i`.
fn load(endpoints: &[Endpoint], loads: &[u32]) -> Vec<Outstanding> {
    let begin = |(e, &n): (&Endpoint, &u32)| (0..n).map(|_| e.stats.begin(Time::ZERO)).collect();
    endpoints
        .iter()
        .zip(loads)
        .flat_map(|x: (&Endpoint, &u32)| -> Vec<_> { begin(x) })
        .collect()
}

/// The load of a draw of an endpoint, in places of weight `unit`: the two numbers next to
/// load a place, each with its chance.
fn rounding(load: u32, weight: u32, unit: u32) -> [(i64, f64); 2] {
    let (load, places) = (u64::from(load) * u64::from(unit), u64::from(weight));
    let up = (load % places) as f64 / f64::from(weight);
    let down = (load / places) as i64;
    [(down, 1.0 - up), (down + 1, up)]
}

/// The law of lor(d): d draws ∝ weight with replacement, the least count in places of the least weight
/// among them, the first of equals.
///
/// Where all draws are of a set, and T(k) is the probability that one of the set counts k or more, the least of
/// d draws is at k with probability T(k)^d − T(k+1)^d, shared within the level by weight and chance to count k.
/// The least weight is u where all draws are of weight u or more, but not all above u.
fn lor_law(loads: &[u32], weights: &[u32], d: i32) -> Vec<f64> {
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let mut law = vec![0.0; loads.len()];
    let units: std::collections::BTreeSet<u32> = weights.iter().copied().collect();
    for unit in units {
        for (sign, least) in [(1.0, unit), (-1.0, unit + 1)] {
            let draws = |test: &dyn Fn(i64) -> bool| -> Vec<f64> {
                let share = |(&l, &w): (&u32, &u32)| {
                    let counts = rounding(l, w, unit).into_iter();
                    let chance: f64 = counts.filter(|(k, _)| test(*k)).map(|(_, p)| p).sum();
                    if w >= least {
                        chance * f64::from(w) / total
                    } else {
                        0.0
                    }
                };
                loads.iter().zip(weights).map(share).collect()
            };
            let mass = |test: &dyn Fn(i64) -> bool| draws(test).iter().sum::<f64>();
            for level in 0..=i64::from(*loads.iter().max().unwrap()) + 1 {
                let at = mass(&|k| k == level);
                if at > 0.0 {
                    let won = mass(&|k| k >= level).powi(d) - mass(&|k| k > level).powi(d);
                    for (law, share) in law.iter_mut().zip(draws(&|k| k == level)) {
                        *law += sign * won * share / at;
                    }
                }
            }
        }
    }
    law
}

/// The same by brute force over all d-tuples of draws, and all their roundings.
fn lor_law_by_enumeration(loads: &[u32], weights: &[u32], d: u32) -> Vec<f64> {
    let n = loads.len();
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let mut law = vec![0.0; n];
    for tuple in 0..n.pow(d) {
        let draws: Vec<usize> = (0..d).map(|k| tuple / n.pow(k) % n).collect();
        let unit = draws.iter().map(|&i| weights[i]).min().unwrap();
        for roundings in 0..1_usize << d {
            let mut probability = 1.0;
            let mut counts = Vec::new();
            for (k, &i) in draws.iter().enumerate() {
                let (count, chance) = rounding(loads[i], weights[i], unit)[roundings >> k & 1];
                probability *= chance * f64::from(weights[i]) / total;
                counts.push(count);
            }
            let least = counts.iter().min().unwrap();
            let first = counts.iter().position(|count| count == least).unwrap();
            law[draws[first]] += probability;
        }
    }
    law
}

#[test]
fn the_formula_is_the_enumeration() {
    let loads = [3, 0, 1, 1, 0, 2];
    for (weights, d) in [
        ([1, 1, 1, 1, 1, 1], 2),
        ([1, 2, 3, 1, 2, 1], 3),
        ([4, 1, 1, 1, 9, 2], 4),
    ] {
        let (formula, exact) = (
            lor_law(&loads, &weights, d),
            lor_law_by_enumeration(&loads, &weights, d as u32),
        );
        for (a, b) in formula.iter().zip(&exact) {
            assert!((a - b).abs() < 1e-12, "{formula:?} {exact:?}");
        }
    }
}

#[test]
fn lor_has_its_law() {
    let mut rng = Rng::seed(seed(21));
    let loads = [3, 0, 1, 1, 0, 2, 7];
    for weights in [[1; 7], [1, 2, 3, 1, 2, 1, 5], [10, 10, 10, 1, 1, 1, 1]] {
        for d in [1, 2, 3, 5, 10] {
            let endpoints = weighted(&weights);
            let held = load(&endpoints, &loads);
            let b = balancer(&format!("lor(choices={d})"), endpoints);
            let law = lor_law(&loads, &weights, d);
            assert_law(
                &format!("lor({d}) {weights:?}"),
                &counts(&b, PICKS, &mut rng),
                &law,
            );
            drop(held);
        }
    }
}

#[test]
fn a_lsq_has_the_law_of_lor_on_what_servers_reported() {
    let mut rng = Rng::seed(seed(31));
    let endpoints = equal(5);
    let _held = load(&endpoints, &[2, 0, 1, 0, 1]);
    for (endpoint, in_flight) in endpoints.iter().zip([2, 4, 1, 0, 3]) {
        endpoint.stats.report(in_flight);
    }
    for d in [2, 3] {
        let b = balancer(&format!("a-lsq(choices={d})"), endpoints.clone());
        let law = lor_law(&[2, 4, 1, 0, 3], &[1; 5], d);
        assert_law("a-lsq", &counts(&b, PICKS, &mut rng), &law);
    }
    // One response, and one report that was overtaken by requests of this process.
    endpoints[1].stats.report(0);
    let _more = load(&endpoints, &[0, 3, 0, 0, 0]);
    let b = balancer("a-lsq", endpoints);
    let law = lor_law(&[2, 3, 1, 0, 3], &[1; 5], 2);
    assert_law("a-lsq, later", &counts(&b, PICKS, &mut rng), &law);
}

#[test]
fn three_hosts_one_busy_as_in_envoy() {
    let mut rng = Rng::seed(seed(22));
    let endpoints = equal(3);
    let _held = load(&endpoints, &[0, 0, 1]);
    let law = [4.0 / 9.0, 4.0 / 9.0, 1.0 / 9.0];
    assert!(
        lor_law(&[0, 0, 1], &[1, 1, 1], 2)
            .iter()
            .zip(law)
            .all(|(a, b)| (a - b).abs() < 1e-12)
    );
    assert_law(
        "3 hosts",
        &counts(&balancer("lor", endpoints), PICKS, &mut rng),
        &law,
    );

    let endpoints = equal(2);
    let _held = load(&endpoints, &[0, 1]);
    assert_law(
        "2 hosts",
        &counts(&balancer("lor", endpoints), PICKS, &mut rng),
        &[0.75, 0.25],
    );
}

#[test]
fn lor_of_all_takes_the_least_and_shares_ties_by_weight() {
    let mut rng = Rng::seed(seed(23));
    let endpoints = equal(5);
    let _held = load(&endpoints, &[2, 1, 1, 3, 1]);
    let b = balancer("lor(choices=all)", endpoints);
    let third = 1.0 / 3.0;
    assert_law(
        "equal",
        &counts(&b, PICKS, &mut rng),
        &[0.0, third, third, 0.0, third],
    );

    // 2/2, 3/3 and 1/1 tie at one request a unit of weight; 1/4 is below all.
    let endpoints = weighted(&[2, 3, 1, 1]);
    let _held = load(&endpoints, &[2, 3, 1, 2]);
    let b = balancer("lor(choices=all)", endpoints);
    let law = [2.0 / 6.0, 3.0 / 6.0, 1.0 / 6.0, 0.0];
    assert_law("weighted", &counts(&b, PICKS, &mut rng), &law);
}

#[test]
fn peak_ewma_has_the_law_of_its_ranks() {
    let mut rng = Rng::seed(seed(24));
    // Cost = latency × (outstanding + 1): 40, 20, 30, 60 and, without a sample, 30 + ε.
    let endpoints = equal(5);
    for (endpoint, ms) in endpoints.iter().zip([10, 20, 15, 60]) {
        endpoint
            .stats
            .observe(Duration::from_millis(ms), Time::ZERO);
    }
    let _held = load(&endpoints, &[3, 0, 1, 0, 0]);
    let b = balancer("peak-ewma(default_rtt_ms=31)", endpoints);
    // Rank r (0 the cheapest) of n is picked with probability ((n − r)² − (n − r − 1)²) / n².
    let law = [3, 0, 1, 4, 2].map(|r| f64::from(2 * (5 - r) - 1) / 25.0);
    assert_law("peak-ewma", &counts(&b, PICKS, &mut rng), &law);
}

#[test]
fn peak_ewma_forgets_a_slow_answer() {
    let mut rng = Rng::seed(seed(25));
    let endpoints = equal(2);
    endpoints[0]
        .stats
        .observe(Duration::from_millis(500), Time::ZERO);
    endpoints[1]
        .stats
        .observe(Duration::from_millis(100), Time::from_nanos(30_000_000_000));
    let b = balancer("peak-ewma", endpoints);
    let at = |s: u64| PickCtx::new(Time::from_nanos(s * 1_000_000_000));
    // At 10 s the second has no past yet (its sample's age counts as 0): 184 ms against 100 ms.
    let seen = counts_with(&b, &at(10), PICKS, &mut rng);
    assert_law("10 s", &seen, &[0.25, 0.75]);
    // At 30 s: 25 ms against 100 ms.
    assert_law(
        "30 s",
        &counts_with(&b, &at(30), PICKS, &mut rng),
        &[0.75, 0.25],
    );
}

#[test]
fn random_is_proportional_also_after_exclusion() {
    let mut rng = Rng::seed(seed(26));
    let b = balancer("random", weighted(&[1, 2, 3, 4, 90]));
    let law = [0.01, 0.02, 0.03, 0.04, 0.9];
    assert_law("random", &counts(&b, PICKS, &mut rng), &law);
    // Most draws hit the excluded one, so that the exact scan takes part too.
    let attempted = [Index::new(4)];
    let ctx = PickCtx::new(Time::ZERO).excluding(&attempted);
    let law = [0.1, 0.2, 0.3, 0.4, 0.0];
    assert_law("excluded", &counts_with(&b, &ctx, PICKS, &mut rng), &law);
}

#[test]
fn slow_start_scales_the_weight_exactly() {
    let mut rng = Rng::seed(seed(27));
    let slow_start = SlowStart {
        window: Duration::from_secs(10),
        ..SlowStart::default()
    };
    let params = ViewParams {
        slow_start: Some(slow_start),
        ..ViewParams::default()
    };
    let mut endpoints = weighted(&[1, 2, 3]);
    let second = |s: u64| Time::from_nanos(s * 1_000_000_000);
    endpoints[1].added_at = second(100);
    endpoints[2].added_at = second(95);
    let b = balancer_with("random", endpoints, &params);
    let ctx = PickCtx::new(second(102));
    // Factors 1, 0.2 and 0.7.
    let law = [1.0, 0.4, 2.1].map(|w| w / 3.5);
    assert_law("ramp", &counts_with(&b, &ctx, PICKS, &mut rng), &law);
}

#[test]
fn round_robin_is_exact_in_every_period() {
    let mut rng = Rng::seed(seed(28));
    for weights in [vec![1, 1, 1], vec![5, 1, 1], vec![4, 6, 10], vec![100, 1]] {
        let b = balancer("round-robin", weighted(&weights));
        let gcd = if weights == [4, 6, 10] { 2 } else { 1 };
        let period: u32 = weights.iter().sum::<u32>() / gcd;
        let expected: Vec<u64> = weights.iter().map(|&w| u64::from(w / gcd)).collect();
        for _ in 0..5 {
            // Any window of one period, from any start.
            assert_eq!(counts(&b, period, &mut rng), expected, "{weights:?}");
            let _ = counts(&b, 1 + rng.below(3), &mut rng);
        }
    }
}

#[test]
fn round_robin_is_smooth() {
    let mut rng = Rng::seed(seed(29));
    let b = balancer("round-robin", weighted(&[5, 1, 1]));
    let order: String = (0..70)
        .map(|_| ['a', 'b', 'c'][b.pick(&PickCtx::new(Time::ZERO), &mut rng).unwrap().get()])
        .collect();
    // One period over and over, from a random start.
    assert!("aabaaca".repeat(12).contains(&order), "{order}");
}

#[test]
fn round_robin_starts_at_random() {
    let mut rng = Rng::seed(seed(30));
    let mut first = vec![0; 4];
    for _ in 0..PICKS / 10 {
        let b = balancer("round-robin", equal(4));
        first[b.pick(&PickCtx::new(Time::ZERO), &mut rng).unwrap().get()] += 1;
    }
    assert_law("first turn", &first, &[0.25; 4]);
}
