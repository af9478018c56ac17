//! Metrics of clusters and their endpoints. The metric families are in [`super::upstream`].

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use maglor_telemetry::trace_context::TraceId;
use maglor_telemetry::{Counter, Gauge, Histogram};

use super::choices::ChoiceMetrics;
use super::exemplar::exemplar;
use super::guards::GuardMetrics;
use super::status_class::{CLASSES, class};
use super::upstream::Upstream;

/// Handles of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterMetrics {
    pub(super) requests: [Counter; 6],
    pub(super) duration: Histogram,
    /// Each connection to an endpoint holds a reference.
    pub(crate) connections: Arc<Gauge>,
    pub(crate) connections_total: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) stale_retries: Counter,
    pub(crate) no_endpoint: Counter,
    pub(crate) cut_off: Counter,
    pub(super) sent: Counter,
    pub(super) bytes: Counter,
    pub(crate) guards: GuardMetrics,
    pub(crate) choices: ChoiceMetrics,
    /// Information about the Service, which is shown as long as the cluster exists.
    _service: Option<Gauge>,
}

impl ClusterMetrics {
    pub(super) fn new(
        families: &Upstream,
        (guards, choices): (GuardMetrics, ChoiceMetrics),
        service: Option<Gauge>,
        cluster: &str,
    ) -> Self {
        Self {
            requests: CLASSES.map(|class| families.requests.with(&[cluster, class])),
            duration: families.duration.with_exemplars(&[cluster]),
            connections: Arc::new(families.connections.with(&[cluster])),
            connections_total: families.connections_total.with(&[cluster]),
            connect_failures: families.connect_failures.with(&[cluster]),
            stale_retries: families.stale_retries.with(&[cluster]),
            no_endpoint: families.no_endpoint.with(&[cluster]),
            cut_off: families.cut_off.with(&[cluster]),
            sent: families.sent.with(&[cluster]),
            bytes: families.bytes.with(&[cluster]),
            guards,
            choices,
            _service: service,
        }
    }

    pub(crate) fn request(&self, shard: usize, status: StatusCode, took: Duration) {
        self.requests[class(status)].inc(shard);
        self.duration.observe_duration(shard, took);
    }

    /// Shows an attempt with an exported trace as the example of its duration.
    pub(crate) fn exemplify(&self, shard: usize, took: Duration, trace_id: TraceId) {
        self.duration.exemplify(shard, exemplar(took, trace_id));
    }

    /// Counts bytes of a request body, or other bytes sent to an endpoint.
    pub(crate) fn sent(&self, shard: usize, bytes: u64) {
        self.sent.add(shard, bytes);
    }

    /// Counts bytes of a non-HTTP connection in both directions. Not inlined, since the relay calls this in many
    /// places.
    #[inline(never)]
    pub(crate) fn relayed(&self, shard: usize, sent: u64, received: u64) {
        self.sent(shard, sent);
        self.body(shard, received);
    }

    /// Counts bytes of a response body, or other bytes received from an endpoint.
    pub(crate) fn body(&self, shard: usize, bytes: u64) {
        self.bytes.add(shard, bytes);
    }
}
