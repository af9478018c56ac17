//! Admin ports in a cluster without NetworkPolicies, attacked from other pods: of a sidecar, of the proxies of a
//! Gateway and of a `ProxyService`, and of the controller. Every page of a port is rejected for any form of request,
//! except the public ones; it is also not reachable through the ports of the data plane.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

mod attempts;
mod data_ports;
mod pages;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use maglor_testkit::cluster::{Kubectl, gateway_definitions};
use serde_json::Value;

use crate::support::installed::{Installed, until};
use crate::support::{attacker, load, shop};
use attempts::Attempt;
use data_ports::Way;
use pages::Port;

const FIXTURE: &str = include_str!("admin_ports/fixture.yaml");
const BOOKINFO: &str = include_str!("mesh/bookinfo.yaml");
const SERVICE: &str = include_str!("mesh/service.yaml");

/// Services with sidecars, and their addresses.
const SERVICES: [(&str, &str); 2] = [("ratings", "10.96.0.103"), ("details", "10.96.0.101")];
/// Services of the fixture whose targets are admin ports.
const TO_ADMIN_PORTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 150)),
    IpAddr::V4(Ipv4Addr::new(10, 96, 0, 151)),
];
const VALUES: [&str; 4] = [
    "networkPolicy.enabled=false",
    "gateway.enabled=true,gateway.allCertificates=true",
    "proxyServices.enabled=true",
    "externalMetrics=true",
];
/// The admin port of proxies, and of the controller.
const PROXY: u16 = 15_020;
const CONTROLLER: u16 = 15_011;
/// Other ports of the controller: proxies, webhook, external metrics.
const CONTROLLERS: [u16; 3] = [15_010, 15_012, 15_013];

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn the_network_gets_health_and_metrics_only() {
    let Some(installed) = Installed::start("admin", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    deploy(kubectl);
    let ports = ports(kubectl);
    let mut failed = Vec::new();
    for port in &ports {
        failed.extend(attacked(&installed, port));
    }
    failed.extend(through_data_ports(&installed, &ports));
    failed.extend(through_api_server(kubectl, &ports));
    failed.extend(other_ports_of_controllers(
        &installed,
        ports.last().unwrap(),
    ));
    let count = failed.len();
    assert!(failed.is_empty(), "{count} failed:\n{}", failed.join("\n"));
    untouched(&installed, &ports);
    installed.stop();
}

fn deploy(kubectl: &Kubectl) {
    let policies = kubectl
        .run(&["get", "networkpolicies", "-A", "-o", "name"])
        .unwrap();
    assert_eq!(policies, "", "there is no NetworkPolicy");
    for definition in gateway_definitions().unwrap() {
        kubectl.apply(&definition).unwrap();
    }
    attacker::start(kubectl);
    until("the definitions are known", || {
        kubectl.apply(FIXTURE).is_ok()
    });
    kubectl.apply(BOOKINFO).unwrap();
    for (name, address) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        kubectl.apply(&service.replace("REPLICAS", "1")).unwrap();
    }
    for (name, _) in SERVICES {
        shop::rolled_out(kubectl, name);
    }
    attacker::ready(kubectl);
    until("the ProxyService is ready", || {
        shop::is_ready(kubectl, "details")
    });
    until("the Gateway is programmed", || {
        let gateway = kubectl
            .json(&["get", "gateway", "web", "-n", "edge"])
            .unwrap();
        let conditions = gateway["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "Programmed" && one["status"] == "True")
    });
}

/// The ports that are attacked; the controller's is the last.
fn ports(kubectl: &Kubectl) -> Vec<Port> {
    let of = |what, namespace, selector, port| {
        let pod = pods(kubectl, namespace, selector).swap_remove(0);
        Port::of(kubectl, what, namespace, &pod, port)
    };
    let gateway = "gateway.networking.k8s.io/gateway-name=web";
    vec![
        of("sidecar", "shop", "app=details", PROXY),
        of("another sidecar", "shop", "app=ratings", PROXY),
        of("Gateway", "edge", gateway, PROXY),
        of(
            "ProxyService",
            "shop",
            "maglor.dev/proxy-service=details",
            PROXY,
        ),
        of(
            "controller",
            "maglor",
            "app.kubernetes.io/name=maglor-controller",
            CONTROLLER,
        ),
    ]
}

/// Pods that are ready and stay.
fn pods(kubectl: &Kubectl, namespace: &str, selector: &str) -> Vec<Value> {
    let mut ready = Vec::new();
    until(&format!("pods {selector} are ready"), || {
        let list = kubectl
            .json(&["get", "pods", "-n", namespace, "-l", selector])
            .unwrap();
        ready = list["items"].as_array().cloned().unwrap_or_default();
        ready.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let is_ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .into_iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        !ready.is_empty() && ready.iter().all(is_ready)
    });
    ready
}

/// All attempts from a pod without a sidecar, some from one with a sidecar and from the address of a node.
fn attacked(installed: &Installed, port: &Port) -> Vec<String> {
    let (all, some) = (attempts::all(port), attempts::some(port));
    println!("{}: {} attempts from another pod", port.what, all.len());
    let to = port.address;
    let make = move |attempts: Vec<Attempt>| {
        let failed = attempts.iter().filter_map(|one| one.fails(to));
        failed.collect::<Vec<_>>()
    };
    let cluster = &installed.cluster;
    let elsewhere = some.clone();
    let failed = [
        cluster
            .in_pod("attacker", "attacker", move || make(all))
            .unwrap(),
        cluster.in_network(move || make(elsewhere)).unwrap(),
    ];
    let failed = failed.concat().into_iter();
    failed.map(|why| format!("{}: {why}", port.what)).collect()
}

/// Through the listeners of proxies, and from behind a sidecar.
fn through_data_ports(installed: &Installed, ports: &[Port]) -> Vec<String> {
    let kubectl = installed.kubectl();
    let [details, ratings, gateway, service, _] = ports else {
        panic!("five ports");
    };
    let at = |port: &Port, number| SocketAddr::new(port.address.ip(), number);
    own_slice(kubectl, &gateway.address.ip());
    let listener = at(gateway, 80);
    until("requests pass the Gateway", || {
        let get = move || load::get(listener, "details.example");
        installed.cluster.in_network(get).unwrap() == Some(200)
    });
    let make = |pod: (&str, &str), ways: Vec<Way>| {
        println!("{} attempts through data ports from {}", ways.len(), pod.1);
        let made = move || {
            let failed = ways
                .iter()
                .filter_map(|(to, attempt)| Some(format!("{to}: {}", attempt.fails(*to)?)));
            failed.collect::<Vec<_>>()
        };
        installed.cluster.in_pod(pod.0, pod.1, made).unwrap()
    };
    // At its own address only its public pages are available.
    let mut ways = vec![(listener, attempts::leads_there("own.example"))];
    ways.extend(data_ports::through_proxy(listener, gateway));
    // The port of the Service has a name, so the proxies choose the number.
    ways.extend(data_ports::through_proxy(at(service, 20_000), service));
    ways.extend(data_ports::through_sidecar(details));
    let own = data_ports::through_own_sidecar(&TO_ADMIN_PORTS, ports);
    [
        make(("attacker", "attacker"), ways),
        make(("shop", &ratings.pod), own),
    ]
    .concat()
}

/// Makes the Gateway's own pod an endpoint behind it.
fn own_slice(kubectl: &Kubectl, gateway: &IpAddr) {
    let slice = |address: &str| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: own, namespace: edge, labels: {{kubernetes.io/service-name: own}}}}, \
             endpoints: [{{addresses: ['{address}'], conditions: {{ready: true}}}}], \
             ports: [{{name: http, port: 15020, protocol: TCP}}]}}"
        )
    };
    assert!(
        kubectl.apply(&slice("127.0.0.1")).is_err(),
        "Kubernetes refuses loopback itself"
    );
    kubectl.apply(&slice(&gateway.to_string())).unwrap();
}

