//! Counts a cluster's open connections.

use std::sync::Arc;

use super::Cluster;

/// Exists as long as a connection to an endpoint does.
#[derive(Debug)]
pub(crate) struct Open {
    cluster: Arc<Cluster>,
    shard: usize,
}

impl Open {
    /// Counts a new connection of a worker.
    pub(crate) fn new(cluster: &Arc<Cluster>, shard: usize) -> Self {
        cluster.metrics().connections.inc(shard);
        cluster.metrics().connections_total.inc(shard);
        Self {
            cluster: Arc::clone(cluster),
            shard,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.cluster.metrics().connections.dec(self.shard);
    }
}
