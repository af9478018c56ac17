//! Retries, hedging and mirroring: handling of requests when an endpoint fails.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use maglor_testkit::{Answer, Proxy, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::{self, Web, connect, get, start};

/// Starts an endpoint that answers everything with this status.
fn failing(name: &str, status: u16) -> Upstream {
    let upstream = Upstream::start(name);
    upstream.set_answer(move |_| Some(Answer::status(status)));
    upstream
}

/// Returns an address without a listener.
fn unused_address() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn a_failed_try_is_followed_by_one_at_another_endpoint() {
    let (bad, good) = (failing("bad", 503), Upstream::start("good"));
    let proxy = Web::to([bad.address(), good.address()])
        .route("retry: {retry_on: gateway-error}")
        .cluster(
            "outlier_ejection: {enabled: false}, policy: round-robin, retry_budget: {percent: 100}",
        )
        .start();
    let mut client = connect(&proxy);
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "good");
    }
    // Round-robin: a retry takes the good one's turn, so that the bad one is next again.
    let failed = bad.requests();
    assert!(failed >= 10);
    assert_eq!(
        proxy.metric("maglor_upstream_retries_total", &[]),
        failed as f64
    );
    let status = |class: &str| proxy.metric("maglor_upstream_requests_total", &[class]);
    assert_eq!((status("2xx"), status("5xx")), (20.0, failed as f64));
    // The endpoint gets the number of the attempt.
    let second = good
        .recorded()
        .iter()
        .filter(|r| r.header("x-envoy-attempt-count") == Some("2"))
        .count();
    assert_eq!(second as u64, failed);
}

#[test]
fn by_default_only_unseen_requests_are_retried() {
    let good = Upstream::start("good");
    let proxy = Web::to([unused_address(), good.address()])
        .cluster("policy: round-robin, outlier_ejection: {enabled: false}")
        .start();
    for _ in 0..10 {
        let response =
            connect(&proxy).request("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc");
        assert_eq!(response.status, 200);
    }
    let bad = failing("bad", 503);
    let proxy = Web::to([bad.address()]).start();
    assert_eq!(get(&proxy, "/").status, 503);
    assert_eq!(bad.requests(), 1);
}

#[test]
fn a_body_is_sent_again_as_far_as_it_is_kept() {
    let (bad, good) = (failing("bad", 500), Upstream::start("good"));
    let proxy = Web::to([bad.address(), good.address()])
        .route("retry: {retry_on: 5xx}, request_buffer_limit: 64KiB")
        .cluster(
            "policy: round-robin, outlier_ejection: {enabled: false}, retry_budget: {percent: 100}",
        )
        .start();
    let put = |length: usize| {
        let body = "x".repeat(length);
        let head = format!("PUT /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        connect(&proxy).request(head + &body)
    };
    for _ in 0..4 {
        let response = put(60_000);
        assert_eq!(response.status, 200);
        assert_eq!(response.json()["bytes"], 60_000);
    }
    // A request with a larger body has a single attempt, which is counted.
    let statuses: Vec<_> = (0..4).map(|_| put(5_000_000).status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 500).count(),
        2,
        "{statuses:?}"
    );
    let suppressed = |reason: &str| {
        let reason = format!("reason=\"{reason}\"");
        proxy.metric("maglor_upstream_retries_suppressed_total", &[&reason])
    };
    assert_eq!(suppressed("body"), 2.0);
    // The application has received it, and POST may not be repeated.
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx";
    let statuses = [
        connect(&proxy).request(post).status,
        connect(&proxy).request(post).status,
    ];
    assert!(
        statuses.contains(&500) && statuses.contains(&200),
        "{statuses:?}"
    );
    assert_eq!(suppressed("not-idempotent"), 1.0);
    // Unless its client allows it.
    let post = "POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: 1\r\ncontent-length: 1\r\n\r\nx";
    let statuses = [
        connect(&proxy).request(post).status,
        connect(&proxy).request(post).status,
    ];
    assert_eq!(statuses, [200, 200]);
}

#[test]
fn the_budget_bounds_retries_when_everything_fails() {
    let bad = failing("bad", 503);
    let proxy = Web::to([bad.address()])
        .route("retry: {attempts: 5, retry_on: 5xx, back_off: {base_interval: 1ms}}")
        .cluster("outlier_ejection: {enabled: false}")
        .start();
    let mut client = connect(&proxy);
    let requests = 1000;
    for _ in 0..requests {
        assert_eq!(client.get("/").status, 503);
    }
    let attempts = bad.requests();
    // A fifth of the requests, and at least three a second for ten seconds.
    assert!(
        (requests..=requests * 5 / 4).contains(&attempts),
        "{attempts} attempts"
    );
    let suppressed = proxy.metric(
        "maglor_upstream_retries_suppressed_total",
        &["reason=\"budget\""],
    );
    assert!(suppressed > 700.0, "{suppressed}");
}

