//! A `ProxyService` in front of a TCP port, in a mesh with strict mutual TLS, under load: what is sent there
//! passes through the proxies in the callers' own mutual TLS, so the pods' rules hold for the callers. Proxies come
//! and go, and no request that the bytes are fails.
//!
//! Not part of `cargo xtask e2e`, because a connection that outlives `drainSeconds` in a proxy is cut, and the
//! request that is just being sent over it fails: `cargo test -p maglor-testkit --test measured proxied_bytes:: --
//! --ignored`. The first time it builds Kubernetes. It needs root, and reports when it skips.

use std::net::SocketAddr;

use crate::support::installed::{Installed, until};
use crate::support::load::{self, Load};
use crate::support::shop::{address, addresses, call, is_ready, service};

const SHOP: &str = include_str!("proxied_bytes/shop.yaml");
const SERVICE: &str = include_str!("proxy_service/deployment.yaml");

/// Services, their addresses, their replicas, ports that are not redirected.
const SERVICES: [(&str, &str, u8, &str); 3] = [
    ("others", "10.96.0.98", 1, "9080"),
    ("users", "10.96.0.99", 1, "9080"),
    ("details", "10.96.0.101", 3, ""),
];

/// Requests a second.
const RATE: u32 = 100;

const PROXY_SERVICE: &str = "{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, \
    metadata: {name: details, namespace: shop}, \
    spec: {targetRef: {name: details}, policy: lor(choices=all), drainSeconds: 20}}";

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour"]
fn bytes_pass_in_the_callers_own_mutual_tls() {
    let Some(installed) = Installed::start("bytes", &["proxyServices.enabled=true"]) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(SHOP).unwrap();
    for (name, address, replicas, skipped) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        let service = service.replace("REPLICAS", &replicas.to_string());
        let service = service.replace("SKIPPED", skipped);
        // To all proxies this is plain TCP.
        let port = if name == "details" { "tcp-app" } else { "http" };
        let ports = format!("ports: [{{name: {port}, port: 9080, targetPort: http}}]");
        let service = service.replace(
            "ports: [{name: http, port: 9080, targetPort: http}]",
            &ports,
        );
        assert!(service.contains(&ports), "{service}");
        kubectl.apply(&service).unwrap();
    }
    for (name, ..) in SERVICES {
        let deployment = format!("deployment/{name}");
        let wait = ["rollout", "status", &deployment, "-n", "shop"];
        kubectl.run(&wait).unwrap();
    }
    let (users, others) = (address(kubectl, "users"), address(kubectl, "others"));
    let before = service(kubectl, "details");
    until("one may call", || call(&installed, users) == Some(200));
    until("the other may not", || {
        call(&installed, others) != Some(200)
    });

    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);
    kubectl.apply(PROXY_SERVICE).unwrap();
    until("the proxy is in", || is_ready(kubectl, "details"));
    // Connections that are open stay where they are: another caller makes new ones.
    let second = ["scale", "deployment/users", "-n", "shop", "--replicas=2"];
    kubectl.run(&second).unwrap();
    until("bytes go through it", || {
        let callers = addresses(kubectl, "app=users").into_iter();
        let mut new = callers.filter(|caller| *caller != users);
        new.any(|caller| call(&installed, caller) == Some(200))
            && bytes_through_proxies(&installed) > 0.0
    });
    assert_ne!(call(&installed, others), Some(200));
    for proxy in addresses(kubectl, "maglor.dev/proxy-service=details") {
        // The port has a name, so the proxies choose the number.
        let outsider = move || load::get(SocketAddr::from((proxy, 20_000)), "details");
        assert_eq!(installed.cluster.in_network(outsider).unwrap(), None);
    }
    load.go_on(u64::from(RATE));
    let gone = ["delete", "proxyservice", "details", "-n", "shop"];
    kubectl.run(&gone).unwrap();
    until("the proxies are gone", || {
        addresses(kubectl, "maglor.dev/proxy-service=details").is_empty()
    });
    assert_eq!(service(kubectl, "details").to_string(), before.to_string());
    assert_ne!(call(&installed, others), Some(200));
    let (sent, failed) = load.stop();
    println!("{sent} sent while proxies came and went, {failed:?} failed");
    assert!(failed.is_empty(), "{failed:?}");
    assert!(sent > u64::from(RATE), "{sent}");
    installed.stop();
}

/// Bytes that the proxies have passed, both ways.
fn bytes_through_proxies(installed: &Installed) -> f64 {
    let proxies = addresses(installed.kubectl(), "maglor.dev/proxy-service=details");
    let metrics = proxies.into_iter().filter_map(|proxy| {
        let admin = SocketAddr::from((proxy, 15_020));
        let read = move || load::body(admin, "/metrics");
        installed.cluster.in_network(read).unwrap()
    });
    let counted = |text: String| {
        let lines = text.lines().map(ToOwned::to_owned).collect::<Vec<_>>();
        let counts = lines
            .iter()
            .filter(|line| line.starts_with("maglor_tcp_bytes_total{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>()
    };
    metrics.map(counted).sum()
}
