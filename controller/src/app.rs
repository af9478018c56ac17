//! The life cycle of a controller: starts the sources, the index and the servers, and shuts them down.

mod dashboard;
mod kubernetes;
mod serving;
pub(crate) mod threads;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use maglor_service_graph::policy_choice::Limits;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::identity::start::{self as identity, Replica, Service, StartError};
use crate::proxy_port::Port;

use self::kubernetes::Kubernetes;
use self::serving::{Ready, Serving};
use self::threads::{Boxed, Thread, Threads};
use crate::admin::{self, Admin};
use crate::clients::Clients;
use crate::events::Events;
use crate::gateway;
use crate::graph::peers::Peers;
use crate::graph::usage;
use crate::graph::{self, Graphs};
use crate::https;
use crate::lease::{self, Term};
use crate::metrics::Metrics;
use crate::panics;
use crate::pipeline::Pipeline;
use crate::placement;
use crate::proxy_service;
use crate::resource_server::Table;
use crate::revision::Revision;
use crate::scope::Scope;
use crate::source::folder::{self, FolderError};
use crate::source::{self, Event};
use crate::status_writer::{self, Wanted};
use crate::tuning;
use crate::webhook;

/// Maximum number of events that are applied to the index at once.
const AT_ONCE: usize = 4096;
/// Maximum time at shutdown for streams to end and for the Lease to be released.
const FAREWELL: Duration = Duration::from_secs(5);

/// The source of resources.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "once per process")]
pub enum Source {
    /// Files in a directory.
    Folder(PathBuf),
    /// The API server of the kubeconfig, or of the cluster in which this process runs as a pod.
    Kubernetes {
        /// The namespace of the Lease that allows one replica to write.
        namespace: String,
        /// The unique name of this replica.
        replica: String,
        /// The revision that this control plane serves.
        revision: Revision,
        /// Settings of the proxies of `ProxyService`s.
        proxies: proxy_service::Settings,
        /// The namespaces where proxies of `ProxyService`s may be deployed.
        inserts: Scope,
        /// Options for the proxies of Gateways; `None` if Gateways have no proxies and Secrets are not read.
        gateways: Option<Box<gateway::run::Options>>,
        /// The namespaces where `PlacementPolicy`s may move pods.
        moves: Scope,
        /// The namespaces where `TuningPolicy`s may change Deployments.
        tunes: Scope,
    },
}

/// Options of a controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source of resources.
    pub source: Source,
    /// The address of the xDS port for proxies; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// How clients authenticate and get certificates; `None` for plain text, where every client is trusted.
    pub identity: Option<identity::Settings>,
    /// Options of the communication graph.
    pub graph: graph::Settings,
    /// Options of the dashboard.
    pub dashboard: crate::dashboard::Options,
    /// The address of the admin server; `None` if it is disabled.
    pub admin: Option<SocketAddr>,
    /// Whether the admin server serves its pages for operators to every peer, not only over loopback.
    pub admin_opened: bool,
    /// Options of the admission webhook; `None` if it is disabled. Supported only with Kubernetes.
    pub webhook: Option<webhook::Options>,
    /// The address of the external metrics server, which uses the webhook's certificate; `None` if it is disabled.
    pub external_metrics: Option<SocketAddr>,
    /// Thresholds for adding and removing proxies of `ProxyService`s in automatic mode.
    pub auto: Limits,
    /// The JSON file to which the bound addresses are written once proxies are served; `None` to write none.
    pub ready_file: Option<PathBuf>,
}

