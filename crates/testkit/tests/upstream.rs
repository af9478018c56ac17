//! Each behaviour of the upstream, tested with the raw client and with hyper's.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_testkit::raw::Framing;
use maglor_testkit::{Answer, RawHttp1, Upstream, eventually, pattern};
use serde_json::json;

fn both(name: &str) -> (Upstream, RawHttp1) {
    let upstream = Upstream::start(name);
    let client = RawHttp1::connect(upstream.address());
    (upstream, client)
}

#[test]
fn a_request_is_echoed_and_recorded() {
    let (upstream, mut client) = both("a");
    let response = client.request(
        "POST /echo?q=1 HTTP/1.1\r\nHost: h\r\nX-Twice: 1\r\nX-Twice: 2\r\n\
         Transfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n2\r\nhi\r\n0\r\nx-t: end\r\n\r\n",
    );
    assert_eq!(response.header("x-upstream"), Some("a"));
    let json = response.json();
    assert_eq!(json["method"], "POST");
    assert_eq!(json["uri"], "/echo?q=1");
    assert_eq!(json["version"], "HTTP/1.1");
    assert_eq!(json["body"], "hi");
    assert_eq!(json["trailers"], json!([["x-t", "end"]]));
    assert_eq!(json["headers"][0], json!(["host", "h"]));

    let last = upstream.last();
    assert_eq!((last.number, last.connection), (1, 1));
    assert_eq!(last.header("host"), Some("h"));
    assert_eq!(last.headers.get_all("x-twice").iter().count(), 2);
    assert_eq!(last.peer, client.connection().local().unwrap());
}

#[test]
fn statuses_delays_and_the_header_instead_of_the_path() {
    let (_upstream, mut client) = both("a");
    assert_eq!(client.get("/status/503").status, 503);
    assert_eq!(client.get("/status/204").framing, Framing::NoBody);
    let response = client.request("GET /x HTTP/1.1\r\nhost: h\r\nx-behave: /status/418\r\n\r\n");
    assert_eq!(response.status, 418);
    let start = Instant::now();
    assert_eq!(client.get("/delay/30ms").text(), "a");
    assert!(start.elapsed() >= Duration::from_millis(30));
    client.send("GET /hang HTTP/1.1\r\nhost: h\r\n\r\n");
    client.assert_silent(Duration::from_millis(30));
}

#[test]
fn bodies_with_and_without_a_length() {
    let (_upstream, mut client) = both("a");
    let sized = client.get("/bytes/300000");
    assert_eq!(
        (sized.framing, sized.body.len()),
        (Framing::Length, 300_000)
    );
    pattern::check(0, &sized.body);
    let chunked = client.get("/chunked/300000");
    assert_eq!(
        (chunked.framing, chunked.body.len()),
        (Framing::Chunked, 300_000)
    );
    pattern::check(0, &chunked.body);
    assert_eq!(client.get("/bytes/0").body.len(), 0);

    let start = Instant::now();
    let drip = client.get("/drip/3/10ms");
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(drip.body, pattern::bytes(30));
    let events = client.get("/sse/2/1ms");
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert_eq!(
        events.text(),
        "id: 0\ndata: event 0\n\nid: 1\ndata: event 1\n\n"
    );

    let trailers = client.request("GET /trailers HTTP/1.1\r\nhost: h\r\nte: trailers\r\n\r\n");
    assert_eq!(
        trailers.trailers,
        [("x-checksum".to_owned(), "42".to_owned())]
    );

    client.send("GET /stall/5 HTTP/1.1\r\nhost: h\r\n\r\n");
    let head = client.connection().read_head().unwrap();
    assert!(head.contains("content-length: 6"), "{head}");
    client.connection().expect(pattern::bytes(5)).unwrap();
    client.assert_silent(Duration::from_millis(20));
}

