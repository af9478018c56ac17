//! TCP without HTTP: passthrough, and the PROXY protocol in both directions.

use std::io;
use std::time::Duration;

use maglor_testkit::{Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually, pattern};

use crate::support::{self, start, wait_quiet};

/// Returns a configuration with a TCP listener `tcp` and endpoints, with settings of both.
fn yaml(listener: &str, endpoints: &[std::net::SocketAddr], cluster: &str) -> String {
    let endpoints: Vec<_> = endpoints.iter().map(|e| format!("'{e}'")).collect();
    format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n\
         - {{name: tcp, address: '127.0.0.1:0', {listener}}}\nclusters:\n\
         - {{name: backend, endpoints: [{}]{cluster}}}\n",
        endpoints.join(", ")
    )
}

const TCP: &str = "tcp: {cluster: backend}";
const HTTP: &str = "http: {virtual_hosts: [{domains: ['*'], routes: [{cluster: backend}]}]}";

fn connect(proxy: &Proxy) -> RawHttp1 {
    RawHttp1::connect(proxy.listener("tcp"))
}

/// Starts a server that echoes everything, then closes its side.
fn echo() -> RawServer {
    RawServer::start(|connection, _| {
        let all = connection.read_to_end()?;
        connection.send(all)?;
        connection.finish_sending()
    })
}

#[test]
fn bytes_pass_and_each_side_ends_for_itself() {
    let server = echo();
    let proxy = start(&yaml(TCP, &[server.address()], ""));
    for size in [0, 1, 100_000, 20_000_000] {
        let mut client = connect(&proxy);
        let data = pattern::bytes(size);
        client.send(&data);
        // The server answers only after the end of the client's data.
        client.connection().finish_sending().unwrap();
        assert!(client.connection().read_to_end().unwrap() == data, "{size}");
    }
    wait_quiet(&proxy);
    let bytes = |way: &str| proxy.metric("maglor_tcp_bytes_total", &[way]);
    assert_eq!(bytes("to_upstream"), 20_100_001.0);
    assert_eq!(bytes("to_downstream"), 20_100_001.0);
    assert_eq!(
        proxy.metric("maglor_downstream_connections_total", &[]),
        4.0
    );

    // The server sends first, and ends first.
    let server = RawServer::start(|connection, _| {
        connection.send("hello")?;
        connection.finish_sending()?;
        connection.expect("bye")
    });
    let proxy = start(&yaml(TCP, &[server.address()], ""));
    let mut client = connect(&proxy);
    assert_eq!(client.connection().read_to_end().unwrap(), b"hello");
    client.send("bye");
    drop(client);
    wait_quiet(&proxy);
    server.finish();
}

#[test]
fn a_reset_is_passed_on() {
    let server = RawServer::start(|connection, _| {
        connection.send("some")?;
        match connection.read_to_end() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    });
    let proxy = start(&yaml(TCP, &[server.address()], ""));
    let mut client = connect(&proxy);
    client.connection().expect("some").unwrap();
    client.connection().reset_on_close().unwrap();
    drop(client);
    wait_quiet(&proxy);
    eventually(TIMEOUT, "the server has seen it", || proxy.open_files() > 0);
    server.finish();

    let server = RawServer::start(|connection, _| {
        connection.expect("x")?;
        connection.send("some")?;
        connection.reset_on_close()
    });
    let proxy = start(&yaml(TCP, &[server.address()], ""));
    let mut client = connect(&proxy);
    client.send("x");
    let end = client.connection().read_to_end();
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    wait_quiet(&proxy);
}

#[test]
fn idle_and_refused_connections_are_closed() {
    let server = RawServer::start(|connection, _| connection.read_to_end().map(drop));
    let settings = "tcp: {cluster: backend, idle_timeout: 300ms}";
    let proxy = start(&yaml(settings, &[server.address()], ""));
    let mut client = connect(&proxy);
    for _ in 0..4 {
        client.send("x");
        client.assert_silent(Duration::from_millis(150));
    }
    client.assert_closed();
    wait_quiet(&proxy);

    let gone = Upstream::start("gone");
    let address = gone.address();
    gone.kill();
    let proxy = start(&yaml(TCP, &[address], ""));
    connect(&proxy).assert_closed();
    let refused = proxy.metric(
        "maglor_downstream_connections_refused_total",
        &["no_upstream"],
    );
    assert_eq!(refused, 1.0);
    assert_eq!(
        proxy.metric("maglor_upstream_connect_failures_total", &[]),
        1.0
    );
    wait_quiet(&proxy);
}

