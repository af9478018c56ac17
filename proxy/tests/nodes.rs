//! Three nodes with different priorities and weights, as `localFirst` and `trafficDistribution` set them: a
//! ledger respects the servers that each node may use, shares are those of `lor`, and latency is that of the
//! ledger.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::{Answer, Proxy, RawHttp1, TIMEOUT, Upstream, eventually, seed};

use crate::support::{self, Web, connect, reload};

const NODES: usize = 3;
const SERVERS: usize = 6;
const CLIENTS: usize = 6;

/// Weight (0: priority 1) of the servers of each node, by client's node.
type Lists = [[u32; NODES]; NODES];

/// `localFirst`, if two thirds of the calls come from the first node: half of those stay.
const LOCAL_FIRST: Lists = [[500, 250, 250], [0, 1000, 0], [0, 0, 1000]];

fn node_of(server: usize) -> usize {
    server % NODES
}

/// Returns the cluster's configuration on a node.
fn cluster(name: &str, addresses: &[SocketAddr], weights: &[u32; NODES], policy: &str) -> String {
    let endpoint = |(server, address): (usize, &SocketAddr)| {
        let node = node_of(server);
        let share = match weights[node] {
            0 => "priority: 1".to_owned(),
            weight => format!("weight: {weight}"),
        };
        format!("{{address: \"{address}\", locality: eu/z/node-{node}, {share}}}")
    };
    let endpoints: Vec<_> = addresses.iter().enumerate().map(endpoint).collect();
    format!(
        "- {{name: {name}, policy: '{policy}', endpoints: [{}]}}\n",
        endpoints.join(", ")
    )
}

/// Servers with their inbound proxies.
struct Fixture {
    applications: Vec<Upstream>,
    inbound: Vec<Proxy>,
    addresses: Vec<SocketAddr>,
}

impl Fixture {
    fn start() -> Self {
        let application = |at: usize| {
            let upstream = Upstream::start(&format!("server-{at}"));
            upstream
                .set_answer(move |_| Some(Answer::text("well").after(Duration::from_millis(10))));
            upstream
        };
        let applications: Vec<Upstream> = (0..SERVERS).map(application).collect();
        let start = |one: &Upstream| Web::to([one.address()]).http("load_reports: {}").start();
        let inbound: Vec<Proxy> = applications.iter().map(start).collect();
        let addresses = inbound.iter().map(|one| one.listener("web")).collect();
        Self {
            applications,
            inbound,
            addresses,
        }
    }

    /// Configures each inbound proxy with the list of its own node.
    fn know(&self, lists: &Lists, policy: &str) {
        for (at, proxy) in self.inbound.iter().enumerate() {
            let own = self.addresses[at];
            let web = Web::to([self.applications[at].address()]);
            let web = web.http(&format!(
                "load_reports: {{cluster: all, endpoint: \"{own}\"}}"
            ));
            let all = cluster("all", &self.addresses, &lists[node_of(at)], policy);
            reload(proxy, &format!("{}{all}", web.yaml()));
        }
    }

    /// Starts the outbound proxy of the first node.
    fn outbound(&self, weights: &[u32; NODES], policy: &str) -> Proxy {
        let yaml = Web::to([]).yaml();
        let (head, _) = yaml.split_once("- {name: backend").unwrap();
        let cluster = cluster("backend", &self.addresses, weights, policy);
        support::start(&format!("{head}{cluster}"))
    }

    /// Starts the outbound proxy of a node, with this many independent balancers.
    fn balancers(&self, count: usize, weights: &[u32; NODES], policy: &str) -> Proxy {
        let mut text = "admin: {address: \"127.0.0.1:0\"}\nlisteners:\n".to_owned();
        for at in 0..count {
            text.push_str(&format!(
                "- {{name: b{at}, address: \"127.0.0.1:0\", http: {{virtual_hosts: \
                 [{{domains: ['*'], routes: [{{cluster: b{at}}}]}}]}}}}\n"
            ));
        }
        text.push_str("clusters:\n");
        for at in 0..count {
            text.push_str(&cluster(
                &format!("b{at}"),
                &self.addresses,
                weights,
                policy,
            ));
        }
        support::start(&text)
    }

