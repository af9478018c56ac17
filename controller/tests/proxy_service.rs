//! Proxies are inserted and removed under random events: users edit the Service, the operator crashes or acts
//! on stale observations, proxies fail, endpoints are observed late. As long as the Service's own pods
//! are well it always has a ready endpoint, a proxy among its endpoints always has an upstream endpoint,
//! and in the end everything is as the resources specify, to the byte if no proxies are desired any more.

mod fixture;

use maglor_controller::proxy_service::{Next, Refusal, next};
use maglor_service_graph::policy_choice::Choice;
use proptest::prelude::*;
use serde_json::json;

use fixture::{Fixture, Move};

fn advice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        Just(Choice::Bounce),
        Just(Choice::Ledger),
        Just(Choice::Local),
        Just(Choice::ProxyService),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => Just(Move::Look),
        6 => Just(Move::Act),
        8 => Just(Move::Operate),
        1 => Just(Move::Crash),
        5 => Just(Move::Deploy),
        6 => Just(Move::Endpoints),
        1 => Just(Move::ProxiesFail),
        1 => (0..3u8).prop_map(Move::Select),
        1 => Just(Move::SelectPart),
        1 => Just(Move::ApplyAgain),
        1 => (1..4u16).prop_map(Move::Ports),
        1 => Just(Move::Label),
        1 => (0..3u8).prop_map(Move::Claim),
        1 => (0..3u8).prop_map(Move::Unclaim),
        1 => (1..4u32).prop_map(Move::Scale),
        1 => Just(Move::Autoscale),
        2 => (1..4u32).prop_map(Move::Load),
        1 => Just(Move::Auto),
        2 => advice().prop_map(Move::Advise),
        1 => any::<bool>().prop_map(Move::Sidecars),
        1 => (0..3u8).prop_map(Move::Wide),
        1 => (0..3u8).prop_map(Move::Unwide),
        1 => any::<bool>().prop_map(Move::OptOut),
        1 => Just(Move::Round),
    ];
    proptest::collection::vec(one, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn services_always_have_endpoints_and_the_end_state_is_as_specified(moves in moves()) {
        let mut fixture = Fixture::new();
        for one in &moves {
            fixture.make(one);
            fixture.check(one);
        }
        fixture.settle();
        fixture.check_end();
        // And back, from any state.
        for name in 0..3 {
            fixture.make(&Move::Unclaim(name));
            fixture.make(&Move::Unwide(name));
        }
        fixture.settle();
        fixture.check_end();
    }
}

#[test]
fn the_order_of_steps_is_the_papers() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0));
    let inserted = fixture.settle();
    let expected = [
        "hold",
        "apply Service web-target",
        "apply TrafficPolicy web-target",
        "apply ServiceAccount web-proxy-service",
        "apply Deployment web-proxy-service",
        "switch",
    ];
    assert_eq!(inserted, expected);
    fixture.make(&Move::Unclaim(0));
    let withdrawn = fixture.settle();
    let expected = [
        "restore",
        "restore",
        "delete Deployment web-proxy-service",
        "delete ServiceAccount web-proxy-service",
        "delete TrafficPolicy web-target",
        "delete Service web-target",
        "release",
    ];
    assert_eq!(withdrawn, expected);
}

/// With `mode: Auto`, a Service has proxies while the decision rule recommends them, and does not change before it is
/// evaluated.
#[test]
fn proxies_come_and_go_as_it_is_advised() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0));
    fixture.make(&Move::Auto);
    assert!(fixture.settle().is_empty(), "not observed yet");
    fixture.make(&Move::Advise(Choice::ProxyService));
    assert_eq!(fixture.settle().last().unwrap(), "switch");
    fixture.make(&Move::Advise(Choice::Local));
    let withdrawn = fixture.settle();
    assert_eq!(
        (&*withdrawn[0], withdrawn.last().unwrap().as_str()),
        ("restore", "delete Service web-target")
    );
    fixture.check_end();
}