#[test]
fn the_budget_is_as_large_as_it_is_configured() {
    let retries = |budget: &str| {
        let bad = failing("bad", 503);
        let proxy = Web::to([bad.address()])
            .route("retry: {attempts: 1, retry_on: 5xx, back_off: {base_interval: 1ms}}")
            .cluster(&format!(
                "outlier_ejection: {{enabled: false}}, retry_budget: {{{budget}}}"
            ))
            .start();
        let mut client = connect(&proxy);
        for _ in 0..100 {
            assert_eq!(client.get("/").status, 503);
        }
        bad.requests() - 100
    };
    let few = retries("percent: 10, min_per_second: 0");
    assert!((5..=15).contains(&few), "{few}");
    assert_eq!(retries("percent: 100, min_per_second: 0"), 100);
}

/// The pause before an attempt is random, between zero and the interval; the average of ten is half of it.
#[test]
fn there_is_a_pause_between_attempts() {
    let took = |interval: &str| {
        let bad = failing("bad", 503);
        let proxy = Web::to([bad.address()])
            .route(&format!(
                "retry: {{attempts: 10, retry_on: 5xx, back_off: {{base_interval: {interval}, max_interval: {interval}}}}}"
            ))
            .cluster("outlier_ejection: {enabled: false}, retry_budget: {percent: 100, min_concurrency: 100}")
            .start();
        let started = Instant::now();
        assert_eq!(get(&proxy, "/").status, 503);
        assert_eq!(bad.requests(), 11);
        started.elapsed()
    };
    let (short, long) = (took("1ms"), took("250ms"));
    assert!(long > Duration::from_millis(300), "{long:?}");
    assert!(long > short, "{long:?}, {short:?}");
}

#[test]
fn a_client_that_retries_itself_is_not_amplified() {
    let bad = failing("bad", 503);
    let proxy = Web::to([bad.address()])
        .route("retry: {attempts: 5, retry_on: 5xx}")
        .start();
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nx-envoy-attempt-count: 2\r\n\r\n";
    assert_eq!(connect(&proxy).request(ask).status, 503);
    assert_eq!(bad.requests(), 1);
    assert_eq!(bad.last().header("x-envoy-attempt-count"), Some("2"));
}

#[test]
fn servers_say_when_to_come_back() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|request| {
        (request.number == 1).then(|| Answer::status(503).header("retry-after", "1"))
    });
    let proxy = Web::to([upstream.address()])
        .route("retry: {retry_on: 5xx}")
        .start();
    let started = Instant::now();
    assert_eq!(get(&proxy, "/").status, 200);
    assert!(started.elapsed() >= Duration::from_secs(1));
    upstream.set_answer(|_| Some(Answer::status(503).header("retry-after", "60")));
    let before = upstream.requests();
    assert_eq!(get(&proxy, "/").status, 503);
    assert_eq!(upstream.requests(), before + 1);
}

#[test]
fn a_slow_try_is_cut_off_and_repeated_within_the_deadline() {
    let (slow, good) = (Upstream::start("slow"), Upstream::start("good"));
    slow.set_answer(|_| Some(Answer::status(200).after(Duration::from_secs(20))));
    let proxy = Web::to([slow.address(), good.address()])
        .route("timeout: 2s, retry: {retry_on: 5xx, per_try_timeout: 100ms}")
        .cluster(
            "policy: round-robin, outlier_ejection: {enabled: false}, retry_budget: {percent: 100}",
        )
        .start();
    for _ in 0..4 {
        assert_eq!(get(&proxy, "/").text(), "good");
    }
    assert!(slow.requests() >= 2);
    eventually(TIMEOUT, "what was cut off is not outstanding", || {
        support::outstanding(&proxy) == 0.0
    });
    // The client's deadline applies if it is shorter.
    let proxy = Web::to([slow.address()]).route("timeout: 20s").start();
    let started = Instant::now();
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nx-envoy-expected-rq-timeout-ms: 300\r\n\r\n";
    assert_eq!(connect(&proxy).request(ask).status, 504);
    assert!(started.elapsed() < Duration::from_secs(5));
    let reported: u64 = slow
        .last()
        .header("x-envoy-expected-rq-timeout-ms")
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=300).contains(&reported), "{reported}");
}

