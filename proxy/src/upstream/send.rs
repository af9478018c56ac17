//! One request to one endpoint and its response, by the protocol that the cluster speaks.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use maglor_config::cluster::UpstreamProtocol;
use tokio::time::Instant;

use super::connect::Speaks;
use super::http1::{Connection, exchange};
use super::multiplexed::{Slot, Unanswered};
use super::room::{Found, Room, Turn};
use super::{Cluster, Open, Pool, Pools, Target, connect};
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::io::{Io, Stream};
use crate::message::{Body, Interim, Request, Response};
use crate::mux;
use crate::proxy_protocol::Addresses;

/// An endpoint to send one request to.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) target: &'a Arc<Target>,
    pub(crate) pools: &'a Pools,
    /// The worker's index.
    pub(crate) shard: usize,
    pub(crate) now: Instant,
    /// The client's connection, for a PROXY header.
    pub(crate) ends: Addresses,
    /// Where informational responses go; `None` = they are dropped.
    pub(crate) interim: Option<&'a dyn Interim>,
    /// Limits on connections do not concern it.
    pub(crate) unlimited: bool,
}

/// A way to send a request.
enum Link {
    Http1(Box<Connection>),
    /// One that others use, too.
    Shared(Slot),
}

impl Sender<'_> {
    /// Sends a request and returns the response as soon as its head is there.
    pub(crate) async fn send(&self, request: &Request, body: Body) -> Result<Response, ProxyError> {
        if request.method == Method::CONNECT {
            return self.connect_tunnel().await;
        }
        let upgrading = request.fields.contains(Known::Upgrade);
        let protocol = match self.cluster.config().protocol {
            UpstreamProtocol::Downstream if request.version == Version::HTTP_2 => {
                UpstreamProtocol::Http2
            }
            protocol => protocol,
        };
        match protocol {
            UpstreamProtocol::Http2 if !upgrading => Box::pin(self.http2(request, body)).await,
            UpstreamProtocol::Auto if self.is_alone(request) => self.http1(request, body).await,
            UpstreamProtocol::Auto if !upgrading && self.cluster.tls().is_some() => {
                Box::pin(self.negotiated(request, body)).await
            }
            _ => self.http1(request, body).await,
        }
    }

    /// Whether nobody is there to share a connection with, inside the mesh, where both versions are
    /// spoken: an HTTP/2 connection takes three times the memory of an HTTP/1.1 connection. What came by
    /// HTTP/2 goes on by it, as the endpoint's proxy could not tell otherwise.
    fn is_alone(&self, request: &Request) -> bool {
        request.version < Version::HTTP_2
            && self.target.stats.outstanding() <= 1
            && self.is_in_mesh()
    }

    pub(super) fn is_in_mesh(&self) -> bool {
        self.cluster.tls().is_some_and(|tls| tls.mesh.is_some())
    }

    /// Over a pooled HTTP/1.1 connection, or a new one.
    async fn http1(&self, request: &Request, body: Body) -> Result<Response, ProxyError> {
        let pool = self.pool();
        let body = match self.pooled_http1(&pool, request, body).await? {
            ControlFlow::Break(response) => return Ok(response),
            ControlFlow::Continue(body) => body,
        };
        let connection = match Box::pin(self.room(Turn::Last, || pool.take(&self.ends))).await? {
            Found::Instead(connection) => connection,
            Found::Room(room) => {
                let (io, open) = Box::pin(self.connect(room, Speaks::Http1)).await?;
                self.as_http1(io, open, &pool)
            }
        };
        exchange(connection, request, body, self.interim).await
    }

    /// The response over a kept-alive connection, or the body back where none is left.
    async fn pooled_http1(
        &self,
        pool: &Pool,
        request: &Request,
        body: Body,
    ) -> Result<ControlFlow<Response, Body>, ProxyError> {
        // Nothing of a request without body is lost when a kept-alive connection turns out to have
        // been closed under it, and nothing happens twice where the method is idempotent.
        let repeatable = body.is_empty() && request.method.is_idempotent();
        let mut body = Some(body);
        // What has come back belongs to those who wait.
        while !pool.is_waited_for()
            && let Some(connection) = pool.take(&self.ends)
        {
            let body = body.take().unwrap_or_else(Body::empty);
            match exchange(connection, request, body, self.interim).await {
                Err(ProxyError::UpstreamClosed { reused: true }) if repeatable => {
                    self.cluster.metrics().stale_retries.inc(self.shard);
                }
                result => return result.map(ControlFlow::Break),
            }
        }
        Ok(ControlFlow::Continue(body.unwrap_or_else(Body::empty)))
    }

    fn as_http1(&self, io: Io, open: Open, pool: &Rc<Pool>) -> Box<Connection> {
        let announced = self.cluster.config().proxy_protocol.map(|_| self.ends);
        Connection::new(io, Rc::clone(pool), open, announced, self.now)
    }

    /// Over a shared HTTP/2 connection.
    async fn http2(&self, request: &Request, mut body: Body) -> Result<Response, ProxyError> {
        let pool = self.pool();
        let now = self.now;
        while let Some(slot) = pool.free_slot(now) {
            match slot.exchange(self, request, body).await {
                Err(Unanswered::NotSent(unsent)) => body = unsent,
                answered => return Ok(answered?),
            }
        }
        let slot = match self.room(Turn::Any, || pool.free_slot(now)).await? {
            Found::Instead(slot) => slot,
            Found::Room(room) => {
                let connecting = self.connect(room, Speaks::Http2);
                pool.multiplexed
                    .slot((now, pool.max_streams()), connecting)
                    .await?
            }
        };
        Ok(slot.exchange(self, request, body).await?)
    }

    /// Over whatever the endpoint agrees to by ALPN.
    async fn negotiated(&self, request: &Request, mut body: Body) -> Result<Response, ProxyError> {
        let pool = self.pool();
        let now = self.now;
        while let Some(slot) = pool.free_slot(now) {
            match slot.exchange(self, request, body).await {
                Err(Unanswered::NotSent(unsent)) => body = unsent,
                answered => return Ok(answered?),
            }
        }
        // The endpoint's proxy takes for HTTP/1.1 what comes by it.
        let never_alone = self.is_in_mesh()
            && request.version == Version::HTTP_2
            && !pool.multiplexed.is_declined();
        if !never_alone {
            match self.pooled_http1(&pool, request, body).await? {
                ControlFlow::Break(response) => return Ok(response),
                ControlFlow::Continue(unsent) => body = unsent,
            }
        }
        let free = || {
            let slot = pool.free_slot(now).map(Link::Shared);
            let http1 = || (!never_alone).then(|| pool.take(&self.ends)).flatten();
            slot.or_else(|| http1().map(Link::Http1))
        };
        let link = match self.room(Turn::Any, free).await? {
            Found::Instead(link) => link,
            Found::Room(room) => self.negotiate(room, &pool).await?,
        };
        match link {
            Link::Http1(connection) => exchange(connection, request, body, self.interim).await,
            Link::Shared(slot) => Ok(slot.exchange(self, request, body).await?),
        }
    }

    /// A connection whose protocol the endpoint chooses.
    async fn negotiate(&self, room: Room, pool: &Rc<Pool>) -> Result<Link, ProxyError> {
        // It may turn out to be one for all who wait here.
        let turn = pool.multiplexed.turn().await;
        if let Some(slot) = pool.free_slot(self.now) {
            return Ok(Link::Shared(slot));
        }
        let mesh = self.cluster.tls().and_then(|tls| tls.mesh.as_ref());
        let connecting = self.connect(room, Speaks::Negotiated);
        let (io, open) = turn.take(connecting).await?;
        let shared = matches!(io.alpn(), Some(b"h2" | mux::ALPN));
        turn.learn(shared);
        Ok(if shared {
            let failures = mesh.map(|mesh| Arc::clone(&mesh.failures));
            let adopted = pool.multiplexed.adopt(io, self.now, open, failures);
            Link::Shared(adopted.await?)
        } else {
            Link::Http1(self.as_http1(io, open, pool))
        })
    }

    /// CONNECT ends here: the endpoint gets the bytes inside.
    async fn connect_tunnel(&self) -> Result<Response, ProxyError> {
        let stream = Box::pin(self.stream()).await?;
        Ok(Response {
            status: StatusCode::OK,
            fields: Fields::default(),
            body: Body::tunnel(stream),
        })
    }

    /// A connection for bytes.
    pub(crate) async fn stream(&self) -> Result<Stream, ProxyError> {
        let nothing = || None::<Infallible>;
        let room = match self.room(Turn::Last, nothing).await? {
            Found::Room(room) => room,
            Found::Instead(never) => match never {},
        };
        let (io, open) = self.connect(room, Speaks::Bytes).await?;
        Ok(Stream {
            io,
            prefix: Bytes::new(),
            guard: Some(Box::new(open)),
        })
    }

    async fn connect(&self, room: Room, speaks: Speaks) -> Result<(Io, Open), ProxyError> {
        let connected = connect(self.cluster, self.target, self.ends, speaks).await;
        if connected.is_err() {
            self.cluster.metrics().connect_failures.inc(self.shard);
        }
        let io = connected?;
        let own = self.cluster.recognised(&io);
        Ok((io, Open::new(self.cluster, self.shard, room, own)))
    }

    fn pool(&self) -> Rc<Pool> {
        self.pools.get(self.cluster, self.target, self.now)
    }
}
