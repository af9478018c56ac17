//! A Gateway without Kubernetes: the real controller over a folder, the real proxy that serves the Gateway, and
//! pods with sidecars behind it. Changes of the folder take effect in the proxy without a restart.

use std::net::{SocketAddr, TcpListener, TcpStream};

use k8s_openapi::ByteString;
use maglor_testkit::{Authority, Load, RawHttp1, TIMEOUT, eventually};
use serde_json::json;

use crate::support::mesh::Mesh;

const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: web}]
  hostnames: [cart.example, localhost]
  rules: [{backendRefs: [{name: cart, port: 80}]}]
";

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

fn gateway(mesh: &Mesh, listeners: &str) {
    mesh.put(
        "gateway",
        &format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: web, namespace: shop}}, \
             spec: {{gatewayClassName: maglor, listeners: [{listeners}]}}}}"
        ),
    );
}

fn http(address: SocketAddr) -> String {
    let port = address.port();
    format!("{{name: http-{port}, port: {port}, protocol: HTTP}}")
}

/// A Secret with a certificate of an authority.
fn certificate(mesh: &Mesh, authority: &Authority) {
    let identity = authority.issue(&["localhost"]);
    let data = |file| json!(ByteString(std::fs::read(file).unwrap()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "web", "namespace": "shop"},
        "data": {"tls.crt": data(&identity.cert_file), "tls.key": data(&identity.key_file)},
    });
    mesh.put("secret", &secret.to_string());
}

fn status(address: SocketAddr, host: &str) -> Option<u16> {
    let socket = TcpStream::connect(address).ok()?;
    let mut client = RawHttp1::try_over(socket)?;
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    client.connection().send(&request).ok()?;
    Some(client.try_response("GET").ok()?.status)
}

/// The status of a TLS request; 0 if the authority does not verify the server.
fn status_by_tls(address: SocketAddr, authority: &Authority) -> u16 {
    let config = authority.client_config(None, &["http/1.1"]);
    let ask = move || {
        let mut client = RawHttp1::connect_tls(address, "localhost", config);
        client
            .request("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .status
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).unwrap_or(0)
}

#[test]
fn ports_certificates_and_routes_change_without_a_restart() {
    let Some(mesh) = Mesh::start() else {
        return;
    };
    mesh.mtls("strict");
    mesh.service("cart", "10.96.0.10");
    let cart = mesh.pod("cart-0", "cart");
    mesh.endpoint("cart", &cart.name, cart.inbound(), "");
    mesh.put(
        "class",
        "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: maglor}, \
         spec: {controllerName: maglor.dev/gateway}}",
    );
    mesh.put("route", ROUTE);
    let (first, second, tls) = (free(), free(), free());
    gateway(&mesh, &http(first));
    let proxy = mesh.gateway();
    // The pods are strict: the Gateway uses mutual TLS to them.
    eventually(TIMEOUT, "requests pass", || {
        status(first, "cart.example") == Some(200)
    });
    assert_eq!(status(first, "other.example"), Some(404));
    assert_eq!(status(second, "cart.example"), None);

    let load = Load::start(first, 2, "GET / HTTP/1.1\r\nhost: cart.example\r\n\r\n");
    load.wait_for(50);
    let port = tls.port();
    let https = format!(
        "{{name: tls, port: {port}, protocol: HTTPS, hostname: localhost, tls: {{certificateRefs: [{{name: web}}]}}}}"
    );
    gateway(&mesh, &[http(first), http(second), https].join(", "));
    eventually(TIMEOUT, "another port is served", || {
        status(second, "cart.example") == Some(200)
    });
    let (old, new) = (Authority::new(), Authority::new());
    for authority in [&old, &new] {
        certificate(&mesh, authority);
        eventually(TIMEOUT, "the certificate is shown", || {
            status_by_tls(tls, authority) == 200
        });
    }
    assert_eq!(status_by_tls(tls, &old), 0);
    // Keys are in no configuration, and one certificate is kept.
    assert!(!proxy.admin_get("/config").text().contains("PRIVATE KEY"));
    mesh.put(
        "route",
        &ROUTE.replace("cart.example", "cart.example, new.example"),
    );
    eventually(TIMEOUT, "the route is for another host", || {
        status(second, "new.example") == Some(200)
    });
    mesh.put("route", ROUTE);
    eventually(TIMEOUT, "and back", || {
        status(second, "cart.example") == Some(200)
    });
    gateway(&mesh, &http(first));
    eventually(TIMEOUT, "ports go", || {
        status(second, "cart.example").is_none() && status(tls, "localhost").is_none()
    });
    load.wait_for(50);
    println!("{} requests, none failed", load.stop());
}
