//! Stories of failed and slow requests: each cause is provoked over real sockets, and found by its story.
//!
//! `cargo test -p maglor-proxy --test main why:: -- --nocapture` prints the explanations; docs/why.md has them as a
//! table.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use maglor_telemetry::story::{Cause, CauseKind, Story, explain, explain_all};
use maglor_testkit::{Answer, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};
use rustls::version::{TLS12, TLS13};

use crate::support::mesh::{Root, careless};
use crate::support::{Web, builder, connect, get, reload, start};

/// Returns the stories that `/why` has for a query.
fn stories(proxy: &Proxy, query: &str) -> Vec<Story> {
    let page = proxy.admin_get(&format!("/why?{query}")).json();
    serde_json::from_value(page["stories"].clone()).unwrap()
}

/// Waits for the story of a request, which is kept after its last byte.
#[track_caller]
fn story(proxy: &Proxy, id: &str) -> Story {
    let query = format!("id={id}");
    eventually(TIMEOUT, "the story is kept", || {
        !stories(proxy, &query).is_empty()
    });
    stories(proxy, &query).remove(0)
}

/// Sends a request with an identifier; returns its status.
fn ask(proxy: &Proxy, id: &str, path: &str) -> u16 {
    let mut client = connect(proxy);
    client.request(request(id, path)).status
}

fn request(id: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: shop\r\nx-request-id: {id}\r\n\r\n")
}

/// Returns the cause of a story, and prints it.
#[track_caller]
fn cause(story: &Story, kind: CauseKind) -> Cause {
    let cause = explain(story);
    println!("{}: {}", cause.kind.name(), cause.sentence);
    assert_eq!(cause.kind, kind, "{story:#?}");
    cause
}

/// An endpoint that responds after a time.
fn slow(name: &str, delay: Duration) -> Upstream {
    let upstream = Upstream::start(name);
    upstream.set_answer(move |_| Some(Answer::text("late").after(delay)));
    upstream
}

/// An address at which nothing listens.
fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Trains the estimate of what is slow, so that only the next slow request is.
fn train(proxy: &Proxy) {
    let mut client = connect(proxy);
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn an_injected_slow_endpoint_is_named_with_the_queues_of_all() {
    let quick = [Upstream::start("a"), Upstream::start("b")];
    let all = [quick[0].address(), quick[1].address()];
    let proxy = Web::to(all).cluster("policy: round-robin").start();
    train(&proxy);
    let slow = slow("c", Duration::from_millis(400));
    let config = Web::to([slow.address(), all[0], all[1]]).cluster("policy: round-robin");
    reload(&proxy, &config.yaml());
    // Some of them are in flight at the slow endpoint when it gets the last one.
    let busy: Vec<_> = (0..9)
        .map(|at| {
            let mut client = connect(&proxy);
            client.send(request(&format!("slow-{at}"), "/cart"));
            client
        })
        .collect();
    for mut client in busy {
        assert_eq!(client.response().status, 200);
    }
    eventually(TIMEOUT, "three stories", || {
        stories(&proxy, "slowest=true")
            .iter()
            .filter(|one| one.id.starts_with("slow-"))
            .count()
            >= 3
    });
    let all = stories(&proxy, "slowest=true");
    let endpoint = slow.address().to_string();
    let at_slow = all
        .iter()
        .filter(|one| one.attempts[0].endpoint == endpoint);
    let last = at_slow.max_by_key(|one| one.attempts[0].in_flight).unwrap();
    let found = cause(last, CauseKind::SlowEndpoint);
    let part = format!(
        "waiting for the first byte from {endpoint}, which had 2 other requests in flight; the other candidates had"
    );
    assert!(found.sentence.contains(&part), "{}", found.sentence);
    let attempt = &last.attempts[0];
    assert_eq!((attempt.candidates_total, attempt.candidates.len()), (3, 3));
    assert_eq!(attempt.candidates[0].endpoint, endpoint);
    assert!(last.times.first_byte_ms.unwrap() >= 300.0, "{last:#?}");
    assert_eq!(last.route.as_ref().unwrap().virtual_host, "*");
}

#[test]
fn a_retry_storm_has_each_attempt_and_why_there_was_no_other() {
    let failing = ["a", "b", "c"].map(|name| {
        let upstream = Upstream::start(name);
        upstream.set_answer(|_| Some(Answer::status(503)));
        upstream
    });
    let web = Web::to(failing.each_ref().map(Upstream::address));
    let proxy = web
        .route("retry: {attempts: 2, retry_on: 5xx, back_off: {base_interval: 1ms}}")
        .start();
    assert_eq!(ask(&proxy, "storm", "/"), 503);
    let one = story(&proxy, "storm");
    let found = cause(&one, CauseKind::RetryStorm);
    assert!(
        found.sentence.contains("3 attempts failed"),
        "{}",
        found.sentence
    );
    assert!(
        found.sentence.ends_with("all attempts were used up"),
        "{}",
        found.sentence
    );
    assert_eq!(one.attempts.len(), 3);
    assert!(
        one.attempts
            .iter()
            .all(|attempt| attempt.status == Some(503))
    );
    assert!(one.attempts.is_sorted_by(|a, b| a.began_ms <= b.began_ms));
    assert_eq!(one.attempts[2].retry_refused.as_deref(), Some("attempts"));
}

#[test]
fn an_exhausted_retry_budget_is_a_retry_storm_too() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(Answer::status(503)));
    let proxy = Web::to([upstream.address()])
        .route("retry: {attempts: 1, retry_on: 5xx, back_off: {base_interval: 1ms}}")
        .cluster(
            "outlier_ejection: {enabled: false}, retry_budget: {percent: 1, min_per_second: 0}",
        )
        .start();
    for id in 0..20 {
        assert_eq!(ask(&proxy, &format!("budget-{id}"), "/"), 503);
    }
    let found = cause(&story(&proxy, "budget-19"), CauseKind::RetryStorm);
    assert!(
        found.sentence.ends_with("the retry budget was exhausted"),
        "{}",
        found.sentence
    );
}

