//! Three nodes with priorities and weights of their own, as `localFirst` and `trafficDistribution` give them: a
//! ledger knows what each of them may use, and shares are those of `lor`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_testkit::{Answer, Proxy, TIMEOUT, Upstream, eventually};
use support::{Web, connect, reload};

const NODES: usize = 3;
const SERVERS: usize = 6;
const CLIENTS: usize = 6;

/// Weight (0: priority 1) of the servers of each node, at each node.
type Lists = [[u32; NODES]; NODES];

fn node_of(server: usize) -> usize {
    server % NODES
}

/// The cluster as it is on a node.
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

    /// Each inbound proxy knows the list of its own node.
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

    /// The outbound proxy of the first node.
    fn outbound(&self, weights: &[u32; NODES], policy: &str) -> Proxy {
        let yaml = Web::to([]).yaml();
        let (head, _) = yaml.split_once("- {name: backend").unwrap();
        let cluster = cluster("backend", &self.addresses, weights, policy);
        support::start(&format!("{head}{cluster}"))
    }

    /// The shares of the nodes of so many requests.
    fn shares(&self, outbound: &Proxy, requests: u64) -> [f64; NODES] {
        let counts = || -> Vec<u64> { self.applications.iter().map(Upstream::requests).collect() };
        let stop = AtomicBool::new(false);
        let (before, after) = std::thread::scope(|scope| {
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
            // Channels are opened by the first ones.
            let (before, after) = (after(60), after(60 + requests));
            stop.store(true, Ordering::SeqCst);
            (before, after)
        });
        let mut shares = [0.0; NODES];
        for (server, (after, before)) in after.iter().zip(&before).enumerate() {
            shares[node_of(server)] += (after - before) as f64;
        }
        let sum: f64 = shares.iter().sum();
        shares.map(|share| share / sum)
    }
}

fn count(proxy: &Proxy, name: &str) -> f64 {
    proxy.metric(&format!("maglor_exchange_{name}_total"), &[])
}

#[test]
fn shares_are_those_of_the_node_and_servers_those_of_the_ledger() {
    let fixture = Fixture::start();
    for (lists, wanted) in [
        // `localFirst`: most of the calls come from the first node.
        (
            [[500, 250, 250], [0, 1000, 0], [0, 0, 1000]],
            [0.5, 0.25, 0.25],
        ),
        // `trafficDistribution`: what is near, as long as it is healthy.
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1.0, 0.0, 0.0]),
    ] {
        for policy in ["lor(choices=2)", "bounce(tries=3)", "ledger(group=40)"] {
            fixture.know(&lists, policy);
            let outbound = fixture.outbound(&lists[0], policy);
            let shares = fixture.shares(&outbound, 600);
            for (share, wanted) in shares.iter().zip(wanted) {
                // Binomial with n = 600: the standard deviation is 0.02 at most.
                assert!((share - wanted).abs() < 0.09, "{policy}: {shares:?}");
            }
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
