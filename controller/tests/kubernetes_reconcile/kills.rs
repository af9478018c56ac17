//! The process of the controller is killed at random points, while users change objects of all kinds.

use std::time::{Duration, Instant};

use maglor_balance::Rng;
use serde_json::{Value, json};

use super::events::Event;
use super::fixture::Fixture;
use super::{is_inserted, observed};

/// How long processes are killed.
const KILLS: Duration = Duration::from_secs(45);
/// The life of a process in milliseconds, at least and at most: it lists its objects within the first.
const LIFE: (u32, u32) = (300, 2500);
/// Maximum time between two changes by users, in milliseconds.
const CHANGES: u32 = 500;

pub(super) async fn nothing_is_lost(fixture: &mut Fixture) {
    let mut rng = Rng::seed(maglor_testkit::seed());
    let before = fixture.events.count();
    let begun = Instant::now();
    let (mut kills, mut number, mut moved) = (0, 0, Vec::new());
    while begun.elapsed() < KILLS {
        let mut controller = fixture.controller();
        let life = Duration::from_millis(u64::from(LIFE.0 + rng.below(LIFE.1 - LIFE.0)));
        let end = Instant::now() + life;
        while Instant::now() < end {
            number += 1;
            change(fixture, rng.below(8), number, &mut moved).await;
            let pause = Duration::from_millis(u64::from(rng.below(CHANGES)));
            let left = end.saturating_duration_since(Instant::now());
            tokio::time::sleep(pause.min(left)).await;
        }
        controller.kill();
        kills += 1;
    }
    println!("{kills} kills, {number} changes, {} moves", moved.len());
    let _controller = fixture.controller();
    all_is_as_specified(fixture, &moved).await;
    never_without_path(&fixture.events.all()[before..]);
    nothing_is_left(fixture).await;
    println!("killed and recovered within {:?}", begun.elapsed());
}

/// A change of one of the kinds.
async fn change(fixture: &mut Fixture, kind: u32, number: u32, moved: &mut Vec<String>) {
    match kind {
        0 => {
            let port =
                json!({"name": "http", "port": 80, "targetPort": 9000 + number, "protocol": "TCP"});
            fixture
                .patch(
                    "services",
                    "shop",
                    "web",
                    json!({"spec": {"ports": [port]}}),
                )
                .await;
        }
        1 => fixture.delete("proxyservices", "shop", "web").await,
        2 | 3 => claim(fixture, 1 + number % 2).await,
        4 => listen(fixture, 80 + number).await,
        5 => {
            let fields = json!({"spec": {"roundSeconds": 700 + number}});
            fixture.patch("placementpolicies", "", "all", fields).await;
        }
        6 => {
            let fields = json!({"spec": {"roundSeconds": 700 + number}});
            fixture.patch("tuningpolicies", "shop", "all", fields).await;
        }
        _ => moved.push(fixture.put_moving().await),
    }
}

async fn claim(fixture: &Fixture, replicas: u32) {
    // While the old one is withdrawn, there is no new one.
    if fixture
        .get("proxyservices", "shop", "web")
        .await
        .is_none_or(|there| there["metadata"]["deletionTimestamp"].is_null())
    {
        let spec = json!({"targetRef": {"name": "web"}, "replicas": replicas});
        fixture.put("proxyservices", "shop", "web", spec).await;
    }
}

async fn listen(fixture: &Fixture, port: u32) {
    let listener = json!({"name": "http", "port": port, "protocol": "HTTP"});
    let fields = json!({"spec": {"listeners": [listener]}});
    fixture.patch("gateways", "edge", "web", fields).await;
}

