//! Endpoints that report impossible queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use maglor_testkit::{Answer, RawServer, Upstream};

use crate::support::{Web, connect, get};

#[test]
fn an_unsolicited_rejection_is_a_response() {
    for policy in ["bounce(tries=3)", "ledger(group=40)", "a-lsq", "probe"] {
        let applications = ["a", "b", "c"].map(|name| {
            Upstream::builder(name)
                .answer(|_| Some(Answer::text("done").header("x-maglor-queue", "refused=5")))
                .start()
        });
        let outbound = Web::to(applications.iter().map(Upstream::address))
            .cluster(&format!("policy: '{policy}'"))
            .start();
        let response = get(&outbound, "/");
        assert_eq!(
            (response.status, response.text()),
            (200, "done"),
            "{policy}"
        );
        assert_eq!(response.header("x-maglor-queue"), None, "{policy}");
        // Other requests are those that open a channel.
        let requests = applications.iter().flat_map(Upstream::recorded);
        let sent = requests.filter(|request| request.uri.path() == "/").count();
        assert_eq!(sent, 1, "{policy}");
    }
}

#[test]
fn who_agrees_to_a_channel_and_leaves_is_asked_less_and_less() {
    let channels = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&channels);
    let server = RawServer::start(move |connection, _| {
        loop {
            let head = connection.read_head()?;
            if head.contains("maglor-exchange/1") {
                counted.fetch_add(1, Ordering::Relaxed);
                return connection.send(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                     upgrade: maglor-exchange/1\r\n\r\n",
                );
            }
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
    });
    let other = Upstream::start("a");
    let outbound = Web::to([server.address(), other.address()])
        .cluster("policy: probe")
        .start();
    let mut client = connect(&outbound);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        client.get("/");
    }
    // After pauses of 50, 100, 200, 400, 800 ms, and so on.
    let channels = channels.load(Ordering::Relaxed);
    assert!((2..=7).contains(&channels), "{channels}");
}
