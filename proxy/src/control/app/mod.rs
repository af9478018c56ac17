//! The application: starts workers, applies configurations and shuts down gracefully.
//!
//! This module connects all other modules. It runs on the control thread, which has its own runtime, so that neither
//! a scrape of metrics nor the parsing of a configuration delays a request.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use maglor_config::workload::Workloads;
use maglor_config::{self as config, Errors};
use maglor_telemetry::metrics::Exposition;
use maglor_xds::discovery::Used;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::listening::{Listening, socket_key};
use self::names::has_names;
use crate::control::build::{self, BuildError, Built, Sockets, Sources};
use crate::control::cache::KeepError;
use crate::control::trace_export::TraceExport;
use crate::control::{ejection, health};
use crate::downstream::handover::Inboxes;
use crate::downstream::thread::{Command, Handle};
use crate::mesh::identity::Own;
use crate::mesh::load_feedback::calls::Calls;
use crate::os::memory::{self, Memory};
use crate::routing::listener::Listener;
use crate::routing::on_demand::Asks;
use crate::routing::route::Table;
use crate::runtime::shared::Shared;
use crate::telemetry::metrics::{EndpointMetrics, ListenerMetrics};
use crate::telemetry::record::nanos;
use crate::upstream::{Cluster, Clusters, Destinations, Resolver};

mod access_log;
mod discovered;
mod identity;
mod inbound;
mod listening;
mod names;
mod shown;

/// State of the proxy on its control thread.
#[derive(Debug)]
pub(crate) struct App {
    shared: Arc<Shared>,
    workers: Vec<Handle>,
    config: Arc<config::Config>,
    /// The current configuration as YAML.
    yaml: Arc<str>,
    /// The configuration of the file as YAML, before settings of the control plane are applied.
    file: Arc<str>,
    /// Settings of inbound listeners from the control plane.
    workloads: Workloads,
    clusters: Clusters,
    listening: HashMap<Arc<str>, Listening>,
    /// The export of spans, with tracing.
    trace_export: Option<TraceExport>,
    own: Own,
    resolver: Option<Resolver>,
    resolving: Vec<AbortHandle>,
    memory: Memory,
    /// Memory budget of the command line in bytes, which overrides that of the configuration; `None` if the flag is
    /// not set.
    memory_budget: Option<u64>,
    draining: bool,
    /// Removed listeners that still have connections, and when these are closed.
    leaving: Vec<(Instant, Arc<ListenerMetrics>)>,
    /// Replaced route tables that requests may still use. They are freed here: to free a large one takes milliseconds,
    /// for which a worker would stop.
    superseded: Vec<Arc<Table>>,
    /// The current clusters, for health checks and outlier ejection.
    watched: watch::Sender<Vec<Arc<Cluster>>>,
    /// Queries of workers for the control plane.
    asks: Asks,
    /// Clusters from the control plane.
    discovered: Vec<Used>,
}

