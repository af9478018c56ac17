//! Listeners at run time.
//!
//! The control thread ([`crate::control::app`]) is the only writer; workers receive new listeners by message
//! and see new routes and endpoints through their `ArcSwap`s.

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
    /// Filter chains in the order of the configuration.
    pub(crate) chains: Vec<Chain>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Authorization rules; `None` if there are none.
    pub(crate) authorization: Option<Arc<Authorization>>,
    /// Rate limit for all requests of the listener; `None` if there is none.
    pub(crate) rate_limit: Option<Arc<Limiter>>,
    /// Throttle for log lines about connections that the listener closes.
    pub(crate) ended: Throttle,
}

impl Listener {
    /// Returns whether another connection may be accepted.
    pub(crate) fn has_room(&self) -> bool {
        let open = usize::try_from(self.metrics.connections.value()).unwrap_or(0);
        open < self.config.max_connections
    }

    /// Returns whether one of the chains admits mesh members only.
    pub(crate) fn is_for_members(&self) -> bool {
        let only = |chain: &Chain| match &chain.tls {
            Some(Termination::Mesh(mesh)) => !mesh.takes_plain_text(),
            Some(Termination::Certificates(_)) | None => false,
        };
        self.chains.iter().any(only)
    }

    /// Returns whether the filter of a connection can be chosen without any bytes from the client.
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

/// TLS termination of a chain.
#[derive(Clone, Debug)]
pub(crate) enum Termination {
    Certificates(Arc<rustls::ServerConfig>),
    Mesh(Arc<Mesh>),
}

/// The last filter of a chain.
#[derive(Debug)]
pub(crate) enum Filter {
    /// Detect the protocol from the first bytes of the connection.
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

/// HTTP settings of a chain. Connections hold them for their whole lifetime, while the routes may be replaced.
#[derive(Debug)]
pub(crate) struct HttpChain {
    /// Name of the listener.
    pub(crate) listener: Arc<str>,
    pub(crate) direction: TrafficDirection,
    pub(crate) settings: HttpFilter,
    /// Admission of clients; `None` if the chain does not use mesh TLS. Load reports are trusted only from members.
    pub(crate) mesh: Option<MeshMode>,
    pub(crate) routes: ArcSwap<Table>,
    /// Whether the chain was removed or its settings have changed, so that its connections should end soon.
    pub(crate) retired: AtomicBool,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// The load reporter; `None` unless the chain is in front of a single server and reports its load.
    pub(crate) load_reporter: Option<Arc<LoadReporter>>,
    /// Counters of failed connections of mesh members; `None` if the chain does not use mesh TLS.
    pub(crate) failures: Option<Failures>,
    /// Hosts that are discovered on demand; `None` without discovery.
    pub(crate) on_demand: Option<Arc<OnDemand>>,
    /// Metrics of requests that match no route or cannot be parsed.
    pub(crate) unrouted: Arc<RouteMetrics>,
}

/// TCP settings of a chain.
#[derive(Debug)]
pub(crate) struct TcpChain {
    pub(crate) settings: config::TcpFilter,
    pub(crate) cluster: ArcSwapOption<Cluster>,
}
