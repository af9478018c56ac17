//! Timeouts, and clients that send their requests slowly: their time is not charged to the endpoint.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Frame;
use maglor_testkit::{Answer, Proxy, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::h2::{self, Client};
use crate::support::{Web, connect, get, wait_quiet};

/// Number of pieces of an upload, and the pause before each.
const PIECES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(100);
/// Less than all the pauses together, and much more than one.
const LIMIT: Duration = Duration::from_millis(500);

/// Returns the status of a request whose body is sent in pieces.
fn upload(proxy: &Proxy, head: &str) -> u16 {
    let mut client = connect(proxy);
    let head = format!("PUT /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {PIECES}\r\n{head}\r\n");
    client.send(head);
    for _ in 0..PIECES {
        std::thread::sleep(PAUSE);
        client.send("x");
    }
    client.response().status
}

/// The same by HTTP/2.
fn upload_by_http2(proxy: &Proxy) -> u16 {
    let mut client = Client::connect(proxy.listener("web"));
    let (pieces, body) = h2::channel();
    let response = client.send(h2::request("PUT", "/upload", body));
    let send = async move {
        for _ in 0..PIECES {
            tokio::time::sleep(PAUSE).await;
            pieces.send(Ok(Frame::data(Bytes::from("x")))).unwrap();
        }
    };
    let (response, ()) = client.run(async { tokio::join!(response, send) });
    response.unwrap().status().as_u16()
}

#[test]
fn a_slow_upload_is_not_the_endpoints_time() {
    let upstream = Upstream::start("a");
    let limits = [
        format!("timeout: {LIMIT:?}"),
        format!("timeout: 10s, retry: {{retry_on: 5xx, per_try_timeout: {LIMIT:?}}}"),
    ];
    for (route, protocol) in limits.iter().flat_map(|l| [(l, "http1"), (l, "http2")]) {
        let proxy = Web::to([upstream.address()])
            .route(route)
            .cluster(&format!("protocol: {protocol}"))
            .start();
        assert_eq!(upload(&proxy, ""), 200, "{route} {protocol}");
        assert_eq!(upload_by_http2(&proxy), 200, "{route} {protocol}");
        // A proxy in front sends its own timeout, with the same meaning.
        let expected = format!("x-envoy-expected-rq-timeout-ms: {}\r\n", LIMIT.as_millis());
        assert_eq!(upload(&proxy, &expected), 200, "{route} {protocol}");
        assert_eq!(proxy.metric("maglor_upstream_retries_total", &[]), 0.0);
        wait_quiet(&proxy);
    }
}

#[test]
fn the_time_begins_when_the_request_has_ended() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route(&format!("timeout: {LIMIT:?}"))
        .start();
    let mut client = connect(&proxy);
    client.send("PUT /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nx");
    std::thread::sleep(2 * LIMIT);
    let ended = Instant::now();
    client.send("x");
    let response = client.response();
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (504, Some("UT"))
    );
    let took = ended.elapsed();
    assert!(took >= LIMIT && took < 2 * LIMIT, "{took:?}");
}

#[test]
fn an_endpoint_that_reads_nothing_does_not_have_all_the_time() {
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        std::thread::sleep(6 * LIMIT);
        Ok(())
    });
    let proxy = Web::to([server.address()])
        .route(&format!("timeout: {LIMIT:?}"))
        .start();
    let began = Instant::now();
    let mut client = connect(&proxy);
    client.send("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n");
    // Until neither the endpoint nor the proxy accepts more.
    let writer = std::thread::spawn({
        let body = vec![b'x'; 1 << 20];
        let mut client = client;
        move || {
            while client.connection().send(&body).is_ok() {}
        }
    });
    writer.join().unwrap();
    assert!(began.elapsed() < 5 * LIMIT, "{:?}", began.elapsed());
    proxy.expect_metric("maglor_http_requests_total", &["status=\"5xx\""], 1.0);
}

