//! Connections to endpoints: how many are opened and kept for how many requests in progress.

use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::{Web, connect};

const CLIENTS: usize = 64;

/// Has every client send a request at once, and reads all responses.
fn wave(clients: &mut [RawHttp1]) {
    for client in clients.iter_mut() {
        client.send("GET /delay/50ms HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in clients {
        assert_eq!(client.response().status, 200);
    }
}

fn clients(proxy: &Proxy, number: usize) -> Vec<RawHttp1> {
    (0..number).map(|_| connect(proxy)).collect()
}

#[test]
fn connections_that_traffic_needs_are_kept_beyond_the_bound_on_idle_ones() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("max_idle_connections: 4")
        .start();
    let mut clients = clients(&proxy, CLIENTS);
    for _ in 0..10 {
        wave(&mut clients);
    }
    let opened = upstream.connections();
    // A sweep between two waves may close some that no request needed for a second.
    assert!(
        opened < 2 * CLIENTS as u64,
        "{opened} connections for {CLIENTS} clients"
    );
}

#[test]
fn connections_that_no_request_needs_are_closed_down_to_the_bound() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("max_idle_connections: 8")
        .start();
    let mut clients = clients(&proxy, 40);
    wave(&mut clients);
    eventually(TIMEOUT, "the others are closed", || {
        upstream.open_connections() <= 8
    });
    let before = upstream.connections();
    wave(&mut clients[..8]);
    assert_eq!(upstream.connections(), before, "8 were kept");
}

#[test]
fn shared_connections_that_traffic_does_not_need_become_idle() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster("protocol: http2, max_concurrent_streams: 4, idle_timeout: 2s")
        .start();
    let mut clients = clients(&proxy, 16);
    wave(&mut clients);
    assert_eq!(upstream.connections(), 4);
    for client in &mut clients[..3] {
        client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    eventually(TIMEOUT, "one connection has all three requests", || {
        upstream.open_connections() == 1
    });
}
