//! The API server, and what of a controller lives on it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use maglor_mcg::rule::Limits;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{RunError, Source};
use crate::api_server;
use crate::events::Events;
use crate::external_metrics::ExternalMetrics;
use crate::gateway;
use crate::graph::Graphs;
use crate::graph::publish::Publisher;
use crate::graph::replicas::{Replicas, Way};
use crate::https::Serving;
use crate::lease::Term;
use crate::metrics::Metrics;
use crate::placement;
use crate::proxy_service;
use crate::tuning;
use crate::webhook::{self, Webhook};

/// The API server, and whether this replica writes there.
pub(super) struct Kubernetes {
    pub(super) client: kube::Client,
    /// One that tries no request again.
    pub(super) tries_once: kube::Client,
    pub(super) namespace: String,
    pub(super) replica: String,
    pub(super) proxies: proxy_service::Settings,
    pub(super) auto: Limits,
    pub(super) moves: bool,
    pub(super) tunes: bool,
    pub(super) gateways: Option<Box<gateway::run::Options>>,
    pub(super) term: watch::Sender<Term>,
    /// How other replicas are reached.
    pub(super) way: Way,
}

impl Kubernetes {
    pub(super) async fn of(
        source: &Source,
        auto: Limits,
        listener: &TcpListener,
    ) -> Result<Option<Self>, RunError> {
        let Source::Kubernetes {
            namespace,
            replica,
            proxies,
            gateways,
            moves,
            tunes,
        } = source
        else {
            return Ok(None);
        };
        let port = listener.local_addr().map_or(0, |address| address.port());
        Ok(Some(Self {
            client: api_server::client().await?,
            tries_once: api_server::client_that_tries_once().await?,
            namespace: namespace.clone(),
            replica: replica.clone(),
            proxies: proxies.clone(),
            auto,
            moves: *moves,
            tunes: *tunes,
            gateways: gateways.clone(),
            term: watch::Sender::new(Term::default()),
            way: Way { port, tls: None },
        }))
    }

    pub(super) fn replicas(&self) -> Replicas {
        Replicas {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            replica: self.replica.clone(),
            way: self.way.clone(),
        }
    }

    pub(super) fn publisher(&self, graphs: &Arc<Graphs>) -> Publisher {
        Publisher {
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
        placement::run::Options {
            client: self.tries_once.clone(),
            replicas: self.replicas(),
            graphs: Arc::clone(graphs),
            term: self.term.subscribe(),
            events: Events::new(self.client.clone(), "maglor.dev/placement", &self.replica),
            metrics: metrics.placement.clone(),
            moves: self.moves,
        }
    }

    pub(super) fn tuning(&self, graphs: &Arc<Graphs>, metrics: &Metrics) -> tuning::run::Options {
        tuning::run::Options {
            client: self.tries_once.clone(),
            replicas: self.replicas(),
            graphs: Arc::clone(graphs),
            term: self.term.subscribe(),
            events: Events::new(self.client.clone(), "maglor.dev/tuning", &self.replica),
            metrics: metrics.tuning.clone(),
            tunes: self.tunes,
        }
    }

    pub(super) fn external_metrics(
        &self,
        graphs: &Arc<Graphs>,
        serving: Serving,
    ) -> ExternalMetrics {
        ExternalMetrics {
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
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            events: Events::new(self.client.clone(), "maglor.dev/webhook", &self.replica),
            settings: options.settings,
            term: self.term.subscribe(),
            metrics: Arc::clone(metrics),
            ready: Arc::clone(ready),
            serving: watch::Sender::new(None),
        }
    }
}
