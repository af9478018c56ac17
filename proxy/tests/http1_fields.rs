//! Forwarding of HTTP/1.1 header fields: the ones that are preserved, removed and added.

use maglor_testkit::{RawServer, Upstream};

use crate::support::{Web, connect, get};

#[test]
fn what_is_between_neighbours_does_not_pass() {
    let server = RawServer::start(|connection, _| {
        let head = connection.read_head()?;
        connection.send(format!(
            "HTTP/1.1 200 OK\r\nConnection: x-Private, keep-alive\r\nX-private: 1\r\n\
             Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\
             X-Public: 2\r\ncontent-length: {}\r\n\r\n{head}",
            head.len()
        ))
    });
    let proxy = Web::to([server.address()])
        .http("request_id: false, x_forwarded: off")
        .start();
    let response = connect(&proxy).request(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Hop, close ,TE\r\nconnection: x-hop2\r\n\
         X-Hop: 1\r\nx-hop2: 1\r\nKeep-Alive: 300\r\nProxy-Connection: x\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\nTE: trailers, deflate;q=0.5\r\nX-End: 1\r\n\r\n",
    );
    assert_eq!(
        response.text(),
        "GET / HTTP/1.1\r\nHost: a\r\nX-End: 1\r\nte: trailers\r\nx-envoy-expected-rq-timeout-ms: 15000\r\n\r\n"
    );
    for gone in ["x-private", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(response.header(gone), None, "{gone}");
    }
    assert_eq!(response.header("x-public"), Some("2"));
}

#[test]
fn a_client_cannot_remove_fields_of_the_proxy() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("forwarded: replace")
        .route("request_headers: {set: {x-tenant: shop}}")
        .start();
    connect(&proxy).request(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close, host, x-forwarded-for, x-forwarded-proto, \
         x-request-id, forwarded, x-tenant, te\r\nx-forwarded-for: 10.0.0.1\r\n\r\n",
    );
    let last = upstream.last();
    assert_eq!(last.header("x-forwarded-for"), Some("127.0.0.1"));
    for name in [
        "host",
        "x-forwarded-proto",
        "forwarded",
        "x-tenant",
        "x-request-id",
    ] {
        assert!(last.header(name).is_some(), "{name}");
    }
}

#[test]
fn fields_keep_their_case_order_and_bytes() {
    let fields = "X-First: 1\r\nx-Empty:\r\nCookie: a=1; b=\"2\"\r\nx-first: 2\r\n\
                  X-Utf8: gr\u{fc}n \u{2713}\r\nX-Spaces: a  b\r\nCOOKIE: c=3\r\n\
                  x-Long: 0123456789012345678901234567890123456789\r\n";
    let server = RawServer::start(|connection, _| {
        let head = connection.read_head()?;
        let (_, fields) = head.split_once("\r\n").unwrap_or_default();
        let fields = fields.trim_end_matches("\r\n");
        connection.send(format!(
            "HTTP/1.1 200 Fine\r\nSet-Cookie: a=1\r\nsET-cOOKIE: b=2\r\n{fields}\r\ncontent-length: 0\r\n\r\n"
        ))
    });
    let proxy = Web::to([server.address()])
        .http("request_id: false, x_forwarded: off")
        .start();
    let mut client = connect(&proxy);
    client.send(format!("GET / HTTP/1.1\r\nhOst: a\r\n{fields}\r\n"));
    let head = client.connection().read_head().unwrap();
    let fields = fields.replace("x-Empty:\r\n", "x-Empty: \r\n");
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nsET-cOOKIE: b=2\r\nhOst: a\r\n{fields}x-envoy-expected-rq-timeout-ms: 15000\r\ncontent-length: 0\r\n\r\n"
        )
    );
}

#[test]
fn the_next_hop_learns_about_the_client() {
    let upstream = Upstream::start("a");
    let ask = |settings: &str| {
        let proxy = Web::to([upstream.address()]).http(settings).start();
        connect(&proxy).request(
            "GET / HTTP/1.1\r\nhost: a.example:8\r\nx-forwarded-for: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n\
             x-forwarded-proto: https\r\nx-forwarded-host: b\r\nforwarded: for=10.0.0.1\r\nx-request-id: mine\r\n\r\n",
        );
        let last = upstream.last();
        move |name: &str| last.header(name).unwrap_or_default().to_owned()
    };
    let seen = ask("x_forwarded: append, forwarded: append");
    assert_eq!(seen("x-forwarded-for"), "10.0.0.1, 10.0.0.2, 127.0.0.1");
    assert_eq!(
        (seen("x-forwarded-proto"), seen("x-forwarded-host")),
        ("https".into(), "b".into())
    );
    assert_eq!(
        seen("forwarded"),
        "for=10.0.0.1, for=127.0.0.1;proto=http;host=\"a.example:8\""
    );
    assert_eq!(seen("x-request-id"), "mine");

    let seen = ask("x_forwarded: replace, forwarded: replace, preserve_request_id: false");
    assert_eq!(seen("x-forwarded-for"), "127.0.0.1");
    assert_eq!(seen("x-forwarded-proto"), "http");
    assert_eq!(seen("x-forwarded-host"), "a.example:8");
    assert_eq!(
        seen("forwarded"),
        "for=127.0.0.1;proto=http;host=\"a.example:8\""
    );
    let id = seen("x-request-id");
    assert!(id.len() == 36 && id.as_bytes()[14] == b'4', "{id}");

    let proxy = Web::to([upstream.address()]).start();
    get(&proxy, "/");
    let first = upstream.last().header("x-request-id").unwrap().to_owned();
    get(&proxy, "/");
    assert_ne!(upstream.last().header("x-request-id").unwrap(), first);
}
