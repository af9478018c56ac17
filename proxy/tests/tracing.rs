//! Spans of requests, seen by a collector, and trace headers, seen by endpoints.

use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Request;
use maglor_testkit::{Answer, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::collector::{Collector, Span, Transport};
use crate::support::h2::{self, Client, Sent};
use crate::support::{Web, connect, get, reload, start};

const ALL: &str = "percent: 100";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Returns the configuration of a proxy whose spans go to a collector.
fn traced(web: Web, collector: &Collector, sampling: &str) -> String {
    web.top(&collector.tracing(sampling)).yaml() + &collector.cluster()
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// Sends a request with these header lines.
fn get_with(proxy: &Proxy, path: &str, headers: &str) -> u16 {
    let host = proxy.listener("web");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
    let mut client = connect(proxy);
    client.request(request).status
}

fn exported(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_trace_spans_exported_total", &[])
}

fn dropped(proxy: &Proxy, reason: &str) -> f64 {
    let reason = format!("reason=\"{reason}\"");
    proxy.metric("maglor_trace_spans_dropped_total", &[&reason])
}

#[track_caller]
fn pair(spans: &[Span]) -> (&Span, &Span) {
    let [server, client] = spans else {
        panic!("{spans:#?}");
    };
    assert!(server.is_server && !client.is_server);
    assert_eq!(client.trace, server.trace);
    assert_eq!(client.parent, server.id);
    (server, client)
}

fn failing(name: &str, status: u16) -> Upstream {
    let upstream = Upstream::start(name);
    upstream.set_answer(move |_| Some(Answer::status(status)));
    upstream
}

#[test]
fn a_request_has_a_span_and_its_attempt_another() {
    for transport in [Transport::Grpc, Transport::Http] {
        let (upstream, collector) = (Upstream::start("a"), Collector::start(transport));
        let web = Web::to([upstream.address()]).cluster("policy: lor");
        let proxy = start(&traced(web, &collector, ALL));
        let before = now();
        assert_eq!(get_with(&proxy, "/cart?secret=1", ""), 200);
        let spans = collector.wait_for(2);
        let (server, client) = pair(&spans);
        assert!(before <= server.start && server.start <= client.start);
        assert!(client.start < client.end && client.end <= server.end && server.end <= now());
        assert_eq!(
            (server.trace.len(), server.id.len(), &*server.parent),
            (32, 16, "")
        );
        assert!(!server.failed && !client.failed);
        assert_eq!((server.flags, client.flags), (0x101, 0x101));
        assert_eq!((&*server.name, &*client.name), ("GET /*", "GET"));
        let listener = proxy.listener("web");
        let (port, endpoint) = (listener.port().to_string(), upstream.address().to_string());
        for (key, expected) in [
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("http.response.body.size", "1"),
            ("http.route", "/*"),
            ("url.path", "/cart"),
            ("url.scheme", "http"),
            ("url.query", "-"),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", "1.1"),
            ("error.type", "-"),
            ("maglor.listener", "web"),
            ("maglor.direction", "unspecified"),
            ("maglor.response_flag", "-"),
        ] {
            assert_eq!(server.get(key), expected, "{key}");
        }
        for (key, expected) in [
            ("http.request.method", "GET"),
            ("http.response.status_code", "200"),
            ("http.request.resend_count", "-"),
            ("url.full", &format!("http://{listener}/cart")),
            ("server.address", "127.0.0.1"),
            ("network.peer.port", &upstream.address().port().to_string()),
            ("maglor.cluster", "backend"),
            ("maglor.endpoint", &endpoint),
            ("maglor.policy", "lor"),
            ("maglor.queue_length", "0"),
            ("maglor.outcome", "-"),
        ] {
            assert_eq!(client.get(key), expected, "{key}");
        }
        assert_eq!(server.resource("service.name"), "shop");
        // A trace begins here: in W3C's format.
        let header = format!("00-{}-{}-01", client.trace, client.id);
        assert_eq!(upstream.last().header("traceparent"), Some(&*header));
        eventually(TIMEOUT, "they are counted", || exported(&proxy) == 2.0);
    }
}

#[test]
fn each_retry_is_a_span() {
    let collector = Collector::start(Transport::Http);
    let (bad, good) = (failing("bad", 503), Upstream::start("good"));
    let web = Web::to([bad.address(), good.address()])
        .route("retry: {retry_on: gateway-error}")
        .cluster("outlier_ejection: {enabled: false}, policy: round-robin")
        .cluster("retry_budget: {percent: 100}");
    let proxy = start(&traced(web, &collector, ALL));
    // Round-robin begins anywhere: one of two requests meets the bad one first.
    let mut client = connect(&proxy);
    let mut requests = 0;
    while bad.requests() == 0 {
        assert_eq!(client.get("/").text(), "good");
        requests += 1;
    }
    let spans = collector.wait_for(2 * requests + 1);
    let [server, first, second] = &spans[spans.len() - 3..] else {
        panic!("{spans:#?}");
    };
    assert!(server.is_server && !server.failed);
    assert_eq!((&first.parent, &second.parent), (&server.id, &server.id));
    assert!(first.id != second.id && first.end <= second.start);
    assert!(first.failed && !second.failed);
    assert_eq!(first.get("error.type"), "503");
    assert_eq!(first.get("http.response.status_code"), "503");
    assert_eq!(first.get("maglor.endpoint"), bad.address().to_string());
    assert_eq!(second.get("http.request.resend_count"), "1");
    // Each endpoint is a child of its own attempt.
    for (endpoint, span) in [(&bad, first), (&good, second)] {
        let header = format!("00-{}-{}-01", server.trace, span.id);
        assert_eq!(endpoint.last().header("traceparent"), Some(&*header));
    }
}

#[test]
fn each_hedged_attempt_is_a_span() {
    let collector = Collector::start(Transport::Http);
    let (slow, quick) = (Upstream::start("slow"), Upstream::start("quick"));
    slow.set_answer(|_| Some(Answer::text("slow").after(Duration::from_secs(20))));
    let web = Web::to([slow.address(), quick.address()])
        .route("hedge: {delay: 50ms}")
        .cluster("policy: round-robin, retry_budget: {percent: 100}");
    let proxy = start(&traced(web, &collector, ALL));
    let mut client = connect(&proxy);
    let mut requests = 0;
    while slow.requests() == 0 {
        assert_eq!(client.get("/").text(), "quick");
        requests += 1;
    }
    let spans = collector.wait_for(2 * requests + 1);
    let last = &spans[spans.len() - 3..];
    let outcomes: Vec<_> = last[1..]
        .iter()
        .map(|span| span.get("maglor.outcome"))
        .collect();
    assert_eq!(outcomes, ["cancelled", "-"]);
    assert!(
        last.iter()
            .all(|span| !span.failed && span.trace == last[0].trace)
    );
}

#[test]
fn two_proxies_and_their_applications_are_in_one_trace() {
    let collector = Collector::start(Transport::Grpc);
    let application = Upstream::start("a");
    let inner = start(&traced(Web::to([application.address()]), &collector, ALL));
    // The inner one follows the decision of the outer one.
    let outer = start(&traced(
        Web::to([inner.listener("web")]),
        &collector,
        "percent: 0, slowest_percent: 0",
    ));
    let state = "tracestate: vendor=1\r\n";
    let sampled = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n{state}");
    assert_eq!(get_with(&outer, "/", &sampled), 200);
    let spans = collector.wait_for(4);
    let [outer_server, outer_client, inner_server, inner_client] = &spans[..] else {
        panic!("{spans:#?}");
    };
    assert!(
        spans
            .iter()
            .all(|span| span.trace == TRACE && span.state == "vendor=1")
    );
    assert_eq!(outer_server.parent, PARENT);
    assert_eq!(outer_client.parent, outer_server.id);
    assert_eq!(inner_server.parent, outer_client.id);
    assert_eq!(inner_client.parent, inner_server.id);
    assert_eq!((outer_server.flags, outer_client.flags), (0x301, 0x101));
    let last = application.last();
    let header = format!("00-{TRACE}-{}-01", inner_client.id);
    assert_eq!(last.header("traceparent"), Some(&*header));
    assert_eq!(last.header("tracestate"), Some("vendor=1"));
    // Neither exports what the client has decided against, but both pass it on.
    let unsampled = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    let config = traced(
        Web::to([application.address()]),
        &collector,
        "percent: 100, slowest_percent: 0",
    );
    reload(&inner, &config);
    assert_eq!(get_with(&outer, "/", &unsampled), 200);
    let header = application.last().header("traceparent").unwrap().to_owned();
    assert!(header.starts_with(&format!("00-{TRACE}-")) && header.ends_with("-00"));
    assert!(!header.contains(PARENT));
    assert_eq!(get_with(&outer, "/", &sampled), 200);
    collector.wait_for(8);
}

#[test]
fn contexts_go_on_in_the_formats_in_which_they_came() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let proxy = start(&traced(Web::to([upstream.address()]), &collector, ALL));
    let short = &TRACE[16..];
    let multi = format!(
        "X-B3-TraceId: {short}\r\nX-B3-SpanId: {PARENT}\r\nX-B3-Sampled: 1\r\nx-b3-parentspanid: {short}\r\n"
    );
    let headers = |names: &[&str]| {
        let last = upstream.last();
        names
            .iter()
            .map(|name| last.header(name).map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    let all = [
        "traceparent",
        "b3",
        "x-b3-traceid",
        "x-b3-spanid",
        "x-b3-parentspanid",
        "x-b3-sampled",
    ];

    assert_eq!(
        get_with(&proxy, "/", &format!("b3: {TRACE}-{PARENT}-1\r\n")),
        200
    );
    let spans = collector.wait_for(2);
    let (server, client) = pair(&spans);
    assert_eq!((&*server.trace, &*server.parent), (TRACE, PARENT));
    let single = format!("{TRACE}-{}-1-{}", client.id, server.id);
    assert_eq!(headers(&all), [None, text(&single), None, None, None, None]);

    assert_eq!(get_with(&proxy, "/", &multi), 200);
    let spans = collector.wait_for(4);
    let (server, client) = pair(&spans[2..]);
    assert_eq!(server.trace, format!("{short:0>32}"));
    assert_eq!(server.parent, PARENT);
    let written = [
        None,
        None,
        text(short),
        text(&client.id),
        text(&server.id),
        text("1"),
    ];
    assert_eq!(headers(&all), written);

    // What is malformed is replaced.
    assert_eq!(
        get_with(
            &proxy,
            "/",
            "traceparent: 00-x\r\ntracestate: a=1\r\nx-b3-flags: 9\r\n"
        ),
        200
    );
    let spans = collector.wait_for(6);
    let (server, client) = pair(&spans[4..]);
    assert_eq!(server.parent, "");
    let header = format!("00-{}-{}-01", client.trace, client.id);
    assert_eq!(
        headers(&["traceparent", "tracestate", "x-b3-flags"]),
        [text(&header), None, None]
    );
}

#[test]
fn without_tracing_trace_headers_pass_unchanged() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get_with(&proxy, "/", "traceparent: 00-x\r\nb3: 0\r\n"), 200);
    assert_eq!(upstream.last().header("traceparent"), Some("00-x"));
    assert_eq!(upstream.last().header("b3"), Some("0"));
}

#[test]
fn failed_requests_are_exported_whatever_was_decided() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let sampling = "percent: 0, slowest_percent: 0";
    let config = traced(Web::to([upstream.address()]), &collector, sampling);
    let proxy = start(&config);
    let unsampled = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    for (path, status) in [
        ("/", 200),
        ("/status/404", 404),
        ("/status/500", 500),
        ("/close", 502),
    ] {
        assert_eq!(get_with(&proxy, path, &unsampled), status);
    }
    let spans = collector.wait_for(4);
    let (server, client) = pair(&spans[..2]);
    assert!(server.failed && client.failed);
    assert_eq!(
        (server.get("error.type"), &*server.parent, server.flags),
        ("500", PARENT, 0x300)
    );
    let (server, client) = pair(&spans[2..]);
    assert!(server.failed && client.failed);
    assert_eq!(
        (server.get("error.type"), client.get("error.type")),
        ("UC", "UC")
    );
    assert_eq!(server.get("maglor.response_flag"), "UC");
    assert_eq!(client.get("http.response.status_code"), "-");
    // A request that no endpoint got.
    reload(
        &proxy,
        &config.replace(
            "routes: [{cluster: backend",
            "routes: [{direct_response: {status: 500}",
        ),
    );
    assert_eq!(get_with(&proxy, "/", &unsampled), 500);
    assert!(collector.wait_for(5)[4].is_server);
    // Not if it is not wanted.
    reload(
        &proxy,
        &config.replace("percent: 0, slow", "percent: 0, errors: false, slow"),
    );
    assert_eq!(get_with(&proxy, "/status/500", &unsampled), 500);
    assert_eq!(
        get_with(&proxy, "/", &unsampled.replace("-00\r", "-01\r")),
        200
    );
    let spans = collector.wait_for(7);
    assert_eq!(spans[5].get("http.response.status_code"), "200");
}

