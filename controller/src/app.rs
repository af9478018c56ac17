//! The life of a controller: sources, the index, what is served, and the end.

mod kubernetes;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_identity::TrustDomain;
use maglor_mcg::rule::Limits;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::identity::start::{self as identity, Replica, Service, StartError};
use crate::port::Port;

use self::kubernetes::Kubernetes;
use crate::admin::{self, Admin};
use crate::events::Events;
use crate::gateway;
use crate::graph::peers::Peers;
use crate::graph::usage;
use crate::graph::{self, Graphs};
use crate::index::Changes;
use crate::lease::{self, Term};
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::placement;
use crate::proxy_service;
use crate::serve::Table;
use crate::source::folder::{self, FolderError};
use crate::source::{self, Event};
use crate::status::{self, Wanted};
use crate::tuning;
use crate::webhook;

/// Events that are taken into the index in one go.
const AT_ONCE: usize = 4096;
/// Time for streams to end, and for the lease to be given back.
const FAREWELL: Duration = Duration::from_secs(5);

/// How often the vertices of the graph follow the index, which changes more often.
const MAP_EVERY: Duration = Duration::from_secs(1);

/// Where resources come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Files in a folder.
    Folder(PathBuf),
    /// The API server of the kubeconfig, or of the pod that this runs in.
    Kubernetes {
        /// The namespace of the Lease that lets one replica write.
        namespace: String,
        /// Who this replica is; different from every other.
        replica: String,
        /// The proxies of `ProxyService`s.
        proxies: proxy_service::Settings,
        /// The proxies of Gateways; `None` = there are none, and Secrets are not read.
        gateways: Option<Box<gateway::run::Options>>,
        /// Pods may be moved, by `PlacementPolicy`s.
        moves: bool,
        /// Deployments may be changed, by `TuningPolicy`s.
        tunes: bool,
    },
}

/// What a controller is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where resources come from.
    pub source: Source,
    /// Where proxies are served; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// How clients prove who they are, and become members of the mesh; `None` = plain text, and anybody
    /// is believed.
    pub identity: Option<identity::Settings>,
    /// How the communication graph is observed.
    pub graph: graph::Settings,
    /// The admin server; `None` = none.
    pub admin: Option<SocketAddr>,
    /// Its pages for operators are answered to every peer, not over loopback only.
    pub admin_opened: bool,
    /// What the API server asks before it stores something; `None` = it does not ask. Only with Kubernetes.
    pub webhook: Option<webhook::Options>,
    /// Where the API server asks what proxies are sent, with the webhook's certificate; `None` = it does not ask.
    pub external_metrics: Option<SocketAddr>,
    /// How eagerly proxies of `ProxyService`s come and go by themselves.
    pub auto: Limits,
    /// Where to write the bound addresses once proxies are served, as JSON.
    pub ready_file: Option<PathBuf>,
}

