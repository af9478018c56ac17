//! Properties over random inputs. `SEED` replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::num::NonZeroU32;

use maglor_balance::{
    Endpoint, Locality, LocalityWeights, PickCtx, PolicySpec, Rng, SlowStart, Time, View,
    ViewParams,
};
use proptest::prelude::*;
use support::{SPECS, balancer, check, check_cases, equal, weighted};

/// With the same draws, a pick that still hits an endpoint after its load rose hit it before: so
/// raising a load never raises a probability, for any other loads.
#[test]
fn raising_a_load_never_raises_its_probability() {
    let set = proptest::collection::vec((0_u32..5, 1_u32..4), 1..8);
    let strategy = (set, any::<prop::sample::Index>(), 1_u32..4, any::<u64>());
    check(61, &strategy, |(set, which, rise, seed)| {
        let which = which.index(set.len());
        let weights: Vec<u32> = set.iter().map(|(_, weight)| *weight).collect();
        for spec in [
            "lor(choices=1)",
            "lor(choices=2)",
            "lor(choices=4)",
            "peak-ewma",
        ] {
            let endpoints = weighted(&weights);
            let mut held = Vec::new();
            for (endpoint, (load, _)) in endpoints.iter().zip(&set) {
                held.extend((0..*load).map(|_| endpoint.stats.begin(Time::ZERO)));
            }
            let b = balancer(spec, endpoints.clone());
            let picks = || -> Vec<usize> {
                let mut rng = Rng::seed(seed);
                let ctx = PickCtx::new(Time::ZERO);
                (0..50)
                    .map(|_| b.pick(&ctx, &mut rng).unwrap().get())
                    .collect()
            };
            let before = picks();
            held.extend((0..rise).map(|_| endpoints[which].stats.begin(Time::ZERO)));
            for (before, after) in before.into_iter().zip(picks()) {
                assert!(after != which || before == which, "{spec} {set:?} {which}");
            }
        }
    });
}

#[test]
fn lor_of_all_never_takes_more_than_the_least() {
    let strategy = (proptest::collection::vec(0_u32..4, 1..9), any::<u64>());
    check(62, &strategy, |(loads, seed)| {
        let endpoints = equal(loads.len());
        let held: Vec<_> = endpoints
            .iter()
            .zip(&loads)
            .flat_map(|(e, &n)| {
                (0..n)
                    .map(|_| e.stats.begin(Time::ZERO))
                    .collect::<Vec<_>>()
            })
            .collect();
        let b = balancer("lor(choices=all)", endpoints);
        let pick = b
            .pick(&PickCtx::new(Time::ZERO), &mut Rng::seed(seed))
            .unwrap();
        assert_eq!(Some(&loads[pick.get()]), loads.iter().min());
        drop(held);
    });
}

#[test]
fn any_text_is_parsed_or_refused() {
    let words =
        "[a-z(),= 0-9_-]{0,40}|\\PC{0,40}|(lor|maglev|ring-hash|peak-ewma)\\([a-z_=0-9,]{0,30}\\)";
    check(63, &words, |text: String| {
        if let Ok(spec) = text.parse::<PolicySpec>() {
            assert_eq!(spec.to_string().parse::<PolicySpec>(), Ok(spec), "{text}");
        }
    });
}

#[test]
fn valid_specifications_round_trip() {
    let factor = prop_oneof![
        Just(String::new()),
        (100_u32..1000).prop_map(|n| format!(",hash_balance_factor={n}"))
    ];
    let text = prop_oneof![
        (1_u32..=1024).prop_map(|d| format!("lor(choices={d})")),
        (
            prop::sample::select(vec![2_u32, 251, 65_537, 655_373, 5_000_011]),
            factor.clone()
        )
            .prop_map(|(size, factor)| format!("maglev(table_size={size}{factor})")),
        (1_u32..5000, 5000_u32..=8_388_608, factor)
            .prop_map(|(min, max, factor)| format!("ring-hash(min={min},max={max}{factor})")),
        (1_u32..=1024, 1_u32..=3_600_000, 1_u32..=3_600_000).prop_map(|(d, decay, rtt)| format!(
            "peak-ewma(choices={d},decay_ms={decay},default_rtt_ms={rtt})"
        )),
    ];
    check(64, &text, |text: String| {
        let spec: PolicySpec = text.parse().unwrap();
        assert_eq!(spec.to_string().parse::<PolicySpec>().unwrap(), spec);
        let yaml = serde_yaml::to_string(&spec).unwrap();
        assert_eq!(serde_yaml::from_str::<PolicySpec>(&yaml).unwrap(), spec);
        assert!(spec.validate().is_ok());
    });
}

