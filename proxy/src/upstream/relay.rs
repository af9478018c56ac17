//! Bytes between a client and an endpoint, counted and ended with their worker.

use std::time::Duration;

use crate::net::io::Stream;
use crate::net::tcp::{self, Outcome};
use crate::runtime::worker::Worker;
use crate::telemetry::metrics::{ClusterMetrics, ListenerMetrics};

/// Moves bytes both ways until both sides have ended, or nothing has moved for `idle`.
///
/// A drain does not end a relay: what it carries cannot be resumed elsewhere. It has until the
/// process's drain timeout. `cluster` counts the bytes, too, where nobody else does.
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
