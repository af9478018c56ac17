//! Valid HTTP/1.1: persistence, framing, interim responses, targets.

use std::time::Duration;

use maglor_testkit::raw::Framing;
use maglor_testkit::{RawServer, Upstream, pattern};

use crate::support::{self, Web, connect, wait_quiet};

#[test]
fn a_connection_serves_requests_in_their_order() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "a");
    }
    assert_eq!(upstream.connections(), 1);

    // Pipelined: the slow one first, a body in between, all in one segment.
    client.send(
        "GET /delay/50ms HTTP/1.1\r\nhost: a\r\n\r\n\
         POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello\
         POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
         GET /bytes/100000 HTTP/1.1\r\nhost: a\r\n\r\n\
         HEAD /bytes/7 HTTP/1.1\r\nhost: a\r\n\r\n\
         GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n\
         GET /chunked/10 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n\
         GET /never HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    assert_eq!(client.response().text(), "a");
    assert_eq!(client.response().json()["bytes"], 5);
    assert_eq!(client.response().json()["bytes"], 3);
    let long = client.response();
    assert_eq!(long.body.len(), 100_000);
    pattern::check(0, &long.body);
    let head = client.response_to("HEAD");
    assert_eq!(head.header("content-length"), Some("7"));
    assert_eq!(client.response().status, 204);
    let last = client.response();
    assert_eq!(last.header("connection"), Some("close"));
    pattern::check(0, &last.body);
    client.assert_closed();
    assert!(upstream.recorded().iter().all(|r| r.uri.path() != "/never"));
}

#[test]
fn requests_may_come_byte_by_byte() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    let request = "\r\nPOST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                   3;x=y\r\nabc\r\n0\r\nx-t: 1\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n";
    for byte in request.bytes() {
        client.send([byte]);
    }
    let response = client.response();
    assert_eq!(response.json()["bytes"], 3);
    assert_eq!(response.json()["trailers"][0][0], "x-t");
    assert_eq!(client.response().text(), "a");
}

#[test]
fn an_old_client_gets_what_it_understands() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();

    let mut client = connect(&proxy);
    let response = client.request("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(
        (response.text(), response.header("connection")),
        ("a", Some("close"))
    );
    client.assert_closed();

    let mut client = connect(&proxy);
    for _ in 0..2 {
        let response =
            client.request("GET / HTTP/1.0\r\nhost: a\r\nConnection: Keep-Alive\r\n\r\n");
        assert_eq!(response.text(), "a");
        assert_eq!(response.header("connection"), Some("keep-alive"));
    }
    // A body of unknown length cannot be chunked, so its end is that of the connection.
    let response =
        client.request("GET /chunked/5000 HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n");
    assert_eq!(
        (response.framing, response.body.len()),
        (Framing::Close, 5000)
    );
    client.assert_closed();

    // HTTP/1.0 clients get no interim responses.
    let mut client = connect(&proxy);
    assert_eq!(
        client
            .request("GET /early-hints HTTP/1.0\r\nhost: a\r\n\r\n")
            .status,
        200
    );
    // The forwarded request is HTTP/1.1 with a host.
    let last = upstream.last();
    assert_eq!(format!("{:?}", last.version), "HTTP/1.1");
    connect(&proxy).request("GET / HTTP/1.0\r\n\r\n");
    assert!(upstream.last().header("host").is_some());
}

