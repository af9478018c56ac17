//! The observed state of a mesh, as its source provides it. A value that was not measured is `None`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::dashboard::page::admin_port::Taps;

/// What the vertices of the graph are.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum View {
    /// Nodes of the cluster.
    Node,
    /// Services.
    #[default]
    Service,
    /// Owners of pods, such as Deployments.
    Workload,
}

impl View {
    /// All views.
    pub const ALL: [Self; 3] = [Self::Node, Self::Service, Self::Workload];

    /// Returns the name of the view, which is also the kind of its vertices.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Service => "service",
            Self::Workload => "workload",
        }
    }
}

/// Calls: how many, how fast, how successful.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Calls per second.
    pub rps: f64,
    /// Failed calls per second.
    pub failures: f64,
    /// Mean response time in milliseconds.
    pub mean_ms: Option<f64>,
    /// Median of the response time in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the response time in milliseconds.
    pub p99_ms: Option<f64>,
    /// Calls in flight.
    pub in_flight: f64,
}

impl Signals {
    /// Returns the share of successful calls; `None` without calls.
    #[must_use]
    pub fn success(&self) -> Option<f64> {
        (self.rps > 0.0).then(|| (1.0 - self.failures / self.rps).clamp(0.0, 1.0))
    }
}

/// A vertex of the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vertex {
    /// What the vertex is.
    pub kind: View,
    /// Whether any of its pods has a sidecar.
    pub meshed: bool,
    /// The calls to the vertex; `None` if unknown.
    pub signals: Option<Signals>,
    /// Number of pods.
    pub replicas: Option<u32>,
    /// Number of pods that serve.
    pub ready: Option<u32>,
    /// Whether proxies call it by mutual TLS on all of its ports.
    pub mtls: Option<bool>,
    /// Load balancing policy of its clients.
    pub policy: Option<String>,
    /// Whether calls to it stay on their node where possible.
    pub local_first: bool,
    /// Whether callers report more calls than its pods accepted.
    pub contradicted: bool,
    /// Mean CPU usage of a pod, in thousandths of a core.
    pub cpu_used_millis: Option<f64>,
    /// Largest memory usage of a pod, in MiB.
    pub memory_used_mib: Option<f64>,
    /// Number of pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// The service of a workload.
    pub service: Option<String>,
    /// Zone of a node.
    pub zone: Option<String>,
    /// Capacity of a node: thousandths of a core, MiB.
    pub capacity: Option<(u64, u64)>,
    /// The services that run on a node.
    pub vertices: Vec<String>,
}

/// Calls of one vertex to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    /// The caller.
    pub from: String,
    /// The called vertex.
    pub to: String,
    /// The calls.
    pub signals: Signals,
    /// Attempts per second after the first one of a call.
    pub retries: Option<f64>,
    /// Bytes per second in both directions.
    pub bytes_per_second: Option<f64>,
    /// Connections opened per second.
    pub connections_per_second: Option<f64>,
    /// Whether the edge has connections only, which are not calls.
    pub tcp: bool,
    /// Whether the callers use mutual TLS, by the published configuration.
    pub mtls: Option<bool>,
    /// The share of the calls, or of the connections if there are no calls, that callers report to be by mutual TLS.
    pub mtls_share: Option<f64>,
    /// Number of endpoints that callers have ejected.
    pub ejected: Option<u32>,
    /// Load balancing policy of the callers.
    pub policy: Option<String>,
    /// How the calls are divided among versions; empty if they are not.
    pub split: Vec<Share>,
    /// Delay between nodes in milliseconds.
    pub delay_ms: Option<f64>,
}

/// A version of a service, and its share of the calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// Name of the version.
    pub name: String,
    /// Weight relative to the other versions.
    pub weight: u32,
    /// The calls.
    pub signals: Signals,
}

/// A move that a placement would make.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Move {
    /// The service.
    pub vertex: String,
    /// The node where a pod runs.
    pub from: String,
    /// The node where it would run.
    pub to: String,
    /// Why.
    pub reason: String,
}

/// The graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// The window of the moving averages.
    pub window: Duration,
    /// The vertices by name.
    pub vertices: BTreeMap<String, Vertex>,
    /// The edges. An edge from a vertex to itself is not drawn.
    pub edges: Vec<Edge>,
    /// What a placement would move; `None` if none was computed.
    pub moves: Option<Vec<Move>>,
    /// Number of the last change of the receipts.
    pub receipts: u64,
    /// Number of the last change of the decisions.
    pub decisions: u64,
}

/// An endpoint of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoint {
    /// `IP:PORT`.
    pub address: String,
    /// `NAMESPACE/POD`.
    pub pod: Option<String>,
    /// Its node.
    pub node: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// `healthy`, `draining` or `unhealthy`.
    pub health: &'static str,
    /// Weight relative to the other endpoints.
    pub weight: u32,
    /// The calls that its own sidecar accepted, with the true queue; `None` without a report.
    pub signals: Option<Signals>,
    /// Age of the report.
    pub age: Option<Duration>,
}

/// A proxy of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proxy {
    /// `NAMESPACE/POD`.
    pub pod: String,
    /// Its node.
    pub node: Option<String>,
    /// Resident memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Age of its last report.
    pub age: Option<Duration>,
}

/// A service in detail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Its routes in force, in the form of the configuration, each with a name.
    pub routes: Vec<(String, Value)>,
    /// Its clusters in force, in the form of the configuration, each with a name.
    pub clusters: Vec<(String, Value)>,
    /// The policies in force, as kind and `NAMESPACE/NAME`; `None` if unknown.
    pub policies: Option<Vec<(String, String)>>,
    /// The proxies of its pods.
    pub proxies: Vec<Proxy>,
}

/// The origin of a dashboard's data.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct About {
    /// Version of the program.
    pub version: &'static str,
    /// `kubernetes` or `folder`.
    pub source: &'static str,
    /// Name of the replica.
    pub replica: Option<String>,
}

/// Provides the state of a mesh.
pub trait Source: Send + Sync {
    /// Returns the origin of the data.
    fn about(&self) -> About;

    /// Returns the graph.
    fn mesh(&self, view: View) -> Mesh;

    /// Returns details of a service; `None` if there is no such service.
    fn details(&self, service: &str) -> Option<Details>;

    /// Returns the last changes of the configuration with their receipts, newest first, as objects.
    fn receipts(&self) -> Vec<Value>;

    /// Returns the present decisions of operators, as objects.
    fn decisions(&self) -> Vec<Value>;

    /// Returns the interval of reports.
    fn interval(&self) -> Option<Duration>;

    /// Returns the admin ports that can be reached, from which live requests and explanations come.
    ///
    /// # Errors
    /// If none can, with the reason for users.
    fn taps(&self) -> Result<Taps, &'static str>;

    /// Returns the service of a proxy of [`Source::taps`]; `None` if unknown.
    fn vertex_of_proxy(&self, proxy: &str) -> Option<String>;

    /// Returns the service that proxies call by a cluster of this name; `None` if unknown.
    fn vertex_of_cluster(&self, cluster: &str) -> Option<String>;

    /// Records whether there are viewers, so that reports can be more frequent.
    fn set_watched(&self, watched: bool);
}