    /// Makes servers handle one request at a time, for an exponentially distributed time.
    fn queue(&self, service: Duration, seed: u64) {
        for (at, application) in self.applications.iter().enumerate() {
            let rng = Rng::seed(seed ^ (at as u64 + 1) << 32);
            let state = Mutex::new((rng, Instant::now()));
            application.set_answer(move |_| {
                let mut state = state.lock().unwrap();
                let time = service.mul_f64(-(1.0 - state.0.unit()).ln());
                let now = Instant::now();
                state.1 = state.1.max(now) + time;
                Some(Answer::text("well").after(state.1 - now))
            });
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.applications.iter().map(Upstream::requests).collect()
    }

    /// Returns the shares of the nodes over this many requests.
    fn shares(&self, outbound: &Proxy, requests: u64) -> [f64; NODES] {
        let counts = || self.counts();
        let stop = AtomicBool::new(false);
        let (before, after) = std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            for _ in 0..CLIENTS {
                let mut client = connect(outbound);
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        assert_eq!(client.get("/").status, 200);
                    }
                });
            }
            let start = counts().iter().sum::<u64>();
            let after = |requests: u64| {
                eventually(TIMEOUT, "requests are answered", || {
                    counts().iter().sum::<u64>() >= start + requests
                });
                counts()
            };
            // The first requests open the channels.
            let (before, after) = (after(60), after(60 + requests));
            (before, after)
        });
        by_node(&before, &after)
    }
}

/// Stops the clients even if the test fails: its scope waits for them.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns the shares of the nodes between two counts.
fn by_node(before: &[u64], after: &[u64]) -> [f64; NODES] {
    let mut shares = [0.0; NODES];
    for (server, (after, before)) in after.iter().zip(before).enumerate() {
        shares[node_of(server)] += (after - before) as f64;
    }
    let sum: f64 = shares.iter().sum();
    shares.map(|share| share / sum)
}

/// Asserts shares within four standard deviations of independent draws.
#[track_caller]
fn judge(what: &str, shares: [f64; NODES], wanted: [f64; NODES], requests: u64) {
    for (share, wanted) in shares.iter().zip(wanted) {
        let noise = 4.0 * (wanted * (1.0 - wanted) / requests as f64).sqrt();
        assert!(
            (share - wanted).abs() <= noise,
            "{what}: {shares:?}, {wanted} to {noise}"
        );
    }
}

/// Sends requests at `rate` a second for `time`, each by a random balancer, with at most sixteen in progress
/// at each. Returns their number, and their mean latency from the time when they were due.
fn load(balancers: &[SocketAddr], rate: f64, time: Duration, seed: u64) -> (u64, Duration) {
    const CONNECTIONS: usize = 16;
    const USABLE: Duration = Duration::from_secs(2);
    let (done, results) = channel();
    std::thread::scope(|scope| {
        let start = |address: &SocketAddr| {
            let (sender, due) = channel::<Instant>();
            let due = Arc::new(Mutex::new(due));
            for _ in 0..CONNECTIONS {
                let (due, done, address) = (Arc::clone(&due), done.clone(), *address);
                scope.spawn(move || {
                    let mut idle: Option<(RawHttp1, Instant)> = None;
                    loop {
                        let Ok(at) = due.lock().unwrap().recv() else {
                            return;
                        };
                        // The lock is not fair, and the proxy closes connections that send no request for long.
                        let usable = idle.take().filter(|(_, since)| since.elapsed() < USABLE);
                        let mut client =
                            usable.map_or_else(|| RawHttp1::connect(address), |(client, _)| client);
                        assert_eq!(client.get("/").status, 200);
                        let _ = done.send(at.elapsed());
                        idle = Some((client, Instant::now()));
                    }
                });
            }
            sender
        };
        let senders: Vec<_> = balancers.iter().map(start).collect();
        let mut rng = Rng::seed(seed);
        let start = Instant::now();
        let mut at = start;
        while at < start + time {
            at += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / rate);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let balancer = rng.below(senders.len() as u32) as usize;
            senders[balancer].send(at).unwrap();
        }
    });
    drop(done);
    let times: Vec<Duration> = results.iter().collect();
    let count = times.len() as u64;
    (count, times.iter().sum::<Duration>() / count as u32)
}

