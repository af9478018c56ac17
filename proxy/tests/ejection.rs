//! Endpoints that are not used: ejected as outliers, or unhealthy by active health checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maglor_testkit::{Answer, Proxy, TIMEOUT, Upstream, eventually};

use crate::support::mesh::Root;
use crate::support::{Web, connect, get, reload, without_descriptors};

fn failing(name: &str, status: u16) -> Upstream {
    let upstream = Upstream::start(name);
    upstream.set_answer(move |_| Some(Answer::status(status)));
    upstream
}

fn ejected(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_upstream_ejected_endpoints", &[])
}

#[test]
fn five_errors_in_a_row_eject_until_it_answers_again() {
    let (bad, good) = (failing("bad", 500), Upstream::start("good"));
    let proxy = Web::to([bad.address(), good.address()])
        .cluster("policy: round-robin, outlier_ejection: {base_ejection_time: 300ms, probe_interval: 50ms}")
        .start();
    let mut client = connect(&proxy);
    for _ in 0..10 {
        client.get("/");
    }
    eventually(TIMEOUT, "it is ejected", || ejected(&proxy) == 1.0);
    assert_eq!(
        proxy.metric(
            "maglor_upstream_ejections_total",
            &["reason=\"consecutive-5xx\""]
        ),
        1.0
    );
    let clusters = proxy.admin_get("/clusters").json();
    let endpoints = clusters["clusters"][0]["endpoints"]
        .as_array()
        .unwrap()
        .clone();
    let out = endpoints.iter().filter(|e| e["ejected"] == true).count();
    assert_eq!(out, 1, "{endpoints:?}");
    let before = bad.requests();
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "good");
    }
    assert_eq!(bad.requests(), before);
    // It returns after its ejection time, and is ejected again, for longer, if it still fails.
    eventually(TIMEOUT, "it is back", || ejected(&proxy) == 0.0);
    eventually(TIMEOUT, "it is out again", || {
        client.get("/");
        ejected(&proxy) == 1.0
    });
    bad.set_answer(|_| None);
    eventually(TIMEOUT, "it serves", || client.get("/").text() == "bad");
    assert_eq!(
        proxy.metric("maglor_upstream_available_endpoints", &[]),
        2.0
    );
}

#[test]
fn never_more_are_ejected_than_may_be_and_the_first_to_recover_is_found() {
    let well = Arc::new(AtomicBool::new(false));
    let upstreams: Vec<_> = (0..4)
        .map(|number| {
            let upstream = Upstream::start(&number.to_string());
            let well = Arc::clone(&well);
            upstream.set_answer(move |_| {
                let serves = number == 0 && well.load(Ordering::SeqCst);
                (!serves).then(|| Answer::status(503))
            });
            upstream
        })
        .collect();
    let proxy = Web::to(upstreams.iter().map(Upstream::address))
        .cluster("outlier_ejection: {base_ejection_time: 1h, max_ejection_percent: 50}, panic_threshold: 60")
        .start();
    let mut client = connect(&proxy);
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 503);
        assert!(ejected(&proxy) <= 2.0);
    }
    // While none succeeds, the ejected ones are probed each second, by a connection, and return: it takes
    // further failures to eject them again.
    eventually(TIMEOUT, "as many as may be are out, which is panic", || {
        client.get("/");
        ejected(&proxy) == 2.0 && proxy.metric("maglor_upstream_panic", &[]) == 1.0
    });
    let spared = proxy.metric(
        "maglor_upstream_ejections_spared_total",
        &["reason=\"max-ejection-percent\""],
    );
    assert!(spared > 0.0);
    well.store(true, Ordering::SeqCst);
    let started = Instant::now();
    eventually(TIMEOUT, "who has recovered gets requests", || {
        client.get("/").status == 200
    });
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_single_endpoint_is_never_ejected() {
    let bad = failing("bad", 500);
    let proxy = Web::to([bad.address()]).start();
    let mut client = connect(&proxy);
    for _ in 0..50 {
        assert_eq!(client.get("/").status, 500);
    }
    assert_eq!((ejected(&proxy), bad.requests()), (0.0, 50));
}

