//! Metrics of client connections and requests, by listener and route.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use maglor_telemetry::trace_context::TraceId;
use maglor_telemetry::{
    Buckets, Counter, CounterFamily, Gauge, GaugeFamily, Histogram, HistogramFamily, Registry,
};

use super::exemplar::exemplar;
use super::status_class::{CLASSES, class};
use crate::protocol::detect::Protocol;
use crate::telemetry::record::RouteName;

/// Metric families of client connections and requests.
#[derive(Debug)]
pub(super) struct Downstream {
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
    pub(super) fn new(registry: &Registry) -> Self {
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
                "downstream_open_connections",
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

    pub(super) fn listener(&self, listener: &str) -> Arc<ListenerMetrics> {
        let refused = |reason| self.refused.with(&[listener, reason]);
        Arc::new(ListenerMetrics {
            connections: self.connections.with(&[listener]),
            connections_total: self.connections_total.with(&[listener]),
            bytes_up: self.tcp_bytes.with(&[listener, "to_upstream"]),
            bytes_down: self.tcp_bytes.with(&[listener, "to_downstream"]),
            detected: Protocol::ALL
                .map(|protocol| self.detected.with(&[listener, protocol.name()])),
            ended_denied: self.ended.with(&[listener, "denied"]),
            ended_plain_text: self.ended.with(&[listener, "plaintext"]),
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

    /// Returns the handles of a route; see [`super::Metrics::route`].
    pub(super) fn route(
        &self,
        listener: &Arc<str>,
        route: &Arc<str>,
        named: Option<RouteName>,
        from_start: bool,
    ) -> Arc<RouteMetrics> {
        let metrics = RouteMetrics {
            named,
            requests: Default::default(),
            family: self.requests.clone(),
            listener: Arc::clone(listener),
            route: Arc::clone(route),
            duration: self.request_duration.with_exemplars(&[listener]),
            response_bytes: self.response_bytes.with(&[listener]),
        };
        if from_start {
            for class in 0..CLASSES.len() {
                metrics.requests(class);
            }
        }
        Arc::new(metrics)
    }

    /// Returns the handles of a route that injects faults.
    pub(super) fn faults(&self, listener: &str, route: &str) -> FaultMetrics {
        let kind = |kind| self.faults.with(&[listener, route, kind]);
        FaultMetrics {
            aborts: kind("abort"),
            delays: kind("delay"),
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
    /// Whether the connections of a removed listener must end now, because their time to drain is over. This is not a
    /// metric, but connections hold this struct for their whole lifetime.
    over: AtomicBool,
}

impl ListenerMetrics {
    /// Counts a connection under its detected protocol.
    pub(crate) fn detected(&self, shard: usize, protocol: Protocol) {
        self.detected[protocol as usize].inc(shard);
    }

    /// Returns whether connections have to end now.
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: a connection that misses the flag is woken again.
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
    /// Names in records, which is no metric, but requests hold this struct until they end; `None` for requests that no
    /// route matches.
    pub(crate) named: Option<RouteName>,
    /// By status class.
    requests: [OnceLock<Counter>; CLASSES.len()],
    family: CounterFamily,
    listener: Arc<str>,
    route: Arc<str>,
    duration: Histogram,
    response_bytes: Counter,
}

impl RouteMetrics {
    pub(crate) fn request(&self, shard: usize, status: StatusCode, took: Duration, bytes: u64) {
        self.requests(class(status)).inc(shard);
        self.duration.observe_duration(shard, took);
        self.response_bytes.add(shard, bytes);
    }

    /// Shows a request with an exported trace as the example of its duration.
    pub(crate) fn exemplify(&self, shard: usize, took: Duration, trace_id: TraceId) {
        self.duration.exemplify(shard, exemplar(took, trace_id));
    }

    /// Counts a request that could not be parsed and therefore has no duration.
    pub(crate) fn refused(&self, shard: usize, status: StatusCode) {
        self.requests(class(status)).inc(shard);
    }

    fn requests(&self, class: usize) -> &Counter {
        let new = || {
            let class = CLASSES[class];
            self.family.with(&[&self.listener, &self.route, class])
        };
        self.requests[class].get_or_init(new)
    }
}

/// Handles of a route that injects faults.
#[derive(Debug)]
pub(crate) struct FaultMetrics {
    pub(crate) aborts: Counter,
    pub(crate) delays: Counter,
}
