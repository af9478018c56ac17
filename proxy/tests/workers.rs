//! Several workers: long-lived connections are spread evenly, whichever worker accepts them.

use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::{Web, connect};

/// Returns the numbers of connections by worker.
fn open(proxy: &Proxy, workers: usize) -> Vec<usize> {
    let count = |worker: usize| {
        let label = format!("worker=\"{worker}\"");
        proxy.metric("maglor_worker_connections", &[&label]) as usize
    };
    (0..workers).map(count).collect()
}

fn clients(proxy: &Proxy, number: usize) -> Vec<RawHttp1> {
    let mut clients: Vec<_> = (0..number).map(|_| connect(proxy)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    clients
}

#[test]
fn long_lived_connections_are_spread_evenly() {
    let upstream = Upstream::start("a");
    // The kernel's distribution is random: each round has other ports.
    for _ in 0..5 {
        let proxy = Web::to([upstream.address()]).top("workers: 4").start();
        let mut held = clients(&proxy, 16);
        eventually(TIMEOUT, "all connections are counted", || {
            open(&proxy, 4).iter().sum::<usize>() == 16
        });
        let spread = open(&proxy, 4);
        assert!(
            spread.iter().all(|open| (3..=5).contains(open)),
            "{spread:?}"
        );
        for client in &mut held {
            assert_eq!(client.get("/").status, 200);
        }
        // What has ended is not counted: the next ones fill the gaps.
        held.truncate(4);
        eventually(TIMEOUT, "ended connections are not counted", || {
            open(&proxy, 4).iter().sum::<usize>() == 4
        });
        held.extend(clients(&proxy, 12));
        eventually(TIMEOUT, "all connections are counted again", || {
            open(&proxy, 4).iter().sum::<usize>() == 16
        });
        let spread = open(&proxy, 4);
        assert!(spread.iter().all(|open| *open <= 5), "{spread:?}");
    }
}

#[test]
fn two_connections_are_served_by_two_workers() {
    let upstream = Upstream::start("a");
    for _ in 0..5 {
        let proxy = Web::to([upstream.address()]).top("workers: 2").start();
        let _held = clients(&proxy, 2);
        eventually(TIMEOUT, "each worker has one", || open(&proxy, 2) == [1, 1]);
    }
}