#[test]
fn bodies_pass_in_every_framing() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    for size in [0, 1, 1000, 65_536, 1_000_000] {
        let body = pattern::bytes(size);
        let hash = pattern::hash(&body);
        client.send(format!(
            "PUT /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n"
        ));
        client.send(&body);
        assert_eq!(client.response().json()["hash"], hash, "{size}");
        let length = upstream.last().header("content-length").map(str::to_owned);
        assert_eq!(length, Some(size.to_string()));

        client.send("PUT /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n");
        for chunk in body.chunks(10_007) {
            client.send(format!("{:X}\r\n", chunk.len()));
            client.send(chunk);
            client.send("\r\n");
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.response().json()["hash"], hash, "{size}");
        let last = upstream.last();
        assert_eq!(last.header("transfer-encoding"), Some("chunked"));
        assert_eq!(last.header("content-length"), None);

        let sized = client.get(&format!("/bytes/{size}"));
        assert_eq!((sized.framing, sized.body == body), (Framing::Length, true));
        let chunked = client.get(&format!("/chunked/{size}"));
        assert_eq!(
            (chunked.framing, chunked.body == body),
            (Framing::Chunked, true)
        );
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_response_that_ends_with_its_connection_ends_for_the_client() {
    let server = RawServer::answering("HTTP/1.1 200 OK\r\nx-a: b\r\n\r\nto the end", 1);
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    for _ in 0..2 {
        let response = client.get("/");
        assert_eq!(
            (response.text(), response.framing),
            ("to the end", Framing::Chunked)
        );
    }
    let old = connect(&proxy).request("GET / HTTP/1.0\r\nhost: a\r\n\r\n");
    assert_eq!((old.text(), old.framing), ("to the end", Framing::Close));
    server.finish();
}

#[test]
fn responses_without_body_have_none() {
    let server = RawServer::start(|connection, _| {
        loop {
            let head = connection.read_head()?;
            let path = head.split(' ').nth(1).unwrap_or_default();
            let answer = match path {
                "/204" => "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
                "/204-with-length" => "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
                "/304" => {
                    "HTTP/1.1 304 Not Modified\r\ncontent-length: 1234\r\netag: \"x\"\r\n\r\n"
                }
                "/head" => "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
                "/head-chunked" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            };
            connection.send(answer)?;
        }
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/204").status, 204);
    let response = client.get("/204-with-length");
    assert_eq!(
        (response.status, response.header("content-length")),
        (204, None)
    );
    let response = client.get("/304");
    assert_eq!(
        (response.status, response.header("content-length")),
        (304, Some("1234"))
    );
    let response = client.request("HEAD /head HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(response.header("content-length"), Some("1234"));
    assert_eq!(
        client
            .request("HEAD /head-chunked HTTP/1.1\r\nhost: a\r\n\r\n")
            .status,
        200
    );
    assert_eq!(client.get("/empty").header("content-length"), Some("0"));
    assert_eq!(server.connections(), 1);
}

#[test]
fn own_answers_to_head_have_no_body() {
    let yaml = Web::to([]).yaml().replace(
        "routes: [",
        "routes: [{match: {path: /direct}, direct_response: {status: 200, body: mine}}, ",
    );
    let proxy = support::start(&yaml);
    let mut client = connect(&proxy);
    for (path, status) in [("/direct", 200), ("/", 503)] {
        let response = client.request(format!("HEAD {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
        assert_eq!(response.status, status);
        assert_eq!(client.get(path).status, status);
    }
}

#[test]
fn a_small_request_that_is_refused_costs_no_connection() {
    let upstream = Upstream::start("a");
    let routes = "routes: [{match: {path: /direct}, direct_response: {status: 200, body: mine}}, \
                  {match: {path: /limited}, cluster: backend, rate_limit: 1/h}, ";
    let yaml = Web::to([upstream.address()]).yaml();
    let proxy = support::start(&yaml.replace("routes: [", routes));
    let mut client = connect(&proxy);
    assert_eq!(client.get("/limited").status, 200);
    for (path, status) in [("/direct", 200), ("/limited", 429), ("/early/413", 413)] {
        for body in [
            "content-length: 5\r\n\r\nhello",
            "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n",
        ] {
            let post = format!("POST {path} HTTP/1.1\r\nhost: a\r\n{body}");
            let response = client.request(post);
            let closes = response.header("connection");
            assert_eq!((response.status, closes), (status, None), "{path} {body}");
        }
    }
    // A body that has not arrived, or is large, is not waited for.
    for length in [6, 10_000_000] {
        let mut client = connect(&proxy);
        client.send(format!(
            "POST /direct HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\nhello"
        ));
        assert_eq!(client.response().header("connection"), Some("close"));
    }
}

#[test]
fn who_expects_100_waits_for_the_endpoint() {
    let server = RawServer::start(|connection, _| {
        let head = connection.read_head()?;
        assert!(
            head.to_lowercase().contains("\r\nexpect: 100-continue\r\n"),
            "{head}"
        );
        if head.starts_with("POST /refuse") {
            return connection.send("HTTP/1.1 417 No\r\ncontent-length: 0\r\n\r\n");
        }
        if !connection.is_silent_for(Duration::from_millis(100))? {
            return Err(std::io::Error::other("the body came unasked"));
        }
        connection.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        connection.expect("hello")?;
        // Announced, so that the next request is not sent when this connection ends.
        connection.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
    });
    let proxy = Web::to([server.address()]).start();
    let request = |path| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
        )
    };
    let mut client = connect(&proxy);
    client.send(request("/"));
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "ok");

    let mut client = connect(&proxy);
    client.send(request("/refuse"));
    let response = client.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (417, Some("close"))
    );
    client.assert_closed();
    server.finish();
}

#[test]
fn interim_responses_pass() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    client.send("GET /early-hints HTTP/1.1\r\nhost: a\r\n\r\n");
    let (interim, response) = client.final_response();
    assert_eq!(interim.len(), 1);
    assert_eq!(interim[0].status, 103);
    assert_eq!(
        interim[0].header("link"),
        Some("</style.css>; rel=preload; as=style")
    );
    assert_eq!(response.text(), "after the hints");

    // Several, and the last one long before the response.
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection.send("HTTP/1.1 102 Processing\r\n\r\n")?;
        connection.send(
            "HTTP/1.1 103 Early Hints\r\nlink: a\r\nconnection: keep-alive, x-a\r\nx-a: 1\r\n\
             content-length: 9\r\nlink: b\r\n\r\n",
        )?;
        connection.expect("x")?;
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n");
    assert_eq!(client.response().status, 102);
    let hints = client.response();
    assert_eq!(hints.header_all("link"), ["a", "b"]);
    let of_the_connection = (hints.header("connection"), hints.header("x-a"));
    assert_eq!(of_the_connection, (None, None), "{hints:?}");
    // There is no content that could have a length.
    assert_eq!(hints.header("content-length"), None, "{hints:?}");
    client.send("x");
    assert_eq!(client.response().status, 200);
    server.finish();
}

#[test]
fn interim_responses_without_end_are_given_up() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n".repeat(100);
    let server = RawServer::start(move |connection, _| {
        connection.read_head()?;
        while connection.send(&hint).is_ok() {}
        Ok(())
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let (interim, response) = client.final_response();
    assert_eq!(response.status, 502, "after {} of them", interim.len());
    // As many bytes as a head may have, which is far more than any client needs.
    assert!((1000..5000).contains(&interim.len()), "{}", interim.len());
    server.finish();
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    let response = client
        .request("GET /trailers HTTP/1.1\r\nhost: a\r\nconnection: TE\r\nte: trailers\r\n\r\n");
    assert_eq!(response.trailers, [("x-checksum".into(), "42".into())]);
    let response = client.request(
        "POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Sum: 1\r\ncontent-length: 7\r\nhost: evil\r\nKeep-Alive: 1\r\n\r\n",
    );
    // Fields that frame or route a message must not be trailers.
    let trailers = &response.json()["trailers"];
    assert_eq!(trailers.as_array().unwrap().len(), 1, "{trailers}");
    assert_eq!(
        (&trailers[0][0], &trailers[0][1]),
        (&"x-sum".into(), &"1".into())
    );
    assert_eq!(upstream.last().header("trailer"), Some("x-sum"));
}

#[test]
fn every_form_of_target_is_understood() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    let mut ask = |line: &str, host: &str| {
        let response = client.request(format!("{line} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert_eq!(response.status, 200, "{line}");
        let last = upstream.last();
        (
            last.uri.to_string(),
            last.header("host").unwrap().to_owned(),
        )
    };
    let pair = |uri: &str, host: &str| (uri.to_owned(), host.to_owned());
    assert_eq!(
        ask("GET http://b.example:81/x?y=z", "other"),
        pair("/x?y=z", "b.example:81")
    );
    assert_eq!(ask("GET HTTP://b.example", "other"), pair("/", "b.example"));
    assert_eq!(
        ask("GET https://b.example?y", "other"),
        pair("/?y", "b.example")
    );
    assert_eq!(ask("OPTIONS *", "a"), pair("*", "a"));
    assert_eq!(
        ask("OPTIONS http://b.example:81", "other"),
        pair("*", "b.example:81")
    );
    assert_eq!(
        ask("OPTIONS http://b.example/", "other"),
        pair("/", "b.example")
    );
    assert_eq!(ask("OPTIONS /x", "a"), pair("/x", "a"));
    assert_eq!(
        ask("GET /a%2Fb/../c//d?x=%20&y", "a"),
        pair("/c//d?x=%20&y", "a")
    );
    assert_eq!(ask("PURGE /x", "a"), pair("/x", "a"));
    // A host may be empty, and HTTP/1.1 needs it to be there.
    assert_eq!(ask("GET /x", "").0, "/x");
}

#[test]
fn connect_opens_a_tunnel_only_where_it_may() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    // Bytes for the tunnel are no request.
    client.send(
        "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\nGET /inside HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    assert_eq!(client.response().status, 405);
    client.assert_closed();
    assert_eq!(upstream.requests(), 0);

    // The endpoint gets the bytes inside the tunnel.
    let proxy = Web::to([upstream.address()])
        .http("allow_connect: true")
        .start();
    let mut client = connect(&proxy);
    client.send(
        "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\nGET /inside HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    let response = client.response_to("CONNECT");
    assert_eq!(
        (response.status, response.headers.len()),
        (200, 0),
        "{response:?}"
    );
    assert_eq!(client.response().text(), "a");
    assert_eq!(client.get("/again").text(), "a");
    assert_eq!(upstream.last().uri, "/again");
    drop(client);
    wait_quiet(&proxy);
}
