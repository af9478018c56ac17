//! The operators on a real API server: reactions to changes sooner than any poll, whose times are printed, no requests
//! while nothing changes, and a process that is killed at random points.
//!
//! Pods run only in the API, on a simulated node. Ignored without `cargo xtask e2e`: the first time it builds
//! Kubernetes. It needs root, and reports when it skips.

mod events;
mod fixture;
mod kills;
mod kubelet;
mod reactions;
mod relay;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use events::Event;
use fixture::Fixture;

/// How long nothing is requested. The graph is compared and stored once a minute.
const IDLE: Duration = Duration::from_secs(180);
/// Time without a request after which what a change has caused is over: the graph is published once a minute.
const QUIET: Duration = Duration::from_secs(70);
/// Renewals of the Lease in that time, one every four seconds: at most and at least.
const RENEWALS: (usize, usize) = (46, 30);

pub(crate) fn is_inserted(event: &Event) -> bool {
    let conditions = &event.object["status"]["conditions"];
    event.is("proxyservices", "web") && conditions[1]["reason"] == "Inserted"
}

/// The generation that the status of an object is about.
pub(crate) fn observed(object: &Value) -> &Value {
    let status = &object["status"];
    let condition = &status["conditions"][0]["observedGeneration"];
    if condition.is_null() {
        &status["observedGeneration"]
    } else {
        condition
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn changes_are_acted_on_at_once_and_nothing_is_polled() {
    let Some(mut fixture) = Fixture::start("reconcile").await else {
        return;
    };
    let controller = fixture.controller();
    fixture
        .events
        .since(0, "proxies are inserted", is_inserted)
        .await;
    let gateway = |event: &Event| event.is("poddisruptionbudgets", "web-maglor");
    fixture
        .events
        .since(0, "the Gateway has objects", gateway)
        .await;
    reactions::all_are_prompt(&mut fixture).await;
    nothing_is_polled(&fixture).await;
    drop(controller);
    kills::nothing_is_lost(&mut fixture).await;
    fixture.cluster.stop().unwrap();
}

/// Watches are renewed by a request; lists and all others would be polls.
async fn nothing_is_polled(fixture: &Fixture) {
    // What the last change has caused is over.
    let (begun, mut quiet) = (Instant::now(), Instant::now());
    while quiet.elapsed() < QUIET {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut all = requests(fixture);
        all.retain(|request, _| !is_lease(request));
        if !all.is_empty() {
            assert!(begun.elapsed() < IDLE, "{all:#?}");
            quiet = Instant::now();
        }
    }
    tokio::time::sleep(IDLE).await;
    let mut all = requests(fixture);
    println!("requests in {IDLE:?} without watches: {all:#?}");
    let renewed = all
        .iter()
        .filter(|(request, _)| request.starts_with("PUT ") && is_lease(request));
    let renewed: usize = renewed.map(|(_, count)| count).sum();
    assert!((RENEWALS.1..=RENEWALS.0).contains(&renewed), "{renewed}");
    all.retain(|request, _| !is_lease(request));
    assert_eq!(all, BTreeMap::new());
}

fn is_lease(request: &str) -> bool {
    request.contains("/namespaces/maglor/leases/")
}

/// Takes the requests so far and their numbers, without watches.
fn requests(fixture: &Fixture) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in fixture.relay.requests() {
        if !request.contains("watch=true") {
            *counts.entry(request).or_default() += 1;
        }
    }
    counts
}
