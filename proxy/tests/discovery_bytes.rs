//! Connections by original destination: bytes, and HTTP whose host is no help. There is no redirection, so the
//! PROXY protocol carries the original destination.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use maglor_testkit::{Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};
use maglor_xds::{Kind, Listener, encode};

use crate::support::control_plane::{ControlPlane, cluster_of};
use crate::support::mesh::{Root, id};
use crate::support::start;

fn sidecar(control: SocketAddr, settings: &str, discovery: &str) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
outbound_grace: 0s
control_plane: {{cluster: control, node: {{id: shop/web-1}}}}
{settings}
listeners:
- name: out
  address: 127.0.0.1:0
  proxy_protocol: require
  detection_timeout: 300ms
  outbound: {{discovery: {{namespace: shop, {discovery}}}}}
clusters:
- {{name: control, endpoints: ['{control}']}}
"
    ))
}

/// Opens a connection with the original destination `to`.
fn connect(proxy: &Proxy, to: &str) -> RawHttp1 {
    let to: SocketAddr = to.parse().unwrap();
    let mut client = RawHttp1::connect(proxy.listener("out"));
    client.send(format!(
        "PROXY TCP4 192.0.2.1 {} 1234 {}\r\n",
        to.ip(),
        to.port()
    ));
    client
}

/// A server that sends first, and then sends back what it gets.
fn greeter() -> RawServer {
    RawServer::start(|connection, _| {
        connection.send("220 ready\r\n")?;
        loop {
            let line = connection.read_until(b"\n")?;
            connection.send(line)?;
        }
    })
}

#[test]
fn bytes_go_to_the_service_of_the_address() {
    let (control, server) = (ControlPlane::start(), greeter());
    control.serve_bytes("10.96.0.20:5432", "database", &[server.address()]);
    let proxy = sidecar(control.address, "", "timeout: 5s");
    let began = Instant::now();
    let mut client = connect(&proxy, "10.96.0.20:5432");
    client.connection().expect("220 ready\r\n").unwrap();
    assert!(
        began.elapsed() < Duration::from_millis(300),
        "no wait for a declared protocol"
    );
    client.send("SELECT 1\n");
    client.connection().expect("SELECT 1\n").unwrap();
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 1.0);
    let database = |name| proxy.metric(name, &["cluster=\"database\""]);
    assert_eq!(database("maglor_upstream_request_bytes_total"), 9.0);
    assert_eq!(database("maglor_upstream_response_bytes_total"), 20.0);
    let silent = proxy.metric(
        "maglor_downstream_protocol_detected_total",
        &["protocol=\"silent\""],
    );
    assert_eq!(silent, 0.0);
}

#[test]
fn unknown_destinations_are_forwarded_unchanged() {
    let (control, server, upstream) = (ControlPlane::start(), greeter(), Upstream::start("far"));
    let proxy = sidecar(control.address, "", "timeout: 5s");
    let mut client = connect(&proxy, &server.address().to_string());
    client.connection().expect("220 ready\r\n").unwrap();
    let mut client = connect(&proxy, &upstream.address().to_string());
    assert_eq!(client.get("/").text(), "far");
    // Without a control plane, too, after the timeout of a discovery.
    drop(control);
    let other = greeter();
    let proxy = sidecar("127.0.0.1:1".parse().unwrap(), "", "timeout: 200ms");
    let began = Instant::now();
    let mut client = connect(&proxy, &other.address().to_string());
    client.connection().expect("220 ready\r\n").unwrap();
    let took = began.elapsed();
    // The default is five seconds.
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(
        connect(&proxy, &upstream.address().to_string())
            .get("/")
            .text(),
        "far"
    );
    // When it is unavailable for long, requests do not wait for it.
    let proxy = sidecar("127.0.0.1:1".parse().unwrap(), "", "timeout: 1s");
    let took = || {
        let began = Instant::now();
        let mut client = connect(&proxy, &upstream.address().to_string());
        assert_eq!(client.get("/").text(), "far");
        began.elapsed()
    };
    eventually(TIMEOUT, "it is not waited for", || {
        took() < Duration::from_millis(500)
    });
}

