//! Memory tests: use of idle connections and of bulk transfers, and its release.
//!
//! The bounds hold for the release build; a debug build runs with fewer connections and looser bounds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use maglor_testkit::{Proxy, TIMEOUT, Upstream, eventually, pattern};

use crate::support::{self, Web, connect, get, wait_quiet};

const RELEASE: bool = !cfg!(debug_assertions);

/// Returns the resident memory once it no longer changes.
fn settled(proxy: &Proxy) -> u64 {
    let mut last = 0;
    eventually(TIMEOUT * 3, "memory settles", || {
        std::thread::sleep(Duration::from_millis(1500));
        let now = proxy.resident_bytes();
        std::mem::replace(&mut last, now) == now
    });
    last
}

fn idle_client(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.listener("web")).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let mut response = [0; 4096];
    assert!(client.read(&mut response).unwrap() > 0);
    client
}

#[test]
fn idle_connections_cost_little_and_leave_nothing() {
    if !RELEASE {
        println!("skipped: the debug build is another program; run with --release");
        return;
    }
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/").status, 200);
    let idle = settled(&proxy);
    println!("idle: {idle}");
    assert!(idle <= 6 << 20, "{idle} bytes when idle");
    let clients: Vec<_> = (0..2000).map(|_| idle_client(&proxy)).collect();
    let parked = settled(&proxy);
    let each = parked.saturating_sub(idle) / 2000;
    println!("parked: {parked}, {each} a connection");
    assert!(each <= 3 << 10, "{each} bytes an idle connection");
    // All of them still work.
    for mut client in clients {
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        assert!(client.read(&mut [0; 4096]).unwrap() > 0);
    }
    wait_quiet(&proxy);
    std::thread::sleep(Duration::from_secs(8));
    let after = settled(&proxy);
    println!("after: {after}");
    assert!(
        after * 10 <= idle * 13,
        "{after} bytes after, {idle} before"
    );
}

#[test]
fn bulk_passes_in_flat_memory() {
    let length: usize = if RELEASE { 1 << 30 } else { 64 << 20 };
    let upstream = Upstream::start("a");
    let versions = [
        Web::to([upstream.address()]),
        Web::to([upstream.address()]).cluster("protocol: http2"),
    ];
    for web in versions {
        let proxy = web.route("timeout: 0s").start();
        assert_eq!(get(&proxy, "/bytes/100000").status, 200);
        let before = proxy.allocated_bytes();
        let mut highest = before;
        let mut client = connect(&proxy);
        client.send(format!("GET /bytes/{length} HTTP/1.1\r\nhost: a\r\n\r\n"));
        client.connection().read_head().unwrap();
        let mut read = 0;
        while read < length {
            let piece = client
                .connection()
                .read_exact((length - read).min(8 << 20))
                .unwrap();
            pattern::check(read as u64, &piece);
            read += piece.len();
            highest = highest.max(proxy.allocated_bytes());
        }
        client.send(format!(
            "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n"
        ));
        let mut sent = 0;
        while sent < length {
            let piece = pattern::piece(sent as u64, (length - sent) as u64);
            client.send(&piece);
            sent += piece.len();
            if sent % (8 << 20) == 0 {
                highest = highest.max(proxy.allocated_bytes());
            }
        }
        assert_eq!(client.response().json()["bytes"], length);
        let grown = highest - before;
        println!("{grown} bytes more at the most");
        assert!(grown < 4 << 20, "{grown} bytes");
    }
}

#[test]
fn many_large_responses_at_once_are_bounded() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    assert_eq!(get(&proxy, "/bytes/100000").status, 200);
    let before = proxy.allocated_bytes();
    // Responses are not read: each may use only the connection's buffers, whatever its length.
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let mut client = connect(&proxy);
            client.send("GET /chunked/1000000000 HTTP/1.1\r\nhost: a\r\n\r\n");
            client.connection().read_head().unwrap();
            client
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let each = proxy.allocated_bytes().saturating_sub(before) / 50;
    println!("{each} bytes a connection");
    assert!(each < 200 << 10, "{each} bytes a connection");
    drop(clients);
    wait_quiet(&proxy);
    assert_eq!(get(&proxy, "/").status, 200);
}

#[test]
fn a_budget_bounds_connections() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top("memory_budget: 8MiB")
        .start();
    let open = || proxy.metric("maglor_downstream_open_connections", &[]);
    // (8 − 6) MiB, with 4 KiB for each.
    let mut clients: Vec<_> = (0..512).map(|_| connect(&proxy)).collect();
    eventually(TIMEOUT, "all are accepted", || open() >= 512.0);
    let mut late = connect(&proxy);
    late.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    late.assert_silent(Duration::from_millis(300));
    assert!(proxy.metric("maglor_memory_shed_total", &["what=\"connection\""]) > 0.0);
    drop(clients.pop());
    assert_eq!(late.response().text(), "a", "it has waited in the backlog");
}

#[test]
fn a_budget_bounds_the_bodies_that_are_kept() {
    let upstream = Upstream::start("a");
    let proxy = support::builder()
        .config(Web::to([upstream.address()]).yaml())
        .args(["--memory-budget", "16MiB"])
        .start();
    let body = "x".repeat(60_000);
    let request = format!(
        "POST /delay/500ms HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut clients: Vec<_> = (0..150).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        client.send(&request);
    }
    for client in &mut clients {
        assert_eq!(client.response_to("POST").status, 200);
    }
    // 150 bodies of 60 kB are 9 MB; a fifth of the budget is 3.3 MB.
    let bodies = proxy.metric("maglor_memory_shed_total", &["what=\"body\""]);
    assert!(bodies >= 50.0, "{bodies}");
    assert_eq!(get(&proxy, "/").status, 200);
}

/// Workers allocate the lines of taps, and the control thread frees them.
#[test]
fn what_taps_have_passed_on_does_not_count() {
    const TAPS: usize = 8;
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top("memory_budget: 16MiB")
        .start();
    let readers: Vec<_> = (0..TAPS)
        .map(|_| {
            let mut tap = TcpStream::connect(proxy.admin()).unwrap();
            tap.write_all(b"GET /tap?rate=100000 HTTP/1.1\r\nhost: localhost\r\n\r\n")
                .unwrap();
            let mut head = [0; 12];
            tap.read_exact(&mut head).unwrap();
            assert_eq!(head, *b"HTTP/1.1 200");
            std::thread::spawn(move || std::io::copy(&mut tap, &mut std::io::sink()).unwrap())
        })
        .collect();
    let mut client = connect(&proxy);
    let path = format!("/status/204?{}", "x".repeat(60_000));
    for _ in 0..200 {
        assert_eq!(client.get(&path).status, 204);
    }
    assert_eq!(proxy.metric("maglor_memory_shed_total", &[]), 0.0);
    drop(proxy);
    let read: u64 = readers.into_iter().map(|tap| tap.join().unwrap()).sum();
    assert!(read > 16 << 20, "{read} bytes of lines");
}
