//! Attempts to connect to an endpoint. An attempt continues when the request that started it is cancelled, so that
//! requests with short timeouts soon find a connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::http1::Announced;
use super::multiplexed::{Slot, Turn};
use crate::net::io::Io;
use crate::protocol::error::ProxyError;
use crate::protocol::mesh_transport;
use crate::protocol::proxy_protocol::Addresses;
use crate::telemetry::metrics::Failures;
use crate::upstream::connect::Speaks;
use crate::upstream::{ClientTls, Cluster, Connection, Open, Pool, Room, Target, connect};

/// Interval at which the proxy checks whether an unresponsive endpoint is still in its cluster.
const LOOK: Duration = Duration::from_millis(200);

/// Parameters of a connection attempt, independent of the request.
pub(super) struct ConnectAttempt {
    pub(super) cluster: Arc<Cluster>,
    pub(super) target: Arc<Target>,
    /// Addresses of the client's connection for a PROXY header; `None` if it has none, or if there is no client.
    pub(super) ends: Option<Addresses>,
    /// Index of the worker.
    pub(super) shard: usize,
    pub(super) now: Instant,
    pub(super) speaks: Speaks,
    pub(super) room: Room,
}

/// A new connection.
pub(super) struct Opened {
    io: Io,
    open: Open,
    speaks: Speaks,
    announced: Option<Announced>,
    failures: Option<Arc<Failures>>,
    now: Instant,
}

/// Becomes ready some time after the endpoint has left the cluster. The address of a deleted pod does not respond at
/// all, so an attempt would otherwise wait for `connect_timeout`.
async fn left(cluster: &Cluster, target: &Arc<Target>) {
    if cluster.config().original_destination.is_some() {
        // The original destination of a client is not an endpoint that can leave.
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        if !cluster.has(target) {
            return;
        }
    }
}

impl ConnectAttempt {
    /// Connects to the endpoint.
    ///
    /// # Errors
    /// Those of [`connect()`], and [`ProxyError::EndpointLeft`] if the endpoint leaves the cluster.
    pub(super) async fn run(self) -> Result<(Io, Open), ProxyError> {
        let connecting = connect(&self.cluster, &self.target, self.ends, self.speaks);
        let connected = tokio::select! {
            biased;
            connected = connecting => connected,
            () = left(&self.cluster, &self.target) => Err(ProxyError::EndpointLeft),
        };
        if connected.is_err() {
            self.cluster.metrics().connect_failures.inc(self.shard);
        }
        let io = connected?;
        let own = self.cluster.recognised(&io);
        Ok((io, Open::new(&self.cluster, self.shard, self.room, own)))
    }

    /// Connects in a separate task. If the result is no longer awaited, the connection is put into the pool. The task
    /// holds `turn` until it ends, and returns it with the result.
    ///
    /// # Errors
    /// Those of [`connect()`].
    pub(super) async fn start(
        self,
        pool: &Rc<Pool>,
        turn: Option<Turn>,
    ) -> Result<(Opened, Option<Turn>), ProxyError> {
        let (sender, receiver) = oneshot::channel();
        // An unused pool must not be kept alive.
        let pool = Rc::downgrade(pool);
        let mesh = self.cluster.tls().and_then(ClientTls::mesh);
        let failures = mesh.map(|mesh| Arc::clone(&mesh.failures));
        let announced = self
            .cluster
            .config()
            .proxy_protocol
            .map(|_| Announced(self.ends));
        let (speaks, now) = (self.speaks, self.now);
        tokio::task::spawn_local(async move {
            let opened = self.run().await.map(|(io, open)| Opened {
                io,
                open,
                speaks,
                announced,
                failures,
                now,
            });
            let Some(pool) = pool.upgrade() else {
                return;
            };
            match &opened {
                Err(error) => pool.multiplexed.note_failure(error),
                Ok(opened) if speaks.is_chosen() => pool.multiplexed.learn(opened.is_shared()),
                Ok(_) => {}
            }
            let unwanted = sender.send(opened.map(|opened| (opened, turn)));
            if let Err(Ok((opened, _turn))) = unwanted {
                opened.keep(&pool);
            }
        });
        match receiver.await {
            Ok(opened) => opened,
            // The pool was dropped together with its endpoint.
            Err(_) => Err(ProxyError::NoHealthyUpstream),
        }
    }
}

impl Opened {
    /// Returns whether requests can share the connection.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.speaks, Speaks::Http2)
            || matches!(self.io.alpn(), Some(b"h2" | mesh_transport::ALPN))
    }

    /// Converts the connection into a shared one, and takes a slot on it.
    pub(super) fn into_slot(self, pool: &Pool, now: Instant) -> Slot {
        pool.multiplexed
            .adopt(self.io, now, self.open, self.failures)
    }

    /// Converts the connection into an HTTP/1.1 connection.
    pub(super) fn into_http1(self, pool: &Rc<Pool>) -> Box<Connection> {
        let (announced, now) = (self.announced, self.now);
        Connection::new(self.io, Rc::clone(pool), self.open, announced, now)
    }

    /// Keeps the connection for the next request.
    fn keep(self, pool: &Rc<Pool>) {
        if self.is_shared() {
            let now = self.now;
            // The slot is not needed and is released immediately.
            drop(self.into_slot(pool, now));
        } else {
            let connection = self.into_http1(pool);
            pool.put_idle(connection);
        }
    }
}
