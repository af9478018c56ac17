//! Several workers: long-lived connections are spread evenly, whichever worker accepts them.

use std::fs;

use futures_util::future::join_all;
use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::h2::{self, Client};
use crate::support::{Web, connect};

/// Number of requests that each HTTP/2 connection sends at the same time, and how often.
const STREAMS: usize = 10;
const ROUNDS: usize = 12;
/// Maximum ratio of the busiest worker's CPU time to the mean.
const BUSIEST: f64 = 1.3;

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
        assert_eq!(spread, [4; 4]);
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
        assert_eq!(spread, [4; 4]);
    }
}

/// Returns the CPU time of each worker's thread so far, in nanoseconds.
fn worked(proxy: &Proxy, workers: usize) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", proxy.pid())).unwrap();
    let mut worked = vec![0; workers];
    for task in tasks {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap();
        let worker = name.trim().strip_prefix("worker-");
        let Some(worker) = worker.and_then(|number| number.parse::<usize>().ok()) else {
            continue;
        };
        let times = fs::read_to_string(task.join("schedstat")).unwrap();
        worked[worker] = times.split(' ').next().unwrap().parse().unwrap();
    }
    worked
}

/// Connects HTTP/2 clients, which have sent a request.
fn callers(proxy: &Proxy, number: usize) -> Vec<Client> {
    let connected = |_| {
        let mut client = Client::connect(proxy.listener("web"));
        assert_eq!(client.ask(h2::get("/")).status, 200);
        client
    };
    (0..number).map(connected).collect()
}

/// Sends the same number of requests on each connection; returns the ratio of the busiest worker's CPU time to the mean.
fn busiest(proxy: &Proxy, clients: &mut [Client], workers: usize) -> f64 {
    let before = worked(proxy, workers);
    for _ in 0..ROUNDS {
        for client in &mut *clients {
            let sent: Vec<_> = (0..STREAMS).map(|_| client.send(h2::get("/"))).collect();
            let answered = client.run(join_all(sent));
            let mut answered = answered.into_iter();
            assert!(answered.all(|answer| answer.unwrap().status() == 200));
        }
    }
    let took = worked(proxy, workers).into_iter().zip(before);
    let took: Vec<_> = took.map(|(now, before)| (now - before) as f64).collect();
    let most = took.iter().copied().fold(0.0, f64::max);
    most * workers as f64 / took.iter().sum::<f64>()
}

#[test]
fn sixteen_http2_connections_give_four_workers_the_same_work() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).top("workers: 4").start();
    let all_counted = |number: usize| {
        eventually(TIMEOUT, "all connections are counted", || {
            open(&proxy, 4).iter().sum::<usize>() == number
        });
    };
    let mut clients = callers(&proxy, 16);
    all_counted(16);
    assert_eq!(open(&proxy, 4), [4; 4]);
    let ratio = busiest(&proxy, &mut clients, 4);
    println!("the busiest worker has {ratio:.2} of the mean");
    assert!(ratio <= BUSIEST, "{ratio}");

    // Half of them end, whichever workers have them: the workers are left with different numbers.
    clients.truncate(8);
    all_counted(8);
    clients.extend(callers(&proxy, 8));
    all_counted(16);
    assert_eq!(open(&proxy, 4), [4; 4]);
    let ratio = busiest(&proxy, &mut clients, 4);
    println!("after eight others: {ratio:.2}");
    assert!(ratio <= BUSIEST, "{ratio}");
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