/// Nothing is decided at their end, so that nothing is recorded of them.
#[test]
fn requests_that_cannot_be_exported_have_trace_headers() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let sampling = "percent: 0, errors: false, slowest_percent: 0";
    let proxy = start(&traced(Web::to([upstream.address()]), &collector, sampling));
    let header = |name: &str| upstream.last().header(name).map(str::to_owned);
    assert_eq!(get_with(&proxy, "/", ""), 200);
    let begun = header("traceparent").unwrap();
    assert_eq!((begun.len(), &begun[52..]), (55, "-00"), "{begun}");
    let unsampled = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\ntracestate: a=1\r\n");
    assert_eq!(get_with(&proxy, "/status/500", &unsampled), 500);
    let continued = header("traceparent").unwrap();
    assert!(
        continued.contains(TRACE) && continued.ends_with("-00"),
        "{continued}"
    );
    assert!(!continued.contains(PARENT), "{continued}");
    assert_eq!(header("tracestate").as_deref(), Some("a=1"));
    assert_eq!(get_with(&proxy, "/", "traceparent: 00-x\r\n"), 200);
    assert_eq!(header("traceparent").unwrap().len(), 55);
    assert_eq!(
        get_with(&proxy, "/", &unsampled.replace("-00\r", "-01\r")),
        200
    );
    let spans = collector.wait_for(2);
    assert_eq!(pair(&spans).0.trace, TRACE);
}

