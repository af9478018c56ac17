//! Totals of a cluster's counters.

use maglor_telemetry::Counter;
use maglor_telemetry::metrics::Snapshot;

use super::ClusterMetrics;

/// Counts of a cluster since it was built.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterTotals {
    /// Number of attempts with a response other than 5xx.
    pub(crate) succeeded: u64,
    /// Number of attempts with a 5xx response or without a response.
    pub(crate) failed: u64,
    /// Number of requests without an available endpoint.
    pub(crate) dropped: u64,
    /// Response times of all attempts; `None` if there was no attempt yet.
    pub(crate) times: Option<Snapshot>,
    /// Number of bytes of bodies and connections in both directions.
    pub(crate) bytes: u64,
    /// Number of opened connections.
    pub(crate) opened: u64,
    /// Number of retries.
    pub(crate) retries: u64,
    /// Number of endpoints that are ejected now.
    pub(crate) ejected: u64,
}

impl ClusterMetrics {
    /// Reads the counters. A request that ends during this call may be included in only some of the sums; the next
    /// call includes it in all of them.
    pub(crate) fn totals(&self) -> ClusterTotals {
        let [informational, ok, redirect, refused, error, none] =
            self.requests.each_ref().map(Counter::value);
        let times = self.duration.snapshot();
        ClusterTotals {
            succeeded: informational + ok + redirect + refused,
            failed: error + none,
            dropped: self.no_endpoint.value(),
            // Most clusters of a large mesh are never used.
            times: (times.count() > 0).then_some(times),
            bytes: self.sent.value() + self.bytes.value(),
            opened: self.connections_total.value(),
            retries: self.guards.retries.value(),
            ejected: u64::try_from(self.guards.ejected.value()).unwrap_or(0),
        }
    }
}
