//! The contract of every policy, one suite for all of them.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::{
    Balancer, Endpoint, Excluded, Index, Locality, LocalityWeights, PickCtx, PolicySpec, Rng,
    SlowStart, Time, ViewParams,
};
use support::{SPECS, assert_law, balancer, balancer_with, counts, equal, key, seed, weighted};

const NOW: PickCtx<'static> = PickCtx::new(Time::ZERO);

#[test]
fn empty_results_in_none() {
    let mut rng = Rng::seed(seed(1));
    for spec in SPECS {
        let b = balancer(spec, Vec::new());
        assert_eq!(b.pick(&NOW, &mut rng), None, "{spec}");
        assert_eq!(b.pick(&NOW.with_hash(7), &mut rng), None, "{spec}");
        assert!(b.view().is_empty() && b.view().usable() == 0);
    }
}

#[test]
fn the_only_one_is_picked_even_when_it_was_attempted() {
    let mut rng = Rng::seed(seed(2));
    let attempted = [Index::new(0)];
    for spec in SPECS {
        let b = balancer(spec, equal(1));
        for hash in 0..50 {
            assert_eq!(b.pick(&NOW, &mut rng), Some(Index::new(0)), "{spec}");
            let retry = NOW.with_hash(hash).excluding(&attempted);
            assert_eq!(b.pick(&retry, &mut rng), Some(Index::new(0)), "{spec}");
        }
    }
}

#[test]
fn all_unhealthy_panics_or_results_in_none() {
    let mut rng = Rng::seed(seed(3));
    for spec in SPECS {
        let endpoints = equal(4);
        for endpoint in &endpoints {
            endpoint.stats.set_healthy(false);
        }
        let panics = balancer(spec, endpoints.clone());
        assert!(panics.view().in_panic() && panics.view().available() == 0);
        let seen = counts(&panics, 2000, &mut rng);
        assert!(seen.iter().all(|&c| c > 0), "{spec}: {seen:?}");

        let off = ViewParams {
            panic_threshold_percent: 0,
            ..ViewParams::default()
        };
        let refuses = balancer_with(spec, endpoints, &off);
        assert_eq!(refuses.pick(&NOW, &mut rng), None, "{spec}");
        assert!(!refuses.view().in_panic());
    }
}

#[test]
fn unavailable_endpoints_are_never_picked() {
    let mut rng = Rng::seed(seed(4));
    for spec in SPECS {
        let endpoints = equal(9);
        endpoints[0].stats.set_healthy(false);
        endpoints[4].stats.set_ejected(true);
        endpoints[8].stats.set_draining(true);
        let b = balancer(spec, endpoints);
        assert_eq!((b.view().available(), b.view().usable()), (6, 6));
        let seen = counts(&b, 3000, &mut rng);
        for (i, &count) in seen.iter().enumerate() {
            assert_eq!(count > 0, i % 4 != 0, "{spec}: {seen:?}");
        }
    }
}

#[test]
fn excluded_endpoints_are_never_picked_while_others_exist() {
    let mut rng = Rng::seed(seed(5));
    for spec in SPECS {
        let endpoints = weighted(&[1, 100, 1, 7, 1000]);
        endpoints[3].stats.set_healthy(false);
        let b = balancer(spec, endpoints);
        let mut excluded = Excluded::new();
        // Exclude the usable ones one after the other, as a request that is retried does.
        for left in [3, 2, 1] {
            excluded.insert(b.pick(&NOW.excluding(&excluded), &mut rng).unwrap());
            for hash in 0..300 {
                let ctx = NOW.with_hash(hash).excluding(&excluded);
                let pick = b.pick(&ctx, &mut rng).unwrap();
                assert!(b.view().is_usable(pick), "{spec}");
                assert!(!excluded.contains(&pick), "{spec}: {left} left");
            }
        }
        // All attempted: repeating one beats giving up.
        excluded.insert(b.pick(&NOW.excluding(&excluded), &mut rng).unwrap());
        assert_eq!(excluded.len(), 4);
        let again = b.pick(&NOW.excluding(&excluded), &mut rng).unwrap();
        assert!(b.view().is_usable(again), "{spec}");
    }
}

