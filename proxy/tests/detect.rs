//! A connection's protocol and its original destination determine how it is handled. These tests need no
//! redirection, which requires root; for that see `redirect.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use maglor_testkit::{Authority, Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::h2::{self, Client};
use crate::support::{start, wait_quiet};

/// Timeout that a test would notice if it were waited for.
const LONG: &str = "5m";
/// Timeout that is short enough to wait for.
const SHORT: &str = "100ms";

/// Returns a listener `any`: HTTP is forwarded to `http`, bytes to `bytes`.
fn yaml(timeout: &str, http: SocketAddr, bytes: SocketAddr) -> String {
    format!(
        "admin: {{address: '127.0.0.1:0'}}
listeners:
- name: any
  address: 127.0.0.1:0
  detection_timeout: {timeout}
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: http}}]}}]}}
  tcp: {{cluster: bytes}}
clusters:
- {{name: http, protocol: downstream, endpoints: ['{http}']}}
- {{name: bytes, endpoints: ['{bytes}']}}
"
    )
}

/// Sends back everything, then ends the stream.
fn echo() -> RawServer {
    RawServer::start(|connection, _| {
        let all = connection.read_to_end()?;
        connection.send(all)?;
        connection.finish_sending()
    })
}

/// Sends a greeting, then expects an answer.
fn greeter() -> RawServer {
    RawServer::start(|connection, _| {
        connection.send("220 ready\r\n")?;
        connection.expect("QUIT\r\n")
    })
}

fn connect(proxy: &Proxy) -> RawHttp1 {
    RawHttp1::connect(proxy.listener("any"))
}

#[track_caller]
fn detected(proxy: &Proxy, protocol: &str) -> f64 {
    let label = format!("protocol=\"{protocol}\"");
    proxy.metric("maglor_downstream_protocol_detected_total", &[&label])
}

#[test]
fn http_is_routed_in_each_version_and_in_any_pieces() {
    let upstream = Upstream::start("a");
    let proxy = start(&yaml(LONG, upstream.address(), echo().address()));
    assert_eq!(connect(&proxy).get("/").text(), "a");
    let mut pieces = connect(&proxy);
    for part in [
        "\r",
        "\nG",
        "ET",
        " /ec",
        "ho HT",
        "TP/1.",
        "1\r\nhost: a\r\n",
        "\r\n",
    ] {
        pieces.send(part);
        std::thread::yield_now();
    }
    let response = pieces.response();
    assert_eq!(response.json()["method"], "GET");
    assert_eq!(pieces.get("/").text(), "a");
    let mut client = Client::connect(proxy.listener("any"));
    let sent = client.send(h2::get("/echo"));
    assert_eq!(client.run(sent).unwrap().status(), 200);
    assert_eq!(detected(&proxy, "http1"), 2.0);
    assert_eq!(detected(&proxy, "http2"), 1.0);
    // The client's version is also used to the application.
    let seen = upstream.recorded();
    assert!(
        seen.iter()
            .any(|request| request.version == http::Version::HTTP_2)
    );
    assert!(
        seen.iter()
            .any(|request| request.version == http::Version::HTTP_11)
    );
}

#[test]
fn everything_else_passes_as_it_is() {
    let (upstream, server) = (Upstream::start("a"), echo());
    let proxy = start(&yaml(LONG, upstream.address(), server.address()));
    for bytes in [
        "*1\r\n$4\r\nPING\r\n",
        "HELO a b\r\n",
        "GET key\r\n",
        "\0\u{1}\u{2}",
        "PRI * HTTP/3",
    ] {
        for step in [1, 100] {
            let mut client = connect(&proxy);
            for part in bytes.as_bytes().chunks(step) {
                client.send(part);
            }
            client.connection().finish_sending().unwrap();
            assert_eq!(client.connection().read_to_end().unwrap(), bytes.as_bytes());
        }
    }
    assert_eq!(detected(&proxy, "bytes"), 10.0);
    // A client that ends before its protocol is known, or without sending anything.
    for bytes in ["GE", "PRI * HT", ""] {
        let mut client = connect(&proxy);
        client.send(bytes);
        client.connection().finish_sending().unwrap();
        assert_eq!(client.connection().read_to_end().unwrap(), bytes.as_bytes());
    }
    assert_eq!(upstream.connections(), 0);
    wait_quiet(&proxy);
}

