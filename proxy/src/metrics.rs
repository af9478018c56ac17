//! What the proxy counts. Names and labels are documented in docs/metrics.md.
//!
//! Families live as long as the process; handles are made when listeners, routes, clusters and
//! endpoints are built, so that a request only adds to cells it already holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use maglor_balance::EndpointStats;
use maglor_telemetry::{
    Buckets, Counter, CounterFamily, Gauge, GaugeFamily, Histogram, HistogramFamily, Registry,
};

/// Classes of statuses, the label `status`.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// Every family of the proxy.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: CounterFamily,
    request_duration: HistogramFamily,
    response_bytes: CounterFamily,
    downstream_connections: GaugeFamily,
    downstream_connections_total: CounterFamily,
    downstream_refused: CounterFamily,
    tcp_bytes: CounterFamily,
    upstream_requests: CounterFamily,
    upstream_duration: HistogramFamily,
    upstream_connections: GaugeFamily,
    upstream_connections_total: CounterFamily,
    upstream_connect_failures: CounterFamily,
    upstream_retries_reused: CounterFamily,
    upstream_no_endpoint: CounterFamily,
    endpoint_requests: GaugeFamily,
    /// Process-wide counts of the control thread.
    pub(crate) control: Control,
}

/// Counts of the control thread.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
    pub(crate) reload_time: Gauge,
    pub(crate) dns_failures: CounterFamily,
    pub(crate) access_log_dropped: Counter,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let registry = Registry::new(workers);
        registry.describe_process("maglor-proxy", env!("CARGO_PKG_VERSION"));
        let counter = |name, help, labels: &[&str]| registry.counter(name, help, labels);
        let gauge = |name, help, labels: &[&str]| registry.gauge(name, help, labels);
        let latency = |name, help, labels: &[&str]| {
            registry.histogram(name, help, labels, Buckets::latency())
        };
        let route = &["listener", "route", "status"];
        let reload = counter(
            "config_reloads_total",
            "Configurations applied or refused.",
            &["result"],
        );
        Self {
            requests: counter(
                "http_requests_total",
                "Requests answered, by route and status class; `none` = the client left first.",
                route,
            ),
            request_duration: latency(
                "http_request_duration_seconds",
                "From the end of the request's head to the last byte of the response.",
                &["listener"],
            ),
            response_bytes: counter(
                "http_response_bytes_total",
                "Bytes of response bodies.",
                &["listener"],
            ),
            downstream_connections: gauge(
                "downstream_connections",
                "Client connections that are open.",
                &["listener"],
            ),
            downstream_connections_total: counter(
                "downstream_connections_total",
                "Client connections accepted.",
                &["listener"],
            ),
            downstream_refused: counter(
                "downstream_connections_refused_total",
                "Client connections closed before their first request or byte, by reason.",
                &["listener", "reason"],
            ),
            tcp_bytes: counter(
                "tcp_bytes_total",
                "Bytes passed through TCP chains and upgraded connections.",
                &["listener", "direction"],
            ),
            upstream_requests: counter(
                "upstream_requests_total",
                "Requests sent to endpoints, by status class; `none` = no response.",
                &["cluster", "status"],
            ),
            upstream_duration: latency(
                "upstream_request_duration_seconds",
                "From the choice of the endpoint to the last byte of its response.",
                &["cluster"],
            ),
            upstream_connections: gauge(
                "upstream_connections",
                "Connections to endpoints that are open.",
                &["cluster"],
            ),
            upstream_connections_total: counter(
                "upstream_connections_total",
                "Connections made to endpoints.",
                &["cluster"],
            ),
            upstream_connect_failures: counter(
                "upstream_connect_failures_total",
                "Connections to endpoints that failed or took too long.",
                &["cluster"],
            ),
            upstream_retries_reused: counter(
                "upstream_stale_connection_retries_total",
                "Requests sent again because a kept-alive connection had been closed by its endpoint.",
                &["cluster"],
            ),
            upstream_no_endpoint: counter(
                "upstream_no_endpoint_total",
                "Requests for which no endpoint could be chosen.",
                &["cluster"],
            ),
            endpoint_requests: gauge(
                "upstream_outstanding_requests",
                "Requests sent to an endpoint whose response has not ended.",
                &["cluster", "endpoint"],
            ),
            control: Control {
                reloads: reload.with(&["applied"]),
                reloads_failed: reload.with(&["refused"]),
                reload_time: gauge(
                    "config_last_applied_timestamp_seconds",
                    "When the configuration in force was applied.",
                    &[],
                )
                .with(&[]),
                dns_failures: counter(
                    "dns_failures_total",
                    "Failed resolutions of endpoint names.",
                    &["cluster"],
                ),
                access_log_dropped: counter(
                    "access_log_dropped_total",
                    "Access log lines dropped because their file could not keep up.",
                    &[],
                )
                .with(&[]),
            },
            registry,
        }
    }

    /// The Prometheus text format.
    pub(crate) fn encode(&self) -> String {
        self.registry.encode()
    }

    pub(crate) fn listener(&self, listener: &str) -> Arc<ListenerMetrics> {
        let refused = |reason| self.downstream_refused.with(&[listener, reason]);
        Arc::new(ListenerMetrics {
            connections: self.downstream_connections.with(&[listener]),
            connections_total: self.downstream_connections_total.with(&[listener]),
            bytes_up: self.tcp_bytes.with(&[listener, "to_upstream"]),
            bytes_down: self.tcp_bytes.with(&[listener, "to_downstream"]),
            refused_no_chain: refused("no_filter_chain"),
            refused_proxy_protocol: refused("proxy_protocol"),
            refused_timeout: refused("timeout"),
            refused_tls: refused("tls"),
            refused_upstream: refused("no_upstream"),
        })
    }

    pub(crate) fn route(&self, listener: &str, route: &str) -> Arc<RouteMetrics> {
        Arc::new(RouteMetrics {
            requests: CLASSES.map(|class| self.requests.with(&[listener, route, class])),
            duration: self.request_duration.with(&[listener]),
            response_bytes: self.response_bytes.with(&[listener]),
        })
    }

    pub(crate) fn cluster(&self, cluster: &str) -> ClusterMetrics {
        ClusterMetrics {
            requests: CLASSES.map(|class| self.upstream_requests.with(&[cluster, class])),
            duration: self.upstream_duration.with(&[cluster]),
            connections: self.upstream_connections.with(&[cluster]),
            connections_total: self.upstream_connections_total.with(&[cluster]),
            connect_failures: self.upstream_connect_failures.with(&[cluster]),
            stale_retries: self.upstream_retries_reused.with(&[cluster]),
            no_endpoint: self.upstream_no_endpoint.with(&[cluster]),
        }
    }

    pub(crate) fn endpoint(
        &self,
        cluster: &str,
        address: SocketAddr,
        stats: &Arc<EndpointStats>,
    ) -> EndpointMetrics {
        let outstanding = self
            .endpoint_requests
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
    pub(crate) refused_no_chain: Counter,
    pub(crate) refused_proxy_protocol: Counter,
    pub(crate) refused_timeout: Counter,
    pub(crate) refused_tls: Counter,
    pub(crate) refused_upstream: Counter,
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
}

impl ClusterMetrics {
    pub(crate) fn request(&self, shard: usize, status: StatusCode, took: Duration) {
        self.requests[class(status)].inc(shard);
        self.duration.observe_duration(shard, took);
    }
}

/// Handles of an endpoint.
#[derive(Debug)]
pub(crate) struct EndpointMetrics {
    outstanding: Gauge,
    stats: Arc<EndpointStats>,
}

impl EndpointMetrics {
    /// Copies what the balancer counts; called before an exposition.
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