#[test]
fn a_retry_leaves_a_level_that_was_attempted_whole() {
    let mut rng = Rng::seed(seed(6));
    let attempted = [Index::new(0)];
    for spec in SPECS {
        let mut endpoints = equal(3);
        endpoints[1].priority = 1;
        endpoints[2].priority = 2;
        let b = balancer(spec, endpoints);
        for _ in 0..100 {
            assert_eq!(b.pick(&NOW, &mut rng), Some(Index::new(0)), "{spec}");
            let retry = b.pick(&NOW.excluding(&attempted), &mut rng);
            assert_eq!(retry, Some(Index::new(1)), "{spec}");
        }
    }
}

#[test]
fn weights_are_shares_when_idle() {
    let mut rng = Rng::seed(seed(7));
    for spec in SPECS {
        // Shares on a small ring or table scatter by construction; see tests/hashing.rs.
        if ["ring-hash", "maglev(table_size=251)"].contains(spec) {
            continue;
        }
        let b = balancer(spec, weighted(&[1, 2, 3, 4]));
        let seen = counts(&b, 20_000, &mut rng);
        assert_law(spec, &seen, &[0.1, 0.2, 0.3, 0.4]);
        let b = balancer(spec, equal(7));
        assert_law(spec, &counts(&b, 20_000, &mut rng), &[1.0 / 7.0; 7]);
    }
}

#[test]
fn the_same_seed_results_in_the_same_picks() {
    let seed = seed(8);
    for spec in SPECS {
        let run = || {
            let b = balancer(spec, weighted(&[3, 1, 4, 1, 5]));
            let mut rng = Rng::seed(seed);
            let mut held = Vec::new();
            let pick = |i: u64| {
                let now = Time::from_nanos(i * 1_000_000);
                let index = b.pick(&PickCtx::new(now), &mut rng).unwrap();
                held.push(b.view().endpoint(index).unwrap().stats.begin(now));
                if held.len() > 10 {
                    held.remove(0).finish(now);
                }
                index
            };
            (0..500).map(pick).collect::<Vec<_>>()
        };
        assert_eq!(run(), run(), "{spec}");
    }
}

#[test]
fn a_change_of_the_set_keeps_counts_and_reaches_new_endpoints() {
    let mut rng = Rng::seed(seed(9));
    for spec in SPECS {
        let before = equal(5);
        let old = balancer(spec, before.clone());
        let busy = before[2].stats.begin(Time::ZERO);
        // 0 and 1 leave, 2–4 stay, 5 and 6 join.
        let mut after = before[2..].to_vec();
        after.extend([5, 6].map(|i| Endpoint::new(key(i))));
        let new = old.rebuild(after, &ViewParams::default(), Time::ZERO);
        assert_eq!(new.view().endpoints()[0].stats.outstanding(), 1);
        drop(busy);
        assert_eq!(new.view().endpoints()[0].stats.outstanding(), 0);
        assert!(
            counts(&new, 2000, &mut rng).iter().all(|&c| c > 0),
            "{spec}"
        );
        // Picks in progress go on with the old one.
        assert!(old.pick(&NOW, &mut rng).is_some());
    }
}

#[test]
fn a_policy_given_another_view_stays_within_it() {
    let mut rng = Rng::seed(seed(10));
    let views = [0, 1, 3, 40].map(|n| {
        let mut endpoints = equal(n);
        if n > 3 {
            endpoints[0].stats.set_healthy(false);
            endpoints[1].priority = 3;
        }
        balancer("random", endpoints)
    });
    for spec in SPECS {
        let policy = balancer(spec, weighted(&[1, 2, 3, 4, 5, 6, 7, 8, 9]));
        for other in &views {
            for hash in 0..100 {
                match policy
                    .policy()
                    .pick(other.view(), &NOW.with_hash(hash), &mut rng)
                {
                    None => assert_eq!(other.view().usable(), 0, "{spec}"),
                    Some(index) => assert!(other.view().is_usable(index), "{spec}"),
                }
            }
        }
    }
}

