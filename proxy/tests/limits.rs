//! Limits, breakers, rates and faults: the requests that they reject, and the responses to clients.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maglor_testkit::{Answer, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::{self, Web, connect, get, reload, start};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Returns a client whose request is in progress until the endpoint is released.
fn busy(proxy: &Proxy) -> RawHttp1 {
    let mut client = connect(proxy);
    client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    client
}

fn overflows(proxy: &Proxy, reason: &str) -> f64 {
    let reason = format!("reason=\"{reason}\"");
    proxy.metric("maglor_upstream_overflows_total", &[&reason])
}

fn waiting(proxy: &Proxy) -> u64 {
    proxy.admin_get("/clusters").json()["clusters"][0]["waiting"]
        .as_u64()
        .unwrap()
}

#[test]
fn above_the_limit_requests_wait_and_above_that_they_are_refused_at_once() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("limits: {max_requests: 2, max_pending_requests: 1, queue_timeout: 10s}")
        .start();
    let held = [busy(&proxy), busy(&proxy)];
    eventually(TIMEOUT, "both are under way", || upstream.requests() == 2);
    let mut waits = connect(&proxy);
    waits.send(GET);
    eventually(TIMEOUT, "one waits", || waiting(&proxy) == 1);
    let started = Instant::now();
    let refused = get(&proxy, "/");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(refused.header("x-maglor-reason"), Some("UO"));
    assert_eq!(overflows(&proxy, "queue-full"), 1.0);
    // The waiting request is next.
    drop(held);
    assert_eq!(waits.response().text(), "a");
    assert_eq!(get(&proxy, "/").text(), "a");
}

#[test]
fn no_request_waits_longer_than_the_queue_timeout() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("limits: {max_requests: 1, queue_timeout: 100ms}")
        .start();
    let _held = busy(&proxy);
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
    assert_eq!(get(&proxy, "/").status, 503);
    assert_eq!(overflows(&proxy, "queue-timeout"), 1.0);
    assert_eq!(waiting(&proxy), 0);
    // Longer than the default.
    let longer = "limits: {max_requests: 1, queue_timeout: 1500ms}";
    let patient = Web::to([upstream.address()]).cluster(longer).start();
    let _second = busy(&patient);
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 2);
    let started = Instant::now();
    assert_eq!(get(&patient, "/").text(), "queue timeout\n");
    assert!(started.elapsed() >= Duration::from_millis(1500));
    // A client that disconnects while it waits leaves no trace.
    let mut left = connect(&proxy);
    left.send(GET);
    drop(left);
    eventually(TIMEOUT, "no request waits", || waiting(&proxy) == 0);
}

#[test]
fn connections_are_limited_and_shared() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let proxy = Web::to([a.address(), b.address()])
        .cluster("policy: round-robin, limits: {max_connections: 2, queue_timeout: 10s}")
        .start();
    let mut clients: Vec<_> = (0..20).map(|_| connect(&proxy)).collect();
    for _ in 0..5 {
        for client in &mut clients {
            client.send("GET /delay/1ms HTTP/1.1\r\nhost: a\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
    }
    let open = proxy.metric("maglor_upstream_open_connections", &[]);
    assert!(open <= 2.0, "{open}");
    // An idle connection to one endpoint makes room for one to the other.
    let [a, b] = [a.requests(), b.requests()];
    assert_eq!(a + b, 100);
    assert!(a >= 25 && b >= 25, "{a} and {b}");
}

#[test]
fn http2_connections_are_limited_too() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("protocol: http2, max_concurrent_streams: 2, limits: {max_connections: 1, queue_timeout: 10s}")
        .start();
    let mut clients: Vec<_> = (0..10).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        client.send("GET /delay/20ms HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_connection_takes_so_many_requests_whatever_it_speaks() {
    for protocol in ["http1", "http2"] {
        let upstream = Upstream::start("a");
        let proxy = Web::to([upstream.address()])
            .cluster(&format!(
                "protocol: {protocol}, max_requests_per_connection: 2"
            ))
            .start();
        for _ in 0..6 {
            assert_eq!(get(&proxy, "/").status, 200);
        }
        assert_eq!(upstream.connections(), 3, "{protocol}");
        eventually(TIMEOUT, "those are closed", || {
            upstream.open_connections() == 0
        });
    }
}

#[test]
fn a_full_endpoint_is_passed_over() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let web = |queue_timeout: &str, max_requests: u32| {
        Web::to([a.address(), b.address()])
            .cluster(&format!(
                "policy: round-robin, limits: {{endpoint: {{max_requests: {max_requests}}}, \
                 queue_timeout: {queue_timeout}, max_pending_requests: 2}}"
            ))
            .yaml()
    };
    let proxy = start(&web("10s", 1));
    let _held = busy(&proxy);
    eventually(TIMEOUT, "it is under way", || {
        a.requests() + b.requests() == 1
    });
    let free = if a.requests() == 1 { "b" } else { "a" };
    for _ in 0..6 {
        assert_eq!(get(&proxy, "/").text(), free);
    }
    let other = busy(&proxy);
    let are_busy = || support::outstanding(&proxy) == 2.0;
    eventually(TIMEOUT, "both are busy", are_busy);
    // If all are full a request waits, and the waiting one is next.
    let mut waits = [connect(&proxy), connect(&proxy)];
    for (n, client) in waits.iter_mut().enumerate() {
        client.send(GET);
        eventually(TIMEOUT, "it waits", || waiting(&proxy) == n as u64 + 1);
    }
    let refused = get(&proxy, "/");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(overflows(&proxy, "endpoints-full"), 1.0);
    drop(other);
    for client in &mut waits {
        assert_eq!(client.response().status, 200);
    }
    // But not permanently.
    let _other = busy(&proxy);
    eventually(TIMEOUT, "both are busy", are_busy);
    reload(&proxy, &web("100ms", 1));
    assert_eq!(get(&proxy, "/").text(), "queue timeout\n");
    // A new limit applies to endpoints that stay.
    reload(&proxy, &web("100ms", 2));
    assert_eq!(get(&proxy, "/").status, 200);
}

