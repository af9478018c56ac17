//! The resources that are distributed, of six kinds.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use maglor_config::raw;
use xxhash_rust::xxh3::xxh3_64;

/// The kinds of resources, in the order in which they are sent: resources come before others that refer to them
/// (`xDS REST and gRPC protocol`, "Eventual consistency considerations").
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `maglor.identity.v1.TrustBundle`, a type of our own.
    Bundle,
    /// `envoy.config.cluster.v3.Cluster`.
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
    Endpoints,
    /// `envoy.config.listener.v3.Listener`.
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration`.
    Routes,
    /// `maglor.proxy.v1.Inbound`, a type of our own.
    Inbound,
}

impl Kind {
    /// All kinds, in the order in which they are sent.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Bundle,
        Self::Cluster,
        Self::Endpoints,
        Self::Listener,
        Self::Routes,
        Self::Inbound,
    ];
    pub(crate) const COUNT: usize = 6;

    /// Returns the type URL of the kind.
    #[must_use]
    pub const fn type_url(self) -> &'static str {
        match self {
            Self::Bundle => "type.googleapis.com/maglor.identity.v1.TrustBundle",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Inbound => "type.googleapis.com/maglor.proxy.v1.Inbound",
        }
    }

    /// Returns the kind with this type URL; `None` for types that are not distributed.
    #[must_use]
    pub fn of(type_url: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.type_url() == type_url)
    }

    /// Returns whether a client may request all resources of the kind without naming them, and gets all of them
    /// whenever one changes (state of the world).
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Returns the index of the kind in [`Kind::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bundle => "trust bundle",
            Self::Cluster => "cluster",
            Self::Inbound => "inbound",
            Self::Endpoints => "endpoints",
            Self::Listener => "listener",
            Self::Routes => "routes",
        })
    }
}

/// An encoded resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resource {
    /// The kind.
    pub kind: Kind,
    /// The name, unique in its kind.
    pub name: Arc<str>,
    /// The encoded message, without its type.
    pub body: Bytes,
}

impl Resource {
    /// Returns a version that is equal for equal bodies, so that it does not change when the server restarts, and is
    /// the same for all replicas.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{:016x}", xxh3_64(&self.body))
    }
}

/// The maximum number of targets to which a workload's proxy subscribes ahead of the first call.
pub const MOST_AHEAD: usize = 64;

/// The name of the only resource of [`Kind::Bundle`].
pub const BUNDLE: &str = "default";

/// The routing of requests or connections to a name.
#[derive(Clone, Debug)]
pub enum Listener {
    /// Requests are routed by the table with this name.
    Http {
        /// The name of the table.
        routes: String,
        /// The name of the cluster for connections that are not HTTP; `None` = all connections are HTTP.
        bytes: Option<String>,
    },
    /// Requests are routed by this table.
    Inline(Box<raw::RouteTable>),
    /// Connections are forwarded to a cluster.
    Tcp {
        /// The name of the cluster.
        cluster: String,
    },
}

/// An endpoint with its health, as known to the control plane.
#[derive(Clone, Debug)]
pub struct ServedEndpoint {
    /// The address, weight, priority and locality of the endpoint.
    pub described: raw::Endpoint,
    /// Its health.
    pub health: Health,
}

/// The health of an endpoint, as known to the control plane.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Health {
    /// The endpoint finishes its requests and gets no new ones.
    Draining,
    /// The endpoint gets requests.
    #[default]
    Healthy,
    /// The endpoint gets no requests.
    Unhealthy,
}