#[test]
fn a_tunnel_is_bytes_unless_there_are_routes_for_it() {
    let (upstream, server) = (Upstream::start("a"), echo());
    let plain = yaml(LONG, upstream.address(), server.address());
    let connect_line = "CONNECT a.example:443 HTTP/1.1\r\nhost: a.example:443\r\n\r\n";
    let proxy = start(&plain);
    let mut client = connect(&proxy);
    client.send(connect_line);
    client.connection().finish_sending().unwrap();
    let answer = client.connection().read_to_end().unwrap();
    assert_eq!(answer, connect_line.as_bytes());
    let routed = plain.replace("http: {virtual", "http: {allow_connect: true, virtual");
    let proxy = start(&routed.replace(
        "[{cluster: http}]",
        "[{match: {methods: [CONNECT]}, cluster: http}]",
    ));
    let mut client = connect(&proxy);
    client.send(connect_line);
    let head = client.connection().read_head().unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[test]
fn tls_passes_to_whom_it_is_for() {
    let authority = Authority::new();
    let certificate = authority.issue(&["a.example.com"]);
    let secure = Upstream::builder("secure")
        .tls(authority.server_config(&certificate, &["h2", "http/1.1"], false))
        .start();
    let proxy = start(&yaml(
        LONG,
        Upstream::start("plain").address(),
        secure.address(),
    ));
    let config = authority.client_config(None, &["http/1.1"]);
    let mut client = RawHttp1::connect_tls(proxy.listener("any"), "a.example.com", config);
    assert_eq!(client.get("/").text(), "secure");
    assert_eq!(detected(&proxy, "tls"), 1.0);
}

#[test]
fn a_client_that_waits_for_the_server_waits_for_the_deadline_only() {
    let (upstream, greeter) = (Upstream::start("a"), greeter());
    let proxy = start(&yaml(SHORT, upstream.address(), greeter.address()));
    let started = Instant::now();
    let mut client = connect(&proxy);
    client.connection().expect("220 ready\r\n").unwrap();
    assert!(started.elapsed() >= Duration::from_millis(100));
    client.send("QUIT\r\n");
    client.assert_closed();
    assert_eq!(detected(&proxy, "silent"), 1.0);
    // The client may have sent a beginning.
    let echo = echo();
    let proxy = start(&yaml(SHORT, Upstream::start("a").address(), echo.address()));
    let mut client = connect(&proxy);
    client.send("GET /");
    eventually(TIMEOUT, "the deadline is over", || {
        detected(&proxy, "bytes") == 1.0
    });
    client.send(" never ends");
    client.connection().finish_sending().unwrap();
    assert_eq!(
        client.connection().read_to_end().unwrap(),
        b"GET / never ends"
    );
}

/// The first connection waits for a timeout that is long enough to be noticed; the later ones do not.
#[test]
fn a_server_that_speaks_first_is_remembered() {
    let greeter = greeter();
    let upstream = Upstream::start("a");
    let proxy = start(&yaml("2s", upstream.address(), greeter.address()));
    let greeted = || {
        let started = Instant::now();
        let mut client = connect(&proxy);
        client.connection().expect("220 ready\r\n").unwrap();
        client.send("QUIT\r\n");
        client.assert_closed();
        started.elapsed()
    };
    assert!(greeted() >= Duration::from_secs(2));
    for _ in 0..3 {
        assert!(greeted() < Duration::from_secs(2));
    }
    assert_eq!(detected(&proxy, "silent"), 4.0);
}

/// Bytes that a server sends to a late client, or may send at once, are no greeting. A destination whose client
/// sends first after all is detected again.
#[test]
fn only_a_greeting_is_remembered() {
    let bytes: [&[u8]; 3] = [
        b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n",
        b"\0\0\0\x04\0\0\0\0\0",
        b"\x15\x03\x03\0\x02\x02\x28\0\0",
    ];
    for answer in bytes {
        let late = RawServer::start(move |connection, _| {
            connection.send(answer)?;
            connection.finish_sending()
        });
        let upstream = Upstream::start("a");
        let proxy = start(&yaml(SHORT, upstream.address(), late.address()));
        let mut silent = connect(&proxy);
        silent.connection().expect(answer).unwrap();
        drop(silent);
        assert_eq!(connect(&proxy).get("/").text(), "a");
        wait_quiet(&proxy);
    }
}

#[test]
fn a_client_that_speaks_first_is_read_again() {
    let both = RawServer::start(|connection, earlier| {
        if earlier == 0 {
            connection.send("220 ready\r\n")?;
        }
        connection.expect("QUIT\r\n")
    });
    let upstream = Upstream::start("a");
    let proxy = start(&yaml("1s", upstream.address(), both.address()));
    let mut first = connect(&proxy);
    first.connection().expect("220 ready\r\n").unwrap();
    first.send("QUIT\r\n");
    first.assert_closed();
    // Treated like another one that waits; it does not.
    let mut second = connect(&proxy);
    eventually(TIMEOUT, "it passes", || detected(&proxy, "silent") == 2.0);
    second.send("QUIT\r\n");
    second.assert_closed();
    assert_eq!(connect(&proxy).get("/").text(), "a");
}

#[test]
fn well_known_ports_of_servers_that_speak_first_are_not_waited_for() {
    let greeter = greeter();
    let yaml = yaml(LONG, Upstream::start("a").address(), greeter.address());
    let yaml = yaml.replace("  http:", "  proxy_protocol: require\n  http:");
    let proxy = start(&yaml);
    let mut client = connect(&proxy);
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 3306\r\n");
    client.connection().expect("220 ready\r\n").unwrap();
    let others = yaml.replace("  http:", "  server_first_ports: [7000]\n  http:");
    let proxy = start(&others);
    let mut client = connect(&proxy);
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 7000\r\n");
    client.connection().expect("220 ready\r\n").unwrap();
}

/// Returns chains by destination, one of which matches the server name.
fn by_destination(timeout: &str, greeter: SocketAddr, named: SocketAddr) -> String {
    format!(
        "admin: {{address: '127.0.0.1:0'}}
listeners:
- name: any
  address: 0.0.0.0:0
  detection_timeout: {timeout}
  filter_chains:
  - {{match: {{destination_networks: [127.0.0.2]}}, tcp: {{cluster: greeter}}}}
  - {{match: {{server_names: [a.example.com]}}, tcp: {{cluster: named}}}}
  - {{tcp: {{cluster: greeter}}}}
clusters:
- {{name: greeter, endpoints: ['{greeter}']}}
- {{name: named, endpoints: ['{named}']}}
"
    )
}

#[test]
fn a_declared_destination_is_not_waited_for() {
    let (greeter, other) = (greeter(), echo());
    let proxy = start(&by_destination(LONG, greeter.address(), other.address()));
    let port = proxy.listener("any").port();
    let declared = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
    let mut client = RawHttp1::connect(declared);
    client.connection().expect("220 ready\r\n").unwrap();
}

#[test]
fn server_names_do_not_hold_up_those_who_have_none() {
    let authority = Authority::new();
    let certificate = authority.issue(&["a.example.com"]);
    let secure = Upstream::builder("secure")
        .tls(authority.server_config(&certificate, &["http/1.1"], false))
        .start();
    let greeter = greeter();
    let proxy = start(&by_destination(SHORT, greeter.address(), secure.address()));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.listener("any").port()));
    let mut client = RawHttp1::connect(address);
    client.connection().expect("220 ready\r\n").unwrap();
    let config = authority.client_config(None, &["http/1.1"]);
    let mut client = RawHttp1::connect_tls(address, "a.example.com", config);
    assert_eq!(client.get("/").text(), "secure");
}