#[test]
fn the_breaker_opens_probes_and_closes() {
    let ill = Arc::new(AtomicBool::new(true));
    let upstream = Upstream::start("a");
    let flag = Arc::clone(&ill);
    upstream.set_answer(move |_| flag.load(Ordering::SeqCst).then(|| Answer::status(500)));
    let proxy = Web::to([upstream.address()])
        .cluster("circuit_breaker: {consecutive_failures: 3, base_open_time: 100ms, max_open_time: 400ms, success_threshold: 2}")
        .start();
    let mut client = connect(&proxy);
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 500);
    }
    let state = || proxy.metric("maglor_upstream_circuit_breaker_state", &[]);
    assert_eq!(state(), 2.0);
    let refused = client.get("/");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(upstream.requests(), 3);
    assert!(overflows(&proxy, "breaker-open") >= 1.0);
    ill.store(false, Ordering::SeqCst);
    eventually(TIMEOUT, "it serves", || client.get("/").status == 200);
    eventually(TIMEOUT, "it is closed", || {
        client.get("/");
        state() == 0.0
    });
}

#[test]
fn rates_are_limited_by_listener_route_and_key() {
    let upstream = Upstream::start("a");
    let limit = |limit: &str| Web::to([upstream.address()]).route(limit).start();
    let proxy = limit("rate_limit: {requests: 3, per: 1h}");
    let mut client = connect(&proxy);
    for left in ["2", "1", "0"] {
        let response = client.get("/");
        assert_eq!(response.status, 200);
        let state = response.header("ratelimit").unwrap();
        assert!(
            state.starts_with(&format!("\"default\";r={left};t=")),
            "{state}"
        );
    }
    let refused = client.get("/");
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"default\";q=3;w=3600")
    );
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&wait), "{wait}");
    assert_eq!(upstream.requests(), 3);

    let proxy = limit("rate_limit: {requests: 1, per: 1h, key: {header: x-user}}");
    let ask = |user: &str| {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n");
        connect(&proxy).request(request).status
    };
    assert_eq!(
        [ask("a"), ask("b"), ask("a"), ask("b")],
        [200, 200, 429, 429]
    );

    let proxy = limit("rate_limit: {requests: 1, per: 1h, key: {source_address: true}}");
    let from = |last: u8| {
        let source = Ipv4Addr::new(127, 0, 0, last);
        let mut client = RawHttp1::connect_from(source.into(), proxy.listener("web"));
        client.get("/").status
    };
    assert_eq!(
        [from(2), from(3), from(2), from(3)],
        [200, 200, 429, 429],
        "each for itself"
    );

    let proxy = Web::to([upstream.address()])
        .listener("rate_limit: {requests: 2, per: 1h}")
        .start();
    let statuses = [(); 3].map(|()| get(&proxy, "/").status);
    assert_eq!(statuses, [200, 200, 429]);
}

