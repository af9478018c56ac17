//! `mode: Auto` of a whole namespace: with `dryRun` it reports for each called Service the best balancing;
//! without `dryRun` it applies it, unless the Service opts out; and when it is deleted everything is as it
//! was.
//!
//! The endpoints are emulated queues that need no processor. Not part of `cargo xtask e2e`, since it depends on what
//! is measured: `cargo test -p maglor-testkit --test measured auto_namespace:: -- --ignored`. It needs root, and reports
//! when it skips.

use std::net::Ipv4Addr;
use std::time::Duration;

use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};

use crate::arrivals::Arrivals;
use crate::support::installed::{Installed, until};

const SHOP: &str = include_str!("auto/shop.yaml");

/// Callers are visible immediately, and the decision window is ten seconds instead of two minutes.
const VALUES: [&str; 2] = [
    "proxyServices.enabled=true",
    "extraArgs={--load-interval=1s,--graph-window=10s,--auto-patience=10s}",
];

const CALLERS: u32 = 12;
const SERVERS: u32 = 8;
/// Seconds, and requests a second: of a utilization of 0.75 for programs that are not optimised, and of little.
const SERVICE_TIME: f64 = 0.048;
const RATE: u32 = 125;
const FEW: u32 = 4;

fn all(namespace: &str, dry_run: bool) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {{name: all, namespace: {namespace}}}, \
         spec: {{mode: Auto, dryRun: {dry_run}, maxServices: 1}}}}"
    )
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour"]
fn all_services_of_a_namespace_are_seen_to() {
    let Some(installed) = Installed::start("auto-namespace", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    deploy(kubectl);
    let before = kept(kubectl);
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("repeat with SEED={seed}");
    let arrivals = Arrivals::start(&installed.cluster, &callers(kubectl), FEW, seed);

    kubectl.apply(&all("shop", true)).unwrap();
    until("it is listed", || {
        balance(kubectl, "shop")["balancing"] == "local"
    });
    arrivals.at_rate(RATE);
    until("it is said what would be best", || {
        let details = balance(kubectl, "shop");
        let seen = details["auto"]["utilization"].as_f64();
        seen.is_some_and(|seen| seen > 0.4)
    });
    println!("{}", balance(kubectl, "shop"));
    arrivals.during("it only says it", Duration::from_secs(15));
    assert_eq!(selected(kubectl), "details");

    kubectl.apply(&all("shop", false)).unwrap();
    until("it is done", || selected(kubectl) == "details.proxy");
    until("it is said that it is done", || {
        balance(kubectl, "shop")["balancing"] == "proxy-service"
    });
    annotate(kubectl, "service/details", "disabled");
    until("the Service opts out", || {
        selected(kubectl) == "details" && is_clean(kubectl)
    });
    annotate(kubectl, "service/details", "");
    assert_eq!(kept(kubectl).to_string(), before.to_string());
    until("it is done again", || selected(kubectl) == "details.proxy");
    kubectl
        .run(&[
            "delete",
            "proxyservice",
            "all",
            "-n",
            "shop",
            "--timeout=80s",
        ])
        .unwrap();
    // It is deleted, so none of its objects is left.
    assert!(is_clean(kubectl));
    assert_eq!(kept(kubectl).to_string(), before.to_string());

    kubectl.apply(&all("maglor", false)).unwrap();
    until("the mesh's does it, too", || {
        selected(kubectl) == "details.proxy"
    });
    annotate(kubectl, "namespace/shop", "disabled");
    until("the namespace opts out", || {
        selected(kubectl) == "details" && is_clean(kubectl)
    });
    kubectl
        .run(&[
            "delete",
            "proxyservice",
            "all",
            "-n",
            "maglor",
            "--timeout=80s",
        ])
        .unwrap();
    assert_eq!(kept(kubectl).to_string(), before.to_string());
    let (sent, failed) = arrivals.stop();
    println!("{sent} sent, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
    installed.stop();
}

fn deploy(kubectl: &Kubectl) {
    let shop = SHOP.replace("SERVICE_TIME", &SERVICE_TIME.to_string());
    let shop = shop.replace("CALLERS", &CALLERS.to_string());
    kubectl
        .apply(&shop.replace("SERVERS", &SERVERS.to_string()))
        .unwrap();
    for name in ["statefulset/details", "deployment/users"] {
        let wait = ["rollout", "status", name, "-n", "shop", "--timeout=120s"];
        kubectl.run(&wait).unwrap();
    }
}

/// Absent where it is empty.
fn annotate(kubectl: &Kubectl, what: &str, value: &str) {
    let set = match value {
        "" => "maglor.dev/auto-proxies-".to_owned(),
        value => format!("maglor.dev/auto-proxies={value}"),
    };
    kubectl
        .run(&["annotate", what, &set, "-n", "shop"])
        .unwrap();
}

/// The resource's status for the Service details.
fn balance(kubectl: &Kubectl, namespace: &str) -> Value {
    let get = ["get", "proxyservice", "all", "-n", namespace];
    let mut resource = kubectl.json(&get).unwrap();
    let services = resource["status"]["services"].as_array_mut();
    let mut services = services.into_iter().flatten();
    services
        .find(|one| one["name"] == "shop/details")
        .map(Value::take)
        .unwrap_or_default()
}

fn selected(kubectl: &Kubectl) -> String {
    let get = ["get", "service", "details", "-n", "shop"];
    let app = &kubectl.json(&get).unwrap()["spec"]["selector"]["app"];
    app.as_str().unwrap().to_owned()
}

/// Nothing that was made is left.
fn is_clean(kubectl: &Kubectl) -> bool {
    let kinds = "services,deployments,serviceaccounts,trafficpolicies,pods";
    let label = "--selector=maglor.dev/proxy-service";
    let left = kubectl.json(&["get", kinds, "-n", "shop", label]);
    left.unwrap()["items"] == json!([])
}

fn callers(kubectl: &Kubectl) -> Vec<Ipv4Addr> {
    let get = ["get", "pods", "-n", "shop", "--selector", "app=users"];
    let pods = kubectl.json(&get).unwrap();
    let address = |pod: &Value| pod["status"]["podIP"].as_str()?.parse().ok();
    let pods = pods["items"].as_array().into_iter().flatten();
    pods.filter_map(address).collect()
}

/// The Service, but for its resource version.
fn kept(kubectl: &Kubectl) -> Value {
    let service = ["service", "details", "-n", "shop"];
    kubectl.as_kept(&service, "maglor-proxy-service").unwrap()
}
