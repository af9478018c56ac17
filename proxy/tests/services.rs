//! A sidecar's handling of declared services, of the ports of its application, and of workload settings from
//! the control plane. Without redirection, so the PROXY protocol provides the original destinations.

use std::net::SocketAddr;

use maglor_testkit::{Answer, Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::control_plane::ControlPlane;
use crate::support::{reload, start};

/// Bytes that are not HTTP, which [`echo`] returns.
const BYTES: &str = "HELO a b\r\n";

/// Starts a server that echoes each line.
fn echo() -> RawServer {
    RawServer::start(|connection, _| {
        loop {
            let line = connection.read_until(b"\n")?;
            connection.send(line)?;
        }
    })
}

/// Returns a connection with this port of `10.0.0.1` as its original destination.
fn to_port(proxy: &Proxy, port: u16) -> RawHttp1 {
    let mut client = RawHttp1::connect(proxy.listener("sidecar"));
    client.send(format!("PROXY TCP4 192.0.2.1 10.0.0.1 1234 {port}\r\n"));
    client
}

/// Returns whether bytes pass unchanged; with HTTP they are a bad request, or get no answer.
fn are_bytes(mut client: RawHttp1) -> bool {
    client.send(BYTES);
    let line = client.connection().read_until(b"\n");
    line.is_ok_and(|line| line == BYTES.as_bytes())
}

/// Starts a sidecar of services with these settings. The first is at port 1 of `10.0.0.1`, the next at port
/// 2, and so on.
fn outbound(services: &[&str], endpoint: SocketAddr) -> Proxy {
    let service = |(at, settings): (usize, &&str)| {
        let port = at + 1;
        format!("    - {{name: s{port}, addresses: ['10.0.0.1:{port}'], cluster: c{settings}}}\n")
    };
    let services: String = services.iter().enumerate().map(service).collect();
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\noutbound_grace: 0s\nlisteners:\n- name: sidecar\n  address: 127.0.0.1:0\n  \
         proxy_protocol: require\n  outbound:\n    unknown: refuse\n    services:\n{services}clusters:\n\
         - {{name: c, outlier_ejection: {{enabled: false}}, endpoints: ['{endpoint}']}}\n"
    ))
}

#[test]
fn a_service_has_its_own_time_and_retries_and_its_name_in_metrics() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|request| {
        // The first attempt at this path fails.
        let again = request.header("x-envoy-attempt-count") == Some("2");
        (request.uri.path() == "/again" && !again).then(|| Answer::status(503))
    });
    let services = ["", ", timeout: 200ms", ", retry: 5xx"];
    let proxy = outbound(&services, upstream.address());
    let ask = |port: u16, path: &str| to_port(&proxy, port).get(path).status;
    assert_eq!([1, 2].map(|port| ask(port, "/delay/600ms")), [200, 504]);
    assert_eq!([1, 3].map(|port| ask(port, "/again")), [503, 200]);
    for (name, requests) in [("s1", 2.0), ("s2", 1.0), ("s3", 1.0)] {
        let route = format!("route=\"{name}\"");
        proxy.expect_metric("maglor_http_requests_total", &[&route], requests);
    }
}

#[test]
fn a_service_speaks_the_declared_protocol() {
    let server = echo();
    let services = ["", ", protocol: tcp", ", protocol: http"];
    let proxy = outbound(&services, server.address());
    let bytes = [1, 2, 3].map(|port| are_bytes(to_port(&proxy, port)));
    assert_eq!(bytes, [true, true, false]);
    let request = "GET / HTTP/1.1\r\n";
    // If the service is declared as TCP, bytes that look like HTTP are not parsed, either.
    let mut client = to_port(&proxy, 2);
    client.send(request);
    client.connection().expect(request).unwrap();
}

/// Starts a sidecar before an application, whose ports are those of the original destinations.
fn inbound(settings: &str) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: sidecar\n  address: 127.0.0.1:0\n  \
         proxy_protocol: require\n  inbound: {{{settings}}}\n"
    ))
}

#[test]
fn ports_of_the_application_speak_what_is_declared() {
    let (one, other) = (echo(), echo());
    let port = one.address().port();
    for (settings, expected) in [
        (String::new(), [true, true]),
        ("protocol: http".to_owned(), [false, false]),
        ("protocol: tcp".to_owned(), [true, true]),
        (
            format!("protocol: http, ports: {{{port}: tcp}}"),
            [true, false],
        ),
        (
            format!("ports: {{{port}: {{protocol: http}}}}"),
            [false, true],
        ),
    ] {
        let proxy = inbound(&settings);
        let bytes = [&one, &other].map(|server| {
            let port = server.address().port();
            are_bytes(to_port(&proxy, port))
        });
        assert_eq!(bytes, expected, "{settings}");
    }
}

#[test]
fn a_port_of_the_application_says_how_busy_it_is_where_that_is_asked_for() {
    let application = Upstream::start("a");
    let port = application.address().port();
    for (reports, expected) in [
        ("", None),
        (
            ", load_reports: {orca: true}",
            Some("TEXT named_metrics.in_flight=1"),
        ),
    ] {
        let proxy = inbound(&format!("ports: {{{port}: {{protocol: http{reports}}}}}"));
        let response = to_port(&proxy, port).get("/");
        let report = response.header("endpoint-load-metrics");
        assert_eq!((response.status, report), (200, expected), "{reports}");
    }
}

#[test]
fn the_rules_of_a_workload_hold_at_a_listener_of_its_own() {
    let (control, upstream) = (ControlPlane::start(), Upstream::start("a"));
    let yaml = |workload: &str| {
        format!(
            "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: shop/cart-1}}}}
listeners:
- name: sidecar
  address: 127.0.0.1:0
  {workload}
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a}}]}}]}}
clusters:
- {{name: control, endpoints: ['{}']}}
- {{name: a, endpoints: ['{}']}}
",
            control.address,
            upstream.address()
        )
    };
    let rule = "{authorization: {rules: [{name: closed, action: deny, to: [{paths: /secret}]}]}}";
    control.inbound("shop/cart-1", rule);
    let proxy = start(&yaml("workload: shop/cart-1"));
    let ask = |path: &str| {
        let mut client = RawHttp1::connect(proxy.listener("sidecar"));
        client.get(path).status
    };
    eventually(TIMEOUT, "the rules are known", || ask("/secret") == 403);
    assert_eq!(ask("/"), 200);
    reload(&proxy, &yaml("max_connections: 100"));
    assert_eq!(ask("/secret"), 200, "of no workload");
}