#[test]
fn a_listener_takes_no_more_than_its_limit() {
    let server = RawServer::start(|connection, number| {
        connection.send(number.to_string())?;
        connection.read_to_end().map(drop)
    });
    let settings = format!("max_connections: 2, {TCP}");
    let proxy = start(&yaml(&settings, &[server.address()], ""));
    let (mut first, mut second) = (connect(&proxy), connect(&proxy));
    assert_eq!(first.connection().read_exact(1).unwrap().len(), 1);
    assert_eq!(second.connection().read_exact(1).unwrap().len(), 1);
    let mut third = connect(&proxy);
    third.assert_silent(Duration::from_millis(300));
    drop(first);
    assert_eq!(third.connection().read_exact(1).unwrap(), b"2");
}

#[test]
fn the_proxy_protocol_is_sent() {
    let server = RawServer::start(|connection, _| {
        let head = connection.read_until(b"\r\n")?;
        connection.send(head)?;
        connection.finish_sending()
    });
    let proxy = start(&yaml(TCP, &[server.address()], ", proxy_protocol: v1"));
    let mut client = connect(&proxy);
    let (local, peer) = (client.connection().local().unwrap(), proxy.listener("tcp"));
    let line = String::from_utf8(client.connection().read_to_end().unwrap()).unwrap();
    let expected = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n",
        local.port(),
        peer.port()
    );
    assert_eq!(line, expected);

    let server = RawServer::start(|connection, _| {
        let head = connection.read_exact(28)?;
        connection.send(head)?;
        connection.finish_sending()
    });
    let proxy = start(&yaml(TCP, &[server.address()], ", proxy_protocol: v2"));
    let mut client = connect(&proxy);
    let local = client.connection().local().unwrap();
    let head = client.connection().read_to_end().unwrap();
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
    expected.extend(local.port().to_be_bytes());
    expected.extend(proxy.listener("tcp").port().to_be_bytes());
    assert_eq!(head, expected);

    // A health check belongs to the proxy itself.
    for (version, length, header) in [
        ("v1", 15, &b"PROXY UNKNOWN\r\n"[..]),
        ("v2", 16, &b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"[..]),
    ] {
        let server = RawServer::start(move |connection, _| {
            let head = connection.read_exact(length)?;
            match head == header {
                true => connection.send("fine"),
                false => Err(io::Error::other(format!("{head:?}"))),
            }
        });
        let check = "health_check: {tcp: {receive: fine}, interval: 50ms, timeout: 40ms}";
        let settings = format!(", proxy_protocol: {version}, {check}");
        let proxy = start(&yaml(TCP, &[server.address()], &settings));
        eventually(TIMEOUT, "it is healthy", || {
            let passed = &["result=\"passed\""];
            proxy.metric("maglor_upstream_health_checks_total", passed) >= 1.0
        });
        drop(proxy);
        assert!(server.failures().is_empty(), "{:?}", server.failures());
    }

    // With HTTP, once a connection.
    let server = RawServer::start(|connection, _| {
        connection.read_until(b"\r\n")?;
        for _ in 0..2 {
            let head = connection.read_head()?;
            assert!(head.starts_with("GET / "), "{head}");
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    let proxy = start(&yaml(HTTP, &[server.address()], ", proxy_protocol: v1"));
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/").status, 200);
    server.finish();
}

#[test]
fn a_connection_that_names_a_client_serves_no_other() {
    let server = RawServer::start(|connection, _| {
        let line = connection.read_until(b"\r\n")?;
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        loop {
            connection.read_head()?;
            connection.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}",
                line.len()
            ))?;
        }
    });
    let proxy = start(&yaml(HTTP, &[server.address()], ", proxy_protocol: v1"));
    let mut clients = [connect(&proxy), connect(&proxy)];
    for _ in 0..3 {
        for client in &mut clients {
            let port = client.connection().local().unwrap().port();
            let named = client.get("/").text().to_owned();
            let expected = format!(" {port} {}", proxy.listener("tcp").port());
            assert!(named.ends_with(&expected), "{named}, not{expected}");
        }
    }
}