/// One for many Services does what a Service's own would, yields to that, and reverts everything before it is
/// removed.
#[test]
fn what_is_for_many_services_is_for_each() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Advise(Choice::ProxyService));
    fixture.make(&Move::Wide(0));
    assert!(fixture.settle().is_empty(), "it only says what it would do");
    fixture.make(&Move::Unwide(0));
    fixture.make(&Move::Wide(2));
    let inserted = fixture.settle();
    let (first, last) = (&*inserted[0], inserted.last().unwrap().as_str());
    assert_eq!((first, last), ("hold", "switch"));
    // The resource of the Service itself goes before.
    fixture.make(&Move::Claim(0));
    fixture.make(&Move::Scale(3));
    let own = ["hold", "apply Deployment web-proxy-service"];
    assert_eq!(fixture.settle(), own);
    fixture.make(&Move::Unclaim(0));
    assert_eq!(fixture.settle(), ["release", own[1]]);
    fixture.make(&Move::OptOut(true));
    assert_eq!(
        fixture.settle().last().unwrap(),
        "delete Service web-target"
    );
    fixture.check_end();
    fixture.make(&Move::OptOut(false));
    assert_eq!(fixture.settle().last().unwrap(), "switch");
    fixture.make(&Move::Unwide(2));
    let withdrawn = fixture.settle();
    let (first, last) = (&*withdrawn[0], withdrawn.last().unwrap().as_str());
    assert_eq!((first, last), ("restore", "delete Service web-target"));
    fixture.check_end();
}

/// Policies of callers' sidecars take the place of proxies where endpoints have sidecars, and proxies theirs.
#[test]
fn sidecars_collaborate_as_it_is_advised() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0));
    fixture.make(&Move::Auto);
    fixture.make(&Move::Advise(Choice::Ledger));
    assert!(fixture.settle().is_empty(), "no load reports");
    fixture.make(&Move::Sidecars(true));
    let expected = ["hold", "apply TrafficPolicy web-sidecars"];
    assert_eq!(fixture.settle(), expected);
    fixture.check_end();
    fixture.make(&Move::Advise(Choice::Bounce));
    assert_eq!(fixture.settle(), expected[1..]);
    fixture.make(&Move::Advise(Choice::ProxyService));
    let inserted = fixture.settle();
    assert_eq!(
        (&*inserted[0], inserted.last().unwrap().as_str()),
        ("delete TrafficPolicy web-sidecars", "switch")
    );
    fixture.make(&Move::Advise(Choice::Ledger));
    assert_eq!(fixture.settle().last().unwrap(), expected[1]);
    fixture.make(&Move::Sidecars(false));
    assert_eq!(fixture.settle(), ["delete TrafficPolicy web-sidecars"]);
    fixture.make(&Move::Sidecars(true));
    fixture.settle();
    fixture.make(&Move::Unclaim(0));
    assert_eq!(
        fixture.settle(),
        ["delete TrafficPolicy web-sidecars", "release"]
    );
    fixture.check_end();
}

/// An autoscaler begins with what there is: a Service with three proxies does not drop to one before the first
/// observation.
#[test]
fn an_autoscaler_begins_with_what_there_is() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0));
    fixture.make(&Move::Scale(3));
    fixture.settle();
    fixture.make(&Move::Autoscale);
    let expected = [
        "apply Deployment web-proxy-service",
        "apply HorizontalPodAutoscaler web-proxy-service",
    ];
    assert_eq!(fixture.settle(), expected);
    let count =
        |fixture: &Fixture| fixture.deployment.as_ref().unwrap()["spec"]["replicas"].clone();
    assert_eq!(count(&fixture), 3);
    // With none it would do nothing.
    fixture.deployment.as_mut().unwrap()["spec"]["replicas"] = json!(0);
    fixture.settle();
    assert_eq!(count(&fixture), 1);
    fixture.check_end();
}