/// Reason why a configuration was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A listener, cluster or certificate cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The access log cannot be opened.
    #[error("access log {path}: {source}")]
    AccessLog {
        /// Path of the access log.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A certificate of the Gateway cannot be written to the cache.
    #[error("certificate: {0}")]
    Certificate(#[source] KeepError),
    /// The control plane's settings of an inbound listener do not fit the file.
    #[error("{0}")]
    Inbound(#[source] Errors),
    /// The system's resolver configuration cannot be read.
    #[error("DNS: {0}")]
    Resolver(String),
    /// A worker cannot be started.
    #[error("worker: {0}")]
    Worker(#[source] io::Error),
}

impl App {
    /// Starts the workers. They accept no connections until a configuration is applied.
    pub(crate) fn start(
        config: &config::Config,
        memory_budget: Option<u64>,
    ) -> Result<Self, ApplyError> {
        let workers = config.workers;
        let (shared, reports) = Shared::new(workers);
        let shared = Arc::new(shared);
        let (seed, calls) = (seed(), Arc::<Calls>::default());
        let (watched, clusters) = watch::channel(Vec::new());
        let health = health::run(Arc::clone(&shared), clusters.clone(), seed);
        tokio::task::spawn_local(health);
        let ejection = ejection::run(Arc::clone(&shared), clusters, reports, seed);
        tokio::task::spawn_local(ejection);
        let (inboxes, own) = Inboxes::new(workers);
        let worker = |(shard, inbox)| {
            let seed = seed.wrapping_add(shard as u64);
            let (shared, calls) = (Arc::clone(&shared), Arc::clone(&calls));
            let mail = (inbox, inboxes.clone());
            Handle::start(shard, shared, calls, mail, seed).map_err(ApplyError::Worker)
        };
        Ok(Self {
            workers: own
                .into_iter()
                .enumerate()
                .map(worker)
                .collect::<Result<_, _>>()?,
            config: Arc::new(config::Config {
                listeners: Vec::new(),
                ..config.clone()
            }),
            yaml: Arc::default(),
            file: Arc::default(),
            workloads: Workloads::new(),
            clusters: Clusters::default(),
            listening: HashMap::new(),
            trace_export: None,
            own: Own::default(),
            resolver: None,
            resolving: Vec::new(),
            memory: Memory::new(std::time::Instant::now()),
            memory_budget,
            draining: false,
            leaving: Vec::new(),
            superseded: Vec::new(),
            watched,
            asks: Asks::default(),
            discovered: Vec::new(),
            shared,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn config(&self) -> &Arc<config::Config> {
        &self.config
    }

    pub(crate) fn clusters(&self) -> &Clusters {
        &self.clusters
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    fn put_in_force(
        &mut self,
        loaded: config::Loaded,
        files_changed: bool,
    ) -> Result<(), ApplyError> {
        let wanted = loaded.config;
        let metrics = &self.shared.metrics;
        let now = self.shared.time(Instant::now());
        let own = identity::prepare(&self.own, &wanted);
        let own = own.map_err(|source| BuildError::Identity {
            place: "identity".to_owned(),
            source: Box::new(source),
        })?;
        let mut sources = Sources::new(own.live());
        let mut clusters = build::clusters(
            &wanted,
            &self.clusters,
            files_changed,
            &mut sources,
            metrics,
            now,
        )?;
        self.keep_discovered(&wanted, &mut clusters);
        let mut built = Vec::with_capacity(wanted.listeners.len());
        for listener in &wanted.listeners {
            let key = socket_key(listener);
            let before = self
                .listening
                .get(&key)
                .map(|l| Arc::clone(&l.state.borrow()));
            let before = before.filter(|before| before.config.name == listener.name);
            let before = before.as_deref();
            let new = build::listener(
                listener,
                before,
                &clusters,
                &mut sources,
                &self.asks,
                metrics,
            )?;
            let sockets = match self.listening.contains_key(&key) {
                true => Sockets::default(),
                false => {
                    let port = listener.address.ip().map(|address| address.port());
                    let alone = !port.is_some_and(|port| self.listens_on(port));
                    build::bind(listener, self.workers.len(), alone)?
                }
            };
            built.push((key, new, sockets));
        }
        let access_log = self.access_log(&wanted)?;
        if wanted.clusters.iter().any(|one| has_names(&one.endpoints)) {
            self.need_resolver()?;
        }
        // Nothing can fail from here on.
        self.own.commit(own, &self.shared.metrics.identity);
        self.shared.observers.set_access_log(access_log);
        self.shared.observers.set_stories(wanted.stories);
        let budget = self.memory_budget.or(wanted.memory_budget);
        self.shared.memory.set(budget);
        self.config = Arc::new(wanted);
        self.yaml = loaded.yaml;
        clusters.iter().for_each(|one| one.guard().put_in_force());
        self.commit(built);
        self.clusters = clusters;
        self.watched
            .send_replace(self.clusters.iter().cloned().collect());
        self.trace();
        self.resolve();
        Ok(())
    }

    /// Returns whether a socket of this process uses the port, perhaps on another address.
    fn listens_on(&self, port: u16) -> bool {
        self.listening.values().any(|listening| {
            listening
                .bound
                .ip()
                .is_some_and(|bound| bound.port() == port)
        })
    }

    fn commit(&mut self, built: Vec<(Arc<str>, Built, Sockets)>) {
        let mut gone = std::mem::take(&mut self.listening);
        let mut left = Vec::new();
        for (key, built, sockets) in built {
            let listener = built.commit(&mut self.superseded);
            let listening = match gone.remove(&key) {
                Some(listening) => {
                    listening.set_mode(listener.config.mode);
                    let before = listening.state.send_replace(Arc::clone(&listener));
                    retire(&before, Some(&listener), &mut self.superseded);
                    if !Arc::ptr_eq(&before.metrics, &listener.metrics) {
                        left.push(Arc::clone(&before.metrics));
                    }
                    listening
                }
                None => self.listen(&key, &listener, sockets),
            };
            self.listening.insert(key, listening);
        }
        let outbound = self.listening.values().filter(|one| one.is_outbound());
        let bound = outbound.filter_map(|one| one.bound.ip()).collect();
        self.shared.own_connections.set_private(bound);
        for (_, listening) in gone {
            retire(&listening.state.borrow(), None, &mut self.superseded);
            left.push(Arc::clone(&listening.state.borrow().metrics));
            self.broadcast(|| Command::Close {
                name: Arc::clone(&listening.key),
            });
        }
        self.broadcast(|| Command::Wake);
        let until = Instant::now() + self.config.drain_timeout;
        self.leaving
            .extend(left.into_iter().map(|listener| (until, listener)));
    }

    fn listen(&self, key: &Arc<str>, listener: &Arc<Listener>, sockets: Sockets) -> Listening {
        let (state, _) = watch::channel(Arc::clone(listener));
        let Sockets { each, bound, file } = sockets;
        let bound = bound.unwrap_or_else(|| listener.config.address.clone());
        for (worker, socket) in self.workers.iter().zip(each) {
            let name = Arc::clone(key);
            worker.send(Command::Listen {
                name,
                socket,
                state: state.subscribe(),
            });
        }
        tracing::info!(listener = %listener.config.name, address = %bound, "listening");
        Listening {
            state,
            bound,
            file,
            key: Arc::clone(key),
        }
    }

    fn broadcast(&self, command: impl Fn() -> Command) {
        self.workers
            .iter()
            .for_each(|worker| worker.send(command()));
    }

    /// Begins and ends tracing as configured. Requests in progress end with the settings of their beginning.
    fn trace(&mut self) {
        let observers = &self.shared.observers;
        let before = observers.tracer();
        let before = before.as_ref().map(|tracer| tracer.settings());
        let wanted = self.config.tracing.as_ref();
        if before == wanted {
            return;
        }
        let begin = |settings| {
            let (workers, clusters) = (self.workers.len(), self.watched.subscribe());
            TraceExport::begin(settings, workers, &self.shared, clusters, seed())
        };
        let (tracer, export) = wanted.map(begin).unzip();
        observers.set_tracer(tracer);
        self.trace_export = export;
    }

    /// Performs periodic work; called about once a second.
    pub(crate) fn tick(&mut self) {
        self.shared.memory.publish_control();
        let now = self.shared.time(Instant::now());
        self.shared.observers.stories.expire(now);
        self.superseded.retain(|table| Arc::strong_count(table) > 1);
        let (released, heaps) = (self.shared.take_released(), self.shared.memory.allocated());
        self.memory.tick(released, heaps, std::time::Instant::now());
        self.own.poll(&self.shared.metrics.identity);
        let now = Instant::now();
        let over = |(until, _): &mut (Instant, Arc<ListenerMetrics>)| *until <= now;
        let over: Vec<_> = self.leaving.extract_if(.., over).collect();
        if !over.is_empty() {
            over.iter().for_each(|(_, listener)| listener.end());
            self.broadcast(|| Command::Wake);
        }
    }

    /// Returns whether there is work several times a second: access log lines are buffered, or there is a memory
    /// budget.
    pub(crate) fn is_to_be_flushed(&self) -> bool {
        self.shared.observers.access_log().is_some() || self.shared.memory.is_limited()
    }

    /// Compares the memory in use with its budget.
    pub(crate) fn watch_memory(&self) {
        self.shared.memory.watch(memory::in_use, memory::purge);
    }

    /// Copies values that are counted elsewhere into the metrics, and renders all metrics.
    pub(crate) fn metrics(&self, accept: &str, accept_encoding: &str) -> Exposition {
        for cluster in self.clusters.iter() {
            let endpoints = cluster.endpoints();
            cluster
                .metrics()
                .guards
                .observe(endpoints.balancer().view());
            let derived = cluster.destinations().map(Destinations::clusters);
            for cluster in derived.iter().flatten().chain([cluster]) {
                let endpoints = cluster.endpoints();
                let targets = endpoints.targets().iter();
                let metrics = targets.filter_map(|target| target.metrics.as_ref());
                metrics.clone().for_each(EndpointMetrics::clear);
                metrics.for_each(EndpointMetrics::refresh);
            }
        }
        self.shared.metrics.expose(accept, accept_encoding)
    }

    /// Returns whether there is an outbound listener, whose connections outlast the others in a drain.
    pub(crate) fn has_outbound(&self) -> bool {
        self.listening.values().any(Listening::is_outbound)
    }

    /// Stops accepting on all listeners except outbound ones, and lets the connections of the stopped listeners end.
    pub(crate) fn drain_all_but_outbound(&mut self) {
        self.draining = true;
        for listening in self.listening.values_mut() {
            if !listening.is_outbound() {
                listening.file = None;
            }
        }
        for listening in self.listening.values().filter(|l| !l.is_outbound()) {
            retire(&listening.state.borrow(), None, &mut self.superseded);
            self.broadcast(|| Command::Close {
                name: Arc::clone(&listening.key),
            });
        }
        self.broadcast(|| Command::Wake);
    }

    /// Returns whether no client is connected to any listener.
    pub(crate) fn is_quiet(&self) -> bool {
        let open = |l: &Listening| l.state.borrow().metrics.connections.value() > 0;
        !self.listening.values().any(open)
    }

    /// Stops accepting and lets connections end. Each returned receiver is notified when its worker has no connection
    /// left.
    pub(crate) fn drain(&mut self) -> Vec<oneshot::Receiver<()>> {
        self.draining = true;
        self.listening
            .values_mut()
            .for_each(|listening| listening.file = None);
        let drain = |worker: &Handle| {
            let (done, receiver) = oneshot::channel();
            worker.send(Command::Drain { done });
            receiver
        };
        self.workers.iter().map(drain).collect()
    }

    /// Stops the workers and closes open connections immediately. Returns the export of spans, which may have some left.
    pub(crate) fn stop(&mut self) -> Option<TraceExport> {
        self.workers.drain(..).for_each(Handle::stop);
        self.flush_access_log();
        self.shared.observers.set_tracer(None);
        self.trace_export.take()
    }
}

/// The [`App`], shared by the tasks of the control thread.
pub(crate) type SharedApp = Rc<RefCell<App>>;

/// Lets the connections of chains that `now` no longer contains end. Adds the tables of these chains to `superseded`.
fn retire(before: &Listener, now: Option<&Listener>, superseded: &mut Vec<Arc<Table>>) {
    for chain in build::retired(before, now) {
        // Relaxed: a connection that misses the flag sees it at its next request.
        chain.retired.store(true, Ordering::Relaxed);
        superseded.push(chain.routes.load_full());
    }
}

/// Returns a random seed, different in each process, so that replicas do not pick the same candidates at the same
/// time.
pub(crate) fn seed() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    nanos(since) ^ u64::from(std::process::id()).rotate_left(32)
}
