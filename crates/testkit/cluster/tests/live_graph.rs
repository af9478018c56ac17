//! The live graph on a real Kubernetes with three nodes, 5 ms between them: calls, response times, delays between
//! the nodes are, and that a recreated pod prefetches what it will call.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::support::installed::{Installed, until};
use crate::support::load::{Load, body};
use crate::support::shop::{deploy_users_and_details, rolled_out};

const DELAY: Duration = Duration::from_millis(5);
/// The admin port of a sidecar.
const ADMIN: u16 = 15020;
/// Requests a second.
const RATE: u32 = 50;

/// Load reports take effect immediately, with a short averaging window.
const VALUES: [&str; 1] = ["extraArgs={--load-interval=1s,--graph-window=5s}"];

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn the_graph_says_how_far_nodes_are_apart_and_new_pods_know_whom_they_call() {
    let Some(installed) = Installed::start_apart("live-graph", 3, DELAY, &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    deploy_users_and_details(kubectl, "enabled");
    let users = only_pod(kubectl, "users");
    let load = Load::start(&installed.cluster, at(&users, 9080), RATE);
    let wanted = |graph: &Value| edge(graph).is_some_and(|edge| edge["rps"].as_f64() > Some(10.0));
    until("calls are seen", || wanted(&graph(&installed)));
    until("the way to both other nodes is measured", || {
        let home = users["spec"]["nodeName"].clone();
        let graph = graph(&installed);
        let delays = graph["delays"].as_array().cloned().unwrap_or_default();
        let of_home = delays
            .iter()
            .filter(|one| one["from"] == home || one["to"] == home);
        let of_home: Vec<f64> = of_home.filter_map(|one| one["ms"].as_f64()).collect();
        // The configured delay is at least 5 ms; all other delays are small compared with it.
        of_home.len() == 2 && of_home.iter().all(|ms| (5.0..7.0).contains(ms))
    });
    let graph = graph(&installed);
    println!("{graph:#}");
    let edge = edge(&graph).unwrap();
    let number = |name: &str| edge[name].as_f64().unwrap();
    assert!(number("bytes_per_second") > 0.0);
    // A third of the calls stay on their node, the others take 10 ms more.
    assert!(number("p50_ms") > 5.0 && number("p99_ms") >= number("p50_ms"));
    let (_, failed) = load.stop();
    assert!(failed.is_empty(), "{failed:?}");

    // There are no calls any more, and a new pod prefetches its Services.
    kubectl
        .run(&["rollout", "restart", "deployment/users", "-n", "shop"])
        .unwrap();
    rolled_out(kubectl, "users");
    let admin = at(&only_pod(kubectl, "users"), ADMIN);
    let known = "maglor_upstream_endpoints{cluster=\"details.shop.svc.cluster.local:9080\"} 3";
    until("it was asked for ahead", || {
        let metrics = installed
            .cluster
            .in_network(move || body(admin, "/metrics"));
        metrics.unwrap().is_some_and(|metrics| {
            assert!(metrics.contains("maglor_xds_targets 0"), "no calls");
            metrics.contains(known)
        })
    });
    installed.stop();
}

/// The only pod of a service, after the previous one has terminated.
fn only_pod(kubectl: &Kubectl, app: &str) -> Value {
    let selector = format!("--selector=app={app}");
    let mut found = Value::Null;
    until("there is one pod", || {
        let list = kubectl
            .json(&["get", "pods", "-n", "shop", &selector])
            .unwrap();
        let pods = list["items"].as_array().unwrap().iter();
        let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pods: Vec<&Value> = pods.filter(stays).collect();
        found = pods.first().map_or(Value::Null, |pod| (*pod).clone());
        pods.len() == 1
    });
    found
}

fn at(pod: &Value, port: u16) -> SocketAddr {
    let address: Ipv4Addr = pod["status"]["podIP"].as_str().unwrap().parse().unwrap();
    SocketAddr::from((address, port))
}

/// The merged graph of all controller replicas.
fn graph(installed: &Installed) -> Value {
    let kubeconfig = installed.cluster.kubeconfig().display().to_string();
    let text = installed.maglor(&["graph", "--kubeconfig", &kubeconfig, "-o", "json"]);
    serde_json::from_str(&text).unwrap()
}

/// Users call details.
fn edge(graph: &Value) -> Option<&Value> {
    let mut edges = graph["edges"].as_array()?.iter();
    edges.find(|one| one["from"] == "shop/users" && one["to"] == "shop/details")
}