/// Waits for an object to have a property.
async fn until(
    fixture: &Fixture,
    object: [&str; 3],
    what: &str,
    holds: impl Fn(Option<&Value>) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let [plural, namespace, name] = object;
        let found = fixture.get(plural, namespace, name).await;
        if holds(found.as_ref()) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {found:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn all_is_as_specified(fixture: &Fixture, moved: &[String]) {
    until(
        fixture,
        ["proxyservices", "shop", "web"],
        "no deletion is pending",
        |there| there.is_none_or(|there| there["metadata"]["deletionTimestamp"].is_null()),
    )
    .await;
    claim(fixture, 2).await;
    listen(fixture, 79).await;
    let count = fixture.events.count();
    let service = fixture.get("services", "shop", "web").await.unwrap();
    let port = service["spec"]["ports"][0]["targetPort"].clone();
    until(
        fixture,
        ["services", "shop", "web-target"],
        "the target follows",
        |target| target.is_some_and(|target| target["spec"]["ports"][0]["targetPort"] == port),
    )
    .await;
    until(
        fixture,
        ["deployments", "shop", "web-proxy-service"],
        "there are two proxies",
        |there| there.is_some_and(|there| there["status"]["availableReplicas"] == 2),
    )
    .await;
    until(
        fixture,
        ["services", "edge", "web-maglor"],
        "the Gateway's Service follows",
        |there| there.is_some_and(|there| there["spec"]["ports"][0]["port"] == 79),
    )
    .await;
    for (plural, namespace, name) in [
        ("placementpolicies", "", "all"),
        ("tuningpolicies", "shop", "all"),
        ("gateways", "edge", "web"),
        ("proxyservices", "shop", "web"),
    ] {
        until(
            fixture,
            [plural, namespace, name],
            "the status is that of the last change",
            |there| there.is_some_and(|there| *observed(there) == there["metadata"]["generation"]),
        )
        .await;
    }
    for name in moved {
        until(
            fixture,
            ["pods", "shop", name],
            "the pod is evicted",
            |pod| pod.is_none(),
        )
        .await;
    }
    let inserted = fixture.get("proxyservices", "shop", "web").await.unwrap();
    if inserted["status"]["conditions"][1]["reason"] != "Inserted" {
        fixture
            .events
            .since(count, "proxies are inserted", is_inserted)
            .await;
    }
}

/// At no time did the Service select proxies without their target Service, or without an available proxy at first.
fn never_without_path(events: &[Event]) {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by_key(|event| event.revision());
    let (mut proxied, mut target, mut proxies) = (None, None, None);
    for event in events {
        let spec = &event.object["spec"];
        match (&*event.plural, &*event.name) {
            ("services", "web") => {
                let selects = spec["selector"]["app"] != "web";
                let switched = selects && proxied == Some(false);
                assert!(!switched || proxies != Some(0), "{event:?}");
                proxied = Some(selects);
            }
            ("services", "web-target") => {
                target = Some(!event.deleted && spec["selector"]["app"] == "web");
            }
            ("deployments", "web-proxy-service") => {
                let available = event.object["status"]["availableReplicas"].as_u64();
                proxies = Some(if event.deleted {
                    0
                } else {
                    available.unwrap_or(0)
                });
                assert!(!event.deleted || proxied != Some(true), "{event:?}");
            }
            _ => {}
        }
        assert!(proxied != Some(true) || target != Some(false), "{event:?}");
    }
}

/// Without the resources, the Service is the user's own, and no object of ours is left.
async fn nothing_is_left(fixture: &Fixture) {
    fixture.delete("proxyservices", "shop", "web").await;
    fixture.delete("gateways", "edge", "web").await;
    for object in [
        ["proxyservices", "shop", "web"],
        ["services", "shop", "web-target"],
        ["deployments", "shop", "web-proxy-service"],
        ["services", "edge", "web-maglor"],
        ["deployments", "edge", "web-maglor"],
        ["poddisruptionbudgets", "edge", "web-maglor"],
    ] {
        until(fixture, object, "it is deleted", |there| there.is_none()).await;
    }
    let service = fixture.get("services", "shop", "web").await.unwrap();
    assert_eq!(service["spec"]["selector"], json!({"app": "web"}));
    assert!(service["metadata"]["annotations"].is_null(), "{service}");
    assert!(service["metadata"]["labels"].is_null(), "{service}");
    let kinds = "services,deployments,serviceaccounts,trafficpolicies,horizontalpodautoscalers";
    let of_proxies = "maglor.dev/proxy-service";
    for (namespace, label) in [
        ("shop", of_proxies),
        ("edge", "gateway.networking.k8s.io/gateway-name"),
    ] {
        let kubectl = fixture.cluster.kubectl();
        let left = kubectl
            .json(&["get", kinds, "-n", namespace, "-l", label])
            .unwrap();
        assert_eq!(left["items"], json!([]), "{left:#}");
    }
}
