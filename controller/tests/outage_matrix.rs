//! The outage matrix of docs/outages.md: controller, tokens, name server and nodes unavailable for an hour, a day and
//! three days, alone and together, in each order of return.
//!
//! While identities are valid, calls between members do not fail; after the last recovery everything works within 30 s,
//! and no process is restarted for it. Days are jumps of the clock (`support/clock.rs`). The API server's outages are
//! in `kubernetes_outages.rs`. `MAGLOR_OUTAGES=all` tests every order; without it those that are alone, and each of
//! them returning first and last.
//!
//! Skipped with a message if the proxy is not built: `cargo build -p maglor-proxy`.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, eventually};

use crate::support::clock::Clock;
use crate::support::members::{Load, Mesh, ready};
use crate::support::names::NameServer;
use crate::support::process::put;

/// Everything is back so long after the last return at the latest.
const BACK: Duration = Duration::from_secs(30);
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// How long an outage lasts.
const OUTAGES: [u64; 3] = [HOUR, DAY, 3 * DAY];
/// Seconds before the end of an identity that still count as its life: clocks of processes are read one after another
/// .
const MARGIN: f64 = 60.0;
/// Jumps within the lifetime of identities.
const STEPS: u64 = 4;
/// Between two calls of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// The time between two recoveries, while other parts are still unavailable.
const BETWEEN: Duration = Duration::from_secs(2);
/// More than are made by one connection between members: the last one meets identities of now.
const CALLS: usize = 6;
/// Meshes at a time.
const AT_ONCE: usize = 8;

/// The unavailable part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    /// The process, killed.
    Controller,
    /// The name server that resolves the controller.
    Names,
    /// The node of the proxies, suspended: no timer of theirs runs.
    Node,
    /// The token reviewer (TokenReview, on Kubernetes): no review is answered, or, at the start of a
    /// controller, every token is refused.
    Tokens,
}

use Part::{Controller, Names, Node, Tokens};

/// A mesh whose parts become unavailable and recover.
struct Case {
    mesh: Mesh,
    clock: Clock,
    names: Option<NameServer>,
    /// Seconds by which the clock is ahead.
    ahead: u64,
    tokens: String,
    _folder: tempfile::TempDir,
}

impl Case {
    /// `None` if it cannot be tested here; the reason is printed.
    async fn start(parts: &[Part]) -> Option<Self> {
        let clock = Clock::new();
        let mut node = clock.environment();
        let mut names = None;
        let folder = tempfile::tempdir().unwrap();
        if parts.contains(&Names) {
            match NameServer::start() {
                Ok(server) => node.push(names.insert(server).environment(folder.path())),
                Err(error) => {
                    println!("skipped {parts:?}: port 53 of a loopback address: {error}");
                    return None;
                }
            }
        }
        let name = names.is_some().then_some("controller.mesh.example");
        let mesh = Mesh::start_named("24h", clock.environment(), node, name).await?;
        let tokens = std::fs::read_to_string(mesh.fixture.path("tokens")).unwrap();
        mesh.reaches();
        Some(Self {
            mesh,
            clock,
            names,
            ahead: 0,
            tokens,
            _folder: folder,
        })
    }

    fn pass(&mut self, seconds: u64) {
        self.ahead += seconds;
        self.clock.set_seconds(self.ahead.try_into().unwrap());
    }

    fn proxies(&self) -> [&Proxy; 2] {
        [&self.mesh.cart, &self.mesh.web]
    }