/// Reason why a controller did not start or could not continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port is taken.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The directory cannot be read or watched.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The identity service cannot be started.
    #[error(transparent)]
    Identity(#[from] StartError),
    /// There is no kubeconfig and the process does not run in a pod, or the API server's address is invalid.
    #[error("cannot reach Kubernetes: {0}")]
    Kubernetes(#[from] kube::Error),
    /// A task has panicked; the panic is in the log.
    #[error("task `{0}` panicked")]
    Panicked(&'static str),
    /// The system cannot create threads.
    #[error("cannot start a thread: {0}")]
    Threads(#[source] io::Error),
    /// The ready file cannot be written.
    #[error("{}: {source}", path.display())]
    ReadyFile {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Runs a controller until `stop` resolves.
///
/// # Errors
/// If the controller cannot be started, or its directory cannot be watched any longer.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    panics::count();
    let listener = bind(options.listen).await?;
    let metrics = Arc::new(Metrics::new());
    let whole = Arc::new(AtomicBool::new(false));
    let mut threads = Threads::start().map_err(RunError::Threads)?;
    let mut kubernetes = Kubernetes::of(
        &options.source,
        options.auto,
        &listener,
        (&mut threads, &metrics),
    )
    .await?;
    let service = secure(&options, kubernetes.as_mut(), &metrics, &mut threads)?;
    let table = match &service {
        Some(service) => service.table.clone(),
        None => Table::new(false),
    };
    table.count(metrics.on_call.pushes.clone());
    let graphs = observe(options.graph, &table, kubernetes.as_ref(), &mut threads);
    let webhook_ready = Arc::new(AtomicBool::new(options.webhook.is_none()));
    let shared = (kubernetes.as_ref(), &metrics, &graphs, &webhook_ready);
    let external = options.external_metrics;
    let certificate = serve_api_server(options.webhook, external, shared, &mut threads).await?;
    let shared = (kubernetes.as_ref(), &graphs, &table);
    let page = dashboard::start(options.dashboard, shared, certificate, &mut threads).await?;
    let shown = Admin {
        metrics: Arc::clone(&metrics),
        table: table.clone(),
        graphs: Arc::clone(&graphs),
        whole: Arc::clone(&whole),
        webhook: webhook_ready,
        alive: threads.heartbeats(),
        identity: service.as_ref().map(admin::Identity::of),
    };
    let admin_address = match options.admin {
        Some(address) => serve_admin(address, options.admin_opened, shown, &mut threads).await?,
        None => None,
    };
    let (sender, events) = mpsc::channel(AT_ONCE);
    let known = (&metrics, &graphs, &table);
    let mut source = start(&options.source, kubernetes, sender, known, &mut threads);
    let ready = Ready {
        file: options.ready_file.as_deref(),
        listen: listener.local_addr().ok(),
        admin: admin_address,
        dashboard: page,
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
        port: Port::new(listener, table.clone(), peers, tls, &metrics),
        metrics,
        whole,
        statuses: source.statuses.take(),
    };
    let mut stop = std::pin::pin!(stop);
    let outcome = tokio::select! {
        outcome = serving.serve(events, &ready) => outcome,
        failed = &mut source.watch => match failed {
            Ok(outcome) => outcome.map_err(RunError::from),
            Err(_) => Err(RunError::Panicked("source")),
        },
        name = threads.panicked() => Err(RunError::Panicked(name)),
        () = &mut stop => Ok(()),
    };
    source.end(&table).await;
    outcome
}

/// Starts the servers that the API server calls: the webhook and external metrics. Returns their certificate.
async fn serve_api_server(
    webhook: Option<webhook::Options>,
    external_metrics: Option<SocketAddr>,
    (kubernetes, metrics, graphs, ready): (
        Option<&Kubernetes>,
        &Arc<Metrics>,
        &Arc<Graphs>,
        &Arc<AtomicBool>,
    ),
    threads: &mut Threads,
) -> Result<Option<https::Serving>, RunError> {
    let (Some(webhook), Some(kubernetes)) = (webhook, kubernetes) else {
        return Ok(None);
    };
    let socket = threads.make(Thread::Webhook, bind(webhook.listen)).await?;
    let webhook = kubernetes.webhook(webhook, metrics, ready);
    let serving = webhook.serving.subscribe();
    if let Some(address) = external_metrics {
        let socket = threads.make(Thread::Operators, bind(address)).await?;
        let served = kubernetes.external_metrics(graphs, webhook.serving.subscribe());
        let clients = Clients::new(https::LIMITS, metrics.clients("external-metrics"));
        threads.spawn(
            Thread::Operators,
            "external metrics",
            served.run(socket, clients),
        );
    }
    threads.spawn(Thread::Webhook, "webhook", webhook.run(socket));
    Ok(Some(serving))
}

/// Starts the admin server; returns its address.
async fn serve_admin(
    address: SocketAddr,
    opened: bool,
    shown: Admin,
    threads: &mut Threads,
) -> Result<Option<SocketAddr>, RunError> {
    let socket = threads.make(Thread::Operators, bind(address)).await?;
    let address = socket.local_addr().ok();
    // Bound before proxies are served, so that `/ready` can report why they are not.
    tracing::info!(?address, "admin server listening");
    threads.spawn(
        Thread::Operators,
        "admin server",
        admin::serve(socket, shown, opened),
    );
    Ok(address)
}

async fn bind(address: SocketAddr) -> Result<TcpListener, RunError> {
    let failed = |source| RunError::Bind { address, source };
    TcpListener::bind(address).await.map_err(failed)
}

/// A running source, and the writers to the place from which it reads.
struct Started {
    watch: tokio::task::JoinHandle<Result<(), FolderError>>,
    statuses: Option<mpsc::UnboundedSender<Wanted>>,
    lease: Option<oneshot::Receiver<()>>,
    stop: watch::Sender<bool>,
}

impl Started {
    /// Disconnects clients, and releases the Lease.
    async fn end(self, table: &Table) {
        tracing::info!("shutting down");
        table.close();
        self.stop.send_replace(true);
        if let Some(lease) = self.lease {
            let _ = tokio::time::timeout(FAREWELL, lease).await;
        }
    }
}

/// Requests load reports from proxies, and stores and publishes the resulting graph.
fn observe(
    settings: graph::Settings,
    table: &Table,
    kubernetes: Option<&Kubernetes>,
    threads: &mut Threads,
) -> Arc<Graphs> {
    let graphs = Arc::new(Graphs::new(settings));
    table.observe(Arc::clone(&graphs));
    let mut spawn = |name, task: Boxed| threads.spawn(Thread::Operators, name, task);
    spawn("graph history", Box::pin(Arc::clone(&graphs).remember()));
    if let Some(kubernetes) = kubernetes {
        let publisher = kubernetes.publisher(&graphs);
        spawn("graph publisher", Box::pin(publisher.run()));
        if settings.interval.is_some() {
            let replicas = kubernetes.replicas();
            let shared = graph::called::share(replicas, Arc::clone(&graphs));
            spawn("graph of replicas", Box::pin(shared));
        }
        let client = kubernetes.clients.operators.clone();
        spawn(
            "usage",
            Box::pin(usage::follow(client, Arc::clone(&graphs))),
        );
    }
    graphs
}

/// Starts the identity service; does nothing if TLS is disabled.
fn secure(
    options: &Options,
    mut kubernetes: Option<&mut Kubernetes>,
    metrics: &Metrics,
    threads: &mut Threads,
) -> Result<Option<Service>, RunError> {
    let Some(settings) = &options.identity else {
        tracing::warn!("TLS is off: clients are not authenticated, no certificates are issued");
        return Ok(None);
    };
    let replica = kubernetes.as_mut().map(|kubernetes| Replica {
        client: kubernetes.clients.discovery.clone(),
        writer: kubernetes.clients.identity.clone(),
        name: kubernetes.replica.clone(),
        term: kubernetes.term.subscribe(),
    });
    let mut spawn = |name, task: Boxed| threads.spawn(Thread::Discovery, name, task);
    let service = identity::start(
        settings,
        replica.as_ref(),
        (metrics.certificates.clone(), &metrics.on_call.expiries),
        &mut spawn,
    )?;
    if let Some(kubernetes) = kubernetes {
        kubernetes.connector.tls = Some(service.replicas.clone());
    }
    Ok(Some(service))
}

fn start(
    source: &Source,
    kubernetes: Option<Kubernetes>,
    events: mpsc::Sender<Event>,
    (metrics, graphs, table): (&Arc<Metrics>, &Arc<Graphs>, &Table),
    threads: &mut Threads,
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
    let mut spawn = |name, task: Boxed| threads.spawn(Thread::Operators, name, task);
    let replicas = kubernetes.replicas();
    let placed = placement::run::run(kubernetes.placement(graphs, metrics));
    spawn("placement", Box::pin(placed));
    let tuned = tuning::run::run(kubernetes.tuning(graphs, metrics));
    spawn("tuning", Box::pin(tuned));
    let Kubernetes {
        clients,
        namespace,
        replica,
        revision,
        proxies,
        inserts,
        auto,
        gateways,
        term,
        own_term,
        ..
    } = kubernetes;
    let (statuses, wanted) = mpsc::unbounded_channel();
    let written = status_writer::write(clients.operators.clone(), wanted, term.subscribe());
    spawn("statuses", Box::pin(written));
    let inserted = proxy_service::run::Options {
        client: clients.operators.clone(),
        root: namespace.clone(),
        replicas,
        graphs: Arc::clone(graphs),
        table: table.clone(),
        settings: proxies,
        inserts,
        limits: auto,
    };
    let operator = proxy_service::run::run(inserted, term.subscribe());
    spawn("ProxyServices", Box::pin(operator));
    let secrets = gateways
        .as_ref()
        .map(|options| options.certificates.clone());
    if let Some(options) = gateways {
        let client = clients.operators.clone();
        let events = Events::new(client.clone(), "maglor.dev/gateway", &replica);
        let operator = gateway::run::run(client, *options, term.subscribe(), events);
        spawn("gateways", Box::pin(operator));
    }
    let shown = show_term(term.subscribe(), Arc::clone(metrics));
    spawn("leader metric", Box::pin(shown));
    let (watched, client) = (clients.discovery, clients.lease);
    let answered = metrics.on_call.answered.clone();
    let lease = async move {
        lease::hold(
            client,
            &namespace,
            &revision.lease(),
            &replica,
            own_term,
            stopped,
        )
        .await;
    };
    Started {
        watch: tokio::spawn(async move {
            source::kubernetes::watch(watched, events, secrets, answered).await;
            Ok(())
        }),
        statuses: Some(statuses),
        lease: Some(threads.spawn_watched(Thread::Lease, "lease", lease)),
        stop,
    }
}

/// Interval at which the leader metric is compared with the leadership, because no event reports that a partition has
/// ended the leadership.
const LEADS: Duration = Duration::from_secs(1);

/// Keeps the leader metric up to date.
async fn show_term(mut term: watch::Receiver<Term>, metrics: Arc<Metrics>) {
    loop {
        metrics.leads(term.borrow_and_update().holds(Instant::now()));
        tokio::select! {
            changed = term.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LEADS) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a partition, no event reports the end of the leadership.
    #[tokio::test]
    async fn the_metric_of_the_leader_is_true_in_a_partition() {
        let metrics = Arc::new(Metrics::new());
        let table = Table::new(false);
        let leads = || {
            let shown = metrics.encode(&table);
            shown.contains("\nmaglor_controller_leader 1\n")
        };
        let (term, seen) = watch::channel(Term::of_seconds(2));
        let shown = show_term(seen, Arc::clone(&metrics));
        let turns = async {
            for expected in [true, false] {
                while leads() != expected {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        tokio::select! {
            () = turns => {}
            () = shown => panic!("it is shown as long as there is a term"),
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it leads for ever"),
        }
        drop(term);
    }
}
