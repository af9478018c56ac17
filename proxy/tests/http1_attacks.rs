//! Invalid HTTP/1.1 requests: each is refused, the connection closed, and nothing of it is forwarded to an
//! endpoint.

use std::time::Duration;

use maglor_testkit::Upstream;

use crate::support::{self, Web, connect, get, wait_quiet};

/// A request that follows a refused one; it must never be answered, because its start is in doubt.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

/// Sends each request and then [`SMUGGLED`] on a connection of its own; all must be refused.
#[track_caller]
fn all_refused(cases: &[(&str, &[u8], &[u16])]) {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/warm-up").status, 200);
    for (what, request, statuses) in cases {
        let mut client = connect(&proxy);
        let mut bytes = request.to_vec();
        bytes.extend_from_slice(SMUGGLED.as_bytes());
        client.send(&bytes);
        let response = client.response();
        assert!(
            statuses.contains(&response.status),
            "{what}: {}",
            response.status
        );
        assert_eq!(response.header("connection"), Some("close"), "{what}");
        client.assert_closed();
    }
    wait_quiet(&proxy);
    let paths: Vec<_> = upstream
        .recorded()
        .iter()
        .map(|request| request.uri.to_string())
        .collect();
    assert_eq!(paths, ["/warm-up"], "something was forwarded");
    assert_eq!(get(&proxy, "/").status, 200);
}

/// A `POST` with these header lines and a body that can be interpreted in two ways.
macro_rules! post {
    ($headers:literal, $body:literal) => {
        concat!(
            "POST /refused HTTP/1.1\r\nhost: a\r\n",
            $headers,
            "\r\n",
            $body
        )
        .as_bytes()
    };
}

#[test]
fn two_lengths_are_refused() {
    let bad = &[400][..];
    all_refused(&[
        (
            "CL.TE",
            post!(
                "content-length: 5\r\ntransfer-encoding: chunked\r\n",
                "0\r\n\r\n"
            ),
            bad,
        ),
        (
            "TE.CL",
            post!(
                "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
                "0\r\n\r\n"
            ),
            bad,
        ),
        (
            "CL twice",
            post!("content-length: 0\r\ncontent-length: 5\r\n", ""),
            bad,
        ),
        ("CL list", post!("content-length: 0, 5\r\n", ""), bad),
        ("CL empty", post!("content-length:\r\n", ""), bad),
        ("CL negative", post!("content-length: -1\r\n", ""), bad),
        ("CL signed", post!("content-length: +5\r\n", "12345"), bad),
        ("CL hex", post!("content-length: 0x5\r\n", "12345"), bad),
        ("CL spaced", post!("content-length: 1 0\r\n", "1"), bad),
        (
            "CL huge",
            post!("content-length: 18446744073709551616\r\n", ""),
            bad,
        ),
        (
            "CL huge and zeros",
            post!(
                "content-length: 99999999999999999999999999999999999999\r\n",
                ""
            ),
            bad,
        ),
        (
            "CL in GET twice",
            b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\nContent-Length: 2\r\n\r\nx",
            bad,
        ),
    ]);
}