/// Keys that were not used while the maximum number of others were start again.
#[test]
fn so_many_keys_are_remembered() {
    let upstream = Upstream::start("a");
    for (most, status) in [("32", 200), ("10000", 429)] {
        let limit = format!(
            "rate_limit: {{requests: 1, per: 1h, key: {{header: x-user}}, max_keys: {most}}}"
        );
        let proxy = Web::to([upstream.address()]).route(&limit).start();
        let mut client = connect(&proxy);
        let mut ask = |user: &str| {
            let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n");
            client.request(request).status
        };
        assert_eq!([ask("first"), ask("first")], [200, 429]);
        for other in 0..400 {
            assert_eq!(ask(&other.to_string()), 200);
        }
        assert_eq!(ask("first"), status, "{most}");
    }
}

#[test]
fn a_listeners_limit_is_for_what_no_route_takes_as_well() {
    let proxy = Web::to([])
        .listener("rate_limit: 2/h")
        .route("match: {path: /here}")
        .start();
    let mut client = connect(&proxy);
    let statuses = ["/nowhere"; 3].map(|path| client.get(path).status);
    assert_eq!(statuses, [404, 404, 429]);
    assert_eq!(client.get("/here").status, 429);
}

#[test]
fn a_reload_fills_no_bucket() {
    let upstream = Upstream::start("a");
    let web = Web::to([upstream.address()]).route("rate_limit: {requests: 1, per: 1h}");
    let proxy = web.start();
    assert_eq!(
        [get(&proxy, "/").status, get(&proxy, "/").status],
        [200, 429]
    );
    proxy.replace_config(&web.clone().cluster("connect_timeout: 3s").yaml());
    eventually(TIMEOUT, "the configuration is applied", || {
        proxy.metric("maglor_config_reloads_total", &["result=\"applied\""]) == 2.0
    });
    assert_eq!(get(&proxy, "/").status, 429);
}

/// Requests in progress, and learned state, count under the new configuration, too.
#[test]
fn a_reload_lets_nothing_in_that_a_limit_keeps_out() {
    let limits = [
        "limits: {max_requests: 1, max_pending_requests: 0}",
        "limits: {max_connections: 1, max_pending_requests: 0}",
    ];
    for limits in limits {
        let upstream = Upstream::start("a");
        let web = Web::to([upstream.address()]).cluster(limits);
        let proxy = web.start();
        let held = busy(&proxy);
        eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
        for time in ["3s", "4s"] {
            let other = web.clone().cluster(&format!("connect_timeout: {time}"));
            reload(&proxy, &other.yaml());
            assert_eq!(get(&proxy, "/").status, 503, "{limits}");
        }
        drop(held);
        eventually(TIMEOUT, "there is room", || get(&proxy, "/").status == 200);
    }
    let upstream = Upstream::start("a");
    let breaker =
        "circuit_breaker: {consecutive_failures: 1, base_open_time: 1m, max_open_time: 1m}";
    let web = Web::to([upstream.address()]).cluster(breaker);
    let proxy = web.start();
    assert_eq!(get(&proxy, "/status/500").status, 500);
    reload(&proxy, &web.clone().cluster("connect_timeout: 3s").yaml());
    assert_eq!((get(&proxy, "/").status, upstream.requests()), (503, 1));
}

#[test]
fn faults_are_injected_where_they_are_asked_for() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("fault: {delay: {fixed_delay: 150ms}, abort: {http_status: 418}, headers: [{name: x-fault, present: true}]}")
        .start();
    assert_eq!(get(&proxy, "/").text(), "a");
    let started = Instant::now();
    let ask = "GET / HTTP/1.1\r\nhost: a\r\nx-fault: 1\r\n\r\n";
    let response = connect(&proxy).request(ask);
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (418, Some("FI"))
    );
    assert!(started.elapsed() >= Duration::from_millis(150));
    assert_eq!(upstream.requests(), 1);
    // A delay takes no longer than the route allows.
    let proxy = Web::to([upstream.address()])
        .route("timeout: 100ms, fault: {delay: {fixed_delay: 1h}}")
        .start();
    assert_eq!(get(&proxy, "/").status, 504);
    // Half of the requests is about half of them, and they are counted.
    let proxy = Web::to([upstream.address()])
        .route("fault: {delay: {percent: 50, fixed_delay: 1ms}}")
        .start();
    let mut client = connect(&proxy);
    (0..400).for_each(|_| assert_eq!(client.get("/").status, 200));
    let delayed = proxy.metric("maglor_http_faults_injected_total", &["kind=\"delay\""]);
    assert!((140.0..=260.0).contains(&delayed), "{delayed}");
    let proxy = Web::to([upstream.address()])
        .route("fault: {abort: {percent: 50, http_status: 500}}")
        .start();
    let mut client = connect(&proxy);
    let failed = (0..400).filter(|_| client.get("/").status == 500).count();
    assert!((140..=260).contains(&failed), "{failed}");
    let injected = "maglor_http_faults_injected_total";
    let counted = proxy.metric(injected, &["kind=\"abort\""]);
    assert_eq!(counted as usize, failed);
    let proxy = Web::to([upstream.address()])
        .route("fault: {abort: {grpc_status: 8}}")
        .start();
    let call = "POST /a.B/C HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n\r\n";
    let response = connect(&proxy).request(call);
    assert_eq!(
        (response.status, response.header("grpc-status")),
        (200, Some("8"))
    );
}