#[test]
fn threads_share_one_policy() {
    let seed = seed(11);
    for spec in SPECS {
        let b = Arc::new(balancer(spec, equal(8)));
        let work = |thread: u64| {
            let b = Arc::clone(&b);
            move || {
                let mut rng = Rng::seed(seed ^ thread);
                let mut seen = vec![0_u64; 8];
                for i in 0..4000 {
                    let now = Time::from_nanos(i * 1000);
                    let index = b.pick(&PickCtx::new(now), &mut rng).unwrap();
                    seen[index.get()] += 1;
                    b.view()
                        .endpoint(index)
                        .unwrap()
                        .stats
                        .begin(now)
                        .finish(now);
                }
                seen
            }
        };
        let threads: Vec<_> = (0..4).map(|t| std::thread::spawn(work(t))).collect();
        let mut total = vec![0; 8];
        for thread in threads {
            for (sum, seen) in total.iter_mut().zip(thread.join().unwrap()) {
                *sum += seen;
            }
        }
        assert_eq!(total.iter().sum::<u64>(), 16_000);
        assert!(
            b.view()
                .endpoints()
                .iter()
                .all(|e| e.stats.outstanding() == 0),
            "{spec}"
        );
        if *spec == "round-robin" {
            assert_eq!(total, [2000; 8], "no turn is lost or doubled");
        }
    }
}

#[test]
fn slow_start_ramps_without_a_rebuild() {
    let mut rng = Rng::seed(seed(12));
    let params = ViewParams {
        slow_start: Some(SlowStart {
            window: Duration::from_secs(100),
            ..SlowStart::default()
        }),
        ..ViewParams::default()
    };
    let joined = Time::from_nanos(1_000_000_000_000);
    for spec in SPECS {
        let mut endpoints = equal(4);
        endpoints[3].added_at = joined;
        let spec: PolicySpec = spec.parse().unwrap();
        let b = Balancer::build(&spec, endpoints, &params, joined).unwrap();
        let share = |seconds: u64, rng: &mut Rng| {
            let ctx = PickCtx::new(joined + Duration::from_secs(seconds));
            support::counts_with(&b, &ctx, 8000, rng)[3] as f64 / 8000.0
        };
        // Exactly f/(3 + f), but for shares on a ring or small table, which scatter.
        let shares = [0, 50, 100].map(|s| share(s, &mut rng));
        for (got, factor) in shares.iter().zip([0.1, 0.5, 1.0]) {
            let exact = factor / (3.0 + factor);
            assert!(
                (got - exact).abs() < 0.25 * exact + 0.005,
                "{spec}: {got} for {exact}"
            );
        }
    }
}

#[test]
fn a_wholly_new_set_is_not_thinned() {
    let mut rng = Rng::seed(seed(13));
    let params = ViewParams {
        slow_start: Some(SlowStart::default()),
        ..ViewParams::default()
    };
    for spec in SPECS {
        // The same picks as without a ramp: all are equally new.
        let (ramping, settled) = (
            balancer_with(spec, equal(3), &params),
            balancer(spec, equal(3)),
        );
        let seed = rng.next_u64();
        let picks = |b: &Balancer| -> Vec<_> {
            let mut rng = Rng::seed(seed);
            (0..500)
                .map(|hash| b.pick(&NOW.with_hash(hash << 48), &mut rng))
                .collect()
        };
        assert_eq!(picks(&ramping), picks(&settled), "{spec}");
    }
}

#[test]
fn localities_and_levels_get_their_shares() {
    let mut rng = Rng::seed(seed(14));
    let [near, far, other] = ["near", "far", "other"].map(|zone| Locality::new("eu", zone, ""));
    let weights: LocalityWeights = [(near.clone(), 3), (far.clone(), 1)].into_iter().collect();
    let params = ViewParams {
        locality_weights: Some(weights),
        ..ViewParams::default()
    };
    for spec in SPECS {
        let mut endpoints = equal(5);
        for (endpoint, locality) in endpoints.iter_mut().zip([&near, &near, &far, &far, &other]) {
            endpoint.locality = Some(locality.clone());
        }
        let b = balancer_with(spec, endpoints.clone(), &params);
        let seen = counts(&b, 8000, &mut rng);
        let near_share = (seen[0] + seen[1]) as f64 / 8000.0;
        assert!((near_share - 0.75).abs() < 0.06, "{spec}: {seen:?}");
        assert_eq!(seen[4], 0, "{spec}: a locality that is not listed");

        // Half of level 0 is down: it takes 1.4 · 0.5 = 70 %.
        let mut endpoints = equal(4);
        endpoints[2].priority = 1;
        endpoints[3].priority = 1;
        endpoints[0].stats.set_healthy(false);
        let seen = counts(&balancer(spec, endpoints), 8000, &mut rng);
        assert!(
            (seen[1] as f64 / 8000.0 - 0.7).abs() < 0.03,
            "{spec}: {seen:?}"
        );
    }
}
