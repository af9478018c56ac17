//! What a cluster's counters say, read as one.

use maglor_telemetry::Counter;
use maglor_telemetry::metrics::Snapshot;

use super::ClusterMetrics;

/// What a cluster has counted since it was built.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterCounts {
    /// Attempts that were answered, and not with 5xx.
    pub(crate) succeeded: u64,
    /// Attempts that were answered with 5xx, or not at all.
    pub(crate) failed: u64,
    /// Requests for which there was no endpoint.
    pub(crate) dropped: u64,
    /// The response times of all attempts; `None` = nothing was counted yet.
    pub(crate) times: Option<Snapshot>,
    /// Of bodies and connections, both ways.
    pub(crate) bytes: u64,
    /// Connections made.
    pub(crate) opened: u64,
}

impl ClusterMetrics {
    /// What was counted up to now. A request that ends meanwhile may be in one of the sums and not in
    /// another: the next time it is in all of them.
    pub(crate) fn counts(&self) -> ClusterCounts {
        let [informational, ok, redirect, refused, error, none] =
            self.requests.each_ref().map(Counter::value);
        let times = self.duration.snapshot();
        ClusterCounts {
            succeeded: informational + ok + redirect + refused,
            failed: error + none,
            dropped: self.no_endpoint.value(),
            // Most clusters of a large mesh are never called.
            times: (times.count() > 0).then_some(times),
            bytes: self.sent.value() + self.bytes.value(),
            opened: self.connections_total.value(),
        }
    }
}
