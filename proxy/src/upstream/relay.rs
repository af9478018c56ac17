//! Transfers bytes between a client and an endpoint, with metrics and drain handling.

use std::time::Duration;

use crate::net::io::Stream;
use crate::net::tcp::{self, Outcome};
use crate::runtime::worker::Worker;
use crate::telemetry::metrics::{ClusterMetrics, ListenerMetrics};

/// Transfers bytes in both directions until both sides have ended, or no byte has been transferred for `idle`.
///
/// A drain does not end a relay, since the connection cannot be resumed elsewhere: it may continue until the
/// process's drain timeout. The bytes are also counted for `cluster`, which is `None` if they are counted elsewhere.
pub(crate) async fn relay(
    worker: &Worker,
    metrics: &ListenerMetrics,
    cluster: Option<&ClusterMetrics>,
    downstream: Stream,
    upstream: Stream,
    idle: Duration,
) -> Outcome {
    let shard = worker.shard();
    let outcome = tcp::tunnel(downstream, upstream, idle, |to_upstream, to_downstream| {
        metrics.bytes_up.add(shard, to_upstream);
        metrics.bytes_down.add(shard, to_downstream);
        if let Some(cluster) = cluster {
            cluster.relayed(shard, to_upstream, to_downstream);
        }
    });
    outcome.await
}
