//! Three Services of few requests that share proxies, in a mesh with strict mutual TLS, under load: they join one by
//! one, the manifest of one is applied again, one leaves, and all go. No request fails, no proxy is restarted, who
//! may not call may not by way of the proxies either, and each Service is the same text again.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when
//! it skips.

use std::net::{Ipv4Addr, SocketAddr};

use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};

use crate::support::installed::{Installed, until};
use crate::support::load::{self, Load};
use crate::support::shop::{address, call, ip, is_ready, pods, service};

const SHOP: &str = include_str!("proxy_group/shop.yaml");
const SERVICE: &str = include_str!("proxy_service/deployment.yaml");

/// Services, their addresses, their replicas, ports that are not redirected.
const SERVICES: [(&str, &str, u8, &str); 5] = [
    ("others", "10.96.0.98", 1, "9080"),
    ("users", "10.96.0.99", 1, "9080"),
    ("details", "10.96.0.101", 2, ""),
    ("ratings", "10.96.0.102", 2, ""),
    ("reviews", "10.96.0.103", 2, ""),
];
const MEMBERS: [&str; 3] = ["details", "ratings", "reviews"];

/// Requests a second, each of which calls all three.
const RATE: u32 = 40;

/// Load reports take effect immediately, with a short averaging window.
const VALUES: [&str; 3] = [
    "proxyServices.enabled=true",
    "externalMetrics=true",
    "extraArgs={--load-interval=1s,--graph-window=10s}",
];

fn proxy_service(name: &str, more: &str) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{targetRef: {{name: {name}}}, group: low{more}}}}}"
    )
}

