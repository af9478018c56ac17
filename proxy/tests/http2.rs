//! HTTP/2 on the client's side, on the endpoint's, and on both.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Frame;
use maglor_testkit::pattern::{self, PatternBody};
use maglor_testkit::process::Signal;
use maglor_testkit::{Answer, Proxy, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::h2::{self, Client};
use crate::support::{Web, connect, outstanding, wait_quiet};

fn to_http2(endpoints: impl IntoIterator<Item = SocketAddr>) -> Web {
    Web::to(endpoints).cluster("protocol: http2")
}

fn client(proxy: &Proxy) -> Client {
    Client::connect(proxy.listener("web"))
}

/// Starts a proxy to each version of HTTP.
fn to_both(upstream: &Upstream) -> [(&'static str, Proxy); 2] {
    let endpoint = [upstream.address()];
    [
        ("HTTP/1.1", Web::to(endpoint).start()),
        ("HTTP/2.0", to_http2(endpoint).start()),
    ]
}

#[test]
fn requests_pass_between_versions() {
    let upstream = Upstream::start("a");
    for (version, proxy) in to_both(&upstream) {
        let mut client = client(&proxy);
        for size in [0, 1, 70_000, 1_000_000] {
            let body = pattern::bytes(size);
            let answer = client.ask(h2::request("PUT", "/upload", h2::full(body.clone())));
            assert_eq!(
                answer.json()["hash"],
                pattern::hash(&body),
                "{version} {size}"
            );
            let body = h2::body(PatternBody::streamed(size as u64));
            let answer = client.ask(h2::request("POST", "/upload", body));
            assert_eq!(answer.json()["bytes"], size, "{version}");
            for path in ["bytes", "chunked"] {
                let answer = client.ask(h2::get(&format!("/{path}/{size}")));
                assert_eq!(answer.body.len(), size, "{version} {path}");
                pattern::check(0, &answer.body);
            }
        }
        let head = client.ask(h2::request("HEAD", "/bytes/10", h2::empty()));
        assert_eq!(
            (head.header("content-length"), head.body.len()),
            (Some("10"), 0)
        );
        for status in [204, 304, 404, 500] {
            let answer = client.ask(h2::get(&format!("/status/{status}")));
            assert_eq!(answer.status, status, "{version}");
        }
        assert_eq!(format!("{:?}", upstream.last().version), version);
        assert_eq!(
            proxy.metric("maglor_downstream_connections_total", &[]),
            1.0
        );
        drop(client);
        wait_quiet(&proxy);
    }

    // From HTTP/1.1 to HTTP/2.
    let proxy = to_http2([upstream.address()]).start();
    let mut client = connect(&proxy);
    for size in [0, 1, 1_000_000] {
        let body = pattern::bytes(size);
        client.send(format!(
            "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n"
        ));
        client.send(&body);
        assert_eq!(client.response().json()["hash"], pattern::hash(&body));
        assert_eq!(client.get(&format!("/chunked/{size}")).body, body);
    }
    assert_eq!(format!("{:?}", upstream.last().version), "HTTP/2.0");
    assert_eq!(
        client
            .request("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n")
            .status,
        200
    );
    client.send(
        "POST /upload HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
    );
    assert_eq!(client.response().status, 100);
    client.send("x");
    assert_eq!(client.response().json()["bytes"], 1);
    assert_eq!(upstream.last().header("expect"), None);
}

#[test]
fn fields_are_those_that_the_other_version_allows() {
    let upstream = Upstream::start("a");
    for (version, proxy) in to_both(&upstream) {
        let mut request = h2::request("GET", "/x?y=z", h2::empty());
        let headers = request.headers_mut();
        for (name, value) in [
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("te", "trailers"),
            ("x-e", ""),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.insert(
            "x-utf8",
            HeaderValue::from_bytes("gr\u{fc}n".as_bytes()).unwrap(),
        );
        upstream.set_answer(|_| {
            let answer = Answer::text("x").header("set-cookie", "a=1");
            Some(
                answer
                    .header("set-cookie", "b=2")
                    .header("keep-alive", "timeout=5"),
            )
        });
        let answer = client(&proxy).ask(request);
        let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
        for gone in ["keep-alive", "connection", "transfer-encoding"] {
            assert_eq!(answer.header(gone), None, "{version}");
        }
        let last = upstream.last();
        assert_eq!(format!("{:?}", last.version), version);
        assert_eq!(last.uri.path_and_query().unwrap(), "/x?y=z");
        assert_eq!(last.header("cookie"), Some("a=1; b=2"), "{version}");
        assert_eq!(
            (last.header("te"), last.header("x-e")),
            (Some("trailers"), Some(""))
        );
        assert_eq!(last.headers["x-utf8"], "gr\u{fc}n".as_bytes());
        assert_eq!(last.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(last.header("x-forwarded-host"), Some("test"));
        match version {
            "HTTP/2.0" => assert_eq!(last.uri.authority().unwrap(), "test"),
            _ => assert_eq!(last.header("host"), Some("test")),
        }
    }
}

#[test]
fn trailers_pass_between_versions() {
    let upstream = Upstream::start("a");
    for (version, proxy) in to_both(&upstream) {
        let mut client = client(&proxy);
        let mut request = h2::get("/trailers");
        request
            .headers_mut()
            .insert("te", HeaderValue::from_static("trailers"));
        assert_eq!(
            client.ask(request).trailers["x-checksum"],
            "42",
            "{version}"
        );
        let (frames, body) = h2::channel();
        frames.send(Ok(Frame::data("abc".into()))).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        frames.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(frames);
        let answer = client.ask(h2::request("POST", "/upload", body));
        assert_eq!(answer.json()["trailers"][0][0], "x-sum", "{version}");
    }
    let proxy = to_http2([upstream.address()]).start();
    let answer = connect(&proxy).get("/trailers");
    assert_eq!(answer.trailers, [("x-checksum".into(), "42".into())]);
}

#[test]
fn many_streams_share_a_connection() {
    let upstream = Upstream::start("a");
    let proxy = to_http2([upstream.address()])
        .cluster("max_concurrent_streams: 30")
        .start();
    let mut client = client(&proxy);
    let started = Instant::now();
    let sent: Vec<_> = (0..200)
        .map(|_| client.send(h2::get("/delay/200ms")))
        .collect();
    let answers = client.run(join_all(sent));
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().is_ok_and(|a| a.status() == 200))
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    drop(answers);
    assert_eq!(outstanding(&proxy), 0.0);
    let connections = upstream.connections();
    // The client has 128 concurrent streams. With the default of 100, two connections would be enough.
    assert!((4..=7).contains(&connections), "{connections}");
    assert_eq!(
        proxy.metric("maglor_upstream_requests_total", &["status=\"2xx\""]),
        200.0
    );
}

#[test]
fn a_cancelled_stream_is_cancelled_at_the_endpoint_and_nowhere_else() {
    let upstream = Upstream::start("a");
    for (version, proxy) in to_both(&upstream) {
        let mut client = client(&proxy);
        assert_eq!(client.ask(h2::get("/")).status, 200);
        let kept = client.send(h2::get("/delay/1s"));
        let mut kept = Box::pin(kept);
        let (_frames, body) = h2::channel();
        for request in [
            h2::get("/hang"),
            h2::get("/stall/10"),
            h2::request("POST", "/upload", body),
        ] {
            let shown = request.uri().to_string();
            let before = upstream.requests();
            let answered = shown.contains("stall");
            let mut sent = Box::pin(client.send(request));
            let mut response = None;
            client.run(async {
                // The kept one first, so that it is sent at all.
                let some = tokio::time::timeout(Duration::from_millis(20), &mut kept).await;
                assert!(some.is_err());
                if answered {
                    response = Some(sent.as_mut().await.unwrap());
                } else {
                    let none =
                        tokio::time::timeout(Duration::from_millis(100), sent.as_mut()).await;
                    assert!(none.is_err());
                }
            });
            eventually(TIMEOUT, "the endpoint has it", || {
                upstream.requests() > before
            });
            assert_eq!(outstanding(&proxy), 2.0, "{version} {shown}");
            drop((sent, response));
            eventually(Duration::from_secs(2), "it is cancelled", || {
                outstanding(&proxy) == 1.0
            });
        }
        assert_eq!(client.run(kept).unwrap().status(), 200);
        wait_until_idle(&proxy);
        let none = proxy.metric("maglor_http_requests_total", &["status=\"none\""]);
        assert_eq!(none, 2.0, "{version}");
    }
}

#[track_caller]
fn wait_until_idle(proxy: &Proxy) {
    eventually(TIMEOUT, "no request is under way", || {
        outstanding(proxy) == 0.0
    });
}

#[test]
fn a_slow_stream_holds_up_neither_the_others_nor_memory() {
    let upstream = Upstream::start("a");
    for (version, proxy) in to_both(&upstream) {
        let mut client = client(&proxy);
        assert_eq!(client.ask(h2::get("/")).status, 200);
        let before = proxy.allocated_bytes();
        let slow: Vec<_> = (0..8)
            .map(|_| client.send(h2::get("/chunked/100000000")))
            .collect();
        let slow = client.run(join_all(slow));
        for _ in 0..20 {
            assert_eq!(
                client.ask(h2::get("/bytes/1000")).body.len(),
                1000,
                "{version}"
            );
        }
        std::thread::sleep(Duration::from_millis(200));
        let grown = proxy.allocated_bytes().saturating_sub(before);
        assert!(grown < 6 << 20, "{version}: {grown} bytes");
        // Reading on continues the transfer.
        let mut body = slow.into_iter().next().unwrap().unwrap().into_body();
        let mut read = 0;
        while read < 10_000_000 {
            let frame = client.run(body.frame()).unwrap().unwrap();
            let data = frame.into_data().unwrap();
            pattern::check(read, &data);
            read += data.len() as u64;
        }
        drop(body);
        wait_until_idle(&proxy);
    }
}

#[test]
fn both_ways_flow_at_once() {
    let upstream = Upstream::start("a");
    let proxy = to_http2([upstream.address()]).start();
    let mut client = client(&proxy);
    // A response before the end of the request.
    let (frames, body) = h2::channel();
    frames
        .send(Ok(Frame::data(Bytes::from_static(b"some"))))
        .unwrap();
    let sent = client.send(h2::request("POST", "/early/418", body));
    let response = client.run(sent).unwrap();
    assert_eq!(response.status(), 418);
    drop((frames, response));
    assert_eq!(client.ask(h2::get("/")).status, 200);
    wait_until_idle(&proxy);
}

#[test]
fn too_large_a_head_is_refused() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("max_header_bytes: 4KiB, max_headers: 20")
        .start();
    let mut client = client(&proxy);
    let with = |count: usize, length: usize| {
        let mut request = h2::get("/");
        for number in 0..count {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            request
                .headers_mut()
                .insert(name, HeaderValue::try_from("y".repeat(length)).unwrap());
        }
        request
    };
    assert_eq!(client.ask(with(10, 10)).status, 200);
    assert_eq!(client.ask(with(30, 1)).status, 431);
    for request in [with(1, 5000), with(5, 1000), with(1, 100_000)] {
        match client.try_ask(request) {
            Ok(answer) => assert_eq!(answer.status, 431),
            // An error of the stream or, with more than the decoder accepts, of the connection.
            Err(_) => client = Client::connect(proxy.listener("web")),
        }
        assert_eq!(client.ask(with(1, 1)).status, 200);
    }
    assert_eq!(upstream.requests(), 4);
}

#[test]
fn a_drain_says_goodbye_and_lets_streams_finish() {
    let upstream = Upstream::start("a");
    for (version, mut proxy) in to_both(&upstream) {
        let idle = client(&proxy);
        let mut client = client(&proxy);
        assert_eq!(client.ask(h2::get("/")).status, 200);
        let before = upstream.requests();
        let sent: Vec<_> = (0..20)
            .map(|_| client.send(h2::get("/delay/500ms")))
            .collect();
        let drip = client.send(h2::get("/drip/30/20ms"));
        let mut all = Box::pin(async {
            let (answers, drip) = tokio::join!(join_all(sent), drip);
            (answers, h2::read(drip.unwrap()).await)
        });
        let early =
            client.run(async { tokio::time::timeout(Duration::from_millis(100), &mut all).await });
        assert!(early.is_err());
        eventually(TIMEOUT, "all are under way", || {
            upstream.requests() == before + 21
        });
        let started = Instant::now();
        proxy.signal(Signal::Terminate);
        let (answers, drip) = client.run(all);
        assert!(
            answers
                .iter()
                .all(|a| a.as_ref().is_ok_and(|a| a.status() == 200)),
            "{version}"
        );
        assert_eq!(drip.unwrap().body.len(), 300);
        assert!(proxy.wait_exit(TIMEOUT).success());
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "{version}: {:?}",
            started.elapsed()
        );
        assert!(client.is_closed());
        eventually(TIMEOUT, "the idle one is closed", || idle.is_closed());
    }
}

#[test]
fn grpc_clients_get_errors_in_their_own_form() {
    let upstream = Upstream::start("a");
    let gone = Upstream::start("gone");
    let gone_address = gone.address();
    gone.kill();
    let raw = RawServer::answering("nonsense\r\n\r\n", 1);
    let cases = [
        (to_http2([]), "14", "no healthy upstream"),
        (to_http2([gone_address]), "14", "connect failed"),
        (
            to_http2([upstream.address()]).route("timeout: 200ms"),
            "4",
            "request timeout",
        ),
        (to_http2([raw.address()]), "14", ""),
        (
            to_http2([upstream.address()]).route("match: {path: /other}"),
            "12",
            "no route",
        ),
    ];
    for (web, status, message) in cases {
        let proxy = web.start();
        let mut request = h2::request("POST", "/hang", h2::full("\0\0\0\0\0"));
        let content = HeaderValue::from_static("application/grpc+proto");
        request.headers_mut().insert("content-type", content);
        let answer = client(&proxy).ask(request);
        assert_eq!(answer.status, 200, "{message}");
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        assert_eq!(answer.header("grpc-status"), Some(status), "{answer:?}");
        assert!(
            answer.header("grpc-message").unwrap().contains(message),
            "{answer:?}"
        );
        assert!(answer.body.is_empty() && answer.trailers.is_empty());
        wait_until_idle(&proxy);
    }
}

#[test]
fn an_endpoint_that_fails_resets_only_its_streams() {
    let upstream = Upstream::start("a");
    for (version, proxy) in to_both(&upstream) {
        let mut client = client(&proxy);
        assert!(
            client.try_ask(h2::get("/close-after-head")).is_err(),
            "{version}"
        );
        assert_eq!(client.ask(h2::get("/close")).status, 502, "{version}");
        assert_eq!(client.ask(h2::get("/")).status, 200, "{version}");
        assert!(!client.is_closed());
        wait_until_idle(&proxy);
    }
    // In HTTP/1.1 the client must not mistake the received part for the whole.
    let proxy = to_http2([upstream.address()]).start();
    let mut client = connect(&proxy);
    client.send("GET /close-after-head HTTP/1.1\r\nhost: a\r\n\r\n");
    let head = client.connection().read_head().unwrap();
    assert!(head.contains("content-length: 1000"), "{head}");
    assert!(
        client
            .connection()
            .read_to_end()
            .map_or(true, |rest| rest.len() < 1000)
    );
}

#[test]
fn an_endpoint_may_restart() {
    let mut upstream = Upstream::start("a");
    let address = upstream.address();
    let proxy = to_http2([address]).start();
    let mut client = client(&proxy);
    for round in 0..5 {
        assert_eq!(client.ask(h2::get("/")).status, 200, "round {round}");
        // Gracefully, and not.
        if round % 2 == 0 {
            upstream.stop();
        } else {
            upstream.kill();
        }
        let status = client.ask(h2::get("/")).status;
        assert_eq!(status, 503, "round {round}");
        upstream = Upstream::builder("a").address(address).start();
    }
    assert_eq!(client.ask(h2::get("/")).status, 200);
}
