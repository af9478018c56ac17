//! Services that share proxies join and leave under random events: users edit them, proxies fail and are started
//! again, endpoints and ports are observed late, the operator crashes after any step or acts on stale observations.
//! No request reaches a proxy that does not serve that Service, and in the end everything is as specified:
//! to the byte where nothing is wanted any more.

mod fixture;

use maglor_controller::proxy_service::Progress;
use proptest::prelude::*;
use serde_json::json;

use fixture::{Fixture, Move, NAMES};

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let which = || 0..NAMES.len();
    let one = prop_oneof![
        4 => which().prop_map(Move::Look),
        4 => Just(Move::Act),
        12 => which().prop_map(Move::Operate),
        1 => Just(Move::Crash),
        6 => Just(Move::Deploy),
        6 => Just(Move::Endpoints),
        5 => Just(Move::Report),
        3 => (1..30i64).prop_map(Move::Pass),
        1 => Just(Move::ProxiesFail),
        1 => which().prop_map(Move::ApplyAgain),
        1 => (which(), 0..3u16).prop_map(|(at, more)| Move::Ports(at, more)),
        1 => which().prop_map(Move::Select),
        3 => (which(), any::<bool>()).prop_map(|(at, grouped)| Move::Claim(at, grouped)),
        2 => which().prop_map(Move::Unclaim),
        1 => (which(), any::<bool>()).prop_map(|(at, grouped)| Move::Group(at, grouped)),
        1 => (which(), 1..4u32).prop_map(|(at, count)| Move::Scale(at, count)),
        1 => which().prop_map(Move::LoseTarget),
    ];
    proptest::collection::vec(one, 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn requests_reach_only_ports_that_answer_and_the_end_state_is_as_specified(moves in moves()) {
        let mut fixture = Fixture::new();
        for one in &moves {
            fixture.make(one);
            fixture.check(one);
        }
        fixture.settle();
        fixture.check_end();
        for at in 0..NAMES.len() {
            fixture.make(&Move::Unclaim(at));
        }
        fixture.settle();
        fixture.check_end();
        assert_eq!(fixture.made(), Vec::<String>::new());
    }
}

/// The first member creates the proxies, the last one removes them; others that join or leave do not change them.
#[test]
fn the_first_makes_what_the_last_removes() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0, true));
    let first = fixture.settle();
    let expected = [
        "web: hold",
        "web: apply Service web-target",
        "web: apply TrafficPolicy web-target",
        "web: apply ServiceAccount low-proxy-group",
        "web: apply Deployment low-proxy-group",
        "web: switch",
    ];
    assert_eq!(first, expected);
    fixture.check_end();
    let template = fixture.template();
    fixture.make(&Move::Claim(1, true));
    let second = fixture.settle();
    let own: Vec<&String> = second
        .iter()
        .filter(|step| step.starts_with("cart"))
        .collect();
    // Only the owners of shared objects change, in either order.
    let expected = [
        "cart: hold",
        "cart: apply Service cart-target",
        "cart: apply TrafficPolicy cart-target",
    ];
    assert_eq!(own[..3], expected);
    assert_eq!(own.last().unwrap().as_str(), "cart: switch");
    assert!(
        !second
            .iter()
            .any(|step| step.contains("restore") || step == "web: switch")
    );
    assert_eq!(fixture.template(), template, "nothing is started anew");
    fixture.check_end();
    fixture.make(&Move::Unclaim(0));
    let left = fixture.settle();
    let own: Vec<&String> = left.iter().filter(|step| step.starts_with("web")).collect();
    let expected = [
        "web: restore",
        "web: restore",
        "web: apply Service web-target",
        "web: apply Service web-target",
        "web: delete TrafficPolicy web-target",
        "web: delete Service web-target",
        "web: release",
    ];
    assert_eq!(own, expected);
    assert!(!left.iter().any(|step| step.contains("delete Deployment")));
    assert_eq!(fixture.template(), template, "nothing is started anew");
    fixture.check_end();
    fixture.make(&Move::Unclaim(1));
    let last = fixture.settle();
    let expected = [
        "cart: restore",
        "cart: restore",
        "cart: delete Deployment low-proxy-group",
        "cart: delete ServiceAccount low-proxy-group",
        "cart: delete TrafficPolicy cart-target",
        "cart: delete Service cart-target",
        "cart: release",
    ];
    assert_eq!(last, expected);
    fixture.check_end();
}

