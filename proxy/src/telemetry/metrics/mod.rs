//! Metrics of the proxy. docs/metrics.md documents their names and labels.
//!
//! Families exist as long as the process; handles are created when listeners, routes, clusters and endpoints
//! are built, so that a request only adds to cells that it already holds.

mod choices;
mod counts;
mod guards;
mod load_feedback;
mod mesh;
mod upstream;
mod workers;
mod xds;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use maglor_balance::EndpointStats;
use maglor_config::Address;
use maglor_telemetry::{
    Buckets, Counter, CounterFamily, Gauge, GaugeFamily, Histogram, HistogramFamily, Registry,
};

use crate::protocol::detect::Protocol;
use guards::{Families, GuardMetrics};
pub(crate) use mesh::{Failures, IdentityMetrics, MeshMetrics, Refusals};
use upstream::Upstream;

use crate::os::memory::BudgetMetrics;

pub(crate) use choices::ChoiceMetrics;
pub(crate) use counts::ClusterCounts;
pub(crate) use workers::WorkerMetrics;
pub(crate) use xds::XdsMetrics;

pub(crate) use load_feedback::{LoadReporterMetrics, QueueProtocolMetrics};

/// Classes of statuses, values of the label `status`.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// All metric families of the proxy.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    downstream: Downstream,
    upstream: Upstream,
    guards: Families,
    choices: choices::Families,
    queue_protocol: load_feedback::Families,
    mesh: mesh::Families,
    workers: workers::Families,
    /// Metrics of the proxy's own identity.
    pub(crate) identity: IdentityMetrics,
    /// Process-wide metrics of the control thread.
    pub(crate) control: Control,
    /// Metrics of the connection to the control plane.
    pub(crate) xds: XdsMetrics,
}

/// Metric families of clients' connections and requests.
#[derive(Debug)]
struct Downstream {
    requests: CounterFamily,
    request_duration: HistogramFamily,
    response_bytes: CounterFamily,
    faults: CounterFamily,
    connections: GaugeFamily,
    connections_total: CounterFamily,
    ended: CounterFamily,
    refused: CounterFamily,
    detected: CounterFamily,
    tcp_bytes: CounterFamily,
}

impl Downstream {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help, labels: &[&str]| registry.counter(name, help, labels);
        Self {
            requests: counter(
                "http_requests_total",
                "Requests answered, by route (`-` = none) and status class; `none` = the client disconnected first.",
                &["listener", "route", "status"],
            ),
            request_duration: registry.histogram(
                "http_request_duration_seconds",
                "Time from the end of the request's head to the last byte of the response.",
                &["listener"],
                Buckets::latency(),
            ),
            response_bytes: counter(
                "http_response_bytes_total",
                "Bytes of response bodies.",
                &["listener"],
            ),
            faults: counter(
                "http_faults_injected_total",
                "Faults injected by a route's `fault`: an abort, or a delay.",
                &["listener", "route", "kind"],
            ),
            connections: registry.gauge(
                "downstream_connections",
                "Open client connections.",
                &["listener"],
            ),
            connections_total: counter(
                "downstream_connections_total",
                "Client connections accepted.",
                &["listener"],
            ),
            ended: counter(
                "downstream_connections_ended_total",
                "TCP connections of clients closed because a changed policy no longer allows them, by reason.",
                &["listener", "reason"],
            ),
            refused: counter(
                "downstream_connections_refused_total",
                "Client connections closed before their first request or byte, by reason.",
                &["listener", "reason"],
            ),
            detected: counter(
                "downstream_protocol_detected_total",
                "Client connections whose protocol was detected from their first bytes.",
                &["listener", "protocol"],
            ),
            tcp_bytes: counter(
                "tcp_bytes_total",
                "Bytes forwarded through TCP chains and upgraded connections.",
                &["listener", "direction"],
            ),
        }
    }
}

/// Metrics of the control thread.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
    pub(crate) reload_time: Gauge,
    pub(crate) dns_failures: CounterFamily,
    pub(crate) access_log_dropped: Counter,
}