#[test]
fn a_hedged_request_takes_the_first_good_answer() {
    let (slow, good) = (Upstream::start("slow"), Upstream::start("good"));
    slow.set_answer(|_| Some(Answer::status(200).after(Duration::from_secs(20))));
    let proxy = Web::to([slow.address(), good.address()])
        .route("hedge: 50ms")
        .cluster(
            "policy: round-robin, outlier_ejection: {enabled: false}, retry_budget: {percent: 100}",
        )
        .start();
    let started = Instant::now();
    for _ in 0..6 {
        assert_eq!(get(&proxy, "/").text(), "good");
        let put = "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nab";
        assert_eq!(connect(&proxy).request(put).text(), "good");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(slow.requests() > 0);
    // A request that is not idempotent is sent once.
    let before = good.requests() + slow.requests();
    let post = "POST /delay/200ms HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    slow.set_answer(|_| None);
    assert_eq!(connect(&proxy).request(post).status, 200);
    assert_eq!(good.requests() + slow.requests(), before + 1);
}

#[test]
fn so_many_hedged_attempts_are_begun_each_after_the_delay() {
    let upstreams = ["a", "b", "c"].map(Upstream::start);
    let hang = |request: &maglor_testkit::Recorded| {
        let hangs = request.uri.path() == "/first";
        hangs.then(|| Answer::status(200).after(Duration::from_secs(20)))
    };
    upstreams.iter().for_each(|one| one.set_answer(hang));
    let seen = || upstreams.iter().map(Upstream::requests).sum::<u64>();
    let addresses: Vec<_> = upstreams.iter().map(Upstream::address).collect();
    let cluster = "policy: round-robin, retry_budget: {percent: 100, min_concurrency: 10}";
    let mut before = 0;
    for (attempts, delay) in [(1, 20), (2, 20), (2, 400)] {
        let proxy = Web::to(addresses.iter().copied())
            .route(&format!(
                "timeout: 1200ms, hedge: {{attempts: {attempts}, delay: {delay}ms}}"
            ))
            .cluster(cluster)
            .start();
        let started = Instant::now();
        let mut client = connect(&proxy);
        client.send("GET /first HTTP/1.1\r\nhost: a\r\n\r\n");
        let all = before + attempts + 1;
        eventually(TIMEOUT, "all attempts are begun", || seen() == all);
        let least = Duration::from_millis(delay * attempts);
        assert!(started.elapsed() >= least, "{attempts} each {delay} ms");
        assert_eq!(client.response().status, 504);
        assert_eq!(seen(), all, "and no more");
        before = all;
    }
}

/// A server that gets the full timeout again continues to work after its client has gone.
#[test]
fn a_further_try_of_a_call_has_what_is_left_of_its_time() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|request| {
        let answer = Answer::status(200).header("content-type", "application/grpc");
        Some(match request.number {
            1 => answer
                .header("grpc-status", "14")
                .after(Duration::from_millis(200)),
            _ => answer.header("grpc-status", "0"),
        })
    });
    let proxy = Web::to([upstream.address()])
        .route("retry: unavailable")
        .start();
    let call = "POST /a.B/C HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\n\
                grpc-timeout: 5S\r\ncontent-length: 0\r\n\r\n";
    let answer = connect(&proxy).request(call);
    assert_eq!(answer.header("grpc-status"), Some("0"));
    let reported: Vec<_> = upstream
        .recorded()
        .iter()
        .map(|request| request.header("grpc-timeout").unwrap().to_owned())
        .collect();
    assert_eq!(reported[0], "5S");
    let left: u64 = reported[1].strip_suffix('m').unwrap().parse().unwrap();
    assert!((1..=4800).contains(&left), "{left}");
}

/// One connection is opened at a time for all requests, but not one after the other for each that waits.
#[test]
fn who_waits_for_a_connection_shares_its_failure() {
    let limit = Duration::from_millis(300);
    for protocol in ["http2", "auto"] {
        // Accepts, and never completes the handshake.
        let server = RawServer::start(|connection, _| connection.read_to_end().map(drop));
        let proxy = Web::to([server.address()])
            .route("retry: {attempts: 0}")
            .cluster(&format!(
                "protocol: {protocol}, connect_timeout: {limit:?}, tls: {{insecure_skip_verify: true}}"
            ))
            .start();
        let mut clients: Vec<_> = (0..10).map(|_| connect(&proxy)).collect();
        let began = Instant::now();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status, 503);
        }
        assert!(began.elapsed() < 4 * limit, "{:?}", began.elapsed());
        assert!(proxy.metric("maglor_upstream_connect_failures_total", &[]) <= 2.0);
    }
}

