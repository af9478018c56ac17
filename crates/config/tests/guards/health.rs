//! `health_check`: when an endpoint is checked next, and how many results change its state.

use std::time::Duration;

use maglor_balance::Rng;
use maglor_balance::guard::health::{Checker, Health};

use crate::{at, cluster};

/// The pauses after this many checks with this result, and the state after each.
fn checks(settings: &str, results: &[bool]) -> Vec<(Duration, Health)> {
    let cluster = cluster(&format!(
        "health_check: {{tcp: {{}}, interval: 10s, {settings}}}"
    ));
    let params = cluster.health_check.as_ref().unwrap().params;
    let (mut rng, now) = (Rng::seed(3), at(1));
    let mut checker = Checker::new(params, now, &mut rng);
    let check = |passed: &bool| {
        checker.report(*passed, now, &mut rng);
        (checker.due().saturating_since(now), checker.health())
    };
    results.iter().map(check).collect()
}

#[test]
fn intervals_have_a_random_extra_and_another_length_while_unhealthy() {
    let seconds = Duration::from_secs;
    let exact = checks("interval_jitter_percent: 0", &[true; 5]);
    assert!(
        exact.iter().all(|(pause, _)| *pause == seconds(10)),
        "{exact:?}"
    );
    let spread = checks("interval_jitter_percent: 100", &[true; 20]);
    assert!(
        spread.iter().any(|(pause, _)| *pause > seconds(12)),
        "{spread:?}"
    );
    let unhealthy = "interval_jitter_percent: 0, unhealthy_interval: 3s";
    let pauses = checks(unhealthy, &[false, false, true, true]);
    let pauses: Vec<_> = pauses.iter().map(|(pause, _)| *pause).collect();
    assert_eq!(pauses, [3, 3, 3, 10].map(seconds));
}

#[test]
fn as_many_results_in_a_row_as_configured_change_the_state() {
    let states = |settings: &str, results: &[bool]| -> Vec<_> {
        let all = checks(settings, results).into_iter();
        all.map(|(_, health)| health == Health::Healthy).collect()
    };
    let fails = [true, false, false, false, false];
    assert_eq!(
        states("unhealthy_threshold: 2", &fails),
        [true, true, false, false, false]
    );
    assert_eq!(
        states("unhealthy_threshold: 4", &fails),
        [true, true, true, true, false]
    );
    let recovers = [false, true, true, true];
    assert_eq!(
        states("healthy_threshold: 1", &recovers),
        [false, true, true, true]
    );
    assert_eq!(
        states("healthy_threshold: 3", &recovers),
        [false, false, false, true]
    );
}