impl Control {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help, labels: &[&str]| registry.counter(name, help, labels);
        let reloads = counter(
            "config_reloads_total",
            "Configuration reloads, by result.",
            &["result"],
        );
        let reload_time = registry.gauge(
            "config_last_applied_timestamp_seconds",
            "Time when the current configuration was applied, in seconds since the Unix epoch.",
            &[],
        );
        let dropped = counter(
            "access_log_dropped_total",
            "Access log lines dropped because the file could not be written, or not fast enough.",
            &[],
        );
        Self {
            reloads: reloads.with(&["applied"]),
            reloads_failed: reloads.with(&["refused"]),
            reload_time: reload_time.with(&[]),
            dns_failures: counter(
                "dns_failures_total",
                "Failed resolutions of endpoint names.",
                &["cluster"],
            ),
            access_log_dropped: dropped.with(&[]),
        }
    }
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let registry = Registry::new(workers);
        registry.describe_process("maglor-proxy", env!("CARGO_PKG_VERSION"));
        Self {
            downstream: Downstream::new(&registry),
            upstream: Upstream::new(&registry),
            guards: Families::new(&registry),
            choices: choices::Families::new(&registry),
            queue_protocol: load_feedback::Families::new(&registry),
            mesh: mesh::Families::new(&registry),
            workers: workers::Families::new(&registry),
            identity: IdentityMetrics::new(&registry),
            control: Control::new(&registry),
            xds: XdsMetrics::new(&registry),
            registry,
        }
    }

    /// Encodes all metrics in the Prometheus text format.
    pub(crate) fn encode(&self) -> String {
        self.registry.encode()
    }

    pub(crate) fn listener(&self, listener: &str) -> Arc<ListenerMetrics> {
        let refused = |reason| self.downstream.refused.with(&[listener, reason]);
        Arc::new(ListenerMetrics {
            connections: self.downstream.connections.with(&[listener]),
            connections_total: self.downstream.connections_total.with(&[listener]),
            bytes_up: self.downstream.tcp_bytes.with(&[listener, "to_upstream"]),
            bytes_down: self.downstream.tcp_bytes.with(&[listener, "to_downstream"]),
            detected: Protocol::ALL
                .map(|protocol| self.downstream.detected.with(&[listener, protocol.name()])),
            ended_denied: self.downstream.ended.with(&[listener, "denied"]),
            ended_plain_text: self.downstream.ended.with(&[listener, "plaintext"]),
            refused_denied: refused("denied"),
            refused_descriptors: refused("descriptors"),
            refused_loop: refused("loop"),
            refused_no_chain: refused("no_filter_chain"),
            refused_proxy_protocol: refused("proxy_protocol"),
            refused_timeout: refused("timeout"),
            refused_tls: refused("tls"),
            refused_upstream: refused("no_upstream"),
            over: AtomicBool::new(false),
        })
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

    pub(crate) fn route(&self, listener: &str, route: &str) -> Arc<RouteMetrics> {
        Arc::new(RouteMetrics {
            requests: CLASSES.map(|class| self.downstream.requests.with(&[listener, route, class])),
            duration: self.downstream.request_duration.with(&[listener]),
            response_bytes: self.downstream.response_bytes.with(&[listener]),
        })
    }

    /// Returns the handles of a route that injects faults.
    pub(crate) fn faults(&self, listener: &str, route: &str) -> FaultMetrics {
        let kind = |kind| self.downstream.faults.with(&[listener, route, kind]);
        FaultMetrics {
            aborts: kind("abort"),
            delays: kind("delay"),
        }
    }

    pub(crate) fn cluster(&self, cluster: &str) -> ClusterMetrics {
        ClusterMetrics {
            requests: CLASSES.map(|class| self.upstream.requests.with(&[cluster, class])),
            duration: self.upstream.duration.with(&[cluster]),
            connections: self.upstream.connections.with(&[cluster]),
            connections_total: self.upstream.connections_total.with(&[cluster]),
            connect_failures: self.upstream.connect_failures.with(&[cluster]),
            stale_retries: self.upstream.stale_retries.with(&[cluster]),
            no_endpoint: self.upstream.no_endpoint.with(&[cluster]),
            cut_off: self.upstream.cut_off.with(&[cluster]),
            sent: self.upstream.sent.with(&[cluster]),
            bytes: self.upstream.bytes.with(&[cluster]),
            guards: self.guards.cluster(cluster),
            choices: self.choices.cluster(cluster),
        }
    }

    pub(crate) fn worker(&self, shard: usize) -> WorkerMetrics {
        self.workers.worker(shard)
    }

    /// Returns the metrics of the memory budget.
    pub(crate) fn memory(&self) -> BudgetMetrics {
        let gauge = |name, help| self.registry.gauge(name, help, &[]).with(&[]);
        let shed = self.registry.counter(
            "memory_shed_total",
            "Connections, requests and streams rejected or reset because of the memory budget, by kind.",
            &["what"],
        );
        BudgetMetrics {
            limit: gauge("memory_budget_bytes", "The memory budget; 0 = none."),
            heap: gauge("memory_heap_bytes", "Memory allocated by all threads."),
            kept: gauge("memory_kept_bytes", "Request bodies buffered for retries."),
            used: gauge("memory_used_bytes", "Memory in use, if there is a budget."),
            requests: shed.with(&["request"]),
            connections: shed.with(&["connection"]),
            bodies: shed.with(&["body"]),
            holders: shed.with(&["holder"]),
        }
    }

    /// Returns the handles of a cluster whose policy uses the queue protocol.
    pub(crate) fn queue_protocol(&self, cluster: &str) -> QueueProtocolMetrics {
        self.queue_protocol.cluster(cluster)
    }

    /// Returns the handles of a listener that reports its server's load.
    pub(crate) fn load_reporter(&self, listener: &str) -> LoadReporterMetrics {
        self.queue_protocol.load_reporter(listener)
    }

    pub(crate) fn endpoint(
        &self,
        cluster: &str,
        address: &Address,
        stats: &Arc<EndpointStats>,
    ) -> EndpointMetrics {
        let outstanding = self
            .upstream
            .outstanding
            .with(&[cluster, &address.to_string()]);
        EndpointMetrics {
            outstanding,
            stats: Arc::clone(stats),
        }
    }
}

