//! The parts of the controller that use the API server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use k8s_openapi::api::core::v1::Pod;
use maglor_service_graph::policy_choice::Limits;
use tokio::sync::watch;

use super::RunError;
use super::threads::{Thread, Threads};
use crate::api_server;
use crate::clients;
use crate::conditional_writes::fenced;
use crate::events::Events;
use crate::external_metrics::ExternalMetrics;
use crate::gateway;
use crate::graph::Graphs;
use crate::graph::publish::Publisher;
use crate::graph::replicas::{Connector, Replicas, watched};
use crate::https::{self, Serving};
use crate::identity::on_kubernetes::Replica;
use crate::lease::Term;
use crate::metrics::Metrics;
use crate::placement;
use crate::proxy_service;
use crate::reconcile::Cache;
use crate::reconcile::policies::Options;
use crate::revision::Revision;
use crate::scope::Scope;
use crate::tuning;
use crate::webhook::{self, Webhook};

/// Clients of the API server for each thread. Those for leader-only writes are [`fenced`].
pub(super) struct Clients {
    pub(super) discovery: kube::Client,
    /// Client for the identity service; fenced.
    pub(super) identity: kube::Client,
    pub(super) lease: kube::Client,
    /// Client for the operators; fenced.
    pub(super) operators: kube::Client,
    pub(super) webhook: kube::Client,
    /// Client for the webhook's certificate; fenced.
    pub(super) certificate: kube::Client,
}

impl Clients {
    async fn of(
        threads: &Threads,
        (term, own): (&watch::Sender<Term>, &watch::Sender<Term>),
        metrics: &Metrics,
    ) -> Result<Self, kube::Error> {
        let client = async |thread| threads.make(thread, api_server::client()).await;
        let fenced = async |thread, client: &kube::Client, term: &watch::Sender<Term>| {
            let (client, term) = (client.clone(), term.subscribe());
            let metrics = metrics.writes.clone();
            let made = async move { fenced(&client, term, metrics) };
            threads.make(thread, made).await
        };
        let discovery = client(Thread::Discovery).await?;
        let operators = client(Thread::Operators).await?;
        let webhook = client(Thread::Webhook).await?;
        Ok(Self {
            identity: fenced(Thread::Discovery, &discovery, term).await,
            discovery,
            lease: client(Thread::Lease).await?,
            operators: fenced(Thread::Operators, &operators, term).await,
            certificate: fenced(Thread::Webhook, &webhook, own).await,
            webhook,
        })
    }
}

/// Options of a controller of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The namespace of the Lease that allows one replica to write.
    pub(crate) namespace: String,
    /// The unique name of this replica.
    pub(crate) replica: String,
    /// The revision that this control plane serves.
    pub(crate) revision: Revision,
    /// Settings of the proxies of `ProxyService`s.
    pub(crate) proxies: proxy_service::Settings,
    /// The namespaces where proxies of `ProxyService`s may be deployed.
    pub(crate) inserts: Scope,
    /// Options for the proxies of Gateways; `None` if Gateways have no proxies and Secrets are not read.
    pub(crate) gateways: Option<Box<gateway::run::Options>>,
    /// The namespaces where `PlacementPolicy`s may move pods.
    pub(crate) moves: Scope,
    /// The namespaces where `TuningPolicy`s may change Deployments.
    pub(crate) tunes: Scope,
    /// Options of the admission webhook; `None` if it is disabled.
    pub(crate) webhook: Option<webhook::Options>,
    /// The address of the external metrics server, which uses the webhook's certificate; `None` if it is disabled.
    pub(crate) external_metrics: Option<SocketAddr>,
    /// Thresholds for adding and removing proxies of `ProxyService`s in automatic mode.
    pub(crate) auto: Limits,
}

/// The connection to the API server, and the leadership of this replica.
pub(super) struct Kubernetes {
    pub(super) clients: Clients,
    pub(super) settings: Settings,
    /// Leadership of the default control plane, which a revision never has.
    pub(super) term: watch::Sender<Term>,
    /// Leadership among the replicas of this control plane. The leader maintains the webhook's certificate.
    pub(super) own_term: watch::Sender<Term>,
    /// The connection to other replicas.
    pub(super) connector: Connector,
    /// The mesh's own pods.
    pods: Cache<Pod>,
}

