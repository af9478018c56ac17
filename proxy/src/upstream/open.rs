//! Counts a cluster's open connections.

use maglor_telemetry::Gauge;

use super::Cluster;

/// Exists as long as a connection to an endpoint does.
///
/// Holds no cluster: a pooled connection must not keep alive the endpoint whose going closes it.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Gauge,
    shard: usize,
}

impl Open {
    /// Counts a new connection of a worker.
    pub(crate) fn new(cluster: &Cluster, shard: usize) -> Self {
        let metrics = cluster.metrics();
        metrics.connections.inc(shard);
        metrics.connections_total.inc(shard);
        Self {
            connections: metrics.connections.clone(),
            shard,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.dec(self.shard);
    }
}
