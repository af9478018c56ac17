//! Two workloads of the mesh and the transport between them: its requests, shared connections, and their end.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, Version};
use http_body::Frame;
use http_body_util::BodyExt as _;
use maglor_testkit::process::Signal;
use maglor_testkit::{
    Answer, Load, Proxy, RawHttp1, Recorded, TIMEOUT, Upstream, eventually, pattern,
};
use serde_json::json;

use crate::support;
use crate::support::h2::{self, Client};
use crate::support::mesh::{Member, Root};
use crate::support::{Web, outstanding, start};

/// A pair of proxies.
struct Pair {
    inbound: Proxy,
    outbound: Proxy,
}

/// Starts the proxy of an application.
fn inbound(member: &Member, application: SocketAddr, tls: &str, more: &str) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
{}
listeners:
- name: in
  address: 127.0.0.1:0
  tls: {tls}
{more}  inbound: {{application: '{application}', protocol: auto}}
",
        member.yaml()
    ))
}

/// Starts the proxy of a client that calls these endpoints.
fn outbound(member: &Member, endpoints: &[&Proxy], cluster: &str) -> Proxy {
    Web::to(endpoints.iter().map(|proxy| proxy.listener("in")))
        .top(&member.yaml())
        .cluster("tls: mesh")
        .cluster(cluster)
        .start()
}

impl Pair {
    fn start(application: &Upstream) -> Self {
        Self::with(application, "mesh", "", "policy: random")
    }

    fn with(application: &Upstream, tls: &str, listener: &str, cluster: &str) -> Self {
        let root = Root::new();
        let inbound = inbound(&root.member("server"), application.address(), tls, listener);
        let outbound = outbound(&root.member("client"), &[&inbound], cluster);
        Self { inbound, outbound }
    }

    /// Connects by HTTP/2, whose requests are never sent by HTTP/1.1 when alone.
    fn client(&self) -> Client {
        Client::connect(self.outbound.listener("web"))
    }

    /// Returns the number of connections between the two with this protocol.
    fn spoken(&self, protocol: &str) -> f64 {
        let label = format!("protocol=\"{protocol}\"");
        let name = "maglor_downstream_protocol_detected_total";
        self.inbound.metric(name, &[&label])
    }
}

fn upload(bytes: usize) -> http::Request<h2::Sent> {
    h2::request("POST", "/upload", h2::full(pattern::bytes(bytes)))
}

#[test]
fn messages_of_all_kinds_arrive_as_they_were_sent() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    let mut client = pair.client();
    assert_eq!(client.ask(h2::get("/")).text(), "a");
    for size in [1, 16_376, 16_377, 65_536, 3_000_000] {
        let expected =
            json!({"bytes": size, "hash": pattern::hash(&pattern::bytes(size)), "trailers": {}});
        let answer = client.ask(upload(size)).json();
        assert_eq!(answer["bytes"], expected["bytes"], "{answer}");
        assert_eq!(answer["hash"], expected["hash"], "{answer}");
        let answer = client.ask(h2::get(&format!("/bytes/{size}")));
        assert_eq!(answer.header("content-length"), Some(&*size.to_string()));
        assert!(answer.body == pattern::bytes(size), "{size}");
        let answer = client.ask(h2::get(&format!("/chunked/{size}")));
        assert_eq!(answer.header("content-length"), None);
        assert!(answer.body == pattern::bytes(size), "{size}");
    }
    let answer = client.ask(h2::get("/trailers"));
    assert_eq!(answer.trailers["x-checksum"], "42");
    let answer = client.ask(h2::request("HEAD", "/bytes/1000", h2::empty()));
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    assert_eq!(answer.header("content-length"), Some("1000"));
    for status in [204, 304, 404, 503] {
        let answer = client.ask(h2::get(&format!("/status/{status}")));
        assert_eq!((answer.status.as_u16(), answer.body.len()), (status, 0));
    }
    // A response before the request is complete.
    let answer = client.ask(h2::request(
        "POST",
        "/early/413",
        h2::full(pattern::bytes(2_000_000)),
    ));
    assert_eq!(answer.status.as_u16(), 413);
    assert_eq!(client.ask(h2::get("/")).text(), "a");
    assert_eq!((pair.spoken("mux"), pair.spoken("http2")), (1.0, 0.0));
}