impl From<kube::Error> for RunError {
    fn from(error: kube::Error) -> Self {
        Self::Kubernetes(error.into())
    }
}

impl Kubernetes {
    /// Creates the clients. `port` is the xDS port, which is the same for all replicas.
    pub(super) async fn connect(
        settings: Settings,
        port: u16,
        (threads, metrics): (&mut Threads, &Metrics),
    ) -> Result<Self, RunError> {
        let term = watch::Sender::new(Term::default());
        let own_term = match settings.revision.is_default() {
            true => term.clone(),
            false => watch::Sender::new(Term::default()),
        };
        let clients = Clients::of(threads, (&term, &own_term), metrics).await?;
        let (pods, watched) = watched(clients.operators.clone(), &settings.namespace);
        threads.spawn(Thread::Operators, "pods of replicas", watched);
        Ok(Self {
            clients,
            settings,
            term,
            own_term,
            connector: Connector { port, tls: None },
            pods,
        })
    }

    /// Returns what the identity service uses.
    pub(super) fn identity(&self) -> Replica {
        Replica {
            client: self.clients.discovery.clone(),
            writer: self.clients.identity.clone(),
            name: self.settings.replica.clone(),
            term: self.term.subscribe(),
        }
    }

    pub(super) fn replicas(&self) -> Replicas {
        Replicas {
            pods: self.pods.clone(),
            replica: self.settings.replica.clone(),
            connector: self.connector.clone(),
        }
    }

    pub(super) fn publisher(&self, graphs: &Arc<Graphs>) -> Publisher {
        Publisher {
            client: self.clients.operators.clone(),
            replicas: self.replicas(),
            term: self.term.subscribe(),
            graphs: Arc::clone(graphs),
        }
    }

    pub(super) fn placement(
        &self,
        graphs: &Arc<Graphs>,
        metrics: &Metrics,
    ) -> placement::run::Options {
        let metrics = metrics.placement.clone();
        self.policies(
            "maglor.dev/placement",
            graphs,
            metrics,
            &self.settings.moves,
        )
    }

    pub(super) fn tuning(&self, graphs: &Arc<Graphs>, metrics: &Metrics) -> tuning::run::Options {
        let metrics = metrics.tuning.clone();
        self.policies("maglor.dev/tuning", graphs, metrics, &self.settings.tunes)
    }

    fn policies<M>(
        &self,
        reporter: &str,
        graphs: &Arc<Graphs>,
        metrics: M,
        permitted: &Scope,
    ) -> Options<M> {
        let client = self.clients.operators.clone();
        Options {
            events: Events::new(client.clone(), reporter, &self.settings.replica),
            client,
            replicas: self.replicas(),
            graphs: Arc::clone(graphs),
            term: self.term.subscribe(),
            metrics,
            permitted: permitted.clone(),
        }
    }

    pub(super) fn external_metrics(
        &self,
        graphs: &Arc<Graphs>,
        serving: Serving,
    ) -> ExternalMetrics {
        ExternalMetrics {
            client: self.clients.operators.clone(),
            replicas: self.replicas(),
            graphs: Arc::clone(graphs),
            serving,
        }
    }

    pub(super) fn webhook(
        &self,
        options: webhook::Options,
        metrics: &Arc<Metrics>,
        ready: &Arc<AtomicBool>,
    ) -> Webhook {
        Webhook {
            client: self.clients.webhook.clone(),
            writer: self.clients.certificate.clone(),
            namespace: self.settings.namespace.clone(),
            events: Events::new(
                self.clients.webhook.clone(),
                "maglor.dev/webhook",
                &self.settings.replica,
            ),
            settings: options.settings,
            revision: self.settings.revision.clone(),
            term: self.own_term.subscribe(),
            metrics: Arc::clone(metrics),
            ready: Arc::clone(ready),
            clients: clients::Clients::new(https::LIMITS, metrics.clients("webhook")),
            serving: watch::Sender::new(None),
        }
    }
}