#[test]
fn an_endpoint_that_is_gone_is_ejected_and_probed() {
    let (gone, good) = (Upstream::start("gone"), Upstream::start("good"));
    let address = gone.address();
    gone.kill();
    let proxy = Web::to([address, good.address()])
        .cluster("policy: round-robin, outlier_ejection: {base_ejection_time: 100ms, probe_interval: 50ms}")
        .start();
    let mut client = connect(&proxy);
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    eventually(TIMEOUT, "it is ejected", || ejected(&proxy) == 1.0);
    let failures = || proxy.metric("maglor_upstream_connect_failures_total", &[]);
    let before = failures();
    eventually(TIMEOUT, "it is probed", || failures() > before);
    let _back = Upstream::builder("back").address(address).start();
    eventually(TIMEOUT, "it serves", || client.get("/").text() == "back");
}

#[test]
fn an_endpoint_that_leaves_is_not_out_any_more() {
    let (bad, good) = (failing("bad", 500), Upstream::start("good"));
    let both = Web::to([bad.address(), good.address()]).cluster("policy: round-robin");
    let proxy = both.start();
    for _ in 0..10 {
        get(&proxy, "/");
    }
    eventually(TIMEOUT, "it is ejected", || ejected(&proxy) == 1.0);
    let one = Web::to([good.address()]).cluster("policy: round-robin");
    reload(&proxy, &one.yaml());
    eventually(TIMEOUT, "no endpoint is ejected", || ejected(&proxy) == 0.0);
    // When it returns, it serves without a history.
    reload(&proxy, &both.yaml());
    assert_eq!(ejected(&proxy), 0.0);
    let statuses = [get(&proxy, "/").status, get(&proxy, "/").status];
    assert!(statuses.contains(&500), "{statuses:?}");
}

#[test]
fn grpc_statuses_count_as_what_they_mean() {
    let bad = Upstream::start("bad");
    bad.set_answer(|_| {
        let answer = Answer::status(200).header("content-type", "application/grpc");
        Some(answer.header("grpc-status", "14"))
    });
    let good = Upstream::start("good");
    let proxy = Web::to([bad.address(), good.address()])
        .cluster("policy: round-robin")
        .start();
    let mut client = connect(&proxy);
    let call = "POST /a.B/C HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n\r\n";
    for _ in 0..12 {
        client.request(call);
    }
    eventually(TIMEOUT, "it is ejected", || ejected(&proxy) == 1.0);
    let reason = "reason=\"consecutive-gateway-failure\"";
    assert_eq!(
        proxy.metric("maglor_upstream_ejections_total", &[reason]),
        1.0
    );
}

#[test]
fn health_checks_decide_who_serves() {
    let ill = Arc::new(AtomicBool::new(true));
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let flag = Arc::clone(&ill);
    a.set_answer(move |request| {
        let check = request.uri.path() == "/healthz";
        (check && flag.load(Ordering::SeqCst)).then(|| Answer::status(500))
    });
    let settings = "panic_threshold: 0, health_check: {http: /healthz, interval: 50ms, timeout: 40ms, unhealthy_threshold: 2, healthy_threshold: 2}";
    let proxy = Web::to([a.address(), b.address()])
        .cluster(settings)
        .start();
    let available = || proxy.metric("maglor_upstream_available_endpoints", &[]);
    eventually(TIMEOUT, "it is unhealthy", || available() == 1.0);
    for _ in 0..10 {
        assert_eq!(get(&proxy, "/").text(), "b");
    }
    ill.store(false, Ordering::SeqCst);
    eventually(TIMEOUT, "it is healthy", || available() == 2.0);
    eventually(TIMEOUT, "it serves", || get(&proxy, "/").text() == "a");
    assert!(
        proxy.metric(
            "maglor_upstream_health_checks_total",
            &["result=\"failed\""]
        ) >= 1.0
    );
    let check = a
        .recorded()
        .into_iter()
        .find(|r| r.uri.path() == "/healthz")
        .unwrap();
    assert_eq!(check.header("host"), Some(a.address().to_string().as_str()));
    // All unhealthy: none is used, or all are, depending on the panic threshold.
    ill.store(true, Ordering::SeqCst);
    b.kill();
    eventually(TIMEOUT, "no endpoint is healthy", || available() == 0.0);
    assert_eq!(get(&proxy, "/").status, 503);
}