#[test]
fn neither_does_one_that_grants_no_window() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route(&format!("timeout: {LIMIT:?}"))
        .start();
    let began = Instant::now();
    let mut client = connect(&proxy);
    client
        .send("PUT /hang HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n");
    assert_eq!(client.response().status, 504);
    assert!(began.elapsed() < 3 * LIMIT, "{:?}", began.elapsed());
}

/// After the endpoint has agreed, the wait is for the client.
#[test]
fn a_client_that_does_not_use_its_leave_is_late_itself() {
    let server = || {
        RawServer::start(|connection, _| {
            connection.read_head()?;
            connection.send("HTTP/1.1 100 Continue\r\n\r\n")?;
            connection.read_to_end().map(drop)
        })
    };
    let servers = [server(), server()];
    let proxy = Web::to(servers.iter().map(RawServer::address))
        .http(&format!("stream_idle_timeout: {:?}", 2 * LIMIT))
        .route(&format!("timeout: {LIMIT:?}"))
        .cluster("outlier_ejection: {consecutive_local_origin_failure: 1}")
        .start();
    let mut client = connect(&proxy);
    client.send("PUT / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n");
    let (interim, response) = client.final_response();
    assert_eq!(interim.len(), 1);
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (504, Some("SI"))
    );
    assert_eq!(ejections(&proxy), 0.0);
}

#[test]
fn a_queue_counts_although_the_body_is_not_read_yet() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("timeout: 0s")
        .cluster("limits: {max_requests: 1, queue_timeout: 1m}")
        .start();
    let mut first = connect(&proxy);
    first.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
    let began = Instant::now();
    let mut second = connect(&proxy);
    let millis = LIMIT.as_millis();
    let answer = second.request(format!(
        "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\
         x-envoy-expected-rq-timeout-ms: {millis}\r\n\r\nx"
    ));
    assert_eq!(answer.status, 504);
    assert!(began.elapsed() < 3 * LIMIT, "{:?}", began.elapsed());
}

#[test]
fn an_upload_that_moves_is_not_idle() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http(&format!("stream_idle_timeout: {LIMIT:?}"))
        .route("timeout: 0s")
        .start();
    assert_eq!(upload(&proxy, ""), 200);
    assert_eq!(upload_by_http2(&proxy), 200);
    // An upload that has stalled is late.
    let mut client = connect(&proxy);
    client.send("PUT /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nx");
    let response = client.response();
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (504, Some("SI"))
    );
}

#[test]
fn a_call_whose_client_is_late_is_not_held_against_the_endpoint() {
    let upstreams = ["a", "b"].map(Upstream::start);
    let proxy = Web::to(upstreams.iter().map(Upstream::address))
        .cluster("outlier_ejection: {consecutive_local_origin_failure: 1}")
        .start();
    // gRPC deadlines begin with the call.
    let mut client = Client::connect(proxy.listener("web"));
    for _ in 0..3 {
        let (pieces, body) = h2::channel();
        let mut request = h2::request("POST", "/upload", body);
        let headers = request.headers_mut();
        headers.insert("content-type", "application/grpc".parse().unwrap());
        headers.insert("grpc-timeout", "100m".parse().unwrap());
        let answer = client.ask(request);
        assert_eq!(answer.header("grpc-status"), Some("4"));
        drop(pieces);
    }
    assert_eq!(proxy.metric("maglor_upstream_ejections_total", &[]), 0.0);
}

/// Returns a service of two endpoints, with ejection and a circuit breaker at the first failure.
fn strict(upstreams: &[Upstream; 2]) -> Web {
    Web::to(upstreams.iter().map(Upstream::address)).cluster(
        "outlier_ejection: {consecutive_local_origin_failure: 1, consecutive_gateway_failure: 1}, \
         circuit_breaker: {consecutive_failures: 1}",
    )
}

fn ejections(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_upstream_ejections_total", &[])
}

