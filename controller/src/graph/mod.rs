//! Observes the communication graph: processes proxies' load reports (LRS), and returns snapshots.
//!
//! This is Algorithm 1 of the paper in docs/placement.md; its arithmetic is [`maglor_service_graph::LiveEdges`]. Each
//! replica of the controller receives the reports of the proxies that are connected to it; the whole graph is merged
//! from the parts of all replicas ([`parts`]).

mod averages;
pub(crate) mod called;
mod callers;
pub mod delays;
mod history;
pub(crate) mod page;
pub mod parts;
pub(crate) mod peers;
pub mod plan;
#[cfg(feature = "kubernetes")]
pub(crate) mod publish;
mod recent;
#[cfg(feature = "kubernetes")]
pub(crate) mod replicas;
mod report_limits;
mod silent;
mod snapshot;
#[cfg(feature = "kubernetes")]
pub(crate) mod usage;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use maglor_balance::Time;
use maglor_service_graph::{Averaging, Counters, LiveEdge, Times, Traffic};
use maglor_xds::load::{ClusterLoad, LoadReport};
use tokio::sync::watch;
use tokio::time::Instant;

use self::averages::{Averages, Reported};
use self::called::Calls;
use self::callers::Callers;
use self::delays::{Delay, Delays};
use self::history::History;
use self::parts::{Part, ProxyLoad};
use self::recent::RecentEdges;
pub(crate) use self::recent::{Recent, sums};
use self::report_limits::ReportLimits;
use self::silent::Silent;
pub use self::snapshot::{Container, Edge, Node, Service, Snapshot, Split, Version};
use crate::index::Called;
use crate::index::facts::Key;
use crate::index::topology::Topology;

/// Maximum number of clusters of a report that are used: as many as a proxy of this mesh follows.
const MAX_CLUSTERS: usize = 1024;
/// Maximum calls per second accepted from a proxy's report: several times what a proxy can send.
const MOST_CALLS: f64 = 100_000.0;
/// The suffix of the name of the cluster for a sidecar's own application.
const APPLICATION: &str = "/application";
/// Interval of the stored snapshots.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Settings of the observation.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The interval of proxies' reports; `None` if no reports are requested.
    pub interval: Option<Duration>,
    /// The window of the moving averages (T).
    pub window: Duration,
    /// The weighting of intervals within the window.
    pub averaging: Averaging,
}

impl Default for Settings {
    /// # Defaults
    /// * `interval`: 10 s
    /// * `window`: 60 s
    /// * `averaging`: decayed
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(10)),
            window: Duration::from_secs(60),
            averaging: Averaging::default(),
        }
    }
}

/// CPU and memory usage of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU in thousandths of a core.
    pub cpu_millis: f64,
    /// Memory in MiB.
    pub memory_mib: f64,
    /// The usage of each container: name, CPU, memory.
    pub containers: Vec<(Box<str>, f64, f64)>,
}

/// The future of [`UsageSource::read`].
pub(crate) type Reading<'a> =
    Pin<Box<dyn Future<Output = Option<HashMap<Key, Usage>>> + Send + 'a>>;

/// A source of the usage of pods.
pub(crate) trait UsageSource: Send + Sync {
    /// Returns new values; `None` if the current ones stay in use.
    fn read(&self) -> Reading<'_>;

    /// Returns whether the values are too old to be those of the present.
    fn is_outdated(&self) -> bool;
}

/// The observed communication graph; see the module's documentation.
pub struct Graphs {
    settings: Settings,
    base: Instant,
    topology: RwLock<Arc<Topology>>,
    state: Mutex<State>,
    /// The connected proxies that omit reports without load.
    silent: Silent,
    /// Changes when proxies should report at another interval.
    interval_changes: watch::Sender<()>,
    /// The source of usage, on Kubernetes.
    usage: Option<Box<dyn UsageSource>>,
}