#[test]
fn the_slowest_requests_are_exported() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let sampling = "percent: 0, errors: false, slowest_percent: 1";
    let proxy = start(&traced(Web::to([upstream.address()]), &collector, sampling));
    let mut client = connect(&proxy);
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(client.get("/delay/700ms").status, 200);
    let slow = || {
        collector
            .spans()
            .iter()
            .any(|span| span.get("url.path") == "/delay/700ms")
    };
    eventually(TIMEOUT, "the slow one arrives", slow);
    eventually(TIMEOUT, "its attempt arrives, too", || {
        let spans = collector.spans();
        let attempts = spans.iter().filter(|span| !span.is_server);
        let mut urls = attempts.map(|span| span.get("url.full"));
        urls.any(|url| url.ends_with("/delay/700ms"))
    });
    let quick = collector
        .spans()
        .iter()
        .filter(|span| span.is_server)
        .count()
        - 1;
    // The threshold rises from that of the first request.
    assert!(quick < 100, "{quick} of 200 quick requests were slow");
}

#[test]
fn calls_of_grpc_have_their_names_and_status() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Grpc));
    upstream.set_answer(|request| {
        let status = if request.uri.path().ends_with("Fail") {
            "13"
        } else {
            "5"
        };
        let answer = Answer::text(&b"\0\0\0\0\0"[..]).header("content-type", "application/grpc");
        Some(answer.trailer("grpc-status", status))
    });
    let web = Web::to([upstream.address()]).route("retry: {attempts: 0}");
    let proxy = start(&traced(web, &collector, "percent: 0, slowest_percent: 0"));
    let mut client = Client::connect(proxy.listener("web"));
    let call = |path: &str| -> Request<Sent> {
        let mut request = h2::request("POST", path, h2::full(&b"\0\0\0\0\0"[..]));
        let value = "application/grpc".parse().unwrap();
        request.headers_mut().insert("content-type", value);
        request
    };
    // NOT_FOUND is no fault of the server.
    for path in ["/shop.Cart/Find", "/shop.Cart/Fail"] {
        assert_eq!(client.ask(call(path)).status.as_u16(), 200);
    }
    let spans = collector.wait_for(2);
    let (server, client_span) = pair(&spans);
    for span in [server, client_span] {
        assert_eq!(span.name, "shop.Cart/Fail");
        assert!(span.failed);
        for (key, expected) in [
            ("rpc.system.name", "grpc"),
            ("rpc.method", "shop.Cart/Fail"),
            ("rpc.response.status_code", "INTERNAL"),
            ("error.type", "INTERNAL"),
            ("http.request.method", "POST"),
            ("http.response.status_code", "200"),
        ] {
            assert_eq!(span.get(key), expected, "{key}");
        }
    }
    assert_eq!(server.get("network.protocol.version"), "2");
    // The proxy's own status, which no endpoint has sent.
    upstream.kill();
    assert_eq!(client.ask(call("/shop.Cart/Find")).status.as_u16(), 200);
    let spans = collector.wait_for(4);
    let (server, client_span) = pair(&spans[2..]);
    assert_eq!(server.get("rpc.response.status_code"), "UNAVAILABLE");
    assert_eq!(
        (server.get("error.type"), client_span.get("error.type")),
        ("UF", "UF")
    );
}