#[test]
fn trailers_of_a_request_and_streams_both_ways() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    let mut client = pair.client();
    let (frames, body) = h2::channel();
    let sent = client.send(h2::request("POST", "/upload", body));
    frames.send(Ok(Frame::data("abc".into()))).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    frames.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(frames);
    let answer = client.run(async { h2::read(sent.await.unwrap()).await.unwrap() });
    assert_eq!(answer.json()["bytes"], 3);
    assert_eq!(answer.json()["trailers"], json!([["x-sum", "7"]]));
}

#[test]
fn what_http1_clients_ask_at_the_same_time_goes_together() {
    let application = Upstream::start("a");
    application
        .set_answer(|_: &Recorded| Some(Answer::text("slow").after(Duration::from_millis(200))));
    let pair = Pair::start(&application);
    let mut clients: Vec<_> = (0..8).map(|_| support::connect(&pair.outbound)).collect();
    for client in &mut clients {
        client.send("GET /x HTTP/1.1\r\nhost: a\r\nConnection: keep-alive\r\nX-Odd: Kept\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().text(), "slow");
    }
    let seen = application.recorded();
    assert!(seen.iter().all(|seen| seen.version == Version::HTTP_11));
    assert!(seen.iter().all(|seen| seen.header("x-odd") == Some("Kept")));
    assert!(
        !seen
            .iter()
            .any(|seen| seen.headers.contains_key("x-maglor-http-version"))
    );
    assert_eq!((pair.spoken("mux"), pair.spoken("http1")), (1.0, 1.0));
}

#[test]
fn informational_responses_and_expectations_pass() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    // Another request, so that the following ones use shared connections.
    let mut busy = pair.client();
    let hanging = busy.send(h2::get("/hang"));
    let waiting = std::thread::spawn(move || {
        busy.run(async move {
            let _ = tokio::time::timeout(Duration::from_secs(2), hanging).await;
        });
    });
    eventually(TIMEOUT, "a request hangs", || {
        outstanding(&pair.outbound) == 1.0
    });
    let mut client = support::connect(&pair.outbound);
    client.send("GET /early-hints HTTP/1.1\r\nhost: a\r\n\r\n");
    let (interim, last) = client.final_response();
    assert_eq!((interim.len(), last.status), (1, 200));
    assert_eq!(interim[0].status, 103);
    client.send(
        "POST /continue HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n",
    );
    let interim = client.connection().read_head().unwrap();
    assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
    client.send("hello");
    assert_eq!(client.response().json()["bytes"], 5);
    assert_eq!(pair.spoken("mux"), 1.0);
    waiting.join().unwrap();
}

#[test]
fn one_slow_reader_stops_no_other_and_takes_little_memory() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    let mut client = pair.client();
    assert_eq!(client.ask(h2::get("/")).text(), "a");
    let before = [&pair.inbound, &pair.outbound].map(Proxy::resident_bytes);
    let slow: Vec<_> = (0..8)
        .map(|_| client.send(h2::get("/bytes/20000000")))
        .collect();
    let slow: Vec<_> = slow
        .into_iter()
        .map(|sent| client.run(sent).unwrap())
        .collect();
    let mut other = pair.client();
    for _ in 0..50 {
        assert_eq!(other.ask(h2::get("/bytes/20000")).body.len(), 20_000);
    }
    for (proxy, before) in [&pair.inbound, &pair.outbound].iter().zip(before) {
        let more = proxy.resident_bytes().saturating_sub(before);
        assert!(more < 8 * 1024 * 1024, "{more} bytes");
    }
    // The slow ones are answered nevertheless.
    for response in slow.into_iter().take(2) {
        let body = client.run(response.into_body().collect()).unwrap();
        assert!(body.to_bytes() == pattern::bytes(20_000_000));
    }
    assert_eq!(pair.spoken("mux"), 1.0);
}

#[test]
fn stalled_uploads_stop_no_small_request() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    let mut client = pair.client();
    // Together they need more than the connection's window.
    let stuck: Vec<_> = (0..24)
        .map(|_| {
            client.send(h2::request(
                "POST",
                "/hang",
                h2::full(pattern::bytes(200_000)),
            ))
        })
        .collect();
    let stuck: Vec<_> = stuck
        .into_iter()
        .map(|sent| {
            let mut sent = Box::pin(sent);
            let patience = Duration::from_millis(20);
            client.run(async {
                let waited = tokio::time::timeout(patience, &mut sent).await;
                assert!(waited.is_err(), "no response");
            });
            sent
        })
        .collect();
    let mut other = pair.client();
    for _ in 0..20 {
        assert_eq!(other.ask(h2::get("/bytes/20000")).body.len(), 20_000);
    }
    drop(stuck);
    assert_eq!(other.ask(upload(300_000)).json()["bytes"], 300_000);
    assert_eq!(pair.spoken("mux"), 1.0);
}

