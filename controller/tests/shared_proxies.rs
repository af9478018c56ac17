//! Proxies that Services share, without Kubernetes: the real controller over a folder, a real proxy that gets its
//! ports, and pods with sidecars before and behind it. Services join and leave without a restart, and no request of
//! another one fails; the pods get the callers' identities as without proxies.

use std::net::{SocketAddr, TcpListener, TcpStream};

use maglor_testkit::{RawHttp1, TIMEOUT, eventually};
use serde_json::json;

use crate::support::mesh::{Mesh, Pod};

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// The target Service of a Service's pods; `shared`: its port at the shared proxies.
fn target(mesh: &Mesh, service: &str, address: &str, shared: Option<SocketAddr>) {
    let ports = shared.map(|at| format!("maglor.dev/proxy-ports: 80={}, ", at.port()));
    let ports = ports.unwrap_or_default();
    mesh.put(
        &format!("service-{service}-target"),
        &format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {service}-target, namespace: shop, \
             labels: {{maglor.dev/proxy-service: {service}, maglor.dev/proxy-group: low}}, \
             annotations: {{{ports}maglor.dev/proxy-account: low-proxy-group}}}}, \
             spec: {{clusterIP: {address}, selector: {{app: {service}}}, ports: [{{name: http, port: 80}}]}}}}"
        ),
    );
}

/// A Service with a pod, before there are proxies.
fn service(mesh: &Mesh, name: &str, last: u8) -> Pod {
    mesh.service(name, &format!("10.96.0.{last}"));
    let pod = mesh.pod(&format!("{name}-0"), name);
    mesh.endpoint(name, &pod.name, pod.inbound(), "");
    pod
}

/// Puts the proxy in front of a Service, as the operator would; it listens before clients are sent there.
fn join(mesh: &Mesh, pod: &Pod, service: &str, last: u8, at: SocketAddr) {
    mesh.endpoint(&format!("{service}-target"), &pod.name, pod.inbound(), "");
    target(mesh, service, &format!("10.96.1.{last}"), Some(at));
    eventually(TIMEOUT, "the proxy says that it listens", || {
        listens(mesh, at)
    });
    mesh.without_endpoint(service, &pod.name);
    mesh.endpoint(service, "low-1", at, "");
}

/// Whether the proxy has acknowledged that it listens there.
fn listens(mesh: &Mesh, at: SocketAddr) -> bool {
    let shared = mesh.admin("/shared");
    let proxies = shared.as_array().unwrap().iter();
    let mut of_it = proxies.filter(|one| one["proxy"] == "shop/low-1");
    of_it.any(|one| one["ports"].as_array().unwrap().contains(&json!(at.port())))
}

#[test]
fn services_join_and_leave_without_a_restart() {
    let Some(mesh) = Mesh::start() else {
        return;
    };
    mesh.mtls("strict");
    let rules = "{selector: {matchLabels: {app: cart}}, \
                 rules: [{from: [{identities: ['spiffe://mesh.test/ns/shop/sa/web']}]}]}";
    mesh.policy("AuthorizationPolicy", "cart", rules);
    let (cart, ratings) = (service(&mesh, "cart", 10), service(&mesh, "ratings", 11));
    let (web, bank) = (mesh.pod("web-0", "web"), mesh.pod("bank-0", "bank"));
    for called in ["cart", "ratings"] {
        web.reaches(called);
    }
    let (first, second) = (free(), free());
    let proxy = mesh.shared_proxy();
    assert_eq!(
        mesh.admin("/shared"),
        json!([]),
        "there is nothing to share yet"
    );
    let load = web.load("cart", 2);
    join(&mesh, &cart, "cart", 10, first);
    eventually(TIMEOUT, "requests pass through it", || {
        passed(&proxy, first) > 0
    });
    load.wait_for(50);
    assert_eq!(web.get("cart", "/"), (200, "cart-0".to_owned()));
    // The rules apply to the callers, not to the proxy.
    eventually(TIMEOUT, "who may not call is refused", || {
        bank.get("cart", "/").0 == 403
    });
    let mut outsider = RawHttp1::connect(first);
    let request = "GET / HTTP/1.1\r\nhost: cart\r\n\r\n";
    let answer = outsider.connection().send(request).ok();
    assert!(
        answer.is_none() || outsider.try_response("GET").is_err(),
        "it is strict"
    );

    join(&mesh, &ratings, "ratings", 11, second);
    eventually(TIMEOUT, "both pass", || {
        web.get("ratings", "/") == (200, "ratings-0".to_owned()) && passed(&proxy, second) > 0
    });
    assert_eq!(bank.get("ratings", "/").0, 200);
    load.wait_for(50);

    mesh.without_endpoint("ratings", "low-1");
    mesh.endpoint("ratings", &ratings.name, ratings.inbound(), "");
    target(&mesh, "ratings", "10.96.1.11", None);
    eventually(TIMEOUT, "the port is closed", || {
        TcpStream::connect(second).is_err() && !listens(&mesh, second)
    });
    assert_eq!(web.get("ratings", "/"), (200, "ratings-0".to_owned()));
    load.wait_for(50);
    println!("{} requests of the other, none failed", load.stop());
    assert_eq!(proxy.admin_get("/ready").status, 200);
}

/// Requests that came to a port of the proxy.
fn passed(proxy: &maglor_testkit::Proxy, at: SocketAddr) -> u64 {
    let response = proxy.admin_get("/metrics");
    let metrics = response.text();
    let listener = format!("listener=\"{}\"", at.port());
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("maglor_http_requests_total{") && line.contains(&listener));
    let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    counts.sum::<f64>() as u64
}
