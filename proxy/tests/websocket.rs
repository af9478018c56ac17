//! WebSocket and other upgrades: HTTP/1.1 connections that become tunnels.

use std::time::Duration;

use maglor_testkit::{
    Authority, Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually, pattern,
};

use crate::support::{Web, connect, outstanding, wait_quiet};

const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nhost: a\r\nConnection: keep-alive, Upgrade\r\n\
                         Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Returns a client's binary message, with the required mask.
fn frame(data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | 127];
    frame.extend((data.len() as u64).to_be_bytes());
    let mask = [1, 2, 3, 4];
    frame.extend(mask);
    frame.extend(
        data.iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

/// Reads a server's message.
fn message(client: &mut RawHttp1) -> Vec<u8> {
    let connection = client.connection();
    let mut message = Vec::new();
    loop {
        let head = connection.read_exact(2).unwrap();
        let length = match head[1] {
            126 => {
                let length = connection.read_exact(2).unwrap();
                u64::from(u16::from_be_bytes(length.try_into().unwrap()))
            }
            127 => u64::from_be_bytes(connection.read_exact(8).unwrap().try_into().unwrap()),
            length => u64::from(length),
        };
        message.extend(connection.read_exact(length as usize).unwrap());
        if head[0] & 0x80 != 0 {
            return message;
        }
    }
}

#[track_caller]
fn upgrade(client: &mut RawHttp1) {
    client.send(HANDSHAKE);
    let response = client.response();
    assert_eq!(response.status, 101, "{response:?}");
    assert_eq!(
        response.header("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert!(
        response
            .header("upgrade")
            .unwrap()
            .eq_ignore_ascii_case("websocket")
    );
    assert!(
        response
            .header("connection")
            .unwrap()
            .eq_ignore_ascii_case("upgrade")
    );
    assert_eq!(response.header("content-length"), None);
    assert_eq!(response.header("transfer-encoding"), None);
}

#[track_caller]
fn echoes(client: &mut RawHttp1) {
    for length in [1, 70_000, 1 << 20, 1 << 20, 3] {
        let data = pattern::bytes(length);
        client.send(frame(&data));
        assert!(message(client) == data, "{length}");
    }
}

#[test]
fn messages_of_a_megabyte_come_back() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    // An ordinary request first, on the same connection.
    assert_eq!(client.get("/").text(), "a");
    upgrade(&mut client);
    echoes(&mut client);
    assert_eq!(
        outstanding(&proxy),
        1.0,
        "a tunnel counts as long as it is open"
    );
    // A close handshake.
    client.send([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]);
    let close = client.connection().read_exact(4).unwrap();
    assert_eq!(close, [0x88, 2, 0x03, 0xe8]);
    client.assert_closed();
    drop(client);
    wait_quiet(&proxy);
    assert_eq!(upstream.last().header("sec-websocket-version"), Some("13"));
    assert!(proxy.metric("maglor_tcp_bytes_total", &[]) > 4e6);
    assert_eq!(
        proxy.metric("maglor_http_requests_total", &["status=\"1xx\""]),
        1.0
    );
}

#[test]
fn tls_on_both_sides_changes_nothing() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example", "127.0.0.1"]);
    let server = authority.server_config(&identity, &["http/1.1"], false);
    let upstream = Upstream::builder("a").tls(server).start();
    let (cert, key) = (identity.cert_file.display(), identity.key_file.display());
    let proxy = Web::to([upstream.address()])
        .listener(&format!(
            "tls: {{certificate: '{cert}', private_key: '{key}'}}"
        ))
        .cluster(&format!(
            "protocol: auto, tls: {{ca: '{}'}}",
            authority.file().display()
        ))
        .start();
    let config = authority.client_config(None, &["http/1.1"]);
    let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.example", config);
    upgrade(&mut client);
    echoes(&mut client);
}

#[test]
fn an_upgrade_uses_http1_even_if_the_cluster_has_http2() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("protocol: http2")
        .start();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").text(), "a");
    upgrade(&mut client);
    echoes(&mut client);
    assert_eq!(format!("{:?}", upstream.last().version), "HTTP/1.1");
}

