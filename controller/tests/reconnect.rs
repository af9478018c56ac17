//! A replica restarts, and all of its proxies reconnect at once: each is served again, changes reach it, and memory is
//! bounded.
//!
//! The proxies are simulated, their sessions are not: mutual TLS with an identity of each one's own, HTTP/2, a delta
//! stream. They connect as soon as the port accepts connections, without the pauses of real ones, and have no version
//! of anything, so that each resource is sent again. With the defaults the test is small.
//! `MAGLOR_RECONNECT=PROXIES,SERVICES` sets its size, and compares the results with the required bounds of a
//! release; `MAGLOR_CONTROLLER=FILE` is the one to measure.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Identity, LeafRequest, Live, SpiffeId};
use maglor_xds::Kind;
use rustls::ClientConfig;
use tokio::sync::mpsc;

use crate::support::fixture::{Fixture, domain};
use crate::support::grpc::{Connection, Stream};
use crate::support::process::put;

/// Proxies and Services without `MAGLOR_RECONNECT`.
const SMALL: (u32, u32) = (50, 20);
const ENDPOINTS: u32 = 10;
/// Services that a proxy calls, the first one among them.
const USES: u32 = 5;
/// Proxies of a node, which share an address.
const PROXIES_A_NODE: u32 = 10;
const CHANGES: u32 = 20;
/// Nothing takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bounds of a release: all are served again; the 99th percentile of a change; the most memory.
const SERVED: Duration = Duration::from_secs(10);
const PUSH: Duration = Duration::from_secs(1);
const MEMORY: u64 = 150 << 20;

/// Services with endpoints that have sidecars.
fn resources(services: u32) -> String {
    let mut text = String::new();
    for one in 0..services {
        let (high, low) = (one / 250, one % 250 + 1);
        let mut endpoints = String::new();
        for endpoint in 0..ENDPOINTS {
            write!(
                text,
                "---
apiVersion: v1
kind: Pod
metadata: {{name: s{one}-{endpoint}, namespace: shop, annotations: {{maglor.dev/injected: 'true'}}}}
spec: {{serviceAccountName: s{one}}}
"
            )
            .unwrap();
            write!(
                endpoints,
                "{{addresses: [10.{}.{high}.{low}], targetRef: {{kind: Pod, name: s{one}-{endpoint}, namespace: shop}}}}, ",
                endpoint + 1
            )
            .unwrap();
        }
        write!(
            text,
            "---
apiVersion: v1
kind: Service
metadata: {{name: s{one}, namespace: shop}}
spec: {{clusterIP: 10.200.{high}.{low}, ports: [{{port: 80, name: http}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: s{one}-1, namespace: shop, labels: {{kubernetes.io/service-name: s{one}}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}]
endpoints: [{endpoints}]
"
        )
        .unwrap();
    }
    text
}

/// A policy for the Service that every proxy calls.
fn policy(change: u32) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: s0, namespace: shop}}, spec: \
         {{targetRefs: [{{name: s0}}], cluster: {{limits: {{max_requests: {}}}}}}}}}\n",
        1000 + change
    )
}

fn name(service: u32) -> String {
    format!("s{service}.shop.svc.cluster.local:80")
}

fn id(namespace: &str, account: &str) -> SpiffeId {
    SpiffeId::workload(&domain(), namespace, account).unwrap()
}

/// A proxy: its source address, its identity, and the Services that it calls.
struct Simulated {
    number: u32,
    tls: Arc<ClientConfig>,
    from: IpAddr,
    services: Vec<String>,
}

/// The events of a proxy.
enum Report {
    /// It has received all requested resources.
    Served,
    /// A change has reached it.
    Changed(Instant),
}

