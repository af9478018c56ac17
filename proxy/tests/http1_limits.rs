//! Limits of HTTP/1.1: size, speed and idle time of a client.

use std::time::{Duration, Instant};

use maglor_testkit::{RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::{Web, connect, get, wait_quiet};

#[test]
fn heads_that_are_too_large_get_431() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("max_header_bytes: 4KiB, max_headers: 20")
        .start();
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
    let fits = head(&format!("x: {}\r\n", "y".repeat(3900)));
    assert_eq!(connect(&proxy).request(fits).status, 200);
    assert_eq!(
        connect(&proxy).request(head(&"x: y\r\n".repeat(19))).status,
        200
    );
    let large = [
        head(&format!("x: {}\r\n", "y".repeat(4096))),
        // Without an end: refused when the limit is reached, not when the end is.
        format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(4096)),
        format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(4096)),
        format!("GET /{}", "y".repeat(8192)),
        head(&"x: y\r\n".repeat(20)),
        head(&"x: y\r\n".repeat(600)),
    ];
    for request in &large {
        let mut client = connect(&proxy);
        client.send(request);
        assert_eq!(client.response().status, 431, "{request}");
        client.assert_closed();
    }
    assert_eq!(upstream.requests(), 2);
}

#[test]
fn a_head_that_takes_too_long_gets_408() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("header_timeout: 300ms")
        .start();
    let started = Instant::now();
    let mut client = connect(&proxy);
    client.send("GET / HTTP/1.1\r\nhost: a\r\n");
    // Sending byte by byte does not extend the time.
    let drips = std::thread::spawn({
        let mut dripping = connect(&proxy);
        move || {
            for byte in "GET / HTTP/1.1\r\nhost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".bytes() {
                if dripping.connection().send([byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            dripping.response().status
        }
    });
    assert_eq!(client.response().status, 408);
    client.assert_closed();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert_eq!(drips.join().unwrap(), 408);

    // The same for the second request of a connection, and after the connection was parked.
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    client.assert_silent(Duration::from_millis(800));
    client.send("GET / HT");
    assert_eq!(client.response().status, 408);
    client.assert_closed();
    assert_eq!(upstream.requests(), 1);
    wait_quiet(&proxy);
}

#[test]
fn who_says_nothing_is_closed_without_a_word() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("idle_timeout: 200ms")
        .start();
    let mut silent = connect(&proxy);
    silent.assert_closed();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    client.assert_closed();
    wait_quiet(&proxy);

    let proxy = Web::to([upstream.address()])
        .http("idle_timeout: 900ms")
        .start();
    // Longer than an idle connection keeps its buffers.
    let started = Instant::now();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").status, 200);
    client.assert_closed();
    assert!(started.elapsed() >= Duration::from_millis(850));
    wait_quiet(&proxy);
}

#[test]
fn a_client_that_says_nothing_at_all_has_the_time_of_a_head() {
    let upstream = Upstream::start("a");
    for protocol in ["auto", "http1"] {
        let proxy = Web::to([upstream.address()])
            .http(&format!("header_timeout: 1s, protocol: {protocol}"))
            .start();
        let mut client = connect(&proxy);
        assert_eq!(client.get("/").status, 200);
        let mut silent = connect(&proxy);
        let started = Instant::now();
        silent.assert_closed();
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(900), "{protocol}: {took:?}");
        assert!(took < Duration::from_secs(5), "{protocol}: {took:?}");
        // Between two requests the idle timeout applies, which is an hour here.
        assert_eq!(client.get("/").status, 200, "{protocol}");
    }
}

#[test]
fn many_bad_clients_leave_nothing_behind() {
    let upstream = Upstream::start("a");
    // A connection attempt outlives the client for which it was begun, and ends in the pool.
    let proxy = Web::to([upstream.address()])
        .cluster("idle_timeout: 1s")
        .start();
    assert_eq!(get(&proxy, "/").status, 200);
    let files = proxy.open_files();
    for number in 0..300 {
        let mut client = RawHttp1::connect(proxy.listener("web"));
        match number % 3 {
            0 => client.send("GET"),
            1 => client.send("POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nx"),
            _ => client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n"),
        }
        if number % 2 == 0 {
            client.connection().reset_on_close().unwrap();
        }
    }
    wait_quiet(&proxy);
    eventually(TIMEOUT, "the sockets are closed", || {
        proxy.open_files() <= files
    });
}

#[test]
fn a_preface_that_does_not_come_whole_is_not_waited_for_forever() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("header_timeout: 300ms")
        .start();
    for start in ["P", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nS"] {
        let started = Instant::now();
        let mut client = connect(&proxy);
        client.send(start);
        // A response, perhaps, and the end.
        client.connection().read_to_end().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "{start}");
    }
    // But longer than a packet takes.
    let mut client = connect(&proxy);
    client.send("P");
    client.assert_silent(Duration::from_millis(100));
    let response = client.request("OST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(response.status, 200);
    drop(client);
    wait_quiet(&proxy);
}

#[test]
fn protocol_detection_counts_as_time_of_the_head() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("header_timeout: 2s")
        .start();
    let started = Instant::now();
    let mut client = connect(&proxy);
    client.send("PRI * HT");
    assert_eq!(client.response().status, 408);
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_millis(3500), "{took:?}");
}

#[test]
fn an_old_connection_is_left_after_an_answer() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("max_connection_age: 1s")
        .start();
    let started = Instant::now();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").header("connection"), None);
    let last = loop {
        let response = client.get("/delay/20ms");
        if response.header("connection") == Some("close") {
            break started.elapsed();
        }
        assert!(started.elapsed() < TIMEOUT);
    };
    client.assert_closed();
    // With some jitter, so that not all end at once.
    assert!(last >= Duration::from_millis(900), "{last:?}");
}

#[test]
fn connections_to_endpoints_are_kept_as_configured() {
    for (settings, connections) in [
        ("max_requests_per_connection: 3", 4),
        ("max_requests_per_connection: 3, protocol: http2", 4),
        ("max_requests_per_connection: 1, protocol: http2", 10),
        ("max_idle_connections: 0", 10),
        ("idle_timeout: 1h", 1),
    ] {
        let upstream = Upstream::start("a");
        let proxy = Web::to([upstream.address()]).cluster(settings).start();
        let mut client = connect(&proxy);
        for _ in 0..10 {
            assert_eq!(client.get("/").status, 200);
        }
        assert_eq!(upstream.connections(), connections, "{settings}");
    }
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("idle_timeout: 300ms")
        .start();
    assert_eq!(get(&proxy, "/").status, 200);
    eventually(TIMEOUT, "the idle connection is closed", || {
        upstream.open_connections() == 0
    });
    eventually(TIMEOUT, "it is not counted any more", || {
        proxy.metric("maglor_upstream_open_connections", &[]) == 0.0
    });
}