/// The next attempt succeeds, but an endpoint that has not answered in time still counts as failing.
#[test]
fn who_is_silent_is_ejected_though_others_win() {
    let (silent, good) = (Upstream::start("silent"), Upstream::start("good"));
    silent.set_answer(|_| Some(Answer::status(200).after(Duration::from_secs(20))));
    let cluster = "policy: round-robin, retry_budget: {percent: 100}, \
                   outlier_ejection: {consecutive_local_origin_failure: 2}";
    let ejections = |proxy: &Proxy| proxy.metric("maglor_upstream_ejections_total", &[]);
    let proxy = Web::to([silent.address(), good.address()])
        .route("retry: {per_try_timeout: 50ms}, hedge: {attempts: 1}")
        .cluster(cluster)
        .start();
    eventually(TIMEOUT, "it is ejected", || {
        assert_eq!(get(&proxy, "/").text(), "good");
        ejections(&proxy) == 1.0
    });
    // No attempt succeeds, either.
    good.set_answer(|_| Some(Answer::status(200).after(Duration::from_secs(20))));
    let proxy = Web::to([silent.address(), good.address()])
        .route("timeout: 200ms, hedge: 50ms")
        .cluster(&format!(
            "{cluster}, circuit_breaker: {{consecutive_failures: 2}}"
        ))
        .start();
    for _ in 0..2 {
        assert_eq!(get(&proxy, "/").status, 504);
    }
    eventually(TIMEOUT, "one is ejected", || ejections(&proxy) == 1.0);
    assert_eq!(get(&proxy, "/").status, 503, "the circuit is open");
}

#[test]
fn headers_and_statuses_may_be_retriable() {
    let (odd, good) = (Upstream::start("odd"), Upstream::start("good"));
    odd.set_answer(|_| Some(Answer::status(200).header("x-again", "yes")));
    let yaml = |retry: &str| {
        Web::to([odd.address(), good.address()])
            .route(retry)
            .cluster("policy: round-robin, retry_budget: {percent: 100}")
    };
    let proxy = yaml(
        "retry: {retry_on: retriable-headers, retriable_headers: [{name: x-again, exact: 'yes'}]}",
    )
    .start();
    for _ in 0..4 {
        assert_eq!(get(&proxy, "/").text(), "good");
    }
    odd.set_answer(|_| Some(Answer::status(429)));
    let proxy = yaml("retry: '429'").start();
    for _ in 0..4 {
        assert_eq!(get(&proxy, "/").text(), "good");
    }
}

#[test]
fn copies_go_to_a_mirror_at_no_cost_to_clients() {
    let (main, mirror) = (Upstream::start("main"), Upstream::start("mirror"));
    let addresses = [main.address(), mirror.address()];
    let yaml = |percent: u32| {
        format!(
            "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  \
             http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: main, \
             mirror: [{{cluster: copy, percent: {percent}}}]}}]}}]}}\nclusters:\n\
             - {{name: main, endpoints: ['{}']}}\n- {{name: copy, endpoints: ['{}']}}\n",
            addresses[0], addresses[1]
        )
    };
    let proxy = start(&yaml(100));
    let body = "b".repeat(50_000);
    for number in 0..5 {
        let head =
            format!("PUT /upload?{number} HTTP/1.1\r\nhost: a\r\ncontent-length: 50000\r\n\r\n");
        let response = connect(&proxy).request(head + &body);
        assert_eq!(response.header("x-upstream"), Some("main"));
    }
    eventually(TIMEOUT, "all copies have come", || mirror.requests() == 5);
    assert_eq!(mirror.last().header("host"), Some("a"));
    // A hanging mirror delays no request, and a dead one has no effect.
    mirror.set_answer(|_| Some(Answer::status(200).after(Duration::from_secs(30))));
    let started = Instant::now();
    assert_eq!(get(&proxy, "/").text(), "main");
    mirror.kill();
    assert_eq!(get(&proxy, "/").text(), "main");
    assert!(started.elapsed() < Duration::from_secs(10));
    let proxy = start(&yaml(0));
    assert_eq!(get(&proxy, "/").text(), "main");
    assert_eq!(
        proxy.metric("maglor_upstream_requests_total", &["copy"]),
        0.0
    );
}

#[test]
fn what_breaks_before_an_answer_is_repeated_where_that_is_asked_for() {
    // The request was read: only the condition `reset` covers this.
    let closing = RawServer::start(|connection, _| {
        connection.read_head()?;
        Ok(())
    });
    let good = Upstream::start("good");
    let proxy = Web::to([closing.address(), good.address()])
        .route("retry: {retry_on: reset}")
        .cluster(
            "policy: round-robin, outlier_ejection: {enabled: false}, retry_budget: {percent: 100}",
        )
        .start();
    for _ in 0..4 {
        assert_eq!(get(&proxy, "/").text(), "good");
    }
}