fn count(proxy: &Proxy, name: &str) -> f64 {
    proxy.metric(&format!("maglor_exchange_{name}_total"), &[])
}

#[test]
fn shares_are_those_of_the_node_and_servers_those_of_the_ledger() {
    let fixture = Fixture::start();
    for (lists, wanted) in [
        (LOCAL_FIRST, [0.5, 0.25, 0.25]),
        // `trafficDistribution`: near servers, as long as they are healthy.
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1.0, 0.0, 0.0]),
    ] {
        for policy in ["lor(choices=2)", "bounce(tries=3)", "ledger(group=40)"] {
            fixture.know(&lists, policy);
            let outbound = fixture.outbound(&lists[0], policy);
            let requests = 600;
            let shares = fixture.shares(&outbound, requests);
            println!("{policy}: {shares:.3?} for {wanted:?}");
            judge(policy, shares, wanted, requests);
            if policy.starts_with("ledger") {
                let (answers, fallbacks) =
                    (count(&outbound, "answers"), count(&outbound, "fallbacks"));
                assert!(
                    answers > 200.0 && fallbacks < 0.3 * answers,
                    "{answers}, {fallbacks}"
                );
            }
        }
    }
}

/// Two thirds of the calls come from the first node, and servers handle one request at a time. Shares of the
/// nodes are those of `lor`, since only as many calls leave the first node as its servers cannot handle, and
/// latency is that of the ledger.
#[test]
fn latency_is_the_ledgers_where_shares_are_those_of_the_nodes() {
    const SERVICE: Duration = Duration::from_millis(100);
    let fixture = Fixture::start();
    let seed = seed();
    let mean = |policy: &str| {
        fixture.know(&LOCAL_FIRST, policy);
        fixture.queue(SERVICE, seed);
        let proxies = [8, 2, 2].iter().zip(&LOCAL_FIRST);
        let proxies: Vec<(Proxy, usize)> = proxies
            .map(|(count, list)| (fixture.balancers(*count, list, policy), *count))
            .collect();
        let listeners = |(proxy, count): &(Proxy, usize)| -> Vec<SocketAddr> {
            (0..*count)
                .map(|at| proxy.listener(&format!("b{at}")))
                .collect()
        };
        let balancers: Vec<SocketAddr> = proxies.iter().flat_map(listeners).collect();
        let rate = 0.7 * SERVERS as f64 / SERVICE.as_secs_f64();
        // Open channels, and bring ledgers up to date.
        load(&balancers, rate, Duration::from_secs(1), seed);
        let before = fixture.counts();
        let (requests, mean) = load(&balancers, rate, Duration::from_secs(30), seed + 1);
        let shares = by_node(&before, &fixture.counts());
        let of_all = |name| {
            proxies
                .iter()
                .map(|(proxy, _)| count(proxy, name))
                .sum::<f64>()
        };
        let (answers, fallbacks) = (of_all("answers"), of_all("fallbacks"));
        println!(
            "{policy}: {mean:?} of {requests} requests, {shares:.3?}; {answers} answers, {fallbacks} fallbacks"
        );
        judge(policy, shares, [1.0 / 3.0; NODES], requests);
        mean
    };
    let (lor, ledger) = (mean("lor(choices=2)"), mean("ledger(group=40)"));
    assert!(ledger < lor, "{ledger:?} {lor:?}");
}