#[test]
fn server_names_do_not_stop_what_only_looks_like_tls_or_is_older_than_ours() {
    let (any, named) = (echo(), echo());
    let proxy = start(&by_destination(LONG, any.address(), named.address()));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.listener("any").port()));
    // A ClientHello of TLS 1.0 without extensions; another message; a record that does not end.
    let mut old = b"\x16\x03\x01\0\x2d\x01\0\0\x29\x03\x01".to_vec();
    old.extend([7; 32]);
    old.extend(b"\0\0\x02\0\x2f\x01\0");
    for bytes in [&old[..], b"\x16\x03\x01\0\x04\x02\0\0\0", b"\x16\x03 ends"] {
        let mut client = RawHttp1::connect(address);
        client.send(bytes);
        client.connection().finish_sending().unwrap();
        assert_eq!(client.connection().read_to_end().unwrap(), bytes);
    }
    assert_eq!(any.connections(), 3);
    assert_eq!(named.connections(), 0);
}

#[test]
fn a_connection_to_the_listener_itself_goes_nowhere() {
    let proxy = start(
        "admin: {address: '127.0.0.1:0'}
listeners:
- {name: any, address: '127.0.0.1:0', inbound: {}}
- {name: out, address: '127.0.0.1:0', outbound: {}}
",
    );
    for listener in ["any", "out"] {
        let mut client = RawHttp1::connect(proxy.listener(listener));
        assert_eq!(client.get("/").status, 503);
        let mut client = RawHttp1::connect(proxy.listener(listener));
        client.send("*1\r\n$4\r\nPING\r\n");
        client.assert_closed();
    }
    let refused = "maglor_downstream_connections_refused_total";
    assert_eq!(proxy.metric(refused, &["reason=\"no_upstream\""]), 2.0);
}