/// Weight, priority, locality, flags, age in seconds.
type Seedling = (u32, u8, Option<u8>, u8, u64);

fn grow((i, &(weight, priority, locality, flags, age)): (usize, &Seedling)) -> Endpoint {
    let mut endpoint = Endpoint::new(support::key(i))
        .weight(NonZeroU32::new(weight).unwrap())
        .priority(priority)
        .added_at(Time::from_nanos((100 - age) * 1_000_000_000));
    endpoint.locality = locality.map(|zone| Locality::new("r", format!("z{zone}"), ""));
    // Mostly available.
    endpoint.stats.set_healthy(flags & 3 != 0);
    endpoint.stats.set_ejected(flags & 12 == 4);
    endpoint.stats.set_draining(flags & 48 == 16);
    endpoint
}

fn any_params() -> impl Strategy<Value = ViewParams> {
    let localities = prop::option::of(proptest::collection::vec(0_u32..5, 3));
    (0_u8..=120, 0.0..3.0_f64, localities, any::<bool>()).prop_map(
        |(panic, factor, zones, slow)| {
            let weights = |zones: Vec<u32>| -> LocalityWeights {
                let zone = |(z, w): (usize, u32)| (Locality::new("r", format!("z{z}"), ""), w);
                zones.into_iter().enumerate().map(zone).collect()
            };
            ViewParams {
                panic_threshold_percent: panic,
                overprovisioning_factor: factor,
                locality_weights: zones.map(weights),
                slow_start: slow.then(SlowStart::default),
            }
        },
    )
}

#[test]
fn views_keep_their_invariants_under_every_policy() {
    let seedling = (
        1_u32..50,
        0_u8..3,
        prop::option::of(0_u8..4),
        any::<u8>(),
        0_u64..100,
    );
    let set = proptest::collection::vec(seedling, 0..12);
    let strategy = (set, any_params(), any::<u64>());
    let now = Time::from_nanos(100_000_000_000);
    // Tables make a case slow in debug builds.
    check_cases(120, 65, &strategy, |(set, params, seed)| {
        let endpoints: Vec<Endpoint> = set.iter().enumerate().map(grow).collect();
        let view = View::build(endpoints.clone(), &params, now);
        let available = endpoints.iter().filter(|e| e.stats.is_available()).count();
        let usable: Vec<_> = (0..view.len())
            .map(maglor_balance::Index::new)
            .filter(|&i| view.is_usable(i))
            .collect();
        assert_eq!(view.available(), available);
        assert_eq!(view.usable(), usable.len());
        assert!(view.usable() >= view.available());
        if !view.in_panic() {
            assert_eq!(view.usable(), available);
        }
        if params.panic_threshold_percent > 0 {
            assert_eq!(view.usable() == 0, view.is_empty());
        }
        let mut rng = Rng::seed(seed);
        for text in SPECS.iter().filter(|s| !s.contains("100000")) {
            let policy = text.parse::<PolicySpec>().unwrap().build(&view).unwrap();
            let mut attempted = Vec::new();
            for round in 0..usable.len() + 1 {
                let ctx = PickCtx::new(now).excluding(&attempted);
                match policy.pick(&view, &ctx, &mut rng) {
                    None => assert!(usable.is_empty(), "{text}"),
                    Some(index) => {
                        assert!(view.is_usable(index), "{text}");
                        assert_eq!(attempted.contains(&index), round == usable.len(), "{text}");
                        attempted.push(index);
                    }
                }
            }
        }
    });
}
