//! A Gateway on a real cluster: its proxies come, requests pass to pods with sidecars in strict mode, and ports,
//! certificates and routes change under load without another pod.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use maglor_testkit::cluster::{Kubectl, gateway_definitions};
use serde_json::Value;

use crate::support::installed::{Installed, until};
use crate::support::load::{self, Load};

const BOOKINFO: &str = include_str!("mesh/bookinfo.yaml");
const SERVICE: &str = include_str!("mesh/service.yaml");

const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {maglor.dev/inject: enabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: edge}
---
apiVersion: maglor.dev/v1alpha1
kind: MeshConfig
metadata: {name: default}
spec: {mtls: strict}
";

const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: details, namespace: shop}
spec:
  parentRefs: [{name: web, namespace: edge}]
  hostnames: [details.example, users]
  rules:
  - backendRefs: [{name: details, port: 9080}]
  - matches: [{path: {type: Exact, value: /direct}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /api/v1}}}]
    backendRefs: [{name: details, port: 9080}]
";

const OTHER_CLASS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: maglor.dev/gateway}
";

/// Requests a second while listeners change.
const RATE: u32 = 100;

fn gateway(more: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: web, namespace: edge}}, \
         spec: {{gatewayClassName: maglor, listeners: [{{name: http, port: 80, protocol: HTTP, \
         allowedRoutes: {{namespaces: {{from: All}}}}}}{more}]}}}}"
    )
}