#[test]
fn what_is_not_allowed_is_an_ordinary_request() {
    let upstream = Upstream::start("a");
    let ask = |proxy: &Proxy, headers: &str| {
        let response = connect(proxy).request(format!(
            "GET /echo HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n"
        ));
        assert_eq!(response.status, 200, "{headers}");
        let last = upstream.last();
        assert_eq!(
            (last.header("upgrade"), last.header("connection")),
            (None, None),
            "{headers}"
        );
    };
    let proxy = Web::to([upstream.address()]).start();
    ask(
        &proxy,
        "connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__",
    );
    ask(&proxy, "connection: upgrade\r\nupgrade: other");
    ask(&proxy, "connection: close\r\nupgrade: websocket");
    ask(&proxy, "upgrade: websocket");
    let proxy = Web::to([upstream.address()]).http("upgrades: []").start();
    ask(
        &proxy,
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13",
    );
}

#[test]
fn an_endpoint_may_decline() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    let response = client.request(HANDSHAKE.replace("/ws", "/status/403"));
    assert_eq!(response.status, 403);
    assert_eq!(client.get("/").text(), "a", "the connection goes on");
    let response = client.request(HANDSHAKE.replace("/ws", "/bytes/1000"));
    assert_eq!(response.body.len(), 1000);
    assert_eq!(upstream.last().header("upgrade"), Some("WebSocket"));
}

#[test]
fn an_endpoint_switches_to_what_was_asked_for_or_not_at_all() {
    for agreed in ["", "upgrade: other\r\n"] {
        let server = RawServer::start(move |connection, _| {
            connection.read_head()?;
            connection.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{agreed}\r\n"
            ))?;
            connection.read_to_end().map(drop)
        });
        let proxy = Web::to([server.address()]).start();
        let mut client = connect(&proxy);
        client.send(HANDSHAKE);
        assert_eq!(client.response().status, 502, "{agreed}");
    }
}

#[test]
fn what_is_sent_early_is_not_lost() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    // Directly after the request, before the upgrade is accepted.
    client.send([HANDSHAKE.as_bytes(), &frame(b"early")].concat());
    assert_eq!(client.response().status, 101);
    assert_eq!(message(&mut client), b"early");
    // The endpoint's first bytes in one segment with its 101.
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello",
        )?;
        connection.expect("bye")
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    client.send(HANDSHAKE);
    assert_eq!(client.response().status, 101);
    client.connection().expect("hello").unwrap();
    client.send("bye");
    client.assert_closed();
    server.finish();
}

#[test]
fn the_other_protocol_begins_behind_the_request() {
    // It accepts before it has received the whole body.
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        )?;
        connection.expect("4\r\nabcd\r\n3\r\nefg\r\n0\r\n\r\nbytes")?;
        connection.send("done")
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    let head = HANDSHAKE.replace("\r\n\r\n", "\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(format!("{head}7\r\nabcd"));
    std::thread::sleep(Duration::from_millis(100));
    client.send("efg\r\n0\r\n\r\nbytes");
    assert_eq!(client.response().status, 101);
    assert_eq!(client.connection().read_exact(4).unwrap(), b"done");
    server.finish();
}

#[test]
fn each_side_of_a_tunnel_ends_for_itself() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("upgrades: [raw]")
        .start();
    let mut client = connect(&proxy);
    client.send("GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n");
    assert_eq!(client.response().status, 101);
    let data = pattern::bytes(100_000);
    client.send(&data);
    client.connection().finish_sending().unwrap();
    assert!(client.connection().read_to_end().unwrap() == data);
    wait_quiet(&proxy);
}

#[test]
fn a_quiet_tunnel_ends_and_a_busy_one_outlives_the_timeout() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("stream_idle_timeout: 400ms")
        .route("timeout: 300ms")
        .start();
    let mut client = connect(&proxy);
    upgrade(&mut client);
    for _ in 0..6 {
        client.send(frame(b"still here"));
        assert_eq!(message(&mut client), b"still here");
        client.assert_silent(Duration::from_millis(150));
    }
    client.assert_closed();
    wait_quiet(&proxy);
    eventually(TIMEOUT, "the endpoint's side is closed", || {
        upstream.open_connections() == 0
    });
}

#[test]
fn a_client_that_leaves_ends_its_tunnel() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    for reset in [false, true] {
        let mut client = connect(&proxy);
        upgrade(&mut client);
        if reset {
            client.connection().reset_on_close().unwrap();
        }
        drop(client);
        wait_quiet(&proxy);
        eventually(TIMEOUT, "the endpoint's side is closed", || {
            upstream.open_connections() == 0
        });
    }
    // The endpoint is killed.
    let mut client = connect(&proxy);
    upgrade(&mut client);
    upstream.kill();
    let _ = client.connection().read_to_end();
    drop(client);
    wait_quiet(&proxy);
}
