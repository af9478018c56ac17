//! Totals of a cluster's counters.

use maglor_telemetry::Counter;
use maglor_telemetry::metrics::Snapshot;

use super::ClusterMetrics;

/// Counts of a cluster since it was built.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterTotals {
    /// Attempts with a response other than 5xx.
    pub(crate) succeeded: u64,
    /// Attempts with a 5xx response, or none.
    pub(crate) failed: u64,
    /// Requests without an available endpoint.
    pub(crate) dropped: u64,
    /// Response times of all attempts; `None` = no attempt yet.
    pub(crate) times: Option<Snapshot>,
    /// Bytes of bodies and connections, in both directions.
    pub(crate) bytes: u64,
    /// Connections opened.
    pub(crate) opened: u64,
}

impl ClusterMetrics {
    /// Reads the counters. A request that ends meanwhile may be in one of the sums and not in another; the
    /// next call has it in all of them.
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
        }
    }
}
