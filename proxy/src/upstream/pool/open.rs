//! Counts a cluster's open connections.

use maglor_telemetry::Gauge;

use crate::net::own_connections::OwnConnection;
use crate::upstream::{Cluster, Room};

/// Exists as long as a connection to an endpoint does.
///
/// Holds no cluster: a pooled connection must not keep alive the endpoint whose going closes it.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Gauge,
    shard: usize,
    room: Room,
    _own: Option<OwnConnection>,
}

impl Open {
    /// Counts a new connection of a worker.
    pub(crate) fn new(
        cluster: &Cluster,
        shard: usize,
        room: Room,
        own: Option<OwnConnection>,
    ) -> Self {
        let metrics = cluster.metrics();
        metrics.connections.inc(shard);
        metrics.connections_total.inc(shard);
        Self {
            connections: metrics.connections.clone(),
            shard,
            room,
            _own: own,
        }
    }
}

impl Open {
    /// Nothing goes on on the connection: somebody may want its place.
    pub(in crate::upstream) fn offer(&self) {
        self.room.offer();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.dec(self.shard);
    }
}