#[test]
fn interim_responses() {
    let (_upstream, mut client) = both("a");
    client.get("/");
    client.send("GET /early-hints HTTP/1.1\r\nhost: h\r\n\r\n");
    let (interim, response) = client.final_response();
    assert_eq!(interim.len(), 1);
    assert_eq!(interim[0].status, 103);
    assert!(interim[0].header("link").is_some());
    assert_eq!(response.text(), "after the hints");

    client.send(
        "POST /continue HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    );
    assert_eq!(client.response().status, 100);
    client.send("ok");
    assert_eq!(client.response().json()["bytes"], 2);

    client.send(
        "POST /early/413 HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    );
    assert_eq!(client.response().status, 413);
}

#[test]
fn connections_that_break() {
    let upstream = Upstream::start("a");
    let mut client = RawHttp1::connect(upstream.address());
    client.send("GET /close HTTP/1.1\r\nhost: h\r\n\r\n");
    client.assert_closed();

    let mut client = RawHttp1::connect(upstream.address());
    client.send("GET /close-after-head HTTP/1.1\r\nhost: h\r\n\r\n");
    let head = client.connection().read_head().unwrap();
    assert!(head.contains("content-length: 1000"), "{head}");
    let rest = client.connection().read_to_end().unwrap();
    assert_eq!(rest, pattern::bytes(10));
    eventually(Duration::from_secs(5), "all are closed", || {
        upstream.open_connections() == 0
    });
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn an_upload_is_counted_and_hashed() {
    let (_upstream, mut client) = both("a");
    let body = pattern::bytes(200_000);
    let mut request =
        b"POST /upload HTTP/1.1\r\nhost: h\r\ncontent-length: 200000\r\n\r\n".to_vec();
    request.extend(&body);
    let json = client.request(request).json();
    assert_eq!(json["bytes"], 200_000);
    assert_eq!(json["hash"], pattern::hash(&body));
}

#[test]
fn a_closure_takes_over() {
    let upstream = Upstream::builder("a")
        .answer(|request| {
            (request.uri.path() == "/mine").then(|| {
                Answer::text("mine")
                    .header("x-a", "1")
                    .trailer("x-t", "2")
                    .after(Duration::from_millis(5))
            })
        })
        .start();
    let mut client = RawHttp1::connect(upstream.address());
    let response = client.request("GET /mine HTTP/1.1\r\nhost: h\r\nte: trailers\r\n\r\n");
    assert_eq!(
        (response.text(), response.header("x-a")),
        ("mine", Some("1"))
    );
    assert_eq!(response.trailers.len(), 1);
    assert_eq!(client.get("/other").text(), "a");
    upstream.set_answer(|_| Some(Answer::close()));
    client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    client.assert_closed();
}

#[test]
fn upgrades_and_tunnels() {
    let (upstream, mut client) = both("a");
    client.send("GET /upgrade HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: own\r\n\r\n");
    let (_, response) = client.final_response();
    assert_eq!(
        (response.status, response.header("upgrade")),
        (101, Some("own"))
    );
    client.send("bytes");
    client.connection().expect("bytes").unwrap();
    assert_eq!(upstream.open_connections(), 1);
    client.connection().finish_sending().unwrap();
    client.assert_closed();

    let mut client = RawHttp1::connect(upstream.address());
    let response = client.request("CONNECT a.example:443 HTTP/1.1\r\nhost: a.example:443\r\n\r\n");
    assert_eq!(response.status, 200);
    client.send("bytes");
    client.connection().expect("bytes").unwrap();
    drop(client);
    eventually(Duration::from_secs(5), "all are closed", || {
        upstream.open_connections() == 0
    });
}

#[tokio::test]
async fn a_web_socket_sends_a_megabyte_back() {
    let upstream = Upstream::start("a");
    let stream = tokio::net::TcpStream::connect(upstream.address())
        .await
        .unwrap();
    let (mut socket, response) = tokio_tungstenite::client_async("ws://a/ws", stream)
        .await
        .unwrap();
    assert_eq!(response.headers()["x-upstream"], "a");
    let message = pattern::bytes(1 << 20);
    socket.send(message.clone().into()).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert!(answer.into_data() == message);
    socket.close(None).await.unwrap();
}

#[tokio::test]
async fn http2_with_prior_knowledge() {
    let upstream = Upstream::start("a");
    let stream = tokio::net::TcpStream::connect(upstream.address())
        .await
        .unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let driver = tokio::spawn(connection);
    let request = |path: &str| {
        let uri = format!("http://a.example{path}");
        Request::post(uri)
            .body(Full::new(Bytes::from_static(b"hi")))
            .unwrap()
    };
    let response = sender.send_request(request("/echo")).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&json["uri"], &json["body"]),
        (&json!("http://a.example/echo"), &json!("hi"))
    );

    let response = sender.send_request(request("/trailers")).await.unwrap();
    let trailers = response
        .into_body()
        .collect()
        .await
        .unwrap()
        .trailers()
        .cloned();
    assert_eq!(trailers.unwrap()["x-checksum"], "42");
    let response = sender.send_request(request("/early-hints")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(sender.send_request(request("/close")).await.is_err());
    assert!(
        sender.send_request(request("/")).await.is_ok(),
        "only the stream was reset"
    );
    assert_eq!((upstream.requests(), upstream.connections()), (5, 1));
    drop(sender);
    driver.await.unwrap().unwrap();
}

#[test]
fn a_stop_finishes_what_is_under_way_and_a_kill_does_not() {
    let (upstream, mut client) = both("a");
    let mut idle = RawHttp1::connect(upstream.address());
    idle.get("/");
    client.send("GET /delay/50ms HTTP/1.1\r\nhost: h\r\n\r\n");
    eventually(Duration::from_secs(5), "the request is there", || {
        upstream.requests() == 2
    });
    let address = upstream.address();
    upstream.stop();
    assert_eq!(client.response().text(), "a");
    client.assert_closed();
    idle.assert_closed();

    let upstream = Upstream::builder("b").address(address).start();
    let mut client = RawHttp1::connect(address);
    client.send("GET /hang HTTP/1.1\r\nhost: h\r\n\r\n");
    eventually(Duration::from_secs(5), "the request is there", || {
        upstream.requests() == 1
    });
    upstream.kill();
    let error = client.connection().read_to_end().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(std::net::TcpStream::connect(address).is_err());
}
