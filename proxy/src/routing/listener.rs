//! The listeners at run time.
//!
//! There is one writer, the control thread ([`crate::control::app`]); workers get new listeners by message
//! and see new routes and endpoints through the `ArcSwap`s inside them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::{ArcSwap, ArcSwapOption};
use maglor_config as config;
use maglor_config::listener::{HttpFilter, ProxyProtocolIn, TrafficDirection};
use maglor_config::tls::MeshMode;

use crate::mesh::authorization::Authorization;
use crate::mesh::load_feedback::reporting::LoadReporter;
use crate::os::throttle::Throttle;
use crate::protocol::detect::ChainSelector;
use crate::routing::on_demand::OnDemand;
use crate::routing::rate_limit::Limiter;
use crate::routing::route::Table;
use crate::telemetry::metrics::{Failures, ListenerMetrics, RouteMetrics};
use crate::tls::mesh::Mesh;
use crate::upstream::Cluster;

/// A listener at run time.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) config: Arc<config::Listener>,
    pub(crate) selector: ChainSelector,
    /// Aligned with the configuration's chains.
    pub(crate) chains: Vec<Chain>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Who may do what.
    pub(crate) authorization: Option<Arc<Authorization>>,
    /// Of the requests of all its chains.
    pub(crate) rate_limit: Option<Arc<Limiter>>,
    /// Log lines of connections that it ends.
    pub(crate) ended: Throttle,
}

impl Listener {
    /// Whether another connection may be accepted.
    pub(crate) fn has_room(&self) -> bool {
        let open = usize::try_from(self.metrics.connections.value()).unwrap_or(0);
        open < self.config.max_connections
    }

    /// Whether one of its chains lets in members of the mesh only.
    pub(crate) fn is_for_members(&self) -> bool {
        let only = |chain: &Chain| match &chain.tls {
            Some(Termination::Mesh(mesh)) => !mesh.takes_plain_text(),
            Some(Termination::Certificates(_)) | None => false,
        };
        self.chains.iter().any(only)
    }

    /// Whether a connection needs nothing from its client before its filter.
    pub(crate) fn is_immediate(&self) -> bool {
        self.config.proxy_protocol == ProxyProtocolIn::Off
            && !self.selector.may_need_client_hello()
            && self.chains.iter().all(|chain| chain.tls.is_none())
    }
}

/// A filter chain at run time.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) name: Arc<str>,
    pub(crate) tls: Option<Termination>,
    pub(crate) filter: Filter,
}

/// TLS on a chain.
#[derive(Clone, Debug)]
pub(crate) enum Termination {
    Certificates(Arc<rustls::ServerConfig>),
    Mesh(Arc<Mesh>),
}

/// The last filter of a chain.
#[derive(Debug)]
pub(crate) enum Filter {
    /// By the first bytes.
    Detect {
        http: Arc<HttpChain>,
        tcp: Arc<TcpChain>,
    },
    Http(Arc<HttpChain>),
    Tcp(Arc<TcpChain>),
}

impl Filter {
    pub(crate) fn http(&self) -> Option<&Arc<HttpChain>> {
        match self {
            Self::Detect { http, .. } | Self::Http(http) => Some(http),
            Self::Tcp(_) => None,
        }
    }

    pub(crate) fn tcp(&self) -> Option<&Arc<TcpChain>> {
        match self {
            Self::Detect { tcp, .. } | Self::Tcp(tcp) => Some(tcp),
            Self::Http(_) => None,
        }
    }
}

/// HTTP on a chain. Connections hold it for their whole life; its routes change under them.
#[derive(Debug)]
pub(crate) struct HttpChain {
    /// Name of the listener.
    pub(crate) listener: Arc<str>,
    pub(crate) direction: TrafficDirection,
    pub(crate) settings: HttpFilter,
    /// Who is let in, where the chain is one of the mesh: what others say of queues is believed of its
    /// members only.
    pub(crate) mesh: Option<MeshMode>,
    pub(crate) routes: ArcSwap<Table>,
    /// The chain is gone or has other settings: its connections should end when they can.
    pub(crate) retired: AtomicBool,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Where the chain stands before one server and tells how busy that is.
    pub(crate) load_reporter: Option<Arc<LoadReporter>>,
    /// Connections that members of the mesh have spoilt, where the chain is one of the mesh.
    pub(crate) failures: Option<Failures>,
    /// Hosts that are asked for when they are called.
    pub(crate) on_demand: Option<Arc<OnDemand>>,
    /// Of requests that no route takes, or that cannot be read.
    pub(crate) unrouted: Arc<RouteMetrics>,
}

/// TCP on a chain.
#[derive(Debug)]
pub(crate) struct TcpChain {
    pub(crate) settings: config::TcpFilter,
    pub(crate) cluster: ArcSwapOption<Cluster>,
}
