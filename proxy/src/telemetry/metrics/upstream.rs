//! Metric families of upstream requests and connections.

use maglor_telemetry::{Buckets, CounterFamily, GaugeFamily, HistogramFamily, Registry};

/// Metric families of upstream requests and connections.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) requests: CounterFamily,
    pub(super) duration: HistogramFamily,
    pub(super) connections: GaugeFamily,
    pub(super) connections_total: CounterFamily,
    pub(super) connect_failures: CounterFamily,
    pub(super) stale_retries: CounterFamily,
    pub(super) no_endpoint: CounterFamily,
    pub(super) cut_off: CounterFamily,
    pub(super) sent: CounterFamily,
    pub(super) bytes: CounterFamily,
}

impl Upstream {
    pub(super) fn new(registry: &Registry) -> Self {
        let cluster = &["cluster"];
        let counter = |name, help| registry.counter(name, help, cluster);
        Self {
            requests: registry.counter(
                "upstream_requests_total",
                "Requests sent to endpoints, by status class; `none` = no response.",
                &["cluster", "status"],
            ),
            duration: registry.histogram(
                "upstream_request_duration_seconds",
                "Time from the choice of the endpoint to the last byte of its response.",
                cluster,
                Buckets::latency(),
            ),
            connections: registry.gauge(
                "upstream_open_connections",
                "Open connections to endpoints.",
                cluster,
            ),
            connections_total: counter(
                "upstream_connections_total",
                "Connections made to endpoints.",
            ),
            connect_failures: counter(
                "upstream_connect_failures_total",
                "Connection attempts to endpoints that failed or timed out.",
            ),
            stale_retries: counter(
                "upstream_stale_connection_retries_total",
                "Requests sent again because their kept-alive connection had been closed.",
            ),
            no_endpoint: counter(
                "upstream_no_endpoint_total",
                "Requests for which no endpoint could be chosen.",
            ),
            cut_off: counter(
                "upstream_responses_cut_off_total",
                "Responses of endpoints that ended after their head and before their last byte.",
            ),
            sent: counter(
                "upstream_request_bytes_total",
                "Bytes sent to endpoints: request bodies, and data of TCP connections.",
            ),
            bytes: counter(
                "upstream_response_bytes_total",
                "Bytes received from endpoints: response bodies, and data of TCP connections.",
            ),
        }
    }
}