/// A user with the right to the subresource `proxy` of pods can have the API server send the request.
fn through_api_server(kubectl: &Kubectl, ports: &[Port]) -> Vec<String> {
    let mut failed = Vec::new();
    for port in ports {
        let pod = format!(
            "/api/v1/namespaces/{}/pods/{}:{}/proxy",
            port.namespace,
            port.pod,
            port.address.port()
        );
        let get = |path: &str| kubectl.run(&["get", "--raw", &format!("{pod}{path}")]);
        if let Err(error) = get("/ready") {
            failed.push(format!(
                "{}: /ready through the API server: {error}",
                port.what
            ));
        }
        for path in &port.private {
            if let Ok(page) = get(path) {
                failed.push(format!(
                    "{}: {path} through the API server: {page:.300}",
                    port.what
                ));
            }
        }
    }
    failed
}

/// The pages of the controller's admin port on its other ports, by TLS and in plain text: those for other replicas
/// are there, for clients that prove to be one.
fn other_ports_of_controllers(installed: &Installed, controller: &Port) -> Vec<String> {
    let ip = controller.address.ip();
    let mut pages = controller.private.clone();
    pages.extend(["/graph?parts", "/shared", "/graph?proxies"].map(str::to_owned));
    let ask = move || {
        let mut failed = Vec::new();
        for port in CONTROLLERS {
            for page in &pages {
                for (scheme, version) in [
                    ("https", "--http1.1"),
                    ("https", "--http2"),
                    ("http", "--http1.1"),
                    ("http", "--http2-prior-knowledge"),
                ] {
                    let url = format!("{scheme}://{ip}:{port}{page}");
                    failed.extend(answered(&url, version));
                }
            }
        }
        failed
    };
    installed
        .cluster
        .in_pod("attacker", "attacker", ask)
        .unwrap()
}

