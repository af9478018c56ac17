//! The distributed resources, of six kinds.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use maglor_config::raw;
use xxhash_rust::xxh3::xxh3_64;

/// Kinds of resources, in the order in which they are sent: what others refer to comes first
/// (`xDS REST and gRPC protocol`, "Eventual consistency considerations").
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `maglor.identity.v1.TrustBundle`, our own
    Bundle,
    /// `envoy.config.cluster.v3.Cluster`
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment`
    Endpoints,
    /// `envoy.config.listener.v3.Listener`
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration`
    Routes,
    /// `maglor.proxy.v1.Inbound`, our own
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

    /// The type URL under which it is asked for.
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

    /// The kind of a type URL; `None` for types that are not distributed.
    #[must_use]
    pub fn of(type_url: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.type_url() == type_url)
    }

    /// Whether a client may ask for all there are without naming them, and is sent all of them
    /// whenever one changes (state of the world).
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Its place in [`Kind::ALL`].
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

/// One resource, encoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Unique in its kind.
    pub name: Arc<str>,
    /// The message, without type.
    pub body: Bytes,
}

impl Resource {
    /// A version that is the same for equal bodies: a server that restarts, or another replica, says
    /// the same.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{:016x}", xxh3_64(&self.body))
    }
}

/// Targets that a workload's proxy asks for before anybody calls them, at most.
pub const MOST_AHEAD: usize = 64;

/// The name of the one resource of [`Kind::Bundle`].
pub const BUNDLE: &str = "default";

/// How requests, or connections, to a name are routed.
#[derive(Clone, Debug)]
pub enum Listener {
    /// By the table of this name.
    Http {
        /// Its name.
        routes: String,
        /// The cluster that connections go to which do not speak HTTP; `None` = all do.
        bytes: Option<String>,
    },
    /// By this table.
    Inline(Box<raw::RouteTable>),
    /// Bytes to a cluster.
    Tcp {
        /// Its name.
        cluster: String,
    },
}

/// An endpoint, and what its control plane knows of it.
#[derive(Clone, Debug)]
pub struct ServedEndpoint {
    /// Address, weight, priority, locality.
    pub described: raw::Endpoint,
    /// Whether it gets requests.
    pub health: Health,
}

/// What a control plane knows of an endpoint's health.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Health {
    /// It ends what it has and gets nothing new.
    Draining,
    /// It gets requests.
    #[default]
    Healthy,
    /// It gets none.
    Unhealthy,
}