impl Simulated {
    fn new(fixture: &Fixture, number: u32, services: u32) -> Self {
        let request = LeafRequest::new(id("shop", &format!("p{number}")));
        let issued = fixture
            .authority
            .issue(&request, SystemTime::now())
            .unwrap();
        let key = issued.private_key_pem.unwrap();
        let identity =
            Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes()).unwrap();
        let live = Live::new(identity, fixture.bundle()).unwrap();
        let controller = Expected::OneOf(vec![id("maglor", "maglor-controller")]);
        let node = number / PROXIES_A_NODE;
        let [.., high, low] = node.to_be_bytes();
        let others = (0..USES - 1).map(|one| 1 + (number * (USES - 1) + one) % (services - 1));
        Self {
            number,
            tls: Client::new(&live, controller, &[b"h2"]).unwrap().config(),
            from: Ipv4Addr::new(127, 1 + high, low, 1).into(),
            services: std::iter::once(0).chain(others).map(name).collect(),
        }
    }

    /// Connects until that succeeds.
    async fn connect(&self, address: &str) -> Stream {
        loop {
            let opened = Connection::open_from(self.from, address, Arc::clone(&self.tls)).await;
            match opened {
                Ok(connection) => {
                    return Stream::open(connection, &format!("shop/p{}-0", self.number)).await;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Subscribes to the called Services, and receives changes until the stream ends.
    async fn follow(self: Arc<Self>, address: String, reports: mpsc::UnboundedSender<Report>) {
        let mut stream = self.connect(&address).await;
        let names: Vec<_> = self.services.iter().map(String::as_str).collect();
        let kinds = [Kind::Listener, Kind::Routes, Kind::Cluster, Kind::Endpoints];
        for kind in kinds {
            stream.want(kind, &names);
        }
        let all = kinds.len() * names.len();
        let served =
            stream.waits_until(|seen| seen.values().filter(|one| one.is_some()).count() == all);
        if !served.await || reports.send(Report::Served).is_err() {
            return;
        }
        let key = (Kind::Cluster, name(0));
        loop {
            let known = stream.seen.get(&key).cloned();
            let changed = stream.waits_until(|seen| seen.get(&key) != known.as_ref());
            if !changed.await || reports.send(Report::Changed(Instant::now())).is_err() {
                return;
            }
        }
    }
}

/// All proxies, and their events.
struct Proxies {
    all: Vec<Arc<Simulated>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    reports: mpsc::UnboundedReceiver<Report>,
}

impl Proxies {
    fn connect(all: Vec<Arc<Simulated>>, address: &str) -> Self {
        let (sender, reports) = mpsc::unbounded_channel();
        let follow = |one: &Arc<Simulated>| {
            let follows = Arc::clone(one).follow(address.to_owned(), sender.clone());
            tokio::spawn(follows)
        };
        let tasks = all.iter().map(follow).collect();
        Self {
            all,
            tasks,
            reports,
        }
    }

    async fn next(&mut self) -> Report {
        let next = tokio::time::timeout(PATIENCE, self.reports.recv()).await;
        next.unwrap().unwrap()
    }

    async fn all_served(&mut self) {
        for _ in 0..self.all.len() {
            assert!(matches!(self.next().await, Report::Served));
        }
    }

    /// The times that a change takes to reach each of them.
    async fn change(&mut self, fixture: &Fixture, change: u32) -> Vec<Duration> {
        let begun = Instant::now();
        put(&fixture.path("resources/policy.yaml"), &policy(change));
        let mut took = Vec::new();
        while took.len() < self.all.len() {
            match self.next().await {
                Report::Changed(at) => took.push(at - begun),
                Report::Served => panic!("a proxy has connected again"),
            }
        }
        took
    }

    fn gone(self) -> Vec<Arc<Simulated>> {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        self.all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_proxies_of_a_replica_return_at_once() {
    let size = std::env::var("MAGLOR_RECONNECT").ok();
    let (proxies, services) = size.as_deref().map_or(SMALL, |text| {
        let (proxies, services) = text.split_once(',').unwrap();
        (proxies.parse().unwrap(), services.parse().unwrap())
    });
    let mut fixture = Fixture::start(&resources(services), "24h").await;
    let simulated = (0..proxies).map(|number| Arc::new(Simulated::new(&fixture, number, services)));
    let address = fixture.controller.listen.clone();
    let mut all = Proxies::connect(simulated.collect(), &address);
    all.all_served().await;
    all.change(&fixture, 1).await;
    let before = fixture.controller.memory();
    println!(
        "{proxies} proxies, {services} Services of {ENDPOINTS}: {} MB",
        before >> 20
    );

    fixture.kill();
    let simulated = all.gone();
    let mut all = Proxies::connect(simulated, &address);
    let killed = Instant::now();
    fixture.start_again().await;
    let listens = killed.elapsed();
    all.all_served().await;
    let served = killed.elapsed() - listens;
    let cpu = fixture.controller.cpu();
    println!(
        "restarted after {listens:?}, all served {served:?} later; the controller has used {cpu:?} of a processor"
    );

    let mut took = Vec::new();
    for change in 2..2 + CHANGES {
        took.extend(all.change(&fixture, change).await);
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
    let (now, peak) = (
        fixture.controller.memory(),
        fixture.controller.peak_memory(),
    );
    let pushes = fixture.controller.cpu() - cpu;
    println!(
        "{CHANGES} changes, {pushes:?} of a processor: p50 {:?}, p99 {:?}, slowest {:?}; memory {} MB, at most {} MB",
        at(50),
        at(99),
        at(100),
        now >> 20,
        peak >> 20
    );
    if size.is_some() {
        assert!(served <= SERVED, "{served:?}");
        assert!(at(99) <= PUSH, "{:?}", at(99));
        assert!(peak <= MEMORY, "{} MB", peak >> 20);
    }
}