/// After each step of insertion and removal the operator restarts, with only the state of the cluster.
#[test]
fn a_crash_after_any_step_changes_nothing() {
    for crash in 0..40 {
        let mut fixture = Fixture::new();
        let moves = [
            Move::Claim(0, true),
            Move::Claim(1, true),
            Move::Claim(2, true),
            Move::Unclaim(1),
            Move::Unclaim(0),
            Move::Unclaim(2),
        ];
        let mut steps = 0;
        for one in moves {
            fixture.make(&one);
            // Until the crash others than the first one wait; then the first one.
            steps += fixture.settle_with_crash(crash, steps);
            fixture.check_end();
        }
        assert_eq!(fixture.made(), Vec::<String>::new());
    }
}

/// Shared settings are those of the oldest member.
#[test]
fn who_says_otherwise_than_the_oldest_is_refused() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0, true));
    fixture.make(&Move::Claim(1, true));
    fixture.settle();
    fixture.make(&Move::Scale(1, 3));
    fixture.settle();
    let Progress::Refused(refusal) = fixture.progress(1) else {
        panic!("{:?}", fixture.progress(1));
    };
    assert_eq!(refusal.reason(), "Contradiction");
    let text = refusal.to_string();
    assert!(
        text.starts_with("spec.replicas: ") && text.contains("claim-web"),
        "{text}"
    );
    fixture.check_end();
    // It comes in when it is the oldest.
    fixture.make(&Move::Unclaim(0));
    fixture.settle();
    assert!(matches!(fixture.progress(1), Progress::Inserted(_)));
    fixture.check_end();
}

#[test]
fn who_has_none_of_the_common_labels_is_refused() {
    let mut fixture = Fixture::new();
    fixture.edit(0, "selector", &json!({"shop.example/part": "web"}));
    fixture.make(&Move::Claim(0, true));
    fixture.settle();
    let Progress::Refused(refusal) = fixture.progress(0) else {
        panic!("{:?}", fixture.progress(0));
    };
    assert_eq!(refusal.reason(), "UncommonLabels");
    fixture.check_end();
}

/// Proxies go from one's own to shared ones and back, past the pods themselves.
#[test]
fn one_moves_between_its_own_proxies_and_shared_ones() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0, false));
    fixture.settle();
    fixture.make(&Move::Claim(1, true));
    fixture.settle();
    fixture.make(&Move::Group(0, true));
    let steps = fixture.settle();
    let gone = "web: delete Deployment web-proxy-service";
    assert!(steps.iter().any(|step| step == gone), "{steps:?}");
    assert_eq!(
        fixture.made(),
        [
            "Deployment low-proxy-group",
            "ServiceAccount low-proxy-group"
        ]
    );
    fixture.check_end();
    fixture.make(&Move::Group(0, false));
    fixture.settle();
    fixture.check_end();
    assert!(
        fixture
            .made()
            .contains(&"Deployment web-proxy-service".to_owned())
    );
}

/// Objects owned by deleted Services are removed with the last of them, without an operator.
#[test]
fn what_is_shared_belongs_to_all() {
    let mut fixture = Fixture::new();
    for at in 0..2 {
        fixture.make(&Move::Claim(at, true));
    }
    fixture.settle();
    fixture.remove(0);
    fixture.settle();
    assert!(
        fixture
            .made()
            .contains(&"Deployment low-proxy-group".to_owned())
    );
    assert!(matches!(fixture.progress(1), Progress::Inserted(_)));
    fixture.check_end();
    fixture.remove(1);
    fixture.collect_garbage();
    assert_eq!(fixture.made(), Vec::<String>::new());
}