#[test]
fn requests_do_not_notice_a_collector_that_goes_and_returns() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Grpc));
    let proxy = start(&traced(Web::to([upstream.address()]), &collector, ALL));
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    // Spans whose receipt it has not confirmed would be sent again.
    eventually(TIMEOUT, "the first ones arrive", || exported(&proxy) == 2.0);
    let address = collector.address();
    drop(collector);
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    proxy.wait_for_log("spans not sent");
    let collector = Collector::at(address, Transport::Grpc);
    // The batch was kept.
    let spans = collector.wait_for(200);
    assert!(spans.iter().all(|span| !span.failed));
    eventually(TIMEOUT, "all are counted", || exported(&proxy) == 202.0);
    proxy.wait_for_log("collector takes spans again");
    assert_eq!(
        dropped(&proxy, "unsent") + dropped(&proxy, "queue_full"),
        0.0
    );
}

#[test]
fn a_collector_that_never_answers_costs_spans_and_no_requests() {
    let upstream = Upstream::start("a");
    // Connections enter its backlog, and are not accepted.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = |port| {
        let tracing = "tracing: {cluster: collector, sampling: {percent: 100}}";
        let cluster = format!("- {{name: collector, endpoints: [\"127.0.0.1:{port}\"]}}\n");
        Web::to([upstream.address()]).top(tracing).yaml() + &cluster
    };
    let proxy = start(&config(silent.local_addr().unwrap().port()));
    let mut client = connect(&proxy);
    let before = proxy.allocated_bytes();
    let long = format!("/{}", "x".repeat(3000));
    for _ in 0..4000 {
        assert_eq!(client.get(&long).status, 200);
    }
    let lost = dropped(&proxy, "queue_full");
    assert!((1000.0..8000.0).contains(&lost), "{lost}");
    let grown = proxy.allocated_bytes().saturating_sub(before);
    assert!(grown < 6 << 20, "{grown} bytes");
    assert_eq!(exported(&proxy), 0.0);
    // The end of the process does not wait for it either.
    let begun = Instant::now();
    drop(client);
    assert!(proxy.terminate().success());
    assert!(begun.elapsed() < Duration::from_secs(12));
}