/// Why a controller did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port is taken.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The folder cannot be read or watched.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The identity service cannot be started.
    #[error(transparent)]
    Identity(#[from] StartError),
    /// There is no kubeconfig, and this is no pod; or the API server's address makes no sense.
    #[error("Kubernetes cannot be reached: {0}")]
    Kubernetes(#[from] kube::Error),
    /// The ready file cannot be written.
    #[error("{}: {source}", path.display())]
    ReadyFile {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Runs a controller until `stop` resolves.
///
/// # Errors
/// When it cannot be started, or its folder cannot be watched any more.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let listener = bind(options.listen).await?;
    let metrics = Arc::new(Metrics::new());
    let whole = Arc::new(AtomicBool::new(false));
    let mut kubernetes = Kubernetes::of(&options.source, options.auto, &listener).await?;
    let service = secure(&options, kubernetes.as_mut(), &metrics)?;
    let table = match &service {
        Some(service) => service.table.clone(),
        None => Table::new(false),
    };
    let mut tasks = JoinSet::new();
    let graphs = observe(options.graph, &table, kubernetes.as_ref(), &mut tasks);
    let webhook_ready = Arc::new(AtomicBool::new(options.webhook.is_none()));
    if let (Some(webhook), Some(kubernetes)) = (options.webhook, &kubernetes) {
        let socket = bind(webhook.listen).await?;
        let webhook = kubernetes.webhook(webhook, &metrics, &webhook_ready);
        if let Some(address) = options.external_metrics {
            let served = kubernetes.external_metrics(&graphs, webhook.serving.subscribe());
            tasks.spawn(served.run(bind(address).await?));
        }
        tasks.spawn(webhook.run(socket));
    }
    let shown = Admin {
        metrics: Arc::clone(&metrics),
        table: table.clone(),
        graphs: Arc::clone(&graphs),
        whole: Arc::clone(&whole),
        webhook: webhook_ready,
        identity: service
            .as_ref()
            .map(|service| (service.ca.clone(), service.progress.clone())),
    };
    let admin_address = match options.admin {
        Some(address) => serve_admin(address, options.admin_opened, shown, &mut tasks).await?,
        None => None,
    };
    let (sender, events) = mpsc::channel(AT_ONCE);
    let known = (&metrics, &graphs, &table);
    let mut source = start(&options.source, kubernetes, sender, known);
    let ready = Ready {
        file: options.ready_file.as_deref(),
        listen: listener.local_addr().ok(),
        admin: admin_address,
    };
    let peers = Peers::new(&graphs, &table, service.as_ref());
    let tls = service.map(|service| service.tls);
    let mut serving = Serving {
        pipeline: Pipeline::default(),
        table: table.clone(),
        graphs,
        mapped: true,
        trust_domain: options
            .identity
            .as_ref()
            .map(|settings| settings.trust_domain.clone()),
        warned: false,
        port: Port::new(listener, table.clone(), peers, tls),
        metrics,
        whole,
        statuses: source.statuses.take(),
    };
    let mut stop = std::pin::pin!(stop);
    let outcome = tokio::select! {
        outcome = serving.serve(events, &ready) => outcome,
        failed = &mut source.watch => match failed {
            Ok(outcome) => outcome.map_err(RunError::from),
            Err(_) => Ok(()),
        },
        () = &mut stop => Ok(()),
    };
    tracing::info!("ending");
    table.close();
    source.stop.send_replace(true);
    if let Some(lease) = source.lease {
        let _ = tokio::time::timeout(FAREWELL, lease).await;
    }
    outcome
}

/// Starts the admin server; where it listens.
async fn serve_admin(
    address: SocketAddr,
    opened: bool,
    shown: Admin,
    tasks: &mut JoinSet<()>,
) -> Result<Option<SocketAddr>, RunError> {
    let socket = bind(address).await?;
    let address = socket.local_addr().ok();
    tasks.spawn(admin::serve(socket, shown, opened));
    Ok(address)
}

async fn bind(address: SocketAddr) -> Result<TcpListener, RunError> {
    let failed = |source| RunError::Bind { address, source };
    TcpListener::bind(address).await.map_err(failed)
}

/// A source at work, and what writes to where it reads from.
struct Started {
    watch: tokio::task::JoinHandle<Result<(), FolderError>>,
    statuses: Option<mpsc::UnboundedSender<Wanted>>,
    lease: Option<tokio::task::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// Name of the Lease that lets one replica write.
const LEASE: &str = "maglor-controller";

/// Has proxies report what they send where, and keeps and writes what comes of it.
fn observe(
    settings: graph::Settings,
    table: &Table,
    kubernetes: Option<&Kubernetes>,
    tasks: &mut JoinSet<()>,
) -> Arc<Graphs> {
    let graphs = Arc::new(Graphs::new(settings));
    table.observe(Arc::clone(&graphs));
    tasks.spawn(Arc::clone(&graphs).remember());
    if let Some(kubernetes) = kubernetes {
        tasks.spawn(kubernetes.publisher(&graphs).run());
        if settings.interval.is_some() {
            let replicas = kubernetes.replicas();
            tasks.spawn(graph::called::share(replicas, Arc::clone(&graphs)));
        }
        let client = kubernetes.client.clone();
        tasks.spawn(usage::follow(client, Arc::clone(&graphs)));
    }
    graphs
}

/// Starts the identity service, unless everything is plain text.
fn secure(
    options: &Options,
    mut kubernetes: Option<&mut Kubernetes>,
    metrics: &Metrics,
) -> Result<Option<Service>, RunError> {
    let Some(settings) = &options.identity else {
        tracing::warn!("plain text: clients are believed what they say, and nobody is certified");
        return Ok(None);
    };
    let replica = kubernetes.as_mut().map(|kubernetes| Replica {
        client: kubernetes.client.clone(),
        name: kubernetes.replica.clone(),
        term: kubernetes.term.subscribe(),
    });
    let service = identity::start(settings, replica.as_ref(), metrics.certificates.clone())?;
    if let Some(kubernetes) = kubernetes {
        kubernetes.way.tls = Some(service.replicas.clone());
    }
    Ok(Some(service))
}

fn start(
    source: &Source,
    kubernetes: Option<Kubernetes>,
    events: mpsc::Sender<Event>,
    (metrics, graphs, table): (&Arc<Metrics>, &Arc<Graphs>, &Table),
) -> Started {
    let (stop, stopped) = watch::channel(false);
    let folder = match source {
        Source::Folder(path) => path.clone(),
        Source::Kubernetes { .. } => PathBuf::new(),
    };
    let Some(kubernetes) = kubernetes else {
        return Started {
            watch: tokio::spawn(async move { folder::watch(&folder, events).await }),
            statuses: None,
            lease: None,
            stop,
        };
    };
    let replicas = kubernetes.replicas();
    tokio::spawn(placement::run::run(kubernetes.placement(graphs, metrics)));
    tokio::spawn(tuning::run::run(kubernetes.tuning(graphs, metrics)));
    let Kubernetes {
        client,
        namespace,
        replica,
        proxies,
        auto,
        gateways,
        term,
        moves: _,
        tunes: _,
        tries_once: _,
        way: _,
    } = kubernetes;
    let (statuses, wanted) = mpsc::unbounded_channel();
    tokio::spawn(status::write(client.clone(), wanted, term.subscribe()));
    let graphs = Arc::clone(graphs);
    let asked = (replicas, graphs, table.clone());
    let operator = proxy_service::run::run(asked, proxies, auto, term.subscribe());
    tokio::spawn(operator);
    let with_gateways = gateways.is_some();
    if let Some(options) = gateways {
        let events = Events::new(client.clone(), "maglor.dev/gateway", &replica);
        let operator = gateway::run::run(client.clone(), *options, term.subscribe(), events);
        tokio::spawn(operator);
    }
    tokio::spawn(show_term(term.subscribe(), Arc::clone(metrics)));
    let watched = client.clone();
    Started {
        watch: tokio::spawn(async move {
            source::kubernetes::watch(watched, events, with_gateways).await;
            Ok(())
        }),
        statuses: Some(statuses),
        lease: Some(tokio::spawn(async move {
            lease::hold(client, &namespace, LEASE, &replica, term, stopped).await;
        })),
        stop,
    }
}

async fn show_term(mut term: watch::Receiver<Term>, metrics: Arc<Metrics>) {
    while term.changed().await.is_ok() {
        metrics.leads(term.borrow_and_update().holds(Instant::now()));
    }
}

/// What is written once proxies are served.
struct Ready<'a> {
    file: Option<&'a Path>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl Ready<'_> {
    fn write(&self) -> Result<(), RunError> {
        tracing::info!(listen = ?self.listen, admin = ?self.admin, "serving");
        let Some(path) = self.file else { return Ok(()) };
        let text = json!({"listen": self.listen, "admin": self.admin}).to_string();
        // By a rename: who waits for the file finds all of it.
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
        written.map_err(|source| RunError::ReadyFile {
            path: path.to_owned(),
            source,
        })
    }
}

/// The index, and everybody who lives on it.
struct Serving {
    pipeline: Pipeline,
    table: Table,
    graphs: Arc<Graphs>,
    /// The graph's vertices are those of the index.
    mapped: bool,
    port: Port,
    /// Whom the authority vouches for; `None` in plain text.
    trust_domain: Option<TrustDomain>,
    /// It was said that the MeshConfig has another one.
    warned: bool,
    metrics: Arc<Metrics>,
    whole: Arc<AtomicBool>,
    statuses: Option<mpsc::UnboundedSender<Wanted>>,
}

impl Serving {
    /// Takes events and clients; clients only once everything is known.
    async fn serve(
        &mut self,
        mut events: mpsc::Receiver<Event>,
        ready: &Ready<'_>,
    ) -> Result<(), RunError> {
        let mut batch = Vec::new();
        let mut serves = false;
        let mut map = tokio::time::interval(MAP_EVERY);
        map.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reports = self.graphs.interval();
        let mut follow = tokio::time::interval(reports.unwrap_or(MAP_EVERY));
        follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if !serves && self.pipeline.is_whole() && self.port.is_open() {
                serves = true;
                // Relaxed: nothing else is read because of it.
                self.whole.store(true, Ordering::Relaxed);
                ready.write()?;
            }
            tokio::select! {
                count = events.recv_many(&mut batch, AT_ONCE) => {
                    if count == 0 {
                        // The source has ended; whoever waits for it says why.
                        std::future::pending::<()>().await;
                    }
                    self.take(&mut batch);
                }
                () = self.port.accept(serves) => {}
                _ = map.tick(), if !self.mapped => {
                    self.graphs.set_topology(self.pipeline.index().topology());
                    self.mapped = true;
                }
                _ = follow.tick(), if reports.is_some() => self.follow_callers(),
            }
        }
    }

    /// Clients are told to expect ids of the MeshConfig's trust domain, and are given those of the authority.
    fn compare_trust_domains(&mut self) {
        let Some(own) = &self.trust_domain else {
            return;
        };
        let said = self.pipeline.index().trust_domain();
        let differs = self.pipeline.is_whole() && own.as_str() != said;
        if differs && !self.warned {
            tracing::error!(
                authority = %own,
                mesh_config = said,
                "trust domains differ: members will not know each other; see --trust-domain"
            );
        }
        self.warned = differs;
    }

    fn take(&mut self, batch: &mut Vec<Event>) {
        let begun = Instant::now();
        for event in batch.iter() {
            self.metrics.took(event);
        }
        let changes = self.pipeline.take(batch.drain(..));
        self.mapped = false;
        self.compare_trust_domains();
        self.give(changes, begun);
    }

    /// Tells the index from where Services are called, where that is known and has changed by much, and what
    /// new pods will call.
    fn follow_callers(&mut self) {
        let begun = Instant::now();
        if let Some(callers) = self.graphs.callers() {
            let changes = self.pipeline.set_callers(callers);
            self.give(changes, begun);
        }
        if let Some(called) = self.graphs.called() {
            let changes = self.pipeline.set_called(called);
            self.give(changes, begun);
        }
    }

    fn give(&mut self, changes: Changes, begun: Instant) {
        self.table.place(changes.places);
        for one in &changes.unusable {
            let (resource, route) = (&one.id.name, one.route.as_deref());
            tracing::error!(kind = ?one.id.kind, resource, route, error = one.why, "resource cannot be encoded; published without it");
        }
        let unserved = self.table.publish(&changes.resources);
        let unserved = unserved.saturating_add(changes.unusable.len() as u64);
        self.metrics
            .gave(&changes.resources, unserved, begun.elapsed());
        for (kind, key, status) in changes.statuses {
            match &self.statuses {
                Some(statuses) => {
                    // Without its writer the process is about to end.
                    let _ = statuses.send((kind, key, status));
                }
                None => {
                    let status = status.map(|status| status.to_json()).unwrap_or_default();
                    tracing::info!(kind = kind.names().1, name = %key, %status, "status");
                }
            }
        }
    }
}