struct State {
    averages: Averages,
    /// The same averages over the last seconds.
    recent: RecentEdges,
    /// The time of each proxy's last report, by node id.
    reported_at: HashMap<String, Time>,
    usage: HashMap<Key, Usage>,
    delays: Delays,
    callers: Callers,
    called: Calls,
    history: History,
}

impl State {
    fn snapshot(&self, topology: &Topology, at: Timestamp, now: Time) -> Snapshot {
        let edges: Vec<LiveEdge<'_>> = self.averages.edges.edges(now).collect();
        let taken = self.averages.taken.edges(now);
        let taken = taken.map(|edge| (edge.from, edge.traffic));
        let mut versions: BTreeMap<&str, Traffic> = BTreeMap::new();
        for edge in self.averages.versions.edges(now) {
            let sum = versions.entry(edge.to).or_default();
            *sum = sum.plus(edge.traffic);
        }
        snapshot::Builder {
            window: self.averages.edges.window(),
            topology,
            usage: &self.usage,
            delays: &self.delays.all(),
        }
        .build(at, &edges, &taken.collect(), &versions)
    }
}

impl fmt::Debug for Graphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graphs")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Graphs {
    /// Creates an empty graph.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            base: Instant::now(),
            usage: None,
            topology: RwLock::default(),
            silent: Silent::default(),
            state: Mutex::new(State {
                averages: Averages::new(settings.window, settings.averaging),
                recent: RecentEdges::new(settings.interval),
                reported_at: HashMap::new(),
                usage: HashMap::new(),
                delays: Delays::default(),
                callers: Callers::default(),
                called: Calls::default(),
                history: History::default(),
            }),
            interval_changes: watch::Sender::new(()),
        }
    }

    /// Returns the interval of proxies' reports.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.settings.interval
    }

    /// Sets the current topology.
    pub fn set_topology(&self, topology: Topology) {
        let mut current = self
            .topology
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(topology);
    }

    /// Reads the usage of pods from this source whenever it is needed.
    pub(crate) fn with_usage(self, source: Box<dyn UsageSource>) -> Self {
        Self {
            usage: Some(source),
            ..self
        }
    }

    /// Reads the usage of pods if the values are older than 15 s; to be called before a snapshot whose reader needs
    /// it.
    pub(crate) async fn refresh_usage(&self) {
        if let Some(source) = &self.usage
            && let Some(usage) = source.read().await
        {
            self.set_usage(usage);
        }
    }

    /// Refreshes the usage for a stored snapshot. Without calls it serves no purpose, so that nothing is requested
    /// while the mesh is idle.
    async fn refresh_stored_usage(&self) {
        let now = self.now();
        let is_called = self.state().averages.edges.edges(now).next().is_some();
        if is_called {
            self.refresh_usage().await;
        } else if self.usage.as_ref().is_some_and(|usage| usage.is_outdated()) {
            self.set_usage(HashMap::new());
        }
    }

    /// Sets the current usage of pods. The usage of a pod that is not included is unknown.
    pub fn set_usage(&self, usage: HashMap<Key, Usage>) {
        self.state().usage = usage;
    }

    /// Returns the window of the moving averages (T).
    pub(crate) fn window(&self) -> Duration {
        self.settings.window
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        let current = self.topology.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        let nanos = self.base.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Processes the report of a proxy.
    pub fn take(&self, node: &str, report: &LoadReport) {
        self.take_at(node, report, self.now());
    }

    fn take_at(&self, node: &str, report: &LoadReport, now: Time) {
        let topology = self.topology();
        let from = topology.vertex_of_node(node);
        let clusters = report.clusters.iter().take(MAX_CLUSTERS);
        let (own, others): (Vec<_>, Vec<_>) =
            clusters.partition(|load| load.name.ends_with(APPLICATION));
        let called: Vec<(String, &ClusterLoad)> = others
            .iter()
            .filter_map(|load| Some((topology.vertex_of_cluster(&load.name)?, *load)))
            .collect();
        let is_version = |name: &str| {
            let mut splits = topology.splits.values();
            splits.any(|split| split.versions.contains_key(name))
        };
        let versions: Vec<(&str, Counters)> = others
            .iter()
            .filter(|load| is_version(&load.name))
            .map(|load| (&*load.name, counters(load)))
            .collect();
        let mut state = self.state();
        if let Some(here) = topology.node_of(node) {
            for to in others.iter().flat_map(|load| &load.round_trips) {
                if let Some(there) = topology.addresses.get(&to.address.ip()) {
                    state.delays.note(here, there, to.time, now);
                }
            }
        }
        if let Some(maker) = topology.maker_of(node) {
            let busy = |load: &&&ClusterLoad| load.requests() > 0 || load.opened > 0;
            for load in others.iter().filter(busy) {
                state.called.note(maker, &load.name, now);
            }
        }
        let previous = state.reported_at.insert(node.to_owned(), now);
        // The start of the interval is unknown in an empty report.
        let length = match (report.interval.is_zero(), previous) {
            (false, _) => report.interval,
            (true, Some(previous)) => now.saturating_since(previous),
            (true, None) => self.settings.interval.unwrap_or_default(),
        };
        let most = (MOST_CALLS * length.as_secs_f64().max(1.0)) as u64;
        let edges = called
            .iter()
            .map(|(to, load)| (&*from, &**to, bounded(counters(load), most)));
        let versions = versions.into_iter();
        let versions = versions.map(|(cluster, counted)| (&*from, cluster, bounded(counted, most)));
        let taken = own.iter().map(|load| {
            let counted = bounded(counters(load), most);
            (&*from, &*from, counted)
        });
        let reported = Reported {
            edges: edges.collect(),
            taken: taken.collect(),
            versions: versions.collect(),
        };
        state
            .recent
            .note(node, (now, length), report.memory, &called);
        state.recent.averages.take(node, (now, length), &reported);
        state.averages.take(node, (now, length), &reported);
    }

    /// Returns the current graph as observed by this replica.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.count_silent();
        let (topology, state, now) = (self.topology(), self.state(), self.now());
        let snapshot = state.snapshot(&topology, Timestamp::now(), now);
        snapshot.with_parts(&[state.averages.parts(now).collect()])
    }

    /// Returns the current graph as observed by all replicas.
    pub(crate) fn snapshot_of(&self, replicas: &[Vec<Part>]) -> Snapshot {
        let (topology, state, now) = (self.topology(), self.state(), self.now());
        let snapshot = state.snapshot(&topology, Timestamp::now(), now);
        snapshot.with_parts(replicas)
    }

    /// Returns the delays between nodes as observed by this replica.
    #[must_use]
    pub fn delays(&self) -> Vec<Delay> {
        self.state().delays.all()
    }

    /// Returns the nodes from which Services are called, with shares in thousandths; `None` if they have not changed
    /// significantly since the last call.
    #[must_use]
    pub fn callers(&self) -> Option<BTreeMap<Key, BTreeMap<String, u32>>> {
        self.count_silent();
        let (topology, mut state, now) = (self.topology(), self.state(), self.now());
        let State {
            averages: Averages { edges, taken, .. },
            callers,
            ..
        } = &mut *state;
        let vertices = topology.vertices.iter();
        let takes = vertices.filter(|(name, _)| topology.takes(name));
        let takes = takes.map(|(name, vertex)| (&**name, vertex.replicas));
        let confirmed = taken.parts(now).map(|part| (part.to, part.traffic.rps));
        let limits = ReportLimits::new(takes, confirmed);
        let doubted = limits.factors(edges.parts(now).map(|part| (part.to, part.traffic)));
        let trusted = edges.parts(now);
        let trusted = trusted.filter(|part| !doubted.contains_key(part.to));
        callers.follow(&topology, trusted)
    }

    /// Returns the Services that pods call, by owner of the pods; `None` if they have not changed since the last
    /// call.
    #[must_use]
    pub fn called(&self) -> Option<Called> {
        let now = self.now();
        self.state().called.follow(now)
    }

    /// Returns the Services that pods call, by owner of the pods, as observed by this replica.
    pub(crate) fn called_here(&self) -> called::Words {
        self.state().called.own()
    }

    /// Sets the Services that pods call as observed by other replicas.
    pub(crate) fn called_elsewhere(&self, others: &[called::Words]) {
        self.state().called.set_elsewhere(others);
    }

    /// Returns the observations of this replica, by proxy.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        self.count_silent();
        let now = self.now();
        self.state().averages.parts(now).collect()
    }

    /// Returns the name of the vertex of a Service.
    pub(crate) fn vertex(&self, service: &Key) -> String {
        let topology = self.topology();
        let known = topology.services.get(service).cloned();
        known.unwrap_or_else(|| service.to_string())
    }

    /// Returns the proxies that have recently reported to this replica, with their traffic.
    #[must_use]
    pub fn proxies(&self) -> Vec<ProxyLoad> {
        let (state, now) = (self.state(), self.now());
        let mut called: BTreeMap<&str, Traffic> = BTreeMap::new();
        for part in state.averages.edges.parts(now) {
            let sum = called.entry(part.proxy).or_default();
            *sum = sum.plus(part.traffic);
        }
        let ages = state.reported_at.iter();
        let ages = ages.map(|(proxy, at)| (proxy, now.saturating_since(*at)));
        ages.filter(|(_, age)| *age < self.settings.window)
            .map(|(proxy, age)| {
                let traffic = called.get(&**proxy).copied().unwrap_or_default();
                ProxyLoad {
                    proxy: proxy.clone(),
                    age_seconds: age.as_secs_f64(),
                    rps: traffic.rps,
                    latency_ms: traffic.latency_ms,
                }
            })
            .collect()
    }

    /// Returns the snapshots of the last day, the oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<Snapshot> {
        let window = self.settings.window;
        self.state().history.all(window)
    }

    /// Stores a snapshot periodically, and removes proxies that are gone; never returns.
    pub async fn remember(self: Arc<Self>) {
        let mut tick = tokio::time::interval_at(Instant::now() + KEEP_EVERY, KEEP_EVERY);
        loop {
            tick.tick().await;
            self.refresh_stored_usage().await;
            let snapshot = self.snapshot();
            let (topology, mut state, now) = (self.topology(), self.state(), self.now());
            state.history.keep(&snapshot);
            state
                .delays
                .retain(|node| topology.nodes.contains_key(node));
            state.averages.expire(now);
            state.recent.expire(now);
            let window = self.settings.window;
            state
                .reported_at
                .retain(|_, at| now.saturating_since(*at) < window);
        }
    }
}

