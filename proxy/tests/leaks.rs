//! The resources of a request are released however it ends: its place, its connections, its memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_testkit::{Answer, Proxy, RawServer, TIMEOUT, Upstream, eventually};

use crate::support::{self, Web, connect, outstanding, reload, start, wait_quiet};

/// Starts a proxy that also sends the requests for `main` to `copy`.
fn mirrored(main: SocketAddr, copy: SocketAddr, route: &str) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  \
         http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: main{route}, mirror: [{{cluster: copy}}]}}]}}]}}\n\
         clusters:\n- {{name: main, endpoints: ['{main}']}}\n- {{name: copy, endpoints: ['{copy}'], limits: {{max_requests: 1000}}}}\n"
    ))
}

/// Waits until copies hold nothing.
#[track_caller]
fn wait_for_copies(proxy: &Proxy, what: &str) {
    eventually(TIMEOUT, what, || outstanding(proxy) == 0.0);
    let copies = || {
        let clusters = proxy.admin_get("/clusters").json();
        let all = clusters["clusters"].as_array().unwrap().clone();
        all.iter().all(|cluster| cluster["waiting"] == 0)
    };
    eventually(TIMEOUT, what, copies);
    eventually(TIMEOUT, what, || {
        proxy.metric("maglor_upstream_open_connections", &["cluster=\"copy\""]) == 0.0
    });
}

#[test]
fn a_copy_ends_with_a_request_that_never_became_whole() {
    let (main, mirror) = (Upstream::start("main"), Upstream::start("copy"));
    for route in ["", ", timeout: 500ms"] {
        let proxy = mirrored(main.address(), mirror.address(), route);
        // Answered before its body has arrived, which then never arrives.
        let mut early = connect(&proxy);
        early.send("POST /early/413 HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nsome");
        assert_eq!(early.response().status, 413);
        wait_for_copies(&proxy, "the copy of an early answer ends");
        // The client disconnects in the middle.
        let mut gone = connect(&proxy);
        gone.send("POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nsome");
        eventually(TIMEOUT, "it is under way", || outstanding(&proxy) == 2.0);
        drop(gone);
        wait_for_copies(&proxy, "the copy of what its client left ends");
        drop(early);
        wait_quiet(&proxy);
    }
}

/// The copy's server reads nothing, so that the missing body is never read.
#[test]
fn a_copy_that_is_not_read_ends_too() {
    let main = Upstream::start("main");
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let mirror = RawServer::start(move |connection, _| {
        connection.limit_receive_buffer(4096)?;
        connection.read_head()?;
        while !until.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
    let proxy = mirrored(
        main.address(),
        mirror.address(),
        ", timeout: 500ms, request_buffer_limit: 10000000",
    );
    let mut client = connect(&proxy);
    client.send("POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000\r\n\r\n");
    client.send(vec![b'x'; 9_000_000]);
    eventually(TIMEOUT, "it is under way", || outstanding(&proxy) == 2.0);
    drop(client);
    wait_for_copies(&proxy, "the copy ends");
    over.store(true, Ordering::Relaxed);
    wait_quiet(&proxy);
}

/// A reload that changes the maximum queue length: waiting requests are woken by those that were admitted
/// before.
#[test]
fn a_reload_does_not_part_a_queue_from_its_places() {
    let upstream = Upstream::start("a");
    for limit in [
        "max_requests: 1",
        "endpoint: {max_requests: 1}",
        "max_connections: 1",
    ] {
        let web = |pending: u32, limit: &str| {
            let limits =
                format!("limits: {{{limit}, max_pending_requests: {pending}, queue_timeout: 60s}}");
            Web::to([upstream.address()]).cluster(&limits).yaml()
        };
        upstream.set_answer(|request| {
            let held = request.uri.path() == "/held";
            held.then(|| Answer::text("held").after(Duration::from_secs(1)))
        });
        let proxy = start(&web(10, limit));
        let mut held = connect(&proxy);
        held.send("GET /held HTTP/1.1\r\nhost: a\r\n\r\n");
        eventually(TIMEOUT, "it is under way", || outstanding(&proxy) == 1.0);
        let mut before = connect(&proxy);
        before.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let waiting = |proxy: &Proxy| {
            let clusters = proxy.admin_get("/clusters").json();
            clusters["clusters"][0]["waiting"].as_u64()
        };
        if !limit.starts_with("max_connections") {
            eventually(TIMEOUT, "one waits", || waiting(&proxy) == Some(1));
        }
        reload(&proxy, &web(20, limit));
        let mut after = connect(&proxy);
        after.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(held.response().text(), "held", "{limit}");
        assert_eq!(before.response().text(), "a", "{limit}");
        assert_eq!(after.response().text(), "a", "{limit}");
        assert_eq!(outstanding(&proxy), 0.0);
    }
}

/// A higher limit applies immediately to waiting requests, and a lower one as places are released.
#[test]
fn a_reload_of_a_limit_holds_for_those_who_wait() {
    let upstream = Upstream::start("a");
    let web = |most: &str| {
        let limits = format!("limits: {{{most}queue_timeout: 60s}}");
        Web::to([upstream.address()]).cluster(&limits).yaml()
    };
    let proxy = start(&web("max_requests: 1, "));
    let mut held = connect(&proxy);
    held.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually(TIMEOUT, "it is under way", || outstanding(&proxy) == 1.0);
    let mut waits: Vec<_> = (0..3).map(|_| connect(&proxy)).collect();
    for client in &mut waits {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    let clusters = || proxy.admin_get("/clusters").json();
    eventually(TIMEOUT, "all wait", || {
        clusters()["clusters"][0]["waiting"] == 3
    });
    reload(&proxy, &web("max_requests: 3, "));
    for client in &mut waits {
        assert_eq!(client.response().text(), "a");
    }
    reload(&proxy, &web("max_requests: 1, max_pending_requests: 0, "));
    assert_eq!(support::get(&proxy, "/").status, 503);
    reload(&proxy, &web(""));
    assert_eq!(support::get(&proxy, "/").status, 200);
    drop((held, waits));
    wait_quiet(&proxy);
}