#[test]
fn the_proxy_protocol_is_received() {
    let upstream = Upstream::start("a");
    let v2 = |command: u8, family: u8, addresses: &[u8]| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([0x20 | command, family]);
        header.extend((addresses.len() as u16).to_be_bytes());
        header.extend(addresses);
        header
    };
    let v4 = [10, 1, 2, 3, 10, 0, 0, 1, 0x12, 0x34, 0, 80];
    let with_tlv = [&v4[..], &[0xe0, 0, 4, 1, 2, 3, 4]].concat();
    let mut v6 = [0; 36];
    v6[..2].copy_from_slice(&[0x20, 1]);
    v6[15] = 7;
    let cases: [(Vec<u8>, &str); 8] = [
        (
            b"PROXY TCP4 10.1.2.3 10.0.0.1 4660 80\r\n".to_vec(),
            "10.1.2.3",
        ),
        (
            b"PROXY TCP6 2001::7 2001::8 4660 80\r\n".to_vec(),
            "2001::7",
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (b"PROXY UNKNOWN some thing\r\n".to_vec(), "127.0.0.1"),
        (v2(1, 0x11, &v4), "10.1.2.3"),
        (v2(1, 0x11, &with_tlv), "10.1.2.3"),
        (v2(1, 0x21, &v6), "2001::7"),
        (v2(0, 0, &[]), "127.0.0.1"),
    ];
    for mode in ["require", "accept"] {
        let settings = format!("proxy_protocol: {mode}, {HTTP}");
        let proxy = start(&yaml(&settings, &[upstream.address()], ""));
        for (header, client_address) in &cases {
            for split in [false, true] {
                let mut client = connect(&proxy);
                let bytes = [header, &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..]].concat();
                if split {
                    bytes.iter().for_each(|byte| client.send([*byte]));
                } else {
                    client.send(bytes);
                }
                assert_eq!(client.response().status, 200, "{}", header.escape_ascii());
                assert_eq!(
                    upstream.last().header("x-forwarded-for"),
                    Some(*client_address)
                );
                assert_eq!(client.get("/").status, 200);
            }
        }
    }
}

#[test]
fn a_bad_proxy_header_ends_the_connection() {
    let upstream = Upstream::start("a");
    let require = format!("proxy_protocol: require, handshake_timeout: 300ms, {HTTP}");
    let proxy = start(&yaml(&require, &[upstream.address()], ""));
    let bad: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 4660\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PROXY TCP4 10.1.2.999 10.0.0.1 4660 80\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 99999 80\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 4660 80\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PROXY TCP4 2001::7 2001::8 4660 80\r\n",
        b"proxy TCP4 10.1.2.3 10.0.0.1 4660 80\r\n",
        &[b'P'; 200],
        b"PROXY UNKNOWN aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x01\0",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        b"PROX",
        b"",
    ];
    for header in bad {
        let mut client = connect(&proxy);
        client.send(header);
        client.assert_closed();
    }
    wait_quiet(&proxy);
    assert_eq!(upstream.requests(), 0);
    let refused = proxy.metric("maglor_downstream_connections_refused_total", &[]);
    assert_eq!(refused, bad.len() as f64);

    // Without the setting, the header is invalid HTTP.
    let proxy = start(&yaml(HTTP, &[upstream.address()], ""));
    let mut client = connect(&proxy);
    client.send("PROXY TCP4 10.1.2.3 10.0.0.1 4660 80\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
    client.assert_closed();
    // If it is only accepted, a client may omit it, but not by sending nothing.
    let accept = format!("proxy_protocol: accept, {HTTP}");
    let proxy = start(&yaml(&accept, &[upstream.address()], ""));
    assert_eq!(connect(&proxy).get("/").status, 200);
}

#[test]
fn a_removed_listeners_connections_end_in_time() {
    let server = RawServer::start(|connection, _| {
        connection.send("x")?;
        connection.read_to_end().map(drop)
    });
    let config = yaml(TCP, &[server.address()], "");
    let config = format!("drain_timeout: 500ms\n{config}");
    let proxy = start(&config);
    let mut client = connect(&proxy);
    client.connection().expect("x").unwrap();
    support::reload(&proxy, &config.replace("name: tcp", "name: other"));
    client.assert_silent(Duration::from_millis(100));
    client.assert_closed();
    wait_quiet(&proxy);
}

/// A limit of the proxy is no fault of the endpoints.
#[test]
fn connections_beyond_a_limit_are_not_held_against_endpoints() {
    let servers = [echo(), echo()];
    let limits = [
        "limits: {max_connections: 2, max_pending_requests: 0}, circuit_breaker: {consecutive_failures: 1}",
        "limits: {max_pending_requests: 0, endpoint: {max_connections: 1}}",
    ];
    for limits in limits {
        let strict = "outlier_ejection: {consecutive_local_origin_failure: 1}";
        let proxy = start(&yaml(
            TCP,
            &servers.each_ref().map(RawServer::address),
            &format!(", policy: round-robin, {strict}, {limits}"),
        ));
        let open = || proxy.metric("maglor_upstream_open_connections", &[]);
        let mut first: Vec<_> = (0..2).map(|_| connect(&proxy)).collect();
        eventually(TIMEOUT, "there is one to each", || open() == 2.0);
        for _ in 0..6 {
            assert_eq!(connect(&proxy).connection().read_to_end().unwrap(), b"");
        }
        let ejections = proxy.metric("maglor_upstream_ejections_total", &[]);
        assert_eq!(ejections, 0.0, "{limits}");
        first.clear();
        eventually(TIMEOUT, "there is room", || open() == 0.0);
        let mut client = connect(&proxy);
        client.send("x");
        client.connection().finish_sending().unwrap();
        assert_eq!(client.connection().read_to_end().unwrap(), b"x");
    }
}