#[test]
fn an_open_breaker_is_named() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(Answer::status(503)));
    let proxy = Web::to([upstream.address()])
        .cluster(
            "circuit_breaker: {consecutive_failures: 2, base_open_time: 1m, max_open_time: 1m}",
        )
        .start();
    for id in ["first", "second", "open"] {
        assert_eq!(ask(&proxy, id, "/"), 503);
    }
    let found = cause(&story(&proxy, "open"), CauseKind::CircuitBreaker);
    assert!(
        found.sentence.contains("cluster `backend`"),
        "{}",
        found.sentence
    );
    let found = cause(&story(&proxy, "first"), CauseKind::EndpointError);
    assert!(found.sentence.contains("status 503"), "{}", found.sentence);
}

#[test]
fn a_full_queue_has_its_numbers() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("limits: {max_requests: 1, max_pending_requests: 1, queue_timeout: 30s}")
        .start();
    let mut held = connect(&proxy);
    held.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
    let mut waits = connect(&proxy);
    waits.send(request("waits", "/"));
    let waiting = || proxy.admin_get("/clusters").json()["clusters"][0]["waiting"] == 1;
    eventually(TIMEOUT, "one waits", waiting);
    assert_eq!(ask(&proxy, "full", "/"), 503);
    let found = cause(&story(&proxy, "full"), CauseKind::QueueFull);
    assert_eq!(
        found.sentence,
        "the queue of cluster `backend` was full; 1 of 1 requests in progress, 1 of 1 waiting"
    );
    // The one that waits leaves.
    drop(waits);
    let gone = story(&proxy, "waits");
    cause(&gone, CauseKind::ClientGone);
    assert!(gone.times.queued_ms > 0.0, "{gone:#?}");
}

#[test]
fn a_queue_timeout_says_how_long_it_waited() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("limits: {max_requests: 1, queue_timeout: 100ms}")
        .start();
    let mut held = connect(&proxy);
    held.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
    assert_eq!(ask(&proxy, "late", "/"), 503);
    let found = cause(&story(&proxy, "late"), CauseKind::QueueWait);
    assert!(
        found.sentence.starts_with("queue timeout: 1"),
        "{}",
        found.sentence
    );
}

#[test]
fn a_rate_limit_has_its_parameters() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("name: cart, rate_limit: {requests: 1, per: 1h}")
        .start();
    assert_eq!(ask(&proxy, "first", "/"), 200);
    assert_eq!(ask(&proxy, "limited", "/"), 429);
    let one = story(&proxy, "limited");
    let found = cause(&one, CauseKind::RateLimited);
    assert_eq!(
        found.sentence,
        "rate limited: the limit of route `cart` (1 requests per 3600s, burst 1) was exceeded"
    );
    assert_eq!((one.flag.as_str(), one.attempts.len()), ("RL", 0));
}