/// Limits the number of calls to `most`.
fn bounded(counted: Counters, most: u64) -> Counters {
    if counted.requests.max(counted.in_flight).max(counted.opened) <= most {
        return counted;
    }
    let factor = most as f64 / counted.requests.max(most) as f64;
    Counters {
        requests: counted.requests.min(most),
        failures: (counted.failures as f64 * factor) as u64,
        latency_ms: counted.latency_ms * factor,
        opened: counted.opened.min(most),
        in_flight: counted.in_flight.min(most),
        ..counted
    }
}

fn counters(load: &ClusterLoad) -> Counters {
    let requests = load.requests();
    // The latency of untimed calls is assumed to equal that of the timed ones.
    let timed = load.timed.min(requests);
    let scale = if timed > 0 {
        requests as f64 / timed as f64
    } else {
        0.0
    };
    let times = load.times.iter().map(|range| {
        let bound = range.most_micros.map(|micros| micros as f64 / 1000.0);
        (bound, range.count as f64)
    });
    Counters {
        requests,
        failures: load.failed,
        latency_ms: load.seconds * 1000.0 * scale,
        times: Times::new(times),
        bytes: load.bytes,
        opened: load.opened,
        in_flight: load.in_flight,
    }
}

#[cfg(test)]
mod tests;
