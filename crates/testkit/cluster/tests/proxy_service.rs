//! A `ProxyService` in a mesh with strict mutual TLS, under load: callers and pods have sidecars, only one
//! of two callers is allowed. Several proxies are deployed, scaled by requests, and removed; no request of
//! the allowed caller fails, none of the other passes, and no client without a certificate gets a response.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when
//! it skips.

mod questions;

use std::net::{Ipv4Addr, SocketAddr};

use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};

use crate::support::installed::{Installed, until};
use crate::support::load::{self, Load};
use crate::support::shop::{address, addresses, call, is_ready, rolled_out, service};

const SHOP: &str = include_str!("proxy_service/shop.yaml");
const SERVICE: &str = include_str!("proxy_service/deployment.yaml");

/// Services, their addresses, their replicas, ports that are not redirected.
const SERVICES: [(&str, &str, u8, &str); 3] = [
    ("others", "10.96.0.98", 1, "9080"),
    ("users", "10.96.0.99", 1, "9080"),
    ("details", "10.96.0.101", 3, ""),
];

/// Requests a second, while there are many and while there are few.
const RATE: u32 = 300;
const FEW: u32 = 2;

/// Load reports take effect immediately, with a short averaging window.
const VALUES: [&str; 3] = [
    "proxyServices.enabled=true",
    "externalMetrics=true",
    "extraArgs={--load-interval=1s,--graph-window=10s}",
];

fn proxy_service(policy: &str, number: &str) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {{name: details, namespace: shop}}, \
         spec: {{targetRef: {{name: details}}, policy: '{policy}', {number}}}}}"
    )
}

/// One to three proxies, one for every four requests a second: three for what a busy machine makes of [`RATE`], one
/// for [`FEW`].
fn autoscaled() -> String {
    let range = "minReplicas: 1, maxReplicas: 3";
    let by = "requestsPerSecond: 4, stabilizationSeconds: 5";
    proxy_service(
        "bounce(tries=2)",
        &format!("autoscaling: {{{range}, {by}}}"),
    )
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn proxies_come_and_go_in_a_strict_mesh() {
    let Some(installed) = Installed::start("proxies", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(SHOP).unwrap();
    for (name, address, replicas, skipped) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        let service = service.replace("REPLICAS", &replicas.to_string());
        kubectl.apply(&service.replace("SKIPPED", skipped)).unwrap();
    }
    for (name, ..) in SERVICES {
        rolled_out(kubectl, name);
    }
    let (users, others) = (address(kubectl, "users"), address(kubectl, "others"));
    let before = service(kubectl, "details");
    // The sidecars must also have received the policy.
    until("one may call", || call(&installed, users) == Some(200));
    until("the other may not", || {
        call(&installed, others) != Some(200)
    });

    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);
    let one = proxy_service("bounce(tries=2)", "replicas: 1");
    kubectl.apply(&one).unwrap();
    until("the proxy is in", || is_ready(kubectl, "details"));
    until("requests go through it", || {
        through_proxies(&installed) > f64::from(RATE)
    });
    assert!(call(&installed, others).is_some_and(|status| status != 200));
    for proxy in proxies(kubectl) {
        // The port has a name, so the proxies choose the number.
        let outsider = move || load::get(SocketAddr::from((proxy, 20_000)), "details");
        assert_eq!(installed.cluster.in_network(outsider).unwrap(), None);
    }
    let calm = they_come_and_go_with_requests(&installed, load, users);
    let one = proxy_service("lor(choices=2)", "replicas: 1");
    kubectl.apply(&one).unwrap();
    until("there is no autoscaler", || {
        let label = "--selector=maglor.dev/proxy-service";
        let left = kubectl.json(&["get", "hpa", "-n", "shop", label]).unwrap();
        left["items"] == json!([])
    });
    assert!(call(&installed, others).is_some_and(|status| status != 200));

    calm.go_on(u64::from(FEW));
    let gone = ["delete", "proxyservice", "details", "-n", "shop"];
    kubectl.run(&gone).unwrap();
    until("the proxies are gone", || proxies(kubectl).is_empty());
    assert_eq!(service(kubectl, "details").to_string(), before.to_string());
    assert!(call(&installed, others).is_some_and(|status| status != 200));
    for kind in [
        "services",
        "deployments",
        "serviceaccounts",
        "trafficpolicies",
    ] {
        let label = "--selector=maglor.dev/proxy-service";
        let left = kubectl.json(&["get", kind, "-n", "shop", label]).unwrap();
        assert_eq!(left["items"], json!([]), "{kind}");
    }
    none_failed(calm, "few requests", FEW);
    installed.stop();
}

/// With many requests there are three proxies, with few of them one; the load with few.
fn they_come_and_go_with_requests(installed: &Installed, many: Load, users: Ipv4Addr) -> Load {
    let kubectl = installed.kubectl();
    kubectl.apply(&autoscaled()).unwrap();
    until("there are as many as requests ask for", || {
        proxies(kubectl).len() == 3 && is_ready(kubectl, "details")
    });
    println!("the API server says {}", requests_a_second(kubectl));
    many.go_on(u64::from(RATE));
    let calm = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), FEW);
    none_failed(many, "many requests", RATE);
    until("there is one for few requests", || {
        proxies(kubectl).len() == 1
    });
    println!("the API server says {}", requests_a_second(kubectl));
    let failed = questions::failed(kubectl);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    requests_a_second(kubectl);
    calm
}

fn none_failed(load: Load, what: &str, rate: u32) {
    let (sent, failed) = load.stop();
    println!("{what}: {sent} sent while proxies came and went, {failed:?} failed");
    assert!(failed.is_empty(), "{failed:?}");
    assert!(sent > u64::from(rate), "{sent}");
}

/// The metric of the autoscaler, from the API server.
fn requests_a_second(kubectl: &Kubectl) -> String {
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/\
                maglor_proxy_service_requests_per_second?labelSelector=service%3Ddetails";
    let list = kubectl.run(&["get", "--raw", path]).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"][0]["metricLabels"]["service"], "details");
    list["items"][0]["value"].as_str().unwrap().to_owned()
}

fn proxies(kubectl: &Kubectl) -> Vec<Ipv4Addr> {
    addresses(kubectl, "maglor.dev/proxy-service=details")
}

/// Requests that the proxies have answered with success.
fn through_proxies(installed: &Installed) -> f64 {
    let metrics = proxies(installed.kubectl())
        .into_iter()
        .filter_map(|proxy| {
            let admin = SocketAddr::from((proxy, 15_020));
            let read = move || load::body(admin, "/metrics");
            installed.cluster.in_network(read).unwrap()
        });
    let counted = |text: String| {
        let counts = text.lines().filter(|line| {
            line.starts_with("maglor_http_requests_total{") && line.contains("status=\"2xx\"")
        });
        let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>()
    };
    metrics.map(counted).sum()
}
