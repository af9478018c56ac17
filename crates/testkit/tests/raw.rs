//! The raw client and server against each other.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use maglor_testkit::raw::Framing;
use maglor_testkit::{Authority, RawHttp1, RawServer, Upstream, eventually};

#[test]
fn every_framing_is_read() {
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection
            .send("HTTP/1.1 200 OK\r\nX-Case: a\r\ncontent-LENGTH: 3\r\nx-case:  b \r\n\r\nabc")?;
        connection.read_head()?;
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        connection.send("3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n")?;
        connection.read_head()?;
        connection.send("HTTP/1.1 204 No Content\r\n\r\n")?;
        connection.read_head()?;
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")?;
        connection.read_head()?;
        connection
            .send("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.0 200 \r\n\r\nto the end")
    });
    let mut client = RawHttp1::connect(server.address());
    let response = client.get("/");
    assert_eq!(response.text(), "abc");
    assert_eq!(response.header_all("X-CASE"), ["a", "b"]);
    let names: Vec<_> = response
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["X-Case", "content-LENGTH", "x-case"]);

    let response = client.get("/");
    assert_eq!(response.text(), "abc0123456789");
    assert_eq!(response.trailers, [("X-Sum".to_owned(), "1".to_owned())]);
    assert_eq!(client.get("/").framing, Framing::NoBody);
    let head = client.request("HEAD / HTTP/1.1\r\n\r\n");
    assert_eq!((head.framing, head.body.len()), (Framing::NoBody, 0));

    client.send("GET / HTTP/1.1\r\n\r\n");
    let (interim, response) = client.final_response();
    assert_eq!(interim.len(), 1);
    assert_eq!(interim[0].header("link"), Some("x"));
    assert_eq!(
        (response.text(), response.framing),
        ("to the end", Framing::Close)
    );
    client.assert_closed();
    server.finish();
}

#[test]
fn a_response_that_ends_early_fails_the_test() {
    let server = RawServer::answering("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", 1);
    let mut client = RawHttp1::connect(server.address());
    let panic = catch_unwind(AssertUnwindSafe(|| client.get("/"))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("closed after 3 of 9 bytes"), "{message}");
}

#[test]
fn a_script_that_meets_something_else_is_reported() {
    let server = RawServer::start(|connection, _| connection.expect("GET /a"));
    let mut client = RawHttp1::connect(server.address());
    client.send("GET /b");
    eventually(Duration::from_secs(5), "the failure", || {
        !server.failures().is_empty()
    });
    assert_eq!(
        server.failures(),
        ["connection 0: expected \"GET /a\", got \"GET /b\""]
    );
    assert!(catch_unwind(AssertUnwindSafe(|| server.finish())).is_err());
}

#[test]
fn a_reset_is_a_reset_and_a_close_a_close() {
    let server = RawServer::start(|connection, number| {
        connection.read_head()?;
        if number == 0 {
            connection.reset_on_close()?;
        }
        Ok(())
    });
    let mut reset = RawHttp1::connect(server.address());
    reset.send("GET / HTTP/1.1\r\n\r\n");
    let error = reset.connection().read_to_end().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let mut closed = RawHttp1::connect(server.address());
    closed.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(closed.connection().read_to_end().unwrap(), b"");
    server.finish();
}

#[test]
fn dropping_a_server_ends_a_script_that_waits() {
    let server = RawServer::start(|connection, _| connection.read_head().map(drop));
    let mut client = RawHttp1::connect(server.address());
    client.assert_silent(Duration::from_millis(20));
    assert_eq!(server.connections(), 1);
    server.finish();
    client.assert_closed();
}

#[test]
fn tls_and_a_source_address() {
    let authority = Authority::new();
    let identity = authority.issue(&["localhost", "127.0.0.1"]);
    let upstream = Upstream::builder("tls")
        .tls(authority.server_config(&identity, &["h2", "http/1.1"], true))
        .start();
    let config = authority.client_config(Some(&identity), &["http/1.1"]);
    let mut client = RawHttp1::connect_tls(upstream.address(), "localhost", config);
    assert_eq!(client.get("/").text(), "tls");

    let anonymous = authority.client_config(None, &[]);
    let mut client = RawHttp1::connect_tls(upstream.address(), "localhost", anonymous);
    client.connection().send("GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(client.connection().read_to_end().is_err());
    assert_eq!(upstream.requests(), 1);

    let upstream = Upstream::start("plain");
    let source = "127.0.0.9".parse().unwrap();
    RawHttp1::connect_from(source, upstream.address()).get("/");
    assert_eq!(upstream.last().peer.ip(), source);
}