    /// Seconds until the first identity ends, by the set clock; 0 at least.
    fn remaining(&self) -> f64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = now.as_secs_f64() + self.ahead as f64;
        let ends = self
            .proxies()
            .map(|proxy| proxy.metric("maglor_identity_expiry_seconds", &[]));
        (ends[0].min(ends[1]) - now).max(0.0)
    }

    fn away(&mut self, part: Part) {
        match part {
            Controller => self.mesh.fixture.kill(),
            Names => self.names.as_ref().unwrap().silence(true),
            Node => self
                .proxies()
                .into_iter()
                .for_each(|proxy| proxy.signal(Signal::Stop)),
            Tokens => std::fs::remove_file(self.mesh.fixture.path("tokens")).unwrap(),
        }
    }

    async fn back(&mut self, part: Part, away: &[Part]) {
        match part {
            Controller => {
                if away.contains(&Tokens) {
                    // A controller does not start without the file.
                    put(&self.mesh.fixture.path("tokens"), "# none\n");
                }
                self.mesh.fixture.start_again().await;
            }
            Names => self.names.as_ref().unwrap().silence(false),
            Node => self
                .proxies()
                .into_iter()
                .for_each(|proxy| proxy.signal(Signal::Continue)),
            Tokens => put(&self.mesh.fixture.path("tokens"), &self.tokens),
        }
    }

    /// Sends calls while the clock advances in steps and identities are valid; returns their number.
    fn calls_while_identities_live(&mut self, outage: u64) -> (u64, u64) {
        let lives = (self.remaining() - MARGIN).max(0.0) as u64;
        let passes = outage.min(lives);
        let load = Load::with_pauses(self.mesh.web.listener("outbound"), PAUSE);
        for _ in 0..STEPS {
            self.pass(passes / STEPS);
            let before = load.answered();
            eventually(BACK, "calls go on", || load.answered() > before + 20);
        }
        let (answered, failed) = load.end();
        assert!(failed.is_empty(), "{failed:?}");
        (answered, passes / STEPS * STEPS)
    }

    fn has_expired(&self) {
        eventually(BACK, "the proxies say that they have expired", || {
            let says = |proxy: &Proxy| ready(proxy).1.contains("the certificate expired at");
            self.proxies().into_iter().all(says)
        });
    }

    /// Until all is as it was before.
    fn is_back(&self, what: &str) -> Duration {
        let began = Instant::now();
        eventually(BACK, what, || {
            let good = |proxy: &Proxy| {
                let gauge = |name| proxy.metric(name, &[]) == 1.0;
                gauge("maglor_identity_usable")
                    && gauge("maglor_xds_connected")
                    && ready(proxy).0 == 200
            };
            self.proxies().into_iter().all(good)
                && (0..CALLS).all(|_| self.mesh.call() == 200)
                && self.remaining() > HOUR as f64
        });
        began.elapsed()
    }
}

/// One row of the table: the parts recover in this order.
async fn try_order(order: &[Part]) {
    let Some(mut case) = Case::start(order).await else {
        return;
    };
    for outage in OUTAGES {
        // The node recovers last: earlier requests need a running process.
        let mut away: Vec<_> = order.to_vec();
        away.sort_by_key(|part| *part == Node);
        let suspended = away.contains(&Node);
        for part in away.iter().filter(|part| **part != Node) {
            case.away(*part);
        }
        let (mut calls, mut passed) = (0, 0);
        if suspended {
            case.away(Node);
        } else {
            (calls, passed) = case.calls_while_identities_live(outage);
        }
        case.pass(outage - passed);
        let unrenewed = order.iter().any(|part| matches!(part, Controller | Tokens));
        if unrenewed && !suspended && outage >= DAY {
            case.has_expired();
        }
        for (at, part) in order.iter().enumerate() {
            if at > 0 {
                tokio::time::sleep(BETWEEN).await;
            }
            case.back(*part, &order[at + 1..]).await;
        }
        let hours = outage / HOUR;
        let took = case.is_back(&format!("{order:?} after {hours} h"));
        println!(
            "| {order:?} | {hours} h | {calls} | 0 | {:.1} s |",
            took.as_secs_f64()
        );
    }
}

/// Every order of some of the parts.
fn orders() -> Vec<Vec<Part>> {
    let mut all: Vec<Vec<Part>> = vec![vec![]];
    let mut done = 0;
    while done < all.len() {
        let longer = [Controller, Names, Node, Tokens]
            .into_iter()
            .filter(|part| !all[done].contains(part))
            .map(|part| [&all[done][..], &[part]].concat())
            .collect::<Vec<_>>();
        all.extend(longer);
        done += 1;
    }
    all.remove(0);
    all
}

/// Those that are alone, and each of them first and last.
fn some(orders: &[Vec<Part>]) -> Vec<Vec<Part>> {
    let mut some: Vec<_> = orders
        .iter()
        .filter(|order| order.len() == 1)
        .cloned()
        .collect();
    let all = [Controller, Names, Node, Tokens];
    some.extend((0..all.len()).map(|by| {
        let mut order = all.to_vec();
        order.rotate_left(by);
        order
    }));
    some
}

#[test]
fn what_was_away_returns_in_any_order() {
    let all = orders();
    assert_eq!(all.len(), 4 + 12 + 24 + 24);
    let every = std::env::var("MAGLOR_OUTAGES").is_ok_and(|which| which == "all");
    let queue = Mutex::new(if every { all } else { some(&all) }.into_iter());
    println!(
        "| away, in the order of return | for | calls while identities lived | failed | back after |"
    );
    // A thread each: the tests of members wait in place.
    let worker = || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        loop {
            let next = queue.lock().unwrap().next();
            let Some(order) = next else { return };
            runtime.block_on(try_order(&order));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(worker);
        }
    });
}