/// The content of a successful page, by curl. A gRPC response has its error in a header field, and no body.
fn answered(url: &str, version: &str) -> Option<String> {
    let output = Command::new("curl")
        .args([
            "-sk",
            "--max-time",
            "10",
            "-o",
            "/dev/null",
            "-H",
            "host: localhost",
        ])
        .args([
            "-w",
            "%{http_code} %{size_download} %header{grpc-status}",
            version,
            url,
        ])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let words: Vec<_> = text.split_whitespace().collect();
    let status: u16 = words[0].parse().unwrap();
    let refused = match words[1..] {
        ["0", grpc] => grpc != "0",
        _ => status == 0 || status >= 400,
    };
    (!refused).then(|| format!("{url} {version}: {text}"))
}

/// Nothing has changed, and an operator, over loopback, still gets all pages; but no website
/// that a browser there shows does.
fn untouched(installed: &Installed, ports: &[Port]) {
    for port in ports {
        let forward = installed
            .kubectl()
            .forward(port.namespace, &port.pod, port.address.port())
            .unwrap();
        if port.address.port() == PROXY {
            assert_eq!(
                forward.get("/logging").unwrap().trim(),
                "info",
                "{}",
                port.what
            );
        }
        let ready = forward.get("/ready").unwrap();
        assert!(ready.starts_with("ready"), "{}: {ready}", port.what);
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port.address.port()));
        let attempts = attempts::over_loopback(port);
        let made = move || {
            attempts
                .iter()
                .filter_map(|one| one.fails(loopback))
                .collect::<Vec<_>>()
        };
        let failed = installed
            .cluster
            .in_pod(port.namespace, &port.pod, made)
            .unwrap();
        assert!(failed.is_empty(), "{}:\n{}", port.what, failed.join("\n"));
    }
}