/// Any client may set a very short timeout.
#[test]
fn what_a_client_does_not_wait_for_is_not_held_against_anybody() {
    let upstreams = ["a", "b"].map(Upstream::start);
    let proxy = strict(&upstreams).start();
    let hurried =
        "GET /delay/300ms HTTP/1.1\r\nhost: a\r\nx-envoy-expected-rq-timeout-ms: 1\r\n\r\n";
    for _ in 0..5 {
        assert_eq!(connect(&proxy).request(hurried).status, 504);
    }
    let mut client = Client::connect(proxy.listener("web"));
    for _ in 0..5 {
        let mut request = h2::request("POST", "/delay/300ms", h2::empty());
        let headers = request.headers_mut();
        headers.insert("content-type", "application/grpc".parse().unwrap());
        headers.insert("grpc-timeout", "1m".parse().unwrap());
        assert_eq!(client.ask(request).header("grpc-status"), Some("4"));
    }
    // Nor is it if the endpoint itself sends 504, because it is a proxy.
    for upstream in &upstreams {
        upstream.set_answer(|_| Some(Answer::status(504)));
    }
    for _ in 0..5 {
        let patient = hurried.replace("-ms: 1\r", "-ms: 500\r");
        assert_eq!(connect(&proxy).request(patient).status, 504);
    }
    assert_eq!(ejections(&proxy), 0.0);
    // With the route's own timeout, it counts.
    assert_eq!(get(&proxy, "/").status, 504);
    eventually(TIMEOUT, "it is ejected", || ejections(&proxy) == 1.0);
}

#[test]
fn endpoints_that_never_respond_are_ejected_though_their_clients_have_limits() {
    let upstreams = ["a", "b"].map(Upstream::start);
    let proxy = strict(&upstreams).start();
    let hurried = "GET /hang HTTP/1.1\r\nhost: a\r\nx-envoy-expected-rq-timeout-ms: 1200\r\n\r\n";
    assert_eq!(connect(&proxy).request(hurried).status, 504);
    eventually(TIMEOUT, "it is ejected", || ejections(&proxy) == 1.0);
}

/// Nor is a malformed request body.
#[test]
fn a_body_that_a_client_spoils_is_not_held_against_anybody() {
    for protocol in ["http1", "http2"] {
        let upstreams = ["a", "b"].map(Upstream::start);
        let proxy = strict(&upstreams)
            .cluster(&format!("protocol: {protocol}"))
            .start();
        for number in 1..=5 {
            let mut client = connect(&proxy);
            client.send(
                "POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n",
            );
            eventually(TIMEOUT, "an endpoint has it", || {
                upstreams.iter().map(Upstream::requests).sum::<u64>() == number
            });
            client.send("no length\r\n");
            assert_eq!(client.response().status, 400, "{protocol}");
        }
        assert_eq!(ejections(&proxy), 0.0, "{protocol}");
        assert_eq!(get(&proxy, "/").status, 200, "{protocol}");
    }
}

/// A call whose response has begun may continue for as long as its client reads.
#[test]
fn the_end_of_a_streams_time_is_no_failure() {
    let server = || {
        RawServer::start(|connection, _| {
            connection.read_head()?;
            connection.send(
                "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n\
                 transfer-encoding: chunked\r\n\r\n",
            )?;
            std::thread::sleep(6 * LIMIT);
            Ok(())
        })
    };
    let servers = [server(), server()];
    let proxy = Web::to(servers.iter().map(RawServer::address))
        .route(&format!("timeout: {LIMIT:?}"))
        .cluster("protocol: http1, outlier_ejection: {consecutive_local_origin_failure: 1}")
        .start();
    let mut client = Client::connect(proxy.listener("web"));
    for _ in 0..3 {
        let mut request = h2::request("POST", "/", h2::empty());
        let headers = request.headers_mut();
        headers.insert("content-type", "application/grpc".parse().unwrap());
        let began = Instant::now();
        drop(client.try_ask(request));
        assert!(began.elapsed() >= LIMIT, "it is cut off");
    }
    assert_eq!(ejections(&proxy), 0.0);
}
