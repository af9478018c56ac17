//! Guards that depend on measurements, the concurrency limit and health checks, over random results.

use std::time::Duration;

use maglor_balance::guard::Percent;
use maglor_balance::guard::concurrency::{ConcurrencyLimit, ConcurrencyParams};
use maglor_balance::guard::health::{Checker, Health, HealthParams};
use maglor_balance::{Rng, Time};
use proptest::prelude::*;

use crate::support::check;

#[test]
fn a_limit_stays_between_its_ends_and_says_when_it_rises() {
    let samples = proptest::collection::vec((0_u64..100_000, 0_u32..300, 0_u64..50), 1..400);
    let ends = (1_u32..50, 0_u32..200, 1_u32..300);
    check(91, &(ends, samples), |(ends, samples)| {
        let (min_limit, more, initial_limit) = ends;
        let params = ConcurrencyParams {
            min_limit,
            max_limit: min_limit + more,
            initial_limit,
            min_rtt_interval: Duration::from_secs(1),
            minimum_samples: 3,
            ..ConcurrencyParams::default()
        };
        let (limit, mut rng, mut now) = (ConcurrencyLimit::new(params), Rng::seed(1), Time::ZERO);
        let range = params.min_limit..=params.max_limit;
        assert!(range.contains(&limit.limit()));
        for (micros, active, wait) in samples {
            now = now + Duration::from_millis(wait);
            let before = limit.limit();
            let risen = limit.sample(Duration::from_micros(micros), active, now, &mut rng);
            assert_eq!(risen, limit.limit() > before);
            assert!(range.contains(&limit.limit()), "{}", limit.limit());
        }
    });
}

#[test]
fn health_changes_after_as_many_results_in_a_row() {
    let results = proptest::collection::vec(any::<bool>(), 1..80);
    check(92, &(1_u32..5, 1_u32..5, results), |(down, up, results)| {
        let params = HealthParams {
            unhealthy_threshold: down,
            healthy_threshold: up,
            unhealthy_interval: Duration::from_millis(300),
            interval_jitter: Percent::whole(50),
            ..HealthParams::default()
        };
        let (mut rng, now) = (Rng::seed(2), Time::from_nanos(1));
        let mut checker = Checker::new(params, now, &mut rng);
        assert_eq!(checker.health(), Health::Unknown);
        let mut expected = results[0];
        for (i, passed) in results.iter().enumerate() {
            let before = checker.health();
            let changed = checker.report(*passed, now, &mut rng);
            // The last results, in the number that a change of state needs, are all of the other kind.
            let needed = if expected { down } else { up } as usize;
            let recent = results[..=i].iter().rev().take(needed);
            if i > 0 && recent.clone().count() == needed && recent.clone().all(|r| *r != expected) {
                expected = !expected;
            }
            let healthy = checker.health() == Health::Healthy;
            assert_eq!(healthy, expected, "{i} of {results:?}");
            let reported = before != checker.health() && !(before == Health::Unknown && healthy);
            assert_eq!(changed.is_some(), reported);
            let base = if healthy { 5000 } else { 300 };
            let pause = checker.due().saturating_since(now).as_millis() as u64;
            assert!((base..=base * 3 / 2).contains(&pause));
        }
    });
}
