//! The life cycle of a controller: starts the sources, the index and the servers, and shuts them down.
//!
//! [`run`] is the controller of a folder. `on_kubernetes` builds that of a cluster from the same `Parts`, and from
//! what only the API server needs.

mod dashboard;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "kubernetes")]
pub(crate) mod on_kubernetes;
mod serving;
pub(crate) mod threads;

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::serving::{Ready, Serving};
use self::threads::{Boxed, Thread, Threads};
use crate::admin::{self, Admin};
use crate::graph::peers::Peers;
use crate::graph::{self, Graphs};
use crate::identity::start::{self as identity, Cluster, Service, StartError};
use crate::index::Wanted;
use crate::metrics::Metrics;
use crate::panics;
use crate::pipeline::Pipeline;
use crate::proxy_port::Port;
use crate::resource_server::Table;
use crate::source::Event;
use crate::source::folder::{self, FolderError};

/// Maximum number of events that are applied to the index at once.
const AT_ONCE: usize = 4096;
/// Maximum time at shutdown for streams to end and for the Lease to be released.
const FAREWELL: Duration = Duration::from_secs(5);

/// Options of every controller.
#[derive(Clone, Debug)]
pub struct Options {
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
    Kubernetes(#[source] Box<dyn Error + Send + Sync>),
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

/// Runs a controller of the resources in a directory until `stop` resolves.
///
/// # Errors
/// If the controller cannot be started, or its directory cannot be watched any longer.
pub async fn run(
    options: Options,
    folder: PathBuf,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let mut parts = Parts::bind(options).await?;
    let graphs = Graphs::new(parts.options.graph);
    let mesh = parts.mesh(None, graphs)?;
    let page = parts
        .dashboard(&mesh, dashboard::Sources::default())
        .await?;
    if let Some(page) = &page {
        let proposals = Arc::clone(&page.feed).propose();
        parts
            .threads
            .spawn(Thread::Dashboard, "proposals of the dashboard", proposals);
    }
    let shown = Shown {
        dashboard: page.and_then(|page| page.address),
        webhook: Arc::new(AtomicBool::new(true)),
    };
    let start = |events, _: &mut Threads| Started {
        watch: tokio::spawn(async move { folder::watch(&folder, events).await }),
        statuses: None,
        lease: None,
        stop: watch::channel(false).0,
    };
    parts.serve(mesh, shown, start, stop).await
}

/// What every controller starts with.
struct Parts {
    options: Options,
    listener: TcpListener,
    metrics: Arc<Metrics>,
    /// Whether all resources are known.
    whole: Arc<AtomicBool>,
    threads: Threads,
}

/// The state of the mesh, and the identity service; `None` in plain text.
struct Mesh {
    graphs: Arc<Graphs>,
    table: Table,
    service: Option<Service>,
}

/// What the admin server and the ready file show of other servers.
struct Shown {
    /// The loopback address of the dashboard.
    dashboard: Option<SocketAddr>,
    /// Whether the API server can call the webhook; true if there is none.
    webhook: Arc<AtomicBool>,
}

impl Parts {
    /// Binds the xDS port, and starts the threads.
    async fn bind(options: Options) -> Result<Self, RunError> {
        panics::count();
        let listener = bind(options.listen).await?;
        Ok(Self {
            options,
            listener,
            metrics: Arc::new(Metrics::new()),
            whole: Arc::new(AtomicBool::new(false)),
            threads: Threads::start().map_err(RunError::Threads)?,
        })
    }

    /// Starts the identity service, and the collection of load reports for the graph.
    fn mesh(&mut self, cluster: Option<&dyn Cluster>, graphs: Graphs) -> Result<Mesh, RunError> {
        let service = self.secure(cluster)?;
        let table = match &service {
            Some(service) => service.table.clone(),
            None => Table::new(false),
        };
        table.count(self.metrics.on_call.pushes.clone());
        let graphs = Arc::new(graphs);
        table.observe(Arc::clone(&graphs));
        let history = Arc::clone(&graphs).remember();
        self.threads
            .spawn(Thread::Operators, "graph history", history);
        Ok(Mesh {
            graphs,
            table,
            service,
        })
    }

    /// Starts the identity service; does nothing if TLS is disabled.
    fn secure(&mut self, cluster: Option<&dyn Cluster>) -> Result<Option<Service>, RunError> {
        let Some(settings) = &self.options.identity else {
            tracing::warn!("TLS is off: clients are not authenticated, no certificates are issued");
            return Ok(None);
        };
        let threads = &mut self.threads;
        let mut spawn = |name, task: Boxed| threads.spawn(Thread::Discovery, name, task);
        let (metrics, expiries) = (&self.metrics.certificates, &self.metrics.on_call.expiries);
        let metrics = (metrics.clone(), expiries);
        let service = identity::start(settings, cluster, metrics, &mut spawn)?;
        Ok(Some(service))
    }

    /// Starts the dashboard if it is enabled.
    async fn dashboard(
        &mut self,
        mesh: &Mesh,
        sources: dashboard::Sources,
    ) -> Result<Option<dashboard::Page>, RunError> {
        let options = self.options.dashboard.clone();
        let mesh = (&mesh.graphs, &mesh.table);
        dashboard::start(options, mesh, sources, &mut self.threads).await
    }

    /// Starts the admin server; returns its address.
    async fn admin(
        &mut self,
        mesh: &Mesh,
        webhook: Arc<AtomicBool>,
    ) -> Result<Option<SocketAddr>, RunError> {
        let Some(address) = self.options.admin else {
            return Ok(None);
        };
        let shown = Admin {
            metrics: Arc::clone(&self.metrics),
            table: mesh.table.clone(),
            graphs: Arc::clone(&mesh.graphs),
            whole: Arc::clone(&self.whole),
            webhook,
            alive: self.threads.heartbeats(),
            identity: mesh.service.as_ref().map(admin::Identity::of),
        };
        let socket = self.threads.make(Thread::Operators, bind(address)).await?;
        let address = socket.local_addr().ok();
        // Bound before proxies are served, so that `/ready` can report why they are not.
        tracing::info!(?address, "admin server listening");
        let served = admin::serve(socket, shown, self.options.admin_opened);
        self.threads
            .spawn(Thread::Operators, "admin server", served);
        Ok(address)
    }

    /// Starts the source of resources, and serves proxies until `stop` resolves.
    async fn serve(
        mut self,
        mesh: Mesh,
        shown: Shown,
        start: impl FnOnce(mpsc::Sender<Event>, &mut Threads) -> Started,
        stop: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let admin = self.admin(&mesh, shown.webhook).await?;
        let (sender, events) = mpsc::channel(AT_ONCE);
        let mut source = start(sender, &mut self.threads);
        let ready = Ready {
            file: self.options.ready_file.as_deref(),
            listen: self.listener.local_addr().ok(),
            admin,
            dashboard: shown.dashboard,
        };
        let Mesh {
            graphs,
            table,
            service,
        } = mesh;
        let peers = Peers::new(&graphs, &table, service.as_ref());
        let tls = service.map(|service| service.tls);
        let identity = self.options.identity.as_ref();
        let mut serving = Serving {
            pipeline: Pipeline::default(),
            table: table.clone(),
            graphs,
            mapped: true,
            trust_domain: identity.map(|settings| settings.trust_domain.clone()),
            warned: false,
            port: Port::new(self.listener, table.clone(), peers, tls, &self.metrics),
            metrics: self.metrics,
            whole: self.whole,
            statuses: source.statuses.take(),
        };
        let mut stop = std::pin::pin!(stop);
        let outcome = tokio::select! {
            outcome = serving.serve(events, &ready) => outcome,
            failed = &mut source.watch => match failed {
                Ok(outcome) => outcome.map_err(RunError::from),
                Err(_) => Err(RunError::Panicked("source")),
            },
            name = self.threads.panicked() => Err(RunError::Panicked(name)),
            () = &mut stop => Ok(()),
        };
        source.end(&table).await;
        outcome
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, RunError> {
    let failed = |source| RunError::Bind { address, source };
    TcpListener::bind(address).await.map_err(failed)
}

/// A running source, and the writers to the place from which it reads.
struct Started {
    watch: JoinHandle<Result<(), FolderError>>,
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
