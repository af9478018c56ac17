//! Shutdown of the process: accepted requests are answered, new ones are refused, and it takes no longer than
//! configured.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use maglor_testkit::process::Signal;
use maglor_testkit::{Load, Proxy, RawHttp1, TIMEOUT, Upstream, eventually, pattern};

use crate::support;
use crate::support::h2::{self, Client};
use crate::support::{Web, connect};

#[test]
fn sigterm_under_load_costs_no_request() {
    let upstream = Upstream::start("a");
    for (workers, path) in [
        (1, "/"),
        (2, "/"),
        (1, "/delay/5ms"),
        (1, "/bytes/100000"),
        (2, "/drip/5/2ms"),
    ] {
        let mut proxy = Web::to([upstream.address()])
            .top(&format!("workers: {workers}"))
            .start();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let load = Load::start(proxy.listener("web"), 16, &request);
        load.wait_for(200);
        let started = Instant::now();
        proxy.signal(Signal::Terminate);
        let answered = load.finish();
        assert!(answered >= 200);
        assert!(proxy.wait_exit(TIMEOUT).success(), "{path}");
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{path}: {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn clients_that_are_connected_but_not_yet_accepted_are_answered() {
    let upstream = Upstream::start("a");
    for (workers, request) in [
        (1, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (1, "GET /delay/200ms HTTP/1.1\r\nhost: a\r\n\r\n"),
        (3, "GET /delay/200ms HTTP/1.1\r\nhost: a\r\n\r\n"),
    ] {
        let mut proxy = Web::to([upstream.address()])
            .top(&format!("workers: {workers}"))
            .start();
        proxy.signal(Signal::Stop);
        let mut clients: Vec<_> = (0..20).map(|_| connect(&proxy)).collect();
        for client in &mut clients {
            client.send(request);
        }
        proxy.signal(Signal::Terminate);
        proxy.signal(Signal::Continue);
        for client in &mut clients {
            let response = client.response();
            assert_eq!(response.text(), "a");
            // The worker may have answered before it is notified of the signal, and closes then.
            if response.header("connection") != Some("close") {
                client.assert_closed();
            }
        }
        assert!(proxy.wait_exit(TIMEOUT).success());
    }
}

#[test]
fn so_are_those_who_speak_http2() {
    let upstream = Upstream::start("a");
    for _ in 0..5 {
        let mut proxy = Web::to([upstream.address()]).start();
        proxy.signal(Signal::Stop);
        let mut client = Client::connect(proxy.listener("web"));
        let mut sent = Box::pin(client.send(h2::get("/")));
        // Polled, so that it is sent.
        let early = client
            .run(async { tokio::time::timeout(Duration::from_millis(20), sent.as_mut()).await });
        assert!(early.is_err());
        proxy.signal(Signal::Terminate);
        proxy.signal(Signal::Continue);
        assert_eq!(client.run(sent).unwrap().status(), 200);
        assert!(proxy.wait_exit(TIMEOUT).success());
    }
}

#[test]
fn idle_clients_do_not_hold_the_end_up() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).start();
    let mut parked = connect(&proxy);
    assert_eq!(parked.get("/").status, 200);
    let mut silent = connect(&proxy);
    silent.assert_silent(Duration::from_millis(700));
    let mut fresh = connect(&proxy);
    assert_eq!(fresh.get("/").status, 200);
    let started = Instant::now();
    proxy.signal(Signal::Terminate);
    for client in [&mut parked, &mut silent, &mut fresh] {
        client.assert_closed();
    }
    assert!(proxy.wait_exit(TIMEOUT).success());
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_request_that_crosses_the_signal_is_answered() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).start();
    let mut fresh = connect(&proxy);
    assert_eq!(fresh.get("/").status, 200);
    let mut parked = connect(&proxy);
    assert_eq!(parked.get("/").status, 200);
    parked.assert_silent(Duration::from_millis(700));
    let mut silent = connect(&proxy);
    silent.assert_silent(Duration::from_millis(50));
    let mut half = connect(&proxy);
    half.send("GET / HTTP/1.1\r\nho");
    half.assert_silent(Duration::from_millis(50));
    proxy.signal(Signal::Terminate);
    eventually(TIMEOUT, "new connections are rejected", || {
        TcpStream::connect(proxy.listener("web")).is_err()
    });
    half.send("st: a\r\n\r\n");
    let response = half.response();
    assert_eq!(
        (response.text(), response.header("connection")),
        ("a", Some("close"))
    );
    for client in [&mut fresh, &mut parked, &mut silent] {
        let response = client.get("/");
        assert_eq!(
            (response.text(), response.header("connection")),
            ("a", Some("close"))
        );
        client.assert_closed();
    }
    assert!(proxy.wait_exit(TIMEOUT).success());
}

#[test]
fn long_requests_finish_both_ways() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).start();
    let mut slow = connect(&proxy);
    slow.send("GET /drip/50/20ms HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut upload = connect(&proxy);
    let body = pattern::bytes(1_000_000);
    upload.send(format!(
        "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    upload.send(&body[..500_000]);
    eventually(TIMEOUT, "both are under way", || upstream.requests() == 2);
    proxy.signal(Signal::Terminate);
    eventually(TIMEOUT, "new connections are rejected", || {
        TcpStream::connect(proxy.listener("web")).is_err()
    });
    assert_eq!(proxy.admin_get("/ready").status, 503);
    assert_eq!(proxy.admin_get("/live").status, 200);
    upload.send(&body[500_000..]);
    let response = upload.response();
    assert_eq!(response.json()["hash"], pattern::hash(&body));
    let response = slow.response();
    assert_eq!(response.body.len(), 500);
    assert!(proxy.wait_exit(TIMEOUT).success());
}

#[test]
fn the_drain_timeout_cuts_what_does_not_end() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()])
        .top("drain_timeout: 500ms")
        .start();
    let mut hanging = connect(&proxy);
    hanging.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut stalled = connect(&proxy);
    stalled.send("GET /chunked/1000000000 HTTP/1.1\r\nhost: a\r\n\r\n");
    stalled.connection().read_head().unwrap();
    eventually(TIMEOUT, "both are under way", || upstream.requests() == 2);
    let started = Instant::now();
    proxy.signal(Signal::Terminate);
    assert!(proxy.wait_exit(TIMEOUT).success());
    let took = started.elapsed();
    assert!(
        took >= Duration::from_millis(450) && took < Duration::from_secs(3),
        "{took:?}"
    );
    hanging.assert_closed();
    assert!(
        !stalled
            .connection()
            .read_to_end()
            .is_ok_and(|rest| rest.ends_with(b"\r\n0\r\n\r\n"))
    );
    assert!(
        proxy
            .stderr()
            .contains("drain incomplete; closing open connections")
    );
}