#[test]
fn who_cancels_leaves_nothing_behind() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    let mut client = pair.client();
    for path in ["/hang", "/bytes/50000000", "/stall/10", "/drip/1000/10ms"] {
        let sent = client.send(h2::get(path));
        client.run(async move {
            let _ = tokio::time::timeout(Duration::from_millis(100), sent).await;
        });
        for proxy in [&pair.outbound, &pair.inbound] {
            eventually(TIMEOUT, path, || outstanding(proxy) == 0.0);
        }
    }
    // Nor does an application that aborts.
    assert_eq!(client.ask(h2::get("/close")).status.as_u16(), 502);
    assert!(client.try_ask(h2::get("/close-after-head")).is_err());
    assert_eq!(client.ask(h2::get("/")).text(), "a");
    for proxy in [&pair.outbound, &pair.inbound] {
        eventually(TIMEOUT, "nothing is under way", || {
            outstanding(proxy) == 0.0
        });
    }
    assert_eq!(pair.spoken("mux"), 1.0);
}

#[test]
fn connections_that_grow_old_cost_no_request() {
    let application = Upstream::start("a");
    let root = Root::new();
    let inbound = Web::to([application.address()])
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .http("max_connection_age: 1s")
        .start();
    let outbound = Web::to([inbound.listener("web")])
        .top(&root.member("client").yaml())
        .cluster("tls: mesh")
        .start();
    // Only requests that the inbound proxy has not processed are repeated.
    let request = "POST /delay/2ms HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    let load = Load::start(outbound.listener("web"), 16, request);
    eventually(TIMEOUT, "connections have been replaced", || {
        inbound.metric("maglor_mesh_handshakes_total", &[]) >= 4.0
    });
    assert!(load.stop() >= 100);
}

#[test]
fn a_rolling_restart_under_load_costs_no_request() {
    let application = Upstream::start("a");
    let root = Root::new();
    let member = root.member("server");
    let [mut a, b] = [(); 2].map(|()| inbound(&member, application.address(), "mesh", ""));
    let outbound = Web::to([a.listener("in"), b.listener("in")])
        .top(&root.member("client").yaml())
        .cluster("tls: mesh")
        .route("retry: {attempts: 3, retry_on: connect-failure}")
        .start();
    let load = Load::start(
        outbound.listener("web"),
        16,
        "GET /delay/3ms HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    load.wait_for(300);
    a.signal(Signal::Terminate);
    assert!(a.wait_exit(TIMEOUT).success());
    load.wait_for(500);
    assert!(load.stop() >= 800);
}

#[test]
fn versions_that_do_not_know_it_go_on_with_http2() {
    let application = Upstream::start("a");
    // An older server, and one whose operator has disabled the transport.
    let old = Pair::with(
        &application,
        "{mesh: strict, alpn: [h2, http/1.1]}",
        "",
        "policy: random",
    );
    let mut client = old.client();
    assert_eq!(client.ask(upload(100_000)).json()["bytes"], 100_000);
    assert_eq!((old.spoken("mux"), old.spoken("http2")), (0.0, 1.0));
    // An older client.
    let new = Pair::with(&application, "mesh", "", "protocol: http2");
    let mut client = new.client();
    assert_eq!(client.ask(upload(100_000)).json()["bytes"], 100_000);
    assert_eq!((new.spoken("mux"), new.spoken("http2")), (0.0, 1.0));
}

#[test]
fn more_requests_than_a_connection_takes_get_another() {
    let application = Upstream::start("a");
    let pair = Pair::with(&application, "mesh", "", "max_concurrent_streams: 4");
    let mut clients: Vec<_> = (0..12).map(|_| support::connect(&pair.outbound)).collect();
    for client in &mut clients {
        client.send("GET /delay/300ms HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(
        (2.0..=4.0).contains(&pair.spoken("mux")),
        "{}",
        pair.spoken("mux")
    );
}

#[test]
fn upgrades_have_connections_of_their_own() {
    let application = Upstream::start("a");
    let pair = Pair::start(&application);
    let mut other = pair.client();
    assert_eq!(other.ask(h2::get("/")).text(), "a");
    let mut client = RawHttp1::connect(pair.outbound.listener("web"));
    client.send("GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let head = client.connection().read_head().unwrap();
    // Only websocket upgrades are allowed.
    assert!(head.starts_with("HTTP/1.1 "), "{head}");
    assert_eq!(other.ask(h2::get("/")).text(), "a");
}