fn manifest(name: &str) -> String {
    let (_, address, replicas, skipped) = SERVICES.iter().find(|one| one.0 == name).unwrap();
    let text = SERVICE.replace("NAME", name).replace("ADDRESS", address);
    let text = text.replace("REPLICAS", &replicas.to_string());
    text.replace("SKIPPED", skipped)
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn services_share_proxies_and_no_request_fails() {
    let Some(installed) = Installed::start("group", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(SHOP).unwrap();
    for (name, ..) in SERVICES {
        kubectl.apply(&manifest(name)).unwrap();
    }
    for (name, ..) in SERVICES {
        let deployment = format!("deployment/{name}");
        kubectl
            .run(&["rollout", "status", &deployment, "-n", "shop"])
            .unwrap();
    }
    let (users, others) = (address(kubectl, "users"), address(kubectl, "others"));
    let before = MEMBERS.map(|name| service(kubectl, name));
    until("one may call", || call(&installed, users) == Some(200));
    until("the other may not", || {
        call(&installed, others) != Some(200)
    });

    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);
    for (at, name) in MEMBERS.into_iter().enumerate() {
        let there = proxies(kubectl);
        kubectl
            .apply(&proxy_service(name, ", drainSeconds: 10"))
            .unwrap();
        until("it is in", || is_ready(kubectl, name));
        let now = proxies(kubectl);
        println!("{name} is in, by {now:?}");
        assert!(at == 0 || now == there, "{there:?} became {now:?}");
        load.go_on(u64::from(RATE));
    }
    until("requests to all go through", || {
        passing(&installed) == MEMBERS.len()
    });
    assert!(call(&installed, others).is_some_and(|status| status != 200));
    for (proxy, port) in ports(kubectl) {
        let outsider = move || load::get(SocketAddr::from((proxy, port)), "details");
        assert_eq!(installed.cluster.in_network(outsider).unwrap(), None);
    }
    println!("the API server says {}", requests_a_second(kubectl));

    let there = proxies(kubectl);
    kubectl.apply(&manifest("ratings")).unwrap();
    load.go_on(u64::from(RATE));
    until("it is in again", || {
        is_ready(kubectl, "ratings") && is_switched(kubectl, "ratings")
    });
    kubectl
        .run(&["delete", "proxyservice", "ratings", "-n", "shop"])
        .unwrap();
    assert_eq!(
        service(kubectl, "ratings").to_string(),
        before[1].to_string()
    );
    for name in ["details", "reviews"] {
        assert!(
            is_ready(kubectl, name) && is_switched(kubectl, name),
            "{name}"
        );
    }
    assert_eq!(proxies(kubectl), there);
    load.go_on(u64::from(RATE));
    assert!(call(&installed, others).is_some_and(|status| status != 200));

    for name in ["details", "reviews"] {
        kubectl
            .run(&["delete", "proxyservice", name, "-n", "shop"])
            .unwrap();
    }
    until("the proxies are gone", || proxies(kubectl).is_empty());
    for (name, before) in MEMBERS.into_iter().zip(&before) {
        assert_eq!(service(kubectl, name).to_string(), before.to_string());
    }
    nothing_is_left(kubectl);
    let (sent, failed) = load.stop();
    println!("{sent} sent, each to all three, while Services joined and left, {failed:?} failed");
    assert!(failed.is_empty(), "{failed:?}");
    assert!(sent > u64::from(RATE), "{sent}");
    installed.stop();
}

fn nothing_is_left(kubectl: &Kubectl) {
    for kind in [
        "services",
        "deployments",
        "serviceaccounts",
        "trafficpolicies",
    ] {
        for label in ["maglor.dev/proxy-group", "maglor.dev/proxy-service"] {
            let label = format!("--selector={label}");
            let left = kubectl.json(&["get", kind, "-n", "shop", &label]).unwrap();
            assert_eq!(left["items"], json!([]), "{kind}");
        }
    }
}

/// Names and restart counts of the proxies.
fn proxies(kubectl: &Kubectl) -> Vec<(String, u64)> {
    let pods = pods(kubectl, "maglor.dev/proxy-group=low");
    let name = |pod: &Value| {
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        (name, restarts.as_u64().unwrap_or(0))
    };
    pods.iter().map(name).collect()
}

/// The ports on which the proxies listen for members.
fn ports(kubectl: &Kubectl) -> Vec<(Ipv4Addr, u16)> {
    let proxy = ip(&pods(kubectl, "maglor.dev/proxy-group=low")[0]).unwrap();
    let port = |name: &str| {
        let service = kubectl
            .json(&["get", "service", name, "-n", "shop"])
            .unwrap();
        let port = service["spec"]["ports"][0]["targetPort"].as_u64().unwrap();
        (proxy, u16::try_from(port).unwrap())
    };
    MEMBERS.map(port).to_vec()
}

/// How many of the proxies' listeners have answered requests with success.
fn passing(installed: &Installed) -> usize {
    let pods = pods(installed.kubectl(), "maglor.dev/proxy-group=low");
    let metrics = pods.iter().filter_map(ip).filter_map(|proxy| {
        let admin = SocketAddr::from((proxy, 15_020));
        let read = move || load::body(admin, "/metrics");
        installed.cluster.in_network(read).unwrap()
    });
    let metrics: String = metrics.collect();
    let listens = |port: u16| {
        metrics.lines().any(|line| {
            line.starts_with("maglor_http_requests_total{")
                && line.contains("status=\"2xx\"")
                && line.contains(&format!("listener=\"{port}\""))
                && !line.ends_with(" 0")
        })
    };
    let ports = ports(installed.kubectl());
    ports.iter().filter(|(_, port)| listens(*port)).count()
}

/// The metric for an autoscaler, which any client may request.
fn requests_a_second(kubectl: &Kubectl) -> String {
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/\
                maglor_proxy_service_requests_per_second?labelSelector=group%3Dlow";
    let list = kubectl.run(&["get", "--raw", path]).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"][0]["metricLabels"]["group"], "low");
    list["items"][0]["value"].as_str().unwrap().to_owned()
}

fn is_switched(kubectl: &Kubectl, name: &str) -> bool {
    let service = kubectl
        .json(&["get", "service", name, "-n", "shop"])
        .unwrap();
    service["spec"]["selector"]["app"] == "low.group"
        && service["spec"]["ports"][0]["targetPort"].is_u64()
}