#[test]
fn a_second_signal_ends_the_wait() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).start();
    let mut hanging = connect(&proxy);
    hanging.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
    proxy.signal(Signal::Interrupt);
    proxy.wait_for_log("draining");
    proxy.signal(Signal::Interrupt);
    assert!(proxy.wait_exit(Duration::from_secs(3)).success());
    hanging.assert_closed();
}

#[test]
fn the_admin_port_drains_as_well() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).start();
    assert_eq!(proxy.admin_get("/drain").status, 405);
    assert_eq!(proxy.admin_get("/ready").status, 200);
    let mut busy = connect(&proxy);
    busy.send("GET /delay/500ms HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || upstream.requests() == 1);
    let mut admin = RawHttp1::connect(proxy.admin());
    let response =
        admin.request("POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(response.status, 200);
    eventually(TIMEOUT, "it is not ready", || {
        admin.get("/ready").status == 503
    });
    assert_eq!(busy.response().text(), "a");
    assert!(proxy.wait_exit(TIMEOUT).success());
}

#[test]
fn a_proxy_without_clients_ends_at_once() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).top("workers: 2").start();
    assert_eq!(support::get(&proxy, "/").status, 200);
    support::wait_quiet(&proxy);
    let started = Instant::now();
    proxy.signal(Signal::Terminate);
    assert!(proxy.wait_exit(TIMEOUT).success());
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    eventually(TIMEOUT, "pooled connections are closed", || {
        upstream.open_connections() == 0
    });
}

