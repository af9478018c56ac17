//! Metrics of the proxy. docs/metrics.md documents their names and labels.
//!
//! Metric families exist as long as the process. Handles are created when listeners, routes, clusters and endpoints
//! are built, so that a request only increments cells to which it already has a handle.

mod choices;
mod cluster;
mod cluster_totals;
mod control;
mod downstream;
mod endpoint;
mod exemplar;
mod guards;
mod load_feedback;
mod memory;
mod mesh;
mod status_class;
mod stories;
mod traces;
mod upstream;
mod workers;
mod workloads;
mod xds;

use std::sync::{Arc, OnceLock};

use maglor_balance::EndpointStats;
use maglor_config::Address;
use maglor_telemetry::metrics::Exposition;
use maglor_telemetry::{Counter, Gauge, Registry};

use crate::os::memory::BudgetMetrics;
use crate::telemetry::record::RouteName;
use control::Control;
use downstream::Downstream;
use guards::Families;
use upstream::Upstream;

pub(crate) use cluster::ClusterMetrics;
pub(crate) use cluster_totals::ClusterTotals;
pub(crate) use downstream::{FaultMetrics, ListenerMetrics, RouteMetrics};
pub(crate) use endpoint::EndpointMetrics;
pub(crate) use load_feedback::{LoadReporterMetrics, QueueProtocolMetrics};
pub(crate) use mesh::{Failures, IdentityMetrics, MeshMetrics, Refusals};
pub(crate) use stories::StoryMetrics;
pub(crate) use traces::TraceMetrics;
pub(crate) use workers::WorkerMetrics;
pub(crate) use xds::XdsMetrics;

/// All metric families of the proxy.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    downstream: Downstream,
    upstream: Upstream,
    endpoints: endpoint::Families,
    guards: Families,
    choices: choices::Families,
    queue_protocol: load_feedback::Families,
    mesh: mesh::Families,
    workers: workers::Families,
    workloads: workloads::Families,
    /// The proxy's own pod.
    own_workload: OnceLock<Gauge>,
    /// Metrics of the proxy's own identity.
    pub(crate) identity: IdentityMetrics,
    /// Metrics of the export of spans.
    pub(crate) stories: Arc<StoryMetrics>,
    pub(crate) traces: Arc<TraceMetrics>,
    /// Process-wide metrics of the control thread.
    pub(crate) control: Control,
    /// Metrics of the connection to the control plane.
    pub(crate) xds: XdsMetrics,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let registry = Registry::new(workers);
        registry.describe_process("maglor-proxy", env!("CARGO_PKG_VERSION"));
        Self {
            downstream: Downstream::new(&registry),
            upstream: Upstream::new(&registry),
            endpoints: endpoint::Families::new(&registry),
            guards: Families::new(&registry),
            choices: choices::Families::new(&registry),
            queue_protocol: load_feedback::Families::new(&registry),
            mesh: mesh::Families::new(&registry),
            workers: workers::Families::new(&registry),
            workloads: workloads::Families::new(&registry),
            own_workload: OnceLock::new(),
            identity: IdentityMetrics::new(&registry),
            stories: StoryMetrics::new(&registry),
            traces: TraceMetrics::new(&registry),
            control: Control::new(&registry),
            xds: XdsMetrics::new(&registry),
            registry,
        }
    }

    /// Encodes all metrics for a client that accepts these formats and encodings.
    pub(crate) fn expose(&self, accept: &str, accept_encoding: &str) -> Exposition {
        self.registry.expose(accept, accept_encoding)
    }

    /// Describes the workload of the proxy's own pod, `NAMESPACE/POD`, from now on.
    pub(crate) fn describe_workload(&self, node: &str) {
        if let Some(info) = self.workloads.own(node) {
            self.own_workload.get_or_init(|| info);
        }
    }

    /// Returns the handles of a listener.
    pub(crate) fn listener(&self, listener: &str) -> Arc<ListenerMetrics> {
        self.downstream.listener(listener)
    }

    /// Returns the handles of a route.
    ///
    /// `from_start`: whether the series of all status classes exist before the first request, so that rates of a class
    /// are 0 rather than absent. The others begin with the first request that has their class.
    pub(crate) fn route(
        &self,
        listener: &Arc<str>,
        route: &Arc<str>,
        named: Option<RouteName>,
        from_start: bool,
    ) -> Arc<RouteMetrics> {
        self.downstream.route(listener, route, named, from_start)
    }

    /// Returns the handles of a route that injects faults.
    pub(crate) fn faults(&self, listener: &str, route: &str) -> FaultMetrics {
        self.downstream.faults(listener, route)
    }

    /// Returns the handles of a cluster.
    pub(crate) fn cluster(&self, cluster: &str) -> ClusterMetrics {
        let (guards, choices) = (self.guards.cluster(cluster), self.choices.cluster(cluster));
        let service = self.workloads.service(cluster);
        ClusterMetrics::new(&self.upstream, (guards, choices), service, cluster)
    }

    /// Returns the handles of an endpoint.
    pub(crate) fn endpoint(
        &self,
        cluster: &str,
        address: &Address,
        stats: &Arc<EndpointStats>,
    ) -> EndpointMetrics {
        self.endpoints.endpoint(cluster, address, stats)
    }

    /// Returns the metrics of the memory budget.
    pub(crate) fn memory(&self) -> BudgetMetrics {
        memory::budget(&self.registry)
    }

    /// Returns the handles of a listener with mesh TLS.
    pub(crate) fn mesh_listener(&self, listener: &str) -> MeshMetrics {
        self.mesh.listener(listener)
    }

    /// Returns the counter of a rule's decisions on a listener.
    pub(crate) fn authorization(&self, listener: &str, decision: &str, rule: &str) -> Counter {
        self.mesh.authorization(listener, decision, rule)
    }

    /// Returns the handles of a mesh listener's failed connections.
    pub(crate) fn mesh_listener_failures(&self, listener: &str) -> Failures {
        self.mesh.listener_failures(listener)
    }

    /// Returns the handles of a mesh cluster's failed connections.
    pub(crate) fn mesh_cluster_failures(&self, cluster: &str) -> Failures {
        self.mesh.cluster_failures(cluster)
    }

    /// Returns the handles of a cluster with mesh TLS.
    pub(crate) fn mesh_cluster(&self, cluster: &str) -> Refusals {
        self.mesh.cluster(cluster)
    }

    pub(crate) fn worker(&self, shard: usize) -> WorkerMetrics {
        self.workers.worker(shard)
    }

    /// Returns the handles of a cluster whose policy uses the queue protocol.
    pub(crate) fn queue_protocol(&self, cluster: &str) -> QueueProtocolMetrics {
        self.queue_protocol.cluster(cluster)
    }

    /// Returns the handles of a listener that reports its server's load.
    pub(crate) fn load_reporter(&self, listener: &str) -> LoadReporterMetrics {
        self.queue_protocol.load_reporter(listener)
    }
}
