//! Requests from outside of the mesh.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Cluster;

use super::installed::until;
use super::round_trip::{connect, round_trip};

/// Connections that share the rate.
const CONNECTIONS: u32 = 25;

/// The status of one request over a connection of its own; `None` without an answer.
pub(crate) fn get(address: SocketAddr, host: &str) -> Option<u16> {
    let mut stream = connect(address)?;
    let request = format!("GET /api/v1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    String::from_utf8_lossy(&response)
        .split(' ')
        .nth(1)?
        .parse()
        .ok()
}

/// The response of an admin server for a path.
#[allow(dead_code, reason = "not all of the tests ask for it")]
pub(crate) fn body(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    Some(response)
}

/// Requests at a rate, until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    outcomes: mpsc::Receiver<(u64, Vec<String>)>,
}

impl Load {
    pub(crate) fn start(cluster: &Cluster, address: SocketAddr, rate: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, outcomes) = mpsc::channel();
        let answered = Arc::new(AtomicU64::new(0));
        let shared = (Arc::clone(&stop), Arc::clone(&answered));
        let spawned = cluster.in_network(move || {
            let period = Duration::from_secs(1) * CONNECTIONS / rate;
            let begin = Instant::now();
            for one in 0..CONNECTIONS {
                let (sender, shared) = (sender.clone(), shared.clone());
                // One after another: all at once would be many requests, and then none for long.
                let first = begin + period * one / CONNECTIONS;
                // It inherits the network of this thread.
                std::thread::spawn(move || sender.send(requests(address, first, period, &shared)));
            }
        });
        spawned.unwrap();
        Self {
            stop,
            answered,
            outcomes,
        }
    }

    /// Waits until this many more requests have ended, so that the effects are visible.
    pub(crate) fn go_on(&self, count: u64) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        until("requests go on", || {
            self.answered.load(Ordering::Relaxed) >= wanted
        });
    }

    /// How many requests were sent, and what became of those that failed.
    pub(crate) fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = (0, Vec::new());
        for (sent, failed) in self.outcomes {
            all.0 += sent;
            all.1.extend(failed);
        }
        all
    }
}

fn requests(
    address: SocketAddr,
    first: Instant,
    period: Duration,
    (stop, answered): &(Arc<AtomicBool>, Arc<AtomicU64>),
) -> (u64, Vec<String>) {
    let (mut sent, mut failed) = (0, Vec::new());
    let mut next = first;
    let mut stream = None;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += period;
        sent += 1;
        match round_trip(&mut stream, address) {
            Ok(200) => {}
            Ok(status) => failed.push(format!("status {status}")),
            Err(error) => {
                stream = None;
                failed.push(error);
            }
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    (sent, failed)
}