#[test]
fn spans_that_wait_are_sent_at_the_end_of_the_process() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let proxy = start(&traced(Web::to([upstream.address()]), &collector, ALL));
    assert_eq!(get(&proxy, "/").status, 200);
    assert!(proxy.terminate().success());
    assert_eq!(collector.spans().len(), 2);
}

#[test]
fn spans_that_the_collector_rejects_are_counted() {
    let upstream = Upstream::start("a");
    for transport in [Transport::Grpc, Transport::Http] {
        let collector = Collector::start(transport);
        collector.reject(1);
        let proxy = start(&traced(Web::to([upstream.address()]), &collector, ALL));
        assert_eq!(get(&proxy, "/").status, 200);
        eventually(TIMEOUT, "one is accepted", || exported(&proxy) == 1.0);
        assert_eq!(dropped(&proxy, "rejected"), 1.0);
    }
    // Another service on the port is no collector.
    let other = Upstream::start("other");
    other.set_answer(|_| Some(Answer::status(404)));
    let tracing =
        "tracing: {cluster: collector, protocol: http, path: /v2/spans, sampling: {percent: 100}}";
    let cluster = format!(
        "- {{name: collector, endpoints: [\"{}\"]}}\n",
        other.address()
    );
    let proxy = start(&(Web::to([upstream.address()]).top(tracing).yaml() + &cluster));
    assert_eq!(get(&proxy, "/").status, 200);
    eventually(TIMEOUT, "they are dropped at once", || {
        dropped(&proxy, "unsent") == 2.0
    });
    assert_eq!(other.requests(), 1);
    assert_eq!(other.last().uri.path(), "/v2/spans");
}