#[test]
fn http_uses_the_address_before_the_host() {
    let control = ControlPlane::start();
    let (cart, reviews) = (Upstream::start("cart"), Upstream::start("reviews"));
    let (by_name, by_address) = ("cart.shop.svc.cluster.local:80", "10.96.0.17:80");
    control.serve(by_name, "cart", &[cart.address()]);
    control.serve(
        "reviews.shop.svc.cluster.local:80",
        "reviews",
        &[reviews.address()],
    );
    let http = Listener::Http {
        routes: by_name.to_owned(),
        bytes: None,
    };
    control.put(encode::listener(by_address, &http).unwrap());
    let proxy = sidecar(control.address, "", "timeout: 5s");
    let ask = |to: &str, host: &str| {
        let mut client = connect(&proxy, to);
        let response = client.request(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        (response.status, response.text().to_owned())
    };
    let ok = |name: &str| (200, name.to_owned());
    for host in ["cart", "10.96.0.17", "absent.example", "reviews"] {
        assert_eq!(ask(by_address, host), ok("cart"), "{host}");
    }
    // Nothing is known about this address: the host applies.
    assert_eq!(ask("192.0.2.7:80", "reviews"), ok("reviews"));
    control.remove(Kind::Listener, by_address);
    eventually(TIMEOUT, "by the host now", || {
        ask(by_address, "reviews") == ok("reviews")
    });
}

/// One address for both: HTTP uses its routes, anything else its cluster.
#[test]
fn an_address_may_be_for_both() {
    let (control, server, cart) = (ControlPlane::start(), greeter(), Upstream::start("cart"));
    let (name, address) = ("cart.shop.svc.cluster.local:80", "10.96.0.17:80");
    control.serve(name, "cart", &[cart.address()]);
    control.put(cluster_of("{name: other}"));
    control.assign("other", &[server.address()]);
    let both = Listener::Http {
        routes: name.to_owned(),
        bytes: Some("other".to_owned()),
    };
    control.put(encode::listener(address, &both).unwrap());
    let proxy = sidecar(control.address, "", "timeout: 5s");
    assert_eq!(connect(&proxy, address).get("/").text(), "cart");
    let mut client = connect(&proxy, address);
    client.send("EHLO a\n");
    client.connection().expect("220 ready\r\nEHLO a\n").unwrap();
}

/// A client that has chosen a pod reaches that pod, whose identity must be the expected one.
#[test]
fn bytes_are_sent_to_members_of_the_mesh_only() {
    let root = Root::new();
    let (control, server) = (ControlPlane::start(), greeter());
    let inbound = start(&format!(
        "{}
listeners:
- {{name: in, address: '127.0.0.1:0', tls: mesh, inbound: {{application: '{}', protocol: tcp}}}}
",
        root.member("database").yaml(),
        server.address()
    ));
    control.serve_bytes("10.1.2.3:5432", "pod", &[inbound.listener("in")]);
    let with = |account: &str| {
        let id = id(account);
        control.put(cluster_of(&format!(
            "{{name: pod, tls: {{mesh: {{identities: ['{id}']}}}}}}"
        )));
    };
    with("database");
    let proxy = sidecar(control.address, &root.member("web").yaml(), "timeout: 5s");
    let mut client = connect(&proxy, "10.1.2.3:5432");
    client.connection().expect("220 ready\r\n").unwrap();
    with("another-workload");
    let refused = || proxy.metric("maglor_upstream_mesh_refused_total", &["cluster=\"pod\""]);
    eventually(TIMEOUT, "the pod is not who it should be", || {
        let mut client = connect(&proxy, "10.1.2.3:5432");
        client.connection().expect("220 ready\r\n").is_err() && refused() > 0.0
    });
    client.send("still there\n");
    client.connection().expect("still there\n").unwrap();
}

#[test]
fn what_a_workload_is_expected_to_call_is_known_before_it_does() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("cart"));
    let target = "10.96.0.20:80";
    control.serve(target, "cart", &[upstream.address()]);
    control.inbound_ahead("shop/web-1", "{}", &[target.to_owned()]);
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
outbound_grace: 0s
control_plane: {{cluster: control, node: {{id: shop/web-1}}}}
listeners:
- name: in
  address: 127.0.0.1:0
  inbound: {{application: '127.0.0.1:1', discovery: shop/web-1}}
- name: out
  address: 127.0.0.1:0
  proxy_protocol: require
  outbound: {{discovery: {{namespace: shop, timeout: 1s}}}}
clusters:
- {{name: control, endpoints: ['{}']}}
",
        control.address
    ));
    eventually(TIMEOUT, "its endpoints are known", || {
        proxy.metric("maglor_upstream_endpoints", &["cluster=\"cart\""]) == 1.0
    });
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 0.0, "no calls");
    // A call now sends no request to the control plane.
    let _killed = control.kill();
    assert_eq!(connect(&proxy, target).get("/").text(), "cart");
    assert_eq!(proxy.metric("maglor_xds_targets", &[]), 1.0);
}

#[test]
fn what_is_not_called_any_more_is_forgotten() {
    let (control, server) = (ControlPlane::start(), greeter());
    control.serve_bytes("10.96.0.20:5432", "database", &[server.address()]);
    let proxy = sidecar(control.address, "", "timeout: 5s, idle_timeout: 1s");
    let mut client = connect(&proxy, "10.96.0.20:5432");
    client.connection().expect("220 ready\r\n").unwrap();
    eventually(TIMEOUT, "it is forgotten", || {
        proxy.metric("maglor_xds_targets", &[]) == 0.0
    });
    client.send("still there\n");
    client.connection().expect("still there\n").unwrap();
    let mut client = connect(&proxy, "10.96.0.20:5432");
    client.connection().expect("220 ready\r\n").unwrap();
}