#[test]
fn a_refused_member_has_a_story_by_its_connection() {
    let (root, foreign) = (Root::new(), Root::new());
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top(&root.member("cart").yaml())
        .listener("tls: mesh")
        .start();
    let shown = foreign.sign(&["spiffe://mesh.test/ns/shop/sa/web"]);
    let config = careless(Some(&shown), &[&TLS12, &TLS13]);
    let mut client = RawHttp1::connect_tls(proxy.listener("web"), "a.test", config);
    let from = client.connection().local().unwrap().to_string();
    let _ = client
        .connection()
        .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let _ = client.connection().read_to_end();
    let query = format!("client={from}");
    eventually(TIMEOUT, "its story", || !stories(&proxy, &query).is_empty());
    let one = stories(&proxy, &query).remove(0);
    let found = cause(&one, CauseKind::MtlsRefusal);
    assert!(found.sentence.contains(&from), "{}", found.sentence);
    assert!(one.request.is_none() && one.id.starts_with('#'));
}

#[test]
fn a_member_that_the_server_refuses_sees_it_as_mtls() {
    let (root, foreign) = (Root::new(), Root::new());
    let upstream = Upstream::start("a");
    let server = Web::to([upstream.address()])
        .top(&root.member("cart").yaml())
        .listener("tls: mesh")
        .start();
    let client = Web::to([server.listener("web")])
        .top(&foreign.member("web").yaml())
        .cluster("tls: mesh")
        .start();
    assert_eq!(ask(&client, "outer", "/"), 503);
    let one = story(&client, "outer");
    cause(&one, CauseKind::MtlsRefusal);
    assert_eq!(one.attempts[0].connected, Some(false));
}

#[test]
fn no_endpoint_no_connection_and_no_route_are_distinguished() {
    let dead = closed_port();
    let proxy = Web::to([dead]).route("retry: {attempts: 0}").start();
    assert_eq!(ask(&proxy, "dead", "/"), 503);
    let found = cause(&story(&proxy, "dead"), CauseKind::ConnectFailure);
    assert!(
        found
            .sentence
            .starts_with(&format!("no connection to {dead}: ")),
        "{}",
        found.sentence
    );
    let proxy = Web::to([]).cluster("type: static").start();
    assert_eq!(ask(&proxy, "none", "/"), 503);
    let found = cause(&story(&proxy, "none"), CauseKind::NoHealthyEndpoint);
    assert!(
        found.sentence.contains("has 0 endpoints"),
        "{}",
        found.sentence
    );
    let upstream = Upstream::start("a");
    let yaml = Web::to([upstream.address()]).yaml();
    let proxy = start(&yaml.replace("domains: ['*']", "domains: [other]"));
    assert_eq!(ask(&proxy, "nowhere", "/cart"), 404);
    let found = cause(&story(&proxy, "nowhere"), CauseKind::NoRoute);
    assert_eq!(
        found.sentence,
        "no route: listener `web` has none for host `shop` and path `/cart`"
    );
}

#[test]
fn resets_timeouts_and_clients_that_leave_are_distinguished() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("timeout: 300ms, retry: {attempts: 0}")
        .start();
    assert_eq!(ask(&proxy, "hangs", "/hang"), 504);
    let found = cause(&story(&proxy, "hangs"), CauseKind::Timeout);
    assert!(
        found.sentence.contains("waiting for the first byte from"),
        "{}",
        found.sentence
    );
    let mut leaves = connect(&proxy);
    leaves.send(request("leaves", "/hang"));
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 2);
    drop(leaves);
    let found = cause(&story(&proxy, "leaves"), CauseKind::ClientGone);
    assert!(
        found.sentence.contains("while the proxy waited for"),
        "{}",
        found.sentence
    );
    upstream.set_answer(|_| Some(Answer::close()));
    assert_eq!(ask(&proxy, "reset", "/"), 502);
    cause(&story(&proxy, "reset"), CauseKind::UpstreamReset);
}

#[test]
fn faults_and_authorization_name_their_rules() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener(
            "authorization: {rules: [{name: no-admin, action: deny, to: [{paths: [/admin]}]}]}",
        )
        .route("fault: {abort: {http_status: 418}, headers: [{name: x-test, exact: 'yes'}]}")
        .start();
    assert_eq!(ask(&proxy, "denied", "/admin"), 403);
    let found = cause(&story(&proxy, "denied"), CauseKind::AuthorizationDenied);
    assert!(
        found.sentence.contains("rule `no-admin`: GET /admin"),
        "{}",
        found.sentence
    );
    let mut client = connect(&proxy);
    let injected = "GET / HTTP/1.1\r\nhost: a\r\nx-request-id: fault\r\nx-test: yes\r\n\r\n";
    assert_eq!(client.request(injected).status, 418);
    cause(&story(&proxy, "fault"), CauseKind::FaultInjected);
}