#[test]
fn a_distance_delays_every_request() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("delay: {fixed: 60ms}")
        .start();
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(get(&proxy, "/").status, 200);
    }
    assert!(started.elapsed() >= Duration::from_millis(180));
    // For bytes, the beginning is delayed.
    let proxy = start(&format!(
        "listeners:\n- {{name: bytes, address: '127.0.0.1:0', tcp: {{cluster: a}}}}\n\
         clusters:\n- {{name: a, delay: 60ms, endpoints: ['{}']}}\n",
        upstream.address()
    ));
    let mut client = RawHttp1::connect(proxy.listener("bytes"));
    let started = Instant::now();
    assert_eq!(client.get("/").text(), "a");
    assert!(started.elapsed() >= Duration::from_millis(60));
}

#[test]
fn an_adaptive_limit_is_shown_and_lets_traffic_through() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("concurrency_limit: {initial_limit: 5, sample_window: 10ms}")
        .start();
    let limit = || {
        let clusters = proxy.admin_get("/clusters").json();
        clusters["clusters"][0]["concurrency_limit"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(limit(), 5, "20 by default");
    let mut client = connect(&proxy);
    for _ in 0..300 {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(limit() >= 3, "{}", limit());
}

#[test]
fn an_endpoints_connections_are_limited_and_shared() {
    // Each connection serves one request, so that room comes only by closing.
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster(
            "max_requests_per_connection: 1, \
             limits: {queue_timeout: 20s, endpoint: {max_connections: 2}}",
        )
        .start();
    let mut clients: Vec<_> = (0..12).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        client.send("GET /delay/10ms HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    let started = Instant::now();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "no client was forgotten"
    );
    assert_eq!(upstream.connections(), 12);
    // Connections in use reach the limit, and further requests wait.
    for most in [1, 2] {
        let upstream = Upstream::start("a");
        let endpoint =
            format!("limits: {{queue_timeout: 20s, endpoint: {{max_connections: {most}}}}}");
        let proxy = Web::to([upstream.address()]).cluster(&endpoint).start();
        let held: Vec<_> = (0..most).map(|_| busy(&proxy)).collect();
        let under_way = || upstream.requests() == most;
        eventually(TIMEOUT, "they are under way", under_way);
        let mut waits = connect(&proxy);
        waits.send(GET);
        waits.assert_silent(Duration::from_millis(100));
        assert_eq!(upstream.connections(), most);
        drop(held);
        assert_eq!(waits.response().text(), "a");
    }
}

/// Connections without a descriptor wait, the log stays short, and all continue when there is one.
#[test]
fn without_descriptors_connections_wait_and_little_is_said() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/").status, 200);
    let pid = Pid::from_raw(i32::try_from(proxy.pid()).unwrap());
    let most = Rlimit {
        current: Some(40),
        maximum: Some(40),
    };
    prlimit(pid, Resource::Nofile, most).unwrap();
    let clients: Vec<_> = (0..60).map(|_| connect(&proxy)).collect();
    proxy.wait_for_log("accept failed");
    let began = Instant::now();
    // The worker retries every 20 ms.
    std::thread::sleep(Duration::from_millis(600));
    let said = proxy.stderr().matches("accept failed").count();
    let seconds = began.elapsed().as_secs() as usize;
    assert!(said <= 2 + seconds, "{said} lines in {seconds} s");
    drop(clients);
    assert_eq!(get(&proxy, "/").status, 200);
}