/// Created objects are restored after changes by others.
#[test]
fn changes_by_others_are_reverted() {
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0));
    fixture.settle();
    fixture.target.as_mut().unwrap()["spec"]["ports"][0]["targetPort"] = json!(1);
    fixture.policy.as_mut().unwrap()["spec"]["cluster"]["policy"] = json!("random");
    let expected = ["apply Service web-target", "apply TrafficPolicy web-target"];
    assert_eq!(fixture.settle(), expected);
    fixture.check_end();
}

/// Services that cannot have proxies get the reason, and inserted proxies are removed.
#[test]
fn what_cannot_be_is_refused() {
    let port = |field: &str, value: serde_json::Value| {
        let mut port = json!({"port": 80, "targetPort": 8080, "name": "http"});
        port[field] = value;
        json!([port])
    };
    let cases = [
        ("type", json!("ExternalName"), "ExternalName"),
        ("clusterIP", json!("None"), "Headless"),
        ("selector", json!(null), "NoSelector"),
        (
            "selector",
            json!({"app": "web", "pod-template-hash": "5d4f"}),
            "ReservedLabel",
        ),
        (
            "selector",
            json!({"maglor.dev/proxy-service": "a"}),
            "Proxied",
        ),
        (
            "internalTrafficPolicy",
            json!("Local"),
            "LocalTrafficPolicy",
        ),
        (
            "externalTrafficPolicy",
            json!("Local"),
            "LocalTrafficPolicy",
        ),
        ("publishNotReadyAddresses", json!(true), "PublishesNotReady"),
        ("sessionAffinity", json!("ClientIP"), "SessionAffinity"),
        ("ports", port("protocol", json!("UDP")), "UnsupportedPort"),
        ("ports", port("targetPort", json!(15020)), "UnsupportedPort"),
        ("ports", port("name", json!("db")), "UnsupportedPort"),
        ("ports", json!([]), "UnsupportedPort"),
        (
            "ports",
            json!([
                {"port": 80, "targetPort": 8080, "name": "http"},
                {"port": 81, "targetPort": 8080, "name": "tcp-raw"},
            ]),
            "UnsupportedPort",
        ),
    ];
    for (field, value, reason) in cases {
        let mut fixture = Fixture::new();
        fixture.make(&Move::Claim(0));
        fixture.settle();
        fixture.edit_spec(field, &value);
        fixture.settle();
        assert_eq!(refused(&fixture), reason, "{field}: {value}");
        if value.is_null() {
            // Until then the proxies are in use.
            fixture.write_endpoints();
            fixture.settle();
        }
        fixture.check_restored();
    }
    let mut fixture = Fixture::new();
    fixture.make(&Move::Claim(0));
    fixture.remove_service();
    fixture.settle();
    assert_eq!(refused(&fixture), "TargetNotFound");
    let mut fixture = Fixture::new();
    fixture.own_by_controller();
    fixture.make(&Move::Claim(0));
    fixture.settle();
    assert_eq!(refused(&fixture), "Controlled");
}

/// Resources of others keep their names.
#[test]
fn what_is_not_ours_is_left_alone() {
    let mut fixture = Fixture::new();
    let theirs = json!({"kind": "Service", "metadata": {"name": "web-target", "uid": "theirs"}});
    fixture.target = Some(theirs.clone());
    fixture.make(&Move::Claim(0));
    assert_eq!(fixture.settle(), Vec::<String>::new());
    assert_eq!(refused(&fixture), "NameTaken");
    assert_eq!(fixture.target, Some(theirs));
}

fn refused(fixture: &Fixture) -> &'static str {
    let Next { progress, .. } = next(&fixture.observe());
    match progress {
        maglor_controller::proxy_service::Progress::Refused(refusal) => Refusal::reason(&refusal),
        other => panic!("not refused: {other:?}"),
    }
}
