//! Active health checks: the requests that they send, and the responses that are healthy.

use std::net::SocketAddr;
use std::sync::mpsc;

use maglor_testkit::{Answer, Proxy, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::{Web, get};

/// Starts a proxy that checks its only endpoint, and uses it only while it is healthy. Checks by gRPC use
/// HTTP/2, others HTTP/1.1.
#[track_caller]
fn checking(endpoint: SocketAddr, check: &str) -> Proxy {
    Web::to([endpoint])
        .cluster(&format!(
            "protocol: downstream, panic_threshold: 0, health_check: {{{check}}}"
        ))
        .start()
}

/// Returns the result of the first check, which decides immediately.
#[track_caller]
fn is_healthy(proxy: &Proxy) -> bool {
    let results = |result: &str| {
        let label = format!("result=\"{result}\"");
        proxy.metric("maglor_upstream_health_checks_total", &[&label])
    };
    eventually(TIMEOUT, "it is checked", || {
        results("passed") + results("failed") > 0.0
    });
    let passed = results("passed") > 0.0;
    let available = || proxy.metric("maglor_upstream_available_endpoints", &[]);
    eventually(TIMEOUT, "the result counts", || {
        (available() == 1.0) == passed
    });
    passed
}

#[test]
fn a_request_goes_to_the_configured_path_and_host_and_has_to_get_one_of_the_statuses() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|request| {
        let own = request.header("host") == Some("shop.example");
        (request.uri.path() == "/by-host").then(|| Answer::status(if own { 200 } else { 500 }))
    });
    for (http, expected) in [
        ("{path: /status/200}", true),
        ("{path: /status/500}", false),
        ("{path: /by-host, host: shop.example}", true),
        ("{path: /by-host}", false),
        ("{path: /status/302}", true),
        ("{path: /status/302, expected_statuses: 200-299}", false),
        ("{path: /status/404, expected_statuses: [200, 404]}", true),
        ("{path: /status/404}", false),
    ] {
        let proxy = checking(upstream.address(), &format!("interval: 1s, http: {http}"));
        assert_eq!(is_healthy(&proxy), expected, "{http}");
        let status = if expected { 200 } else { 503 };
        assert_eq!(get(&proxy, "/").status, status, "{http}");
    }
}

#[test]
fn a_check_may_go_to_a_port_of_its_own() {
    let (application, health) = (Upstream::start("application"), Upstream::start("health"));
    application
        .set_answer(|request| (request.uri.path() == "/healthz").then(|| Answer::status(500)));
    let own = checking(application.address(), "interval: 1s, http: /healthz");
    assert!(!is_healthy(&own));
    assert_eq!(health.requests(), 0);
    let port = health.address().port();
    let other = checking(
        application.address(),
        &format!("interval: 1s, http: /healthz, port: {port}"),
    );
    assert!(is_healthy(&other));
    assert_eq!(health.last().uri.path(), "/healthz");
    assert_eq!(get(&other, "/").text(), "application", "requests do not");
}

#[test]
fn a_check_has_so_much_time() {
    let upstream = Upstream::start("a");
    for (timeout, expected) in [("100ms", false), ("4s", true)] {
        let check = format!("interval: 4s, http: /delay/400ms, timeout: {timeout}");
        let proxy = checking(upstream.address(), &check);
        assert_eq!(is_healthy(&proxy), expected, "{timeout}");
    }
}

#[test]
fn a_check_by_grpc_is_for_the_configured_host() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|request| {
        let host = request.uri.authority().map(|name| name.as_str().to_owned());
        let status = if host.as_deref() == Some("shop.example") {
            1
        } else {
            2
        };
        let answer = Answer::status(200).header("content-type", "application/grpc");
        let answer = answer.body(vec![0, 0, 0, 0, 2, 8, status]);
        Some(answer.trailer("grpc-status", "0"))
    });
    for (grpc, expected) in [
        ("{authority: shop.example}", true),
        ("{authority: other.example}", false),
        ("{}", false),
    ] {
        let proxy = checking(upstream.address(), &format!("interval: 1s, grpc: {grpc}"));
        assert_eq!(is_healthy(&proxy), expected, "{grpc}");
    }
}

/// The message is one field, the name of the service; for the server as a whole it is empty.
#[test]
fn a_check_by_grpc_is_for_the_configured_service() {
    let (services, seen) = mpsc::channel();
    let server = RawServer::start(move |connection, _| {
        // SETTINGS, without which a client does not begin.
        connection.send([0, 0, 0, 4, 0, 0, 0, 0, 0])?;
        // Flags END_STREAM of DATA, its stream, and no compression.
        let before = connection.read_until(b"\0\x01\0\0\0\x01\0\0\0\0")?;
        drop(before);
        let length = connection.read_exact(1)?[0];
        let message = connection.read_exact(length.into())?;
        let _ = services.send(message);
        connection.read_to_end().map(drop)
    });
    for (grpc, expected) in [("{service: cart}", &b"\x0a\x04cart"[..]), ("{}", b"")] {
        let _proxy = checking(
            server.address(),
            &format!("interval: 1s, grpc: {grpc}, timeout: 300ms"),
        );
        assert_eq!(seen.recv_timeout(TIMEOUT).unwrap(), expected, "{grpc}");
    }
}

/// Answers `PING` with some other bytes and then `PONG`.
fn ponger() -> RawServer {
    RawServer::start(|connection, _| {
        connection.expect("PING\r\n")?;
        connection.send("hello\r\nPONG\r\n")?;
        connection.read_to_end().map(drop)
    })
}

#[test]
fn a_check_by_connection_sends_a_text_and_waits_for_another() {
    let server = ponger();
    for (tcp, expected) in [
        ("{}", true),
        (r#"{send: "PING\r\n", receive: PONG}"#, true),
        (r#"{send: "PING\r\n", receive: PANG}"#, false),
        ("{receive: PONG}", false),
        (r#"{send: "PENG\r\n", receive: PONG}"#, false),
    ] {
        let check = format!("interval: 1s, tcp: {tcp}, timeout: 300ms");
        let proxy = checking(server.address(), &check);
        assert_eq!(is_healthy(&proxy), expected, "{tcp}");
    }
}