/// Whether a condition of a resource holds.
fn holds(kubectl: &Kubectl, resource: &[&str], kind: &str) -> bool {
    let words = [&["get"], resource].concat();
    let found = kubectl.json(&words).unwrap_or_default();
    let conditions = found["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

fn pods(kubectl: &Kubectl) -> Vec<(String, Ipv4Addr)> {
    let label = "gateway.networking.k8s.io/gateway-name=web";
    let found = kubectl.json(&["get", "pods", "-n", "edge", "-l", label]);
    let pods = found.unwrap()["items"].as_array().cloned();
    let pod = |pod: &Value| {
        let name = pod["metadata"]["name"].as_str()?.to_owned();
        Some((name, pod["status"]["podIP"].as_str()?.parse().ok()?))
    };
    pods.iter().flatten().filter_map(pod).collect()
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn a_gateway_is_served() {
    let Some(installed) = Installed::start(
        "gateway",
        &["gateway.enabled=true,gateway.allCertificates=true"],
    ) else {
        return;
    };
    let kubectl = &installed.kubectl().clone();
    for definition in gateway_definitions().unwrap() {
        kubectl.apply(&definition).unwrap();
    }
    kubectl.apply(NAMESPACES).unwrap();
    kubectl.apply(BOOKINFO).unwrap();
    let details = SERVICE.replace("NAME", "details");
    let details = details.replace("ADDRESS", "10.96.0.101");
    kubectl.apply(&details.replace("REPLICAS", "2")).unwrap();
    until("the class is there", || {
        holds(kubectl, &["gatewayclass", "maglor"], "Accepted")
    });
    kubectl.apply(&gateway("")).unwrap();
    kubectl.apply(ROUTE).unwrap();
    let web = ["gateway", "web", "-n", "edge"];
    until("it is programmed", || holds(kubectl, &web, "Programmed"));
    until("it has two proxies", || pods(kubectl).len() == 2);
    let before = pods(kubectl);
    let pod = before[0].1;
    survives_a_drain(kubectl, before.len());
    let get = |port: u16, host: &'static str| {
        let ask = move || load::get(SocketAddr::from((pod, port)), host);
        installed.cluster.in_network(ask).unwrap()
    };
    until("requests pass", || get(80, "details.example") == Some(200));
    assert_eq!(get(80, "other.example"), Some(404));

    changes_reach_it_under_load(&installed, pod, &get);
    assert_eq!(pods(kubectl), before, "nothing restarts a pod");
    kubectl.apply(OTHER_CLASS).unwrap();
    let moved = gateway("").replace("gatewayClassName: maglor", "gatewayClassName: other");
    kubectl.apply(&moved).unwrap();
    until("what the former class had made goes", || {
        let pods = pods(kubectl);
        !pods.is_empty() && pods.iter().all(|(name, _)| name.starts_with("web-other-"))
    });
    kubectl
        .run(&["delete", "gateway", "web", "-n", "edge"])
        .unwrap();
    until("what was made for it goes", || pods(kubectl).is_empty());
    installed.stop();
}

/// Its proxies are on different nodes, a drain may take one at a time, and scaling is not undone.
fn survives_a_drain(kubectl: &Kubectl, count: usize) {
    let label = "gateway.networking.k8s.io/gateway-name=web";
    let words = ["get", "pods", "-n", "edge", "-l", label, "-o"];
    let nodes = [&words[..], &["jsonpath={.items[*].spec.nodeName}"]].concat();
    let nodes = kubectl.run(&nodes).unwrap();
    let different: std::collections::BTreeSet<_> = nodes.split_whitespace().collect();
    assert_eq!(different.len(), count, "{nodes}");
    until("a drain may take one of them", || {
        let budget = kubectl.json(&["get", "pdb", "web-maglor", "-n", "edge"]);
        budget.is_ok_and(|budget| budget["status"]["disruptionsAllowed"] == 1)
    });
    let deployment = ["deployment/web-maglor", "-n", "edge"];
    let scale = |replicas: &str| {
        let words = [&["scale", replicas], &deployment[..]].concat();
        kubectl.run(&words).unwrap();
    };
    scale("--replicas=3");
    // The operator restores its objects in that time.
    kubectl.apply(&gateway("")).unwrap();
    until("it has three proxies", || pods(kubectl).len() == 3);
    scale("--replicas=2");
    until("it has two proxies again", || pods(kubectl).len() == count);
}

fn changes_reach_it_under_load(
    installed: &Installed,
    pod: Ipv4Addr,
    get: &dyn Fn(u16, &'static str) -> Option<u16>,
) {
    let kubectl = installed.kubectl();
    let load = Load::start(&installed.cluster, SocketAddr::from((pod, 80)), RATE);
    load.go_on(100);
    let more = ", {name: more, port: 8080, protocol: HTTP, hostname: '*.example', allowedRoutes: {namespaces: {from: All}}}, \
                {name: tls, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: web}]}, allowedRoutes: {namespaces: {from: All}}}";
    kubectl.apply(&gateway(more)).unwrap();
    until("another port is served", || {
        get(8080, "details.example") == Some(200)
    });
    kubectl.apply(&certificate("details.example")).unwrap();
    until("a certificate is shown", || {
        shown(installed, pod, "details.example").contains("details.example")
    });
    kubectl.apply(&certificate("new.example")).unwrap();
    until("another one is shown", || {
        shown(installed, pod, "details.example").contains("new.example")
    });
    let two = ROUTE.replace(
        "[details.example, users]",
        "[details.example, users, two.example]",
    );
    kubectl.apply(&two).unwrap();
    until("the route has another host", || {
        get(80, "two.example") == Some(200)
    });
    kubectl.apply(&gateway("")).unwrap();
    until("the port is gone", || {
        get(8080, "details.example").is_none()
    });
    load.go_on(100);
    let (sent, failed) = load.stop();
    println!("{} of {sent} requests failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

/// A Secret with a self-signed certificate for a name.
fn certificate(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let signed = params.self_signed(&key).unwrap();
    let indented = |text: String| text.replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: web, namespace: edge}}\n\
         stringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n",
        indented(signed.pem()),
        indented(key.serialize_pem()),
    )
}

/// The results of curl for a handshake, and for the request after it.
fn shown(installed: &Installed, pod: Ipv4Addr, host: &'static str) -> String {
    let ask = move || {
        let resolve = format!("{host}:443:{pod}");
        let url = format!("https://{host}/api/v1");
        let words = ["-skv", "--max-time", "5", "--resolve", &resolve, &url];
        let output = Command::new("curl").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let subject = text
            .lines()
            .filter(|line| line.contains("subject") || line.contains("HTTP/2 200"));
        subject.collect::<Vec<_>>().join("\n")
    };
    installed.cluster.in_network(ask).unwrap()
}
