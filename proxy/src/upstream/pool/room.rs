//! Admission of connections under the limits on their number, and metrics of open connections.

use std::sync::Arc;

use maglor_balance::guard::limits::{Admission, Slots};
use maglor_telemetry::Gauge;
use tokio::time::{Instant, timeout_at};

use super::Sender;
use crate::net::own_connections::OwnConnection;
use crate::protocol::error::ProxyError;
use crate::upstream::cluster::guard::{Queue, Waiting};
use crate::upstream::{Cluster, Pools};

/// Permission for a connection, held while it is open. It holds neither the cluster nor the endpoint: an idle
/// connection must not keep alive the objects whose removal closes it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    cluster: Option<Arc<Queue>>,
    /// Boxed: every waiting request would reserve the space.
    endpoint: Option<Box<AtEndpoint>>,
}

/// One of the connections that an endpoint may have.
#[derive(Debug)]
struct AtEndpoint {
    slots: Arc<Slots>,
    /// Queue of requests that wait for a connection.
    queue: Arc<Queue>,
}

impl Drop for AtEndpoint {
    fn drop(&mut self) {
        let _ = self.slots.release();
        // The queue does not record which endpoint each entry waits for.
        self.queue.wake_all();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(cluster) = &self.cluster {
            cluster.release();
        }
    }
}

impl Room {
    /// Called when the connection becomes idle: wakes requests that wait for another connection.
    pub(super) fn offer(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.wake_all();
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.queue.wake_all();
        }
    }
}

/// Result of waiting for room.
pub(super) enum Found<T> {
    Room(Room),
    /// A result that makes a connection unnecessary.
    Instead(T),
}

/// Position of a request in the queue for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Any position: a shared connection may serve more requests than were notified of it.
    Any,
    /// At the end of the queue.
    Last,
}

impl Sender<'_> {
    /// Waits for room for a connection, or for a result of `instead`.
    ///
    /// # Errors
    /// [`ProxyError::Overflow`] if the queue is full, or [`ProxyError::QueueTimeout`].
    pub(super) async fn room<T>(
        &self,
        turn: Turn,
        instead: impl Fn() -> Option<T>,
    ) -> Result<Found<T>, ProxyError> {
        if let Some(noted) = self.noted {
            noted.needs_connection();
        }
        let queue = &self.cluster.guard().connections;
        let at_endpoint = self.cluster.config().limits.endpoint.max_connections;
        let unlimited = queue.is_unlimited() && at_endpoint.is_none();
        if unlimited || self.pools.is_unlimited {
            return Ok(Found::Room(Room::default()));
        }
        if let Some(room) = self.try_room(None) {
            return Ok(Found::Room(room));
        }
        let pool = self.pools.get(self.cluster, self.target, self.now);
        // Free room is for the requests in the queue, which have been notified.
        let mut behind = turn == Turn::Last && queue.waiting() > 0;
        let mut line = queue.line()?;
        let _waits = pool.wait();
        let deadline = Instant::now() + self.cluster.config().limits.queue_timeout;
        loop {
            // Created before the check, so that changes in between are not missed.
            let (freed, returned) = (queue.freed(), pool.returned.notified());
            if !std::mem::take(&mut behind) {
                if let Some(instead) = instead() {
                    return Ok(Found::Instead(instead));
                }
                if let Some(room) = self.try_room(Some(&mut line)) {
                    return Ok(Found::Room(room));
                }
                if !queue.is_unlimited() && self.pools.close_one_idle(self.cluster) {
                    continue;
                }
            }
            Pools::want();
            let woken = async {
                tokio::select! {
                    () = freed => (),
                    () = returned => (),
                }
            };
            if timeout_at(deadline, woken).await.is_err() {
                return Err(ProxyError::QueueTimeout);
            }
        }
    }

    /// Returns room if there is any now. Without `line`, only if no request waits for it.
    fn try_room(&self, line: Option<&mut Waiting<'_>>) -> Option<Room> {
        let mut room = Room::default();
        let queue = &self.cluster.guard().connections;
        let endpoint = &self.target.connections;
        if let Some(limit) = self.cluster.config().limits.endpoint.max_connections {
            if endpoint.admit(limit) != Admission::Admitted {
                return None;
            }
            room.endpoint = Some(Box::new(AtEndpoint {
                slots: Arc::clone(endpoint),
                queue: Arc::clone(queue),
            }));
        }
        if !queue.is_unlimited() {
            let admitted = match line {
                None => queue.admit_now(),
                Some(line) => line.claim(),
            };
            if !admitted {
                return None;
            }
            room.cluster = Some(Arc::clone(queue));
        }
        Some(room)
    }
}

/// Counts an open connection to an endpoint until dropped.
///
/// Holds no cluster: a pooled connection must not keep alive the endpoint whose removal closes it.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Arc<Gauge>,
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
            connections: Arc::clone(&metrics.connections),
            shard,
            room,
            _own: own,
        }
    }
}

impl Open {
    /// Called when the connection becomes idle, because another request may need its room.
    pub(super) fn offer(&self) {
        self.room.offer();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.dec(self.shard);
    }
}
