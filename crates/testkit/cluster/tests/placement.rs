//! A `PlacementPolicy` on a real Kubernetes with three nodes, under load: a Deployment of three replicas moves to its
//! caller's node, a PodDisruptionBudget delays it, all replicas of the controller are killed during it, and what is
//! rolled out afterwards starts where it is wanted. No request fails.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::support::installed::{Installed, until};
use crate::support::load::Load;
use crate::support::shop::{lasting, rolled_out};

const SHOP: &str = include_str!("placement/shop.yaml");
const SERVICE: &str = include_str!("placement/service.yaml");

/// Services, their addresses, their replicas, whether they may move, ports that are not redirected.
const SERVICES: [(&str, &str, u8, &str, &str); 2] = [
    ("users", "10.96.0.99", 1, "disabled", "9080"),
    ("details", "10.96.0.101", 3, "enabled", ""),
];

/// Requests a second.
const RATE: u32 = 100;

/// Load reports take effect immediately, with a short averaging window.
const VALUES: [&str; 2] = [
    "placement.enabled=true",
    "extraArgs={--load-interval=1s,--graph-window=5s}",
];

fn policy(mode: &str) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: PlacementPolicy, metadata: {{name: shop}}, \
         spec: {{namespaces: [shop], mode: {mode}, roundSeconds: 5, windows: 2, movesPerRound: 2, \
         moveCostSeconds: 60, cooldownSeconds: 30, guard: {{seconds: 10, latencyPercent: 500}}}}}}"
    )
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn a_service_moves_to_its_caller_and_no_request_fails() {
    let Some(installed) = Installed::start_on("placement", 3, &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(SHOP).unwrap();
    for (name, address, replicas, placement, skipped) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        let service = service.replace("REPLICAS", &replicas.to_string());
        let service = service.replace("PLACEMENT", placement);
        kubectl.apply(&service.replace("SKIPPED", skipped)).unwrap();
    }
    for (name, ..) in SERVICES {
        rolled_out(kubectl, name);
    }
    let home = nodes(kubectl, "users");
    let before = nodes(kubectl, "details");
    println!("users on {home:?}, details on {before:?}");
    assert!(before.len() > 1, "the scheduler spreads them: {before:?}");
    let users: Ipv4Addr = lasting(kubectl, "users")[0]["status"]["podIP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);

    assert!(
        kubectl.apply(&policy("Perhaps")).is_err(),
        "there is no such mode"
    );
    kubectl.apply(&policy("Recommend")).unwrap();
    until("it is recommended", || reason(kubectl) == "Recommended");
    let status = status(kubectl);
    println!("{status:#}");
    assert_eq!(nodes(kubectl, "details"), before, "nothing moves");
    let only = home.iter().next().unwrap();
    assert_eq!(service_of(&status, "details")["wanted"][only], 3);
    assert_eq!(service_of(&status, "users")["state"], "Fixed");

    it_is_applied(kubectl, &load, &home);
    kubectl
        .run(&["rollout", "restart", "deployment/details", "-n", "shop"])
        .unwrap();
    rolled_out(kubectl, "details");
    until("new pods start where they are wanted", || {
        lasting(kubectl, "details").len() == 3 && nodes(kubectl, "details") == home
    });
    load.go_on(u64::from(RATE));
    let (sent, failed) = load.stop();
    println!("{sent} sent while pods moved, {failed:?} failed");
    assert!(failed.is_empty(), "{failed:?}");
    installed.stop();
}

/// The replicas move to their caller, although a budget delays them and all replicas of the controller are killed.
fn it_is_applied(kubectl: &Kubectl, load: &Load, home: &BTreeSet<String>) {
    let before = lasting(kubectl, "details");
    let away = |pod: &&Value| {
        !pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| home.contains(node))
    };
    let away = before.iter().filter(away).count();
    kubectl.apply(&policy("Apply")).unwrap();
    until("a budget holds it up", || {
        let why = service_of(&status(kubectl), "details")["reason"].clone();
        why.as_str()
            .is_some_and(|why| why.contains("PodDisruptionBudget"))
    });
    // One more than wanted, which continues serving; and a new leader has only the stored state.
    assert_eq!(lasting(kubectl, "details").len(), 4);
    let kill = [
        "delete",
        "pods",
        "-n",
        "maglor",
        "--all",
        "--grace-period=0",
        "--force",
    ];
    kubectl.run(&kill).unwrap();
    load.go_on(u64::from(RATE));
    kubectl
        .run(&["delete", "pdb", "details", "-n", "shop"])
        .unwrap();
    until("all are with their caller", || {
        lasting(kubectl, "details").len() == 3 && nodes(kubectl, "details") == *home
    });
    until("it is settled", || reason(kubectl) == "Settled");
    let status = status(kubectl);
    println!("{status:#}");
    assert_eq!(status["rolledBack"], 0);
    assert_eq!(status["movesDone"], away, "regardless of the leader");
    assert_eq!(status["crossNodeCallsPerSecond"], 0.0);
    assert_eq!(service_of(&status, "details")["state"], "Kept");
    let left = ["get", "pods", "-n", "shop", "--selector=maglor.dev/moving"];
    assert_eq!(
        kubectl.json(&left).unwrap()["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let get = ["get", "deployment", "details", "-n", "shop"];
    assert_eq!(kubectl.json(&get).unwrap()["spec"]["replicas"], 3);
}

fn nodes(kubectl: &Kubectl, app: &str) -> BTreeSet<String> {
    let pods = lasting(kubectl, app);
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().map(str::to_owned);
    pods.iter().filter_map(node).collect()
}

fn status(kubectl: &Kubectl) -> Value {
    let policy = kubectl.json(&["get", "placementpolicy", "shop"]).unwrap();
    policy["status"].clone()
}

/// Why nothing is done, or what.
fn reason(kubectl: &Kubectl) -> String {
    let status = status(kubectl);
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let settled = conditions.find(|one| one["type"] == "Settled");
    settled
        .and_then(|one| one["reason"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn service_of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let name = format!("shop/{name}");
    let services = status["services"].as_array();
    let mut services = services.into_iter().flatten();
    services
        .find(|one| one["name"] == name.as_str())
        .unwrap_or(&Value::Null)
}