#[test]
fn refused_requests_without_an_identifier_get_one() {
    let upstream = Upstream::start("a");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let proxy = Web::to([upstream.address()])
        .top(&format!(
            "access_log: {{path: '{}', fields: [request_id, status]}}",
            log.display()
        ))
        .listener(
            "authorization: {rules: [{name: no-admin, action: deny, to: [{paths: [/admin]}]}]}",
        )
        .route("rate_limit: {requests: 1, per: 1h}")
        .start();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", 429),
        ("GET /admin HTTP/1.1\r\nhost: a\r\n\r\n", 403),
        ("GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
    ] {
        assert_eq!(connect(&proxy).request(request).status, status);
    }
    let mut lines = Vec::new();
    eventually(TIMEOUT, "all are in the access log", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        lines = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .collect();
        lines.len() == 4
    });
    for line in &lines {
        let (id, status) = (line["request_id"].as_str().unwrap(), &line["status"]);
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'4'), "{line}");
        if *status != 200 {
            assert_eq!(story(&proxy, id).request.unwrap().status, *status);
        }
    }
}

/// The caller's proxy knows only that it waited, the server's proxy knows why.
#[test]
fn two_proxies_of_a_request_explain_it_together() {
    let upstream = Upstream::start("a");
    let server = Web::to([upstream.address()])
        .route("rate_limit: {requests: 1, per: 1h}")
        .start();
    let client = Web::to([server.listener("web")]).start();
    assert_eq!(ask(&client, "first", "/"), 200);
    assert_eq!(ask(&client, "joined", "/"), 429);
    // The caller's proxy has the response of an endpoint, which is no failure of its own.
    let inner = story(&server, "joined");
    assert_eq!(explain(&inner).kind, CauseKind::RateLimited);
    upstream.set_answer(|_| Some(Answer::status(500)));
    let server = Web::to([upstream.address()]).start();
    reload(&client, &Web::to([server.listener("web")]).yaml());
    assert_eq!(ask(&client, "both", "/"), 500);
    let mut both = vec![story(&server, "both"), story(&client, "both")];
    let found = explain_all(&mut both).unwrap();
    println!("{}", found.sentence);
    assert!(found.sentence.contains("; there, "), "{}", found.sentence);
    assert_eq!(found.kind, CauseKind::EndpointError);
}

#[test]
fn a_connection_that_is_opened_and_one_that_is_reused_are_distinguished() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(Answer::status(500)));
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    for (id, connected) in [("new", Some(true)), ("reused", None)] {
        assert_eq!(client.request(request(id, "/")).status, 500);
        let one = story(&proxy, id);
        assert_eq!(one.attempts[0].connected, connected, "{one:#?}");
        assert_eq!(one.attempts[0].connect_ms.is_some(), connected.is_some());
        assert_eq!(one.request.unwrap().status, 500);
    }
}

#[test]
fn quick_successes_have_no_story_and_the_text_of_clients_is_bounded() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    train(&proxy);
    let kept = stories(&proxy, "limit=1000").len();
    assert!(kept <= 40, "{kept} of 200 requests");
    upstream.set_answer(|_| Some(Answer::status(500)));
    let path = format!("/{}", "x".repeat(6000));
    assert_eq!(ask(&proxy, "long", &path), 500);
    let target = story(&proxy, "long").request.unwrap().target;
    assert!(
        path.starts_with(&target) && target.len() == 512,
        "{}",
        target.len()
    );
}

#[test]
fn stories_can_be_turned_off() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(Answer::status(500)));
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(ask(&proxy, "on", "/"), 500);
    let _ = story(&proxy, "on");
    let off = Web::to([upstream.address()]).top("stories: false");
    reload(&proxy, &off.yaml());
    assert_eq!(ask(&proxy, "off", "/"), 500);
    assert_eq!(get(&proxy, "/").status, 500);
    let page = proxy.admin_get("/why").json();
    assert_eq!(page["on"], false);
    assert_eq!(page["stories"], serde_json::json!([]));
}

#[test]
fn wrong_filters_are_refused() {
    let upstream = Upstream::start("a");
    let proxy = builder()
        .config(Web::to([upstream.address()]).yaml())
        .start();
    let mut admin = RawHttp1::connect(proxy.admin());
    let refused = admin.get_local("/why?limit=x");
    assert_eq!(
        (refused.status, refused.text()),
        (400, "limit: `x` is not a positive number\n")
    );
}