/// Returns two endpoints, the first of which is as healthy as the flag, and checks whose verdict changes after
/// a number of results.
fn checked(ill: &Arc<AtomicBool>, thresholds: &str) -> (Upstream, Upstream, Web) {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let flag = Arc::clone(ill);
    a.set_answer(move |request| {
        let check = request.uri.path() == "/healthz";
        (check && flag.load(Ordering::SeqCst)).then(|| Answer::status(500))
    });
    let web = Web::to([a.address(), b.address()]).cluster(&format!(
        "health_check: {{http: /healthz, interval: 250ms, timeout: 250ms, {thresholds}}}"
    ));
    (a, b, web)
}

/// Waits for `more` further checks.
fn await_checks(upstream: &Upstream, more: u64) {
    let before = upstream.requests();
    eventually(TIMEOUT, "it is checked", || {
        upstream.requests() >= before + more
    });
}

fn available(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_upstream_available_endpoints", &[])
}

/// After a reload, the first check does not decide alone.
#[test]
fn health_checks_go_on_through_reloads() {
    let ill = Arc::new(AtomicBool::new(false));
    let (a, _b, web) = checked(&ill, "unhealthy_threshold: 1000");
    let proxy = web.start();
    await_checks(&a, 2);
    ill.store(true, Ordering::SeqCst);
    // With the same cluster, and with another one that has the same checks.
    for other in [
        web.clone().route("timeout: 3s"),
        web.clone().cluster("connect_timeout: 3s"),
    ] {
        reload(&proxy, &other.yaml());
        await_checks(&a, 5);
        assert_eq!(available(&proxy), 2.0);
    }
    // Other checks start again.
    reload(&proxy, &web.yaml().replace("1000", "999"));
    eventually(TIMEOUT, "it is unhealthy", || available(&proxy) == 1.0);
}

/// An endpoint that was unhealthy when checks restarted, and passes the first one, has recovered.
#[test]
fn an_endpoint_that_recovers_about_a_reload_serves_again() {
    let ill = Arc::new(AtomicBool::new(true));
    let (a, _b, web) = checked(&ill, "healthy_threshold: 1000");
    let proxy = web.start();
    eventually(TIMEOUT, "it is unhealthy", || available(&proxy) == 1.0);
    ill.store(false, Ordering::SeqCst);
    await_checks(&a, 3);
    assert_eq!(available(&proxy), 1.0);
    reload(&proxy, &web.yaml().replace("1000", "999"));
    eventually(TIMEOUT, "it is healthy", || available(&proxy) == 2.0);
}