/// Starts a sidecar without redirection: `in` to the application, `out` to others.
fn sidecar(top: &str, application: &Upstream, other: &Upstream) -> Proxy {
    let http = |cluster: &str| {
        format!("http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: {cluster}}}]}}]}}")
    };
    support::start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
{top}
listeners:
- {{name: in, address: '127.0.0.1:0', traffic_direction: inbound, {}}}
- {{name: out, address: '127.0.0.1:0', traffic_direction: outbound, {}}}
clusters:
- {{name: application, endpoints: ['{}']}}
- {{name: other, endpoints: ['{}']}}
",
        http("application"),
        http("other"),
        application.address(),
        other.address()
    ))
}

fn wait_until_closed(proxy: &Proxy, listener: &str) {
    eventually(TIMEOUT, "new connections are rejected", || {
        TcpStream::connect(proxy.listener(listener)).is_err()
    });
}

#[test]
fn outbound_goes_on_until_the_application_has_ended() {
    let (application, other) = (Upstream::start("application"), Upstream::start("other"));
    let mut proxy = sidecar("outbound_grace: 0s", &application, &other);
    let mut busy = RawHttp1::connect(proxy.listener("in"));
    let mut idle = RawHttp1::connect(proxy.listener("in"));
    assert_eq!(idle.get("/").text(), "application");
    busy.send("GET /drip/40/20ms HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || application.requests() == 2);
    proxy.signal(Signal::Terminate);
    wait_until_closed(&proxy, "in");
    idle.assert_closed();
    assert_eq!(proxy.admin_get("/ready").status, 503);
    // The application serves its last client, and calls others for it.
    let mut call = RawHttp1::connect(proxy.listener("out"));
    for _ in 0..3 {
        let response = call.get("/");
        assert_eq!(
            (response.text(), response.header("connection")),
            ("other", None)
        );
    }
    assert_eq!(busy.response().body.len(), 400);
    drop(busy);
    // The application may still make calls.
    call.assert_silent(Duration::from_millis(300));
    assert_eq!(call.get("/").text(), "other");
    assert_eq!(
        RawHttp1::connect(proxy.listener("out")).get("/").text(),
        "other"
    );
    drop(call);
    let ended = Instant::now();
    assert!(proxy.wait_exit(TIMEOUT).success());
    assert!(
        ended.elapsed() < Duration::from_secs(2),
        "{:?}",
        ended.elapsed()
    );
    assert!(
        !proxy
            .stderr()
            .contains("drain incomplete; closing open connections")
    );
}

#[test]
fn outbound_goes_on_for_its_grace() {
    let (application, other) = (Upstream::start("application"), Upstream::start("other"));
    for how in ["signal", "admin"] {
        let mut proxy = sidecar("outbound_grace: 700ms", &application, &other);
        let started = Instant::now();
        if how == "signal" {
            proxy.signal(Signal::Terminate);
        } else {
            let drain = "POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
            let response = RawHttp1::connect(proxy.admin()).request(drain);
            assert_eq!(response.status, 200);
        }
        wait_until_closed(&proxy, "in");
        assert_eq!(
            RawHttp1::connect(proxy.listener("out")).get("/").text(),
            "other"
        );
        assert!(proxy.wait_exit(TIMEOUT).success());
        let took = started.elapsed();
        let expected = Duration::from_millis(700)..Duration::from_secs(3);
        assert!(expected.contains(&took), "{took:?}");
    }
}

#[test]
fn an_application_that_does_not_end_has_until_the_drain_timeout() {
    let (application, other) = (Upstream::start("application"), Upstream::start("other"));
    let mut proxy = sidecar(
        "drain_timeout: 1s\noutbound_grace: 0s",
        &application,
        &other,
    );
    let mut idle = RawHttp1::connect(proxy.listener("out"));
    assert_eq!(idle.get("/").text(), "other");
    let mut hanging = RawHttp1::connect(proxy.listener("out"));
    hanging.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    let started = Instant::now();
    proxy.signal(Signal::Terminate);
    assert!(proxy.wait_exit(TIMEOUT).success());
    let took = started.elapsed();
    let expected = Duration::from_millis(950)..Duration::from_secs(3);
    assert!(expected.contains(&took), "{took:?}");
    for client in [&mut idle, &mut hanging] {
        client.assert_closed();
    }
    // A second signal ends the wait at any time.
    let mut proxy = sidecar("outbound_grace: 20s", &application, &other);
    proxy.signal(Signal::Terminate);
    proxy.wait_for_log("draining");
    proxy.signal(Signal::Terminate);
    assert!(proxy.wait_exit(Duration::from_secs(3)).success());
}