#[test]
fn transfer_codings_that_are_not_chunked_alone_are_refused() {
    let bad = &[400, 501][..];
    let tail = "5\r\nhello\r\n0\r\n\r\n";
    let values = [
        "xchunked",
        "chunked, identity",
        "identity",
        "gzip, chunked",
        "chunked, chunked",
        "chunked;q=1",
        "\"chunked\"",
        "\x0bchunked",
        "chunked\x0b",
        "chunked\x00",
        "",
        ",chunked",
        "chun\tked",
    ];
    let requests: Vec<_> = values
        .iter()
        .map(|value| {
            format!("POST /refused HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {value}\r\n\r\n{tail}")
        })
        .collect();
    let mut cases: Vec<_> = values
        .iter()
        .zip(&requests)
        .map(|(value, request)| (*value, request.as_bytes(), bad))
        .collect();
    let more: &[(&str, &[u8], &[u16])] = &[
        (
            "two fields",
            post!(
                "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                "0\r\n\r\n"
            ),
            bad,
        ),
        (
            "two fields, one unknown",
            post!(
                "transfer-encoding: chunked\r\ntransfer-encoding: cow\r\n",
                "0\r\n\r\n"
            ),
            bad,
        ),
        (
            "space before colon",
            post!("transfer-encoding : chunked\r\n", "0\r\n\r\n"),
            bad,
        ),
        (
            "HTTP/1.0",
            b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            bad,
        ),
    ];
    cases.extend_from_slice(more);
    all_refused(&cases);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn lines_that_parsers_read_differently_are_refused() {
    let bad = &[400][..];
    all_refused(&[
        (
            "bare LF after request line",
            b"GET / HTTP/1.1\nhost: a\r\n\r\n",
            bad,
        ),
        (
            "bare LF after field",
            b"GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
            bad,
        ),
        (
            "bare LF at the end",
            b"GET / HTTP/1.1\r\nhost: a\r\n\n",
            bad,
        ),
        (
            "bare CR in value",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
            bad,
        ),
        (
            "obs-fold",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n",
            bad,
        ),
        (
            "obs-fold of the first field",
            b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
            bad,
        ),
        (
            "space before colon",
            b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
            bad,
        ),
        (
            "tab before colon",
            b"GET / HTTP/1.1\r\nhost: a\r\nx\t: a\r\n\r\n",
            bad,
        ),
        (
            "no colon",
            b"GET / HTTP/1.1\r\nhost: a\r\nnonsense\r\n\r\n",
            bad,
        ),
        (
            "empty name",
            b"GET / HTTP/1.1\r\nhost: a\r\n: a\r\n\r\n",
            bad,
        ),
        (
            "NUL in value",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
            bad,
        ),
        (
            "NUL in name",
            b"GET / HTTP/1.1\r\nhost: a\r\nx\0: a\r\n\r\n",
            bad,
        ),
        ("NUL in target", b"GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        (
            "DEL in value",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x7fb\r\n\r\n",
            bad,
        ),
        (
            "non-ASCII name",
            "GET / HTTP/1.1\r\nhost: a\r\nx\u{e9}: a\r\n\r\n".as_bytes(),
            bad,
        ),
    ]);
}

#[test]
fn hosts_that_are_none_are_refused() {
    let bad = &[400][..];
    all_refused(&[
        (
            "two hosts",
            b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            bad,
        ),
        ("no host", b"GET / HTTP/1.1\r\nx: a\r\n\r\n", bad),
        (
            "host with path",
            b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
            bad,
        ),
        (
            "host with credentials",
            b"GET / HTTP/1.1\r\nhost: u@a\r\n\r\n",
            bad,
        ),
        (
            "host with space",
            b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
            bad,
        ),
    ]);
}

#[test]
fn request_lines_that_are_none_are_refused() {
    let bad = &[400, 505][..];
    all_refused(&[
        ("two spaces", b"GET  / HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        (
            "space in target",
            b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
            bad,
        ),
        ("tabs", b"GET\t/\tHTTP/1.1\r\nhost: a\r\n\r\n", bad),
        ("no target", b"GET HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        ("no version", b"GET /\r\nhost: a\r\n\r\n", bad),
        (
            "lower case version",
            b"GET / http/1.1\r\nhost: a\r\n\r\n",
            bad,
        ),
        ("HTTP/1.2", b"GET / HTTP/1.2\r\nhost: a\r\n\r\n", bad),
        ("HTTP/2.0", b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", bad),
        ("HTTP/0.9", b"GET / HTTP/0.9\r\nhost: a\r\n\r\n", bad),
        ("trailing space", b"GET / HTTP/1.1 \r\nhost: a\r\n\r\n", bad),
        ("method", b"G@T / HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        ("fragment", b"GET /a#b HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        ("relative", b"GET a HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        ("asterisk of GET", b"GET * HTTP/1.1\r\nhost: a\r\n\r\n", bad),
        (
            "other scheme",
            b"GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
            bad,
        ),
        (
            "credentials",
            b"GET http://u:p@a/ HTTP/1.1\r\nhost: a\r\n\r\n",
            bad,
        ),
        (
            "no authority",
            b"GET http:/// HTTP/1.1\r\nhost: a\r\n\r\n",
            bad,
        ),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            bad,
        ),
        (
            "absolute with two hosts",
            b"GET http://a/ HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            bad,
        ),
    ]);
}

#[test]
fn a_bad_chunk_ends_the_request_and_the_connection() {
    let bodies: &[(&str, &[u8])] = &[
        ("no number", b"x\r\nhello\r\n0\r\n\r\n"),
        ("empty line", b"\r\nhello\r\n0\r\n\r\n"),
        ("hex prefix", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("sign", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("minus", b"-5\r\nhello\r\n0\r\n\r\n"),
        ("leading space", b" 5\r\nhello\r\n0\r\n\r\n"),
        ("underscore", b"0_5\r\nhello\r\n0\r\n\r\n"),
        ("too large", b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("overflow", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("bare LF after size", b"5\nhello\r\n0\r\n\r\n"),
        ("bare CR in extension", b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("bare LF in extension", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("NUL in extension", b"5;a\0\r\nhello\r\n0\r\n\r\n"),
        ("bare LF after data", b"5\r\nhello\n0\r\n\r\n"),
        ("data too long", b"5\r\nhello!\r\n0\r\n\r\n"),
        ("data too short", b"6\r\nhello\r\n0\r\n\r\n"),
        ("bare LF at the end", b"5\r\nhello\r\n0\r\n\n"),
        ("bad trailer", b"5\r\nhello\r\n0\r\nno colon\r\n\r\n"),
        ("folded trailer", b"5\r\nhello\r\n0\r\na: b\r\n c\r\n\r\n"),
    ];
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    for (what, body) in bodies {
        let mut client = connect(&proxy);
        let head = b"POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send([head, *body, SMUGGLED.as_bytes()].concat());
        let response = client.response();
        assert_eq!(response.status, 400, "{what}");
        client.assert_closed();
    }
    wait_quiet(&proxy);
    let smuggled = |upstream: &Upstream| {
        upstream
            .recorded()
            .iter()
            .any(|r| r.uri.path() == "/smuggled")
    };
    assert!(!smuggled(&upstream));
    assert_eq!(get(&proxy, "/").status, 200);
}

#[test]
fn an_unread_body_does_not_become_a_request() {
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()]).yaml().replace(
        "routes: [",
        "routes: [{match: {path: /direct}, direct_response: {status: 200, body: mine}}, ",
    );
    let proxy = support::start(&yaml);
    let body = SMUGGLED;
    for path in ["/direct", "/early/413"] {
        let mut client = connect(&proxy);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
            body.len() + 1
        ));
        let response = client.response();
        assert!(matches!(response.status, 200 | 413), "{path}");
        // Either the rest is correctly framed, or nothing more is read.
        let _ = client.connection().send(body);
        match response.header("connection") {
            Some("close") => client.assert_closed(),
            _ => client.assert_silent(Duration::from_millis(100)),
        }
    }
    wait_quiet(&proxy);
    assert!(
        upstream
            .recorded()
            .iter()
            .all(|r| r.uri.path() != "/smuggled")
    );
}