/// Handles of a listener.
#[derive(Debug)]
pub(crate) struct ListenerMetrics {
    pub(crate) connections: Gauge,
    pub(crate) connections_total: Counter,
    pub(crate) bytes_up: Counter,
    pub(crate) bytes_down: Counter,
    detected: [Counter; Protocol::ALL.len()],
    pub(crate) ended_denied: Counter,
    pub(crate) ended_plain_text: Counter,
    pub(crate) refused_denied: Counter,
    pub(crate) refused_descriptors: Counter,
    pub(crate) refused_loop: Counter,
    pub(crate) refused_no_chain: Counter,
    pub(crate) refused_proxy_protocol: Counter,
    pub(crate) refused_timeout: Counter,
    pub(crate) refused_tls: Counter,
    pub(crate) refused_upstream: Counter,
    /// Whether connections of a removed listener have to end, because their time is over. Not a metric, but
    /// connections hold this struct for their whole life.
    over: AtomicBool,
}

impl ListenerMetrics {
    /// Counts a connection by its detected protocol.
    pub(crate) fn detected(&self, shard: usize, protocol: Protocol) {
        self.detected[protocol as usize].inc(shard);
    }

    /// Returns whether connections have to end now.
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: a connection that misses it is woken again.
        self.over.load(Ordering::Relaxed)
    }

    /// Ends all connections at their next poll.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Handles of a route.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    requests: [Counter; 6],
    duration: Histogram,
    response_bytes: Counter,
}

impl RouteMetrics {
    pub(crate) fn request(&self, shard: usize, status: StatusCode, took: Duration, bytes: u64) {
        self.requests[class(status)].inc(shard);
        self.duration.observe_duration(shard, took);
        self.response_bytes.add(shard, bytes);
    }

    /// Counts a request that could not be parsed: it has no duration.
    pub(crate) fn refused(&self, shard: usize, status: StatusCode) {
        self.requests[class(status)].inc(shard);
    }
}

/// Handles of a route that injects faults.
#[derive(Debug)]
pub(crate) struct FaultMetrics {
    pub(crate) aborts: Counter,
    pub(crate) delays: Counter,
}

/// Handles of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterMetrics {
    requests: [Counter; 6],
    duration: Histogram,
    pub(crate) connections: Gauge,
    pub(crate) connections_total: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) stale_retries: Counter,
    pub(crate) no_endpoint: Counter,
    pub(crate) cut_off: Counter,
    sent: Counter,
    bytes: Counter,
    pub(crate) guards: GuardMetrics,
    pub(crate) choices: ChoiceMetrics,
}

impl ClusterMetrics {
    pub(crate) fn request(&self, shard: usize, status: StatusCode, took: Duration) {
        self.requests[class(status)].inc(shard);
        self.duration.observe_duration(shard, took);
    }

    /// Counts bytes of a request's body, or other bytes sent to an endpoint.
    pub(crate) fn sent(&self, shard: usize, bytes: u64) {
        self.sent.add(shard, bytes);
    }

    /// Counts bytes of a connection without HTTP, both ways. Not inlined, since the relay calls it in many
    /// places.
    #[inline(never)]
    pub(crate) fn relayed(&self, shard: usize, sent: u64, received: u64) {
        self.sent(shard, sent);
        self.body(shard, received);
    }

    /// Counts bytes of a response's body, or other bytes from an endpoint.
    pub(crate) fn body(&self, shard: usize, bytes: u64) {
        self.bytes.add(shard, bytes);
    }
}

/// Handles of an endpoint.
#[derive(Debug)]
pub(crate) struct EndpointMetrics {
    outstanding: Gauge,
    stats: Arc<EndpointStats>,
}

impl EndpointMetrics {
    /// Copies values that the balancer counts; called before an exposition.
    pub(crate) fn refresh(&self) {
        self.outstanding.set(i64::from(self.stats.outstanding()));
    }
}

fn class(status: StatusCode) -> usize {
    match status.as_u16() {
        499 => 5,
        code => usize::from(code / 100).clamp(1, 5) - 1,
    }
}
