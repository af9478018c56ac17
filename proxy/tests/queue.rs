//! Requests that wait for a connection are served in order of arrival, despite newer ones; and no request
//! waits while a connection is idle.

use std::time::{Duration, Instant};

use maglor_testkit::{TIMEOUT, Upstream};

use crate::support::{Web, get, h2};

/// Sends requests continuously through a bottleneck, and checks their order.
fn arrive_in_order(limits: &str) {
    const REQUESTS: usize = 600;
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .cluster(&format!(
            "limits: {{{limits}, max_pending_requests: 1000, queue_timeout: {}s}}",
            TIMEOUT.as_secs()
        ))
        .start();
    // The proxy receives them in order on one connection; some always wait while others arrive.
    let mut client = h2::Client::connect(proxy.listener("web"));
    let sent: Vec<_> = (0..REQUESTS)
        .map(|number| client.send(h2::get(&format!("/{number}"))))
        .collect();
    client.run(async {
        let mut answers = tokio::task::JoinSet::new();
        for request in sent {
            answers.spawn(async { h2::read(request.await.unwrap()).await.unwrap() });
        }
        while let Some(answer) = answers.join_next().await {
            assert_eq!(answer.unwrap().text(), "a");
        }
    });
    let seen: Vec<usize> = upstream
        .recorded()
        .iter()
        .map(|request| request.uri.path().trim_start_matches('/').parse().unwrap())
        .collect();
    let overtaken = seen.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!((seen.len(), overtaken), (REQUESTS, 0), "{seen:?}");
}

#[test]
fn requests_that_wait_for_a_connection_are_not_overtaken() {
    arrive_in_order("max_connections: 1");
}

#[test]
fn requests_that_wait_for_a_place_are_not_overtaken() {
    arrive_in_order("max_requests: 1");
}

#[test]
fn an_idle_connection_is_replaced_wherever_it_is() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let endpoints = [a.address(), b.address()];
    for protocol in ["http1", "http2"] {
        // Idle at another worker, and at another endpoint.
        for (workers, count, limit) in [
            (2, 1, "max_connections: 1"),
            (2, 2, "max_connections: 1"),
            (1, 2, "max_connections: 1"),
            (2, 2, "endpoint: {max_connections: 1}"),
        ] {
            let proxy = Web::to(endpoints.into_iter().take(count))
                .top(&format!("workers: {workers}"))
                .cluster(&format!(
                    "protocol: {protocol}, policy: round-robin, limits: {{{limit}, queue_timeout: {}s}}",
                    TIMEOUT.as_secs()
                ))
                .start();
            let began = Instant::now();
            for _ in 0..40 {
                let status = get(&proxy, "/").status;
                assert_eq!(status, 200, "{protocol} {workers} {count} {limit}");
            }
            // No request waited for an idle timeout or a sweep.
            let took = began.elapsed();
            assert!(
                took < Duration::from_secs(5),
                "{protocol} {workers} {count} {limit}: {took:?}"
            );
        }
    }
}
