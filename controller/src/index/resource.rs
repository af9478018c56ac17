//! The output of the index: named resources that correspond to parts of the proxy's configuration.

use maglor_config::raw;
use maglor_xds::{self as xds, Health, ServedEndpoint};
use serde::{Deserialize, Serialize};

/// The kinds of resources, with their xDS services.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ResourceKind {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoints,
    /// The inbound configuration of a workload's own proxy.
    Inbound,
    /// LDS.
    Listener,
    /// RDS.
    Routes,
}

/// The identity of a resource.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ResourceId {
    /// Kind of the resource.
    pub kind: ResourceKind,
    /// The name that clients request.
    pub name: String,
    /// The clients that get this resource instead of the one for all clients; `None` if this is the one for all
    /// clients.
    pub consumer: Option<Consumer>,
}

/// A set of clients that get a specific resource.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Consumer {
    /// Clients in a namespace.
    Namespace(String),
    /// Clients on a node. Takes precedence over the zone.
    Node(String),
    /// Clients in a zone.
    Zone(String),
}

/// The known location of a pod with a proxy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Place {
    /// Name of the node; `None` if unknown.
    pub node: Option<String>,
    /// Zone of the node; `None` if unknown.
    pub zone: Option<String>,
}

impl ResourceId {
    /// Returns the ID of a resource for all clients.
    #[must_use]
    pub fn new(kind: ResourceKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            consumer: None,
        }
    }
}

/// A resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// A cluster, without its endpoints if these are a separate resource.
    Cluster(Box<raw::Cluster>),
    /// The endpoints of the cluster of the same name.
    Endpoints(Vec<Endpoint>),
    /// The inbound configuration of a workload's own proxy.
    Inbound(Box<Inbound>),
    /// The handling of connections to a name or an address.
    Listener(Listener),
    /// The routes of a Service's port.
    Routes(Box<raw::RouteTable>),
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Address and location of the endpoint.
    pub described: raw::Endpoint,
    /// Whether the endpoint is draining: its requests may finish, but it gets no new ones.
    pub draining: bool,
}

impl Endpoint {
    /// Returns the encoded form of the endpoint.
    #[must_use]
    pub fn served(&self) -> ServedEndpoint {
        ServedEndpoint {
            described: self.described.clone(),
            health: match self.draining {
                true => Health::Draining,
                false => Health::Healthy,
            },
        }
    }
}

/// The handling of connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Listener {
    /// HTTP, by a route table.
    Http {
        /// Name of the table.
        routes: String,
        /// Name of the cluster for non-HTTP traffic; `None` if all traffic is HTTP.
        bytes: Option<String>,
    },
    /// Bytes, forwarded to a cluster.
    Tcp {
        /// Name of the cluster.
        cluster: String,
    },
}

impl Listener {
    /// Returns the encoded form of the listener.
    #[must_use]
    pub fn described(&self) -> xds::Listener {
        match self.clone() {
            Self::Http { routes, bytes } => xds::Listener::Http { routes, bytes },
            Self::Tcp { cluster } => xds::Listener::Tcp { cluster },
        }
    }
}

/// The settings of a workload's inbound listener that the mesh determines.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Inbound {
    /// The mutual TLS mode.
    pub mtls: raw::MeshMode,
    /// Protocols of the workload's ports. Protocols of other ports are detected.
    #[serde(default, skip_serializing_if = "raw::Pairs::is_empty")]
    pub ports: raw::Pairs<raw::Short<raw::ApplicationPort>>,
    /// Authorization of clients. Absent: all clients that may connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<raw::Authorization>,
    /// SPIFFE IDs of proxies in front of the workload that are trusted to report the client of a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// Handling of the workload's outbound connections to unknown destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<raw::Unknown>,
    /// Export of its spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<raw::MeshTracing>,
    /// Whether its proxy keeps the stories of failed and slow requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stories: Option<bool>,
    /// Ports of the Gateway that the workload serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<maglor_config::gateway::Port>,
    /// Ports of the group of Services for which the workload is a proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwards: Vec<maglor_config::proxy_service::Forward>,
    /// Addresses of Services that the workload's proxy requests in advance, because similar pods have called them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<String>,
    /// Service account of the workload whose proxy may request the resource; not published.
    #[serde(skip)]
    pub service_account: String,
}

impl Inbound {
    /// Returns the encoded form of the configuration, without [`Inbound::ahead`].
    #[must_use]
    pub fn described(&self) -> xds::Inbound {
        xds::Inbound {
            tls: Some(self.mtls),
            ports: (!self.ports.is_empty()).then(|| self.ports.clone()),
            authorization: self.authorization.clone(),
            delegates: self.delegates.clone(),
            unknown: self.unknown,
            tracing: self.tracing.clone(),
            stories: self.stories,
            gateway: self.gateway.clone(),
            forwards: self.forwards.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A change of a published resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The resource was removed.
    Remove(ResourceId),
    /// The resource is new or has changed.
    Set(ResourceId, Resource),
}