#[test]
fn tls_of_a_service_is_passed_on_by_its_name() {
    let authority = Authority::new();
    let certificate = authority.issue(&["vault.example.com", "other.example.com"]);
    let server = |name: &str| {
        let config = authority.server_config(&certificate, &["http/1.1"], false);
        Upstream::builder(name).tls(config).start()
    };
    let (vault, other) = (server("vault"), server("other"));
    let proxy = start(&format!(
        "listeners:
- name: out
  address: 127.0.0.1:0
  outbound: {{services: [
    {{name: vault, hosts: [vault.example.com], cluster: vault, protocol: tls}},
    {{name: other, hosts: ['*.example.com'], cluster: other, protocol: tls}}], unknown: refuse}}
clusters:
- {{name: vault, endpoints: ['{}']}}
- {{name: other, endpoints: ['{}']}}
",
        vault.address(),
        other.address()
    ));
    for name in ["vault", "other"] {
        let config = authority.client_config(None, &["http/1.1"]);
        let host = format!("{name}.example.com");
        let mut client = RawHttp1::connect_tls(proxy.listener("out"), &host, config);
        assert_eq!(client.get("/").text(), name);
    }
    // The rest matches no chain.
    let mut client = RawHttp1::connect(proxy.listener("out"));
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    client.assert_closed();
}

#[test]
fn the_proxy_protocol_says_where_a_connection_was_going() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let known = Upstream::start("known");
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
listeners:
- name: out
  address: 127.0.0.1:0
  proxy_protocol: require
  outbound:
    services:
    - {{name: known, addresses: ['10.0.0.5:80'], hosts: [known.example.com], cluster: known}}
    - {{name: only-http2, addresses: ['10.0.0.6:80'], cluster: known, protocol: http2}}
- name: closed
  address: 127.0.0.1:0
  proxy_protocol: require
  outbound: {{services: [{{name: known, addresses: ['10.0.0.5:80'], cluster: known}}], unknown: refuse}}
- name: in
  address: 127.0.0.1:0
  proxy_protocol: require
  inbound: {{ports: {{9: http}}}}
