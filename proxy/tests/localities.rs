//! Localities, priorities and panic: the share of the requests of each part of a cluster's endpoints.

use maglor_testkit::{Proxy, TIMEOUT, Upstream, eventually};

use crate::support::{self, Web, connect};

const REQUESTS: u32 = 400;

/// Starts a proxy to a cluster `backend` of these settings, including endpoints.
fn proxy(cluster: &str) -> Proxy {
    let yaml = Web::to([]).yaml();
    let (head, _) = yaml.split_once("- {name: backend").unwrap();
    support::start(&format!("{head}- {{name: backend, {cluster}}}\n"))
}

/// Returns the share of the requests that this upstream answers.
fn share(proxy: &Proxy, name: &str) -> f64 {
    let mut client = connect(proxy);
    let own = (0..REQUESTS).filter(|_| client.get("/").text() == name);
    own.count() as f64 / f64::from(REQUESTS)
}

/// The tolerance is six standard deviations of a share of one half.
#[track_caller]
fn assert_about(share: f64, expected: f64, what: &str) {
    assert!((share - expected).abs() < 0.15, "{what}: {share}");
}

#[test]
fn shares_are_those_of_the_localities() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let share_of_a = |localities: [&str; 2], weights: &str| {
        let endpoints = [(&a, localities[0]), (&b, localities[1])].map(|(one, locality)| {
            format!("{{address: '{}', locality: {locality}}}", one.address())
        });
        let cluster = format!(
            "policy: random, endpoints: [{}]{weights}",
            endpoints.join(", ")
        );
        share(&proxy(&cluster), "a")
    };
    let weights = ", locality_weights: {eu/x: 9, eu/y: 1}";
    assert_about(share_of_a(["eu/x", "eu/y"], weights), 0.9, "weights");
    assert_about(share_of_a(["eu/y", "eu/x"], weights), 0.1, "swapped");
    assert_about(share_of_a(["eu/x", "eu/y"], ""), 0.5, "no weights");
}

/// Of a level whose half is healthy, `factor / 2` of the traffic stays, and the rest is sent to the next level.
#[test]
fn a_level_keeps_its_traffic_by_the_overprovisioning_factor() {
    let (near, gone, far) = (
        Upstream::start("near"),
        Upstream::start("gone"),
        Upstream::start("far"),
    );
    let addresses = [near.address(), gone.address(), far.address()];
    gone.kill();
    for (factor, expected) in [("1", 0.5), ("1.4", 0.7), ("2", 1.0)] {
        let proxy = proxy(&format!(
            "policy: random, panic_threshold: 0, overprovisioning_factor: {factor}, \
             health_check: {{tcp: {{}}, interval: 1s}}, endpoints: ['{}', '{}', {{address: '{}', priority: 1}}]",
            addresses[0], addresses[1], addresses[2]
        ));
        eventually(TIMEOUT, "one is unhealthy", || {
            proxy.metric("maglor_upstream_available_endpoints", &[]) == 2.0
        });
        assert_about(share(&proxy, "near"), expected, factor);
    }
}