#[test]
fn the_trace_is_in_the_access_log_and_in_taps() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let settings = format!(
        "access_log: {{path: '{}', fields: [trace_id, status]}}",
        log.display()
    );
    let web = Web::to([upstream.address()]).top(&settings);
    let proxy = start(&traced(web, &collector, "percent: 0"));
    let mut tap = RawHttp1::connect(proxy.admin()).into_connection();
    tap.send("GET /tap HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    tap.read_head().unwrap();
    let header = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    assert_eq!(get_with(&proxy, "/", &header), 200);
    let line = tap.read_until(b"}\n").unwrap();
    let line = String::from_utf8(line).unwrap();
    assert!(
        line.contains(&format!("\"trace_id\":\"{TRACE}\"")),
        "{line}"
    );
    let expected = format!("{{\"trace_id\":\"{TRACE}\",\"status\":200}}\n");
    eventually(TIMEOUT, "the line is written", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text == expected)
    });
}

#[test]
fn tracing_begins_and_ends_with_the_configuration() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let web = Web::to([upstream.address()]);
    let proxy = start(&web.yaml());
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(upstream.last().header("traceparent"), None);
    let traced = traced(web.clone(), &collector, ALL);
    reload(
        &proxy,
        &traced.replace(
            "service_name: shop",
            "service_name: shop, attributes: {zone: a}",
        ),
    );
    assert_eq!(client.get("/").status, 200);
    let spans = collector.wait_for(2);
    assert_eq!(spans[0].resource("zone"), "a");
    reload(&proxy, &web.yaml());
    assert_eq!(client.get("/").status, 200);
    assert_eq!(upstream.last().header("traceparent"), None);
}

#[test]
fn a_request_that_a_busy_server_returns_has_a_span_for_each_of_both() {
    let collector = Collector::start(Transport::Http);
    let applications = [Upstream::start("a"), Upstream::start("b")];
    let servers: Vec<_> = applications
        .iter()
        .map(|application| {
            Web::to([application.address()])
                .http("load_reports: {}")
                .start()
        })
        .collect();
    let addresses: Vec<_> = servers
        .iter()
        .map(|server| server.listener("web"))
        .collect();
    let outbound = Web::to(addresses.iter().copied()).cluster("policy: bounce(tries=3)");
    let outbound = start(&traced(outbound, &collector, ALL));
    // The first one is busy with a request that is not the balancer's.
    let mut busy = RawHttp1::connect(addresses[0]);
    busy.send("GET /delay/20s HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually(TIMEOUT, "it is busy", || applications[0].requests() == 1);
    let bounces = || outbound.metric("maglor_exchange_bounces_total", &[]);
    let mut requests = 0;
    while bounces() == 0.0 {
        assert_eq!(get(&outbound, "/").text(), "b");
        requests += 1;
        assert!(requests < 100);
    }
    let spans = collector.wait_for(2 * requests + 1);
    let bounced: Vec<_> = spans
        .iter()
        .filter(|span| span.get("maglor.outcome") == "bounced")
        .collect();
    let [bounced] = bounced[..] else {
        panic!("{spans:#?}");
    };
    assert!(!bounced.failed);
    assert_eq!(bounced.get("maglor.endpoint"), addresses[0].to_string());
    assert_eq!(bounced.get("maglor.policy"), "bounce");
    let same = spans
        .iter()
        .filter(|span| span.trace == bounced.trace && !span.is_server);
    let endpoints: Vec<_> = same
        .map(|span| span.get("maglor.endpoint").to_owned())
        .collect();
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(endpoints, addresses);
}

#[test]
fn the_decision_of_a_client_may_be_ignored() {
    let (upstream, collector) = (Upstream::start("a"), Collector::start(Transport::Http));
    let sampling = "percent: 100, parent_based: false, slowest_percent: 0";
    let proxy = start(&traced(Web::to([upstream.address()]), &collector, sampling));
    let unsampled = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    assert_eq!(get_with(&proxy, "/", &unsampled), 200);
    let spans = collector.wait_for(2);
    assert_eq!(spans[0].trace, TRACE);
    assert!(
        upstream
            .last()
            .header("traceparent")
            .unwrap()
            .ends_with("-01")
    );
}