/// If this process cannot open a connection, that is not the endpoints' fault.
#[test]
fn no_endpoint_is_ejected_for_lack_of_descriptors() {
    let upstreams = ["a", "b"].map(Upstream::start);
    let proxy = Web::to(upstreams.iter().map(Upstream::address))
        .cluster(
            "panic_threshold: 0, outlier_ejection: {consecutive_local_origin_failure: 1}, \
             health_check: {tcp: {}, interval: 100ms, timeout: 100ms, unhealthy_threshold: 1}",
        )
        .start();
    let passed = || {
        let passed = &["result=\"passed\""];
        proxy.metric("maglor_upstream_health_checks_total", passed)
    };
    eventually(TIMEOUT, "they are checked", || passed() >= 2.0);
    let mut clients: Vec<_> = (0..4).map(|_| connect(&proxy)).collect();
    eventually(TIMEOUT, "all are connected", || {
        proxy.metric("maglor_downstream_open_connections", &[]) == 4.0
    });
    without_descriptors(&proxy, || {
        for client in &mut clients {
            assert_eq!(client.get("/").status, 503);
        }
        // Some checks.
        std::thread::sleep(Duration::from_millis(400));
    });
    assert_eq!(clients[0].get("/").status, 200);
    assert_eq!(ejected(&proxy), 0.0);
    let available = proxy.metric("maglor_upstream_available_endpoints", &[]);
    assert_eq!(available, 2.0);
}

#[test]
fn health_checks_by_connection_and_by_grpc() {
    let (up, down) = (Upstream::start("up"), Upstream::start("down"));
    let addresses = [up.address(), down.address()];
    down.kill();
    let tcp = "panic_threshold: 0, health_check: {tcp: {}, interval: 50ms, timeout: 40ms, unhealthy_threshold: 1}";
    let proxy = Web::to(addresses).cluster(tcp).start();
    let available = |proxy: &Proxy| proxy.metric("maglor_upstream_available_endpoints", &[]);
    eventually(TIMEOUT, "one is down", || available(&proxy) == 1.0);

    let grpc = "panic_threshold: 0, health_check: {grpc: {}, interval: 50ms, timeout: 40ms, unhealthy_threshold: 1}";
    // Checks use HTTP/2 regardless of the clients' version.
    for protocol in ["http2", "downstream"] {
        let (one, two) = (serving(1), serving(2));
        let proxy = Web::to([one.address(), two.address()])
            .cluster(&format!("protocol: {protocol}, {grpc}"))
            .start();
        eventually(TIMEOUT, "one does not serve", || available(&proxy) == 1.0);
        for _ in 0..5 {
            assert_eq!(get(&proxy, "/").status, 200);
        }
        let asked = |upstream: &Upstream| upstream.recorded().iter().any(|r| r.uri.path() == "/");
        assert!(asked(&one) && !asked(&two));
        assert!(is_asked_by_http2(&one), "{protocol}");
    }
}

/// Starts a server whose gRPC health response is serving (1) or not (2).
fn serving(status: u8) -> Upstream {
    let grpc = Upstream::start("grpc");
    grpc.set_answer(move |request| {
        let right = request.uri.path() == "/grpc.health.v1.Health/Check";
        let answer = Answer::status(200).header("content-type", "application/grpc");
        let answer = answer.body(vec![0, 0, 0, 0, 2, 8, status]);
        right.then(|| answer.trailer("grpc-status", "0"))
    });
    grpc
}

fn is_asked_by_http2(upstream: &Upstream) -> bool {
    let recorded = upstream.recorded();
    let mut checks = recorded.iter().filter(|r| r.uri.path() != "/");
    checks.all(|check| check.version == http::Version::HTTP_2)
}

/// Without other requests to share a connection with, workloads of the mesh use HTTP/1.1.
#[test]
fn a_check_by_grpc_is_grpc_in_the_mesh() {
    let (root, upstream) = (Root::new(), serving(1));
    let inbound = Web::to([upstream.address()])
        .top(&root.member("cart").yaml())
        .listener("tls: mesh")
        .cluster("protocol: downstream")
        .start();
    let check = "health_check: {grpc: {}, interval: 50ms, timeout: 40ms}";
    let proxy = Web::to([inbound.listener("web")])
        .top(&root.member("web").yaml())
        .cluster(&format!("tls: mesh, {check}"))
        .start();
    eventually(TIMEOUT, "it is healthy", || {
        let passed = &["result=\"passed\""];
        proxy.metric("maglor_upstream_health_checks_total", passed) >= 1.0
    });
    assert!(is_asked_by_http2(&upstream));
}
