//! Connections that ask for nothing: they end, and hold no descriptor that another client needs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use maglor_testkit::{RawHttp1, Upstream};
use support::mesh::Root;
use support::{Web, wait_quiet};

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn silent_connections_end_after_the_time_of_a_head_in_every_protocol() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .http("header_timeout: 1s")
        .start();
    let client = root.member("client");
    // An unfinished head of the mesh transport: its length is 3, and it is not the last frame of the head.
    let half_head = "\0\x03\x01\x02\0\0\0\x01GET";
    let cases = [
        ("h2", ""),
        ("h2", &PREFACE[..7]),
        ("http/1.1", ""),
        ("http/1.1", "GET / HT"),
        ("maglor/1", ""),
        ("maglor/1", "\0"),
        ("maglor/1", half_head),
    ];
    let started = Instant::now();
    let mut clients = cases.map(|(alpn, first)| {
        let config = client.client(alpn);
        let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.test", config);
        client.send(first);
        client.into_connection()
    });
    for ((alpn, first), client) in cases.iter().zip(&mut clients) {
        let ended = client.read_to_end().map_err(|error| error.kind());
        let took = started.elapsed();
        // TLS may end without a word.
        let closed = matches!(ended, Ok(_) | Err(ErrorKind::UnexpectedEof));
        assert!(closed, "{alpn} {first:?}: {ended:?}");
        assert!(took >= Duration::from_millis(900), "{alpn} {first:?}");
        assert!(took < Duration::from_secs(8), "{alpn} {first:?}: {took:?}");
    }
    drop(clients);
    wait_quiet(&proxy);
}