clusters:
- {{name: known, endpoints: ['{}']}}
",
        known.address()
    ));
    let to = |listener: &str, destination: &str, port: u16| {
        let mut client = RawHttp1::connect(proxy.listener(listener));
        let family = if destination.contains(':') {
            "TCP6 2001:db8::1"
        } else {
            "TCP4 192.0.2.1"
        };
        client.send(format!("PROXY {family} {destination} 1234 {port}\r\n"));
        client
    };
    let local = |upstream: &Upstream| upstream.address().port();
    assert_eq!(to("out", "127.0.0.1", local(&a)).get("/").text(), "a");
    assert_eq!(to("out", "127.0.0.1", local(&b)).get("/").text(), "b");
    assert_eq!(to("out", "10.0.0.5", 80).get("/").text(), "known");
    let named = "GET / HTTP/1.1\r\nhost: known.example.com:81\r\n\r\n";
    assert_eq!(to("out", "203.0.113.1", 81).request(named).text(), "known");
    assert_eq!(to("closed", "10.0.0.5", 80).get("/").text(), "known");
    assert_eq!(to("closed", "10.0.0.7", 80).get("/").status, 404);
    // The application is on the loopback address of the same family, at the same port.
    assert_eq!(to("in", "10.0.0.1", local(&a)).get("/").text(), "a");
    assert_eq!(to("in", "10.0.0.1", local(&b)).get("/").text(), "b");
    let v6 = Upstream::builder("v6")
        .address("[::1]:0".parse().unwrap())
        .start();
    assert_eq!(to("in", "2001:db8::2", local(&v6)).get("/").text(), "v6");
    // A connection is reused for the next request to the same destination.
    let mut again = to("in", "10.0.0.2", local(&a));
    for _ in 0..3 {
        assert_eq!(again.get("/").text(), "a");
    }
    assert_eq!(a.connections(), 2, "one of `out`, one of `in`");
    let outstanding = proxy.metric("maglor_upstream_outstanding_requests", &["in/application"]);
    assert_eq!(outstanding, 0.0);
}

#[test]
fn the_inbound_listener_does_not_lead_to_the_outbound_one_or_the_admin_port() {
    let (application, payment) = (Upstream::start("application"), Upstream::start("payment"));
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
listeners:
- {{name: in, address: '127.0.0.1:0', proxy_protocol: require, detection_timeout: {LONG}, inbound: {{}}}}
- {{name: out, address: '0.0.0.0:0', outbound: {{services: [{{name: payment, cluster: payment}}]}}}}
clusters:
- {{name: payment, endpoints: ['{}']}}
",
        payment.address()
    ));
    let client = |port: u16| {
        let mut client = RawHttp1::connect(proxy.listener("in"));
        client.send(format!("PROXY TCP4 192.0.2.7 192.0.2.1 40000 {port}\r\n"));
        client
    };
    // In place of the application, it would answer for it.
    let payment_by = |mut client: RawHttp1| {
        client.send("GET / HTTP/1.1\r\nhost: payment\r\n\r\n");
        client.connection().read_head().unwrap()
    };
    let out = proxy.listener("out").port();
    let head = payment_by(client(out));
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let head = payment_by(client(proxy.admin().port()));
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    let mut bytes = client(out);
    bytes.send("*1\r\n$4\r\nPING\r\n");
    bytes.assert_closed();
    assert_eq!(payment.requests(), 0);
    assert_eq!(
        client(application.address().port()).get("/").text(),
        "application"
    );
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, out));
    let head = payment_by(RawHttp1::connect(address));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

/// A PROXY header may name any destination.
#[test]
fn the_proxy_protocol_does_not_lead_to_the_admin_port() {
    let proxy = start(
        "admin: {address: '127.0.0.1:0'}
listeners:
- {name: in, address: '127.0.0.1:0', proxy_protocol: require, inbound: {}}
- {name: out, address: '127.0.0.1:0', proxy_protocol: require, outbound: {}}
",
    );
    let port = proxy.admin().port();
    for listener in ["in", "out"] {
        for to in [
            "TCP4 192.0.2.1 127.0.0.1",
            "TCP4 192.0.2.1 0.0.0.0",
            "TCP6 2001:db8::1 ::ffff:127.0.0.1",
            "TCP6 2001:db8::1 ::",
        ] {
            let mut client = RawHttp1::connect(proxy.listener(listener));
            client.send(format!("PROXY {to} 1000 {port}\r\n"));
            assert_eq!(client.get("/config").status, 503, "{listener}: {to}");
        }
    }
}
