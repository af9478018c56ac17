use std::time::Duration;

use super::*;
use crate::Rng;

fn endpoints(n: usize) -> Vec<Endpoint> {
    (0..n).map(|i| Endpoint::new(format!("e{i}"))).collect()
}

fn thresholds(view: &View) -> Vec<u64> {
    view.groups.iter().map(|group| group.threshold).collect()
}

#[test]
fn one_level_is_one_group_that_takes_all() {
    let view = View::build(endpoints(3), &ViewParams::default(), Time::ZERO);
    assert_eq!(thresholds(&view), [1 << 32]);
    assert_eq!(
        (view.len(), view.available(), view.usable(), view.in_panic()),
        (3, 3, 3, false)
    );
    assert_eq!(view.sole_level(), Some(0));
}

#[test]
fn levels_and_localities_become_groups_in_order() {
    let zones = ["a", "b"].map(|zone| Locality::new("", zone, ""));
    let mut set = endpoints(6);
    for (i, endpoint) in set.iter_mut().enumerate() {
        endpoint.priority = if i < 4 { 0 } else { 1 };
        endpoint.locality = Some(zones[i % 2].clone());
    }
    // Both endpoints of zone a in level 0 but one in zone b: 1.4 · 3/4 still takes all traffic,
    // of which zone b keeps 0.7 of its weight.
    set[1].stats.set_healthy(false);
    let weights = zones.into_iter().zip([1, 1]).collect();
    let params = ViewParams {
        locality_weights: Some(weights),
        ..ViewParams::default()
    };
    let view = View::build(set, &params, Time::ZERO);
    let unit = (1_u64 << 32) as f64;
    let shares: Vec<f64> = thresholds(&view).iter().map(|&t| t as f64 / unit).collect();
    assert!((shares[0] - 1.0 / 1.7).abs() < 1e-9, "{shares:?}");
    assert_eq!(shares[1..], [1.0, 1.0, 1.0]);
    assert_eq!(view.levels[0].members.len(), 4);
    let parts: Vec<f64> = view.parts_of(0).map(|(_, part)| part).collect();
    assert!((parts[0] + parts[1] - 1.0).abs() < 1e-9);
}

#[test]
fn draining_endpoints_do_not_cause_panic_and_are_the_last_resort() {
    let set = endpoints(4);
    for endpoint in &set[..3] {
        endpoint.stats.set_draining(true);
    }
    let view = View::build(set.clone(), &ViewParams::default(), Time::ZERO);
    assert_eq!((view.usable(), view.in_panic()), (1, false));
    // None is healthy: panic takes the one that stays, not those that leave.
    set[3].stats.set_healthy(false);
    let view = View::build(set.clone(), &ViewParams::default(), Time::ZERO);
    assert_eq!((view.usable(), view.in_panic()), (1, true));
    assert!(view.is_usable(Index::new(3)));
    // All leave: better those than none.
    set[3].stats.set_draining(true);
    let view = View::build(set, &ViewParams::default(), Time::ZERO);
    assert_eq!((view.usable(), view.in_panic()), (4, true));
}

#[test]
fn everybody_draining_on_two_levels_is_still_served() {
    let mut set = endpoints(4);
    for (i, endpoint) in set.iter_mut().enumerate() {
        endpoint.priority = (i / 2) as u8;
        endpoint.stats.set_draining(true);
    }
    let view = View::build(set, &ViewParams::default(), Time::ZERO);
    let ctx = PickCtx::new(Time::ZERO);
    assert!((0..100).all(|s| view.field(&ctx, &mut Rng::seed(s)).is_some()));
}

#[test]
fn the_ramp_ends_with_the_youngest() {
    let second = |s: u64| Time::from_nanos(s * 1_000_000_000);
    let mut set = endpoints(2);
    set[1].added_at = second(100);
    let slow_start = SlowStart {
        window: Duration::from_secs(10),
        ..SlowStart::default()
    };
    let params = ViewParams {
        slow_start: Some(slow_start),
        ..ViewParams::default()
    };
    let view = View::build(set.clone(), &params, second(105));
    assert_eq!(view.ramp_end, second(110));
    let view = View::build(set, &params, second(110));
    assert_eq!(view.ramp_end, Time::ZERO);
}

#[test]
fn table_weights_multiply_localities_and_ignore_health() {
    let zones = ["a", "b"].map(|zone| Locality::new("", zone, ""));
    let mut set = endpoints(3);
    for (endpoint, zone) in set.iter_mut().zip([0, 0, 1]) {
        endpoint.locality = Some(zones[zone].clone());
    }
    set[0].stats.set_healthy(false);
    let weights = zones.into_iter().zip([4, 6]).collect();
    let params = ViewParams {
        locality_weights: Some(weights),
        ..ViewParams::default()
    };
    assert_eq!(
        View::build(set, &params, Time::ZERO).table_weights(0),
        [2.0, 2.0, 6.0]
    );
}
