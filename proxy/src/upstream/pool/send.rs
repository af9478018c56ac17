//! Sends one request to one endpoint over the cluster's protocol, and returns the response.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use maglor_config::cluster::UpstreamProtocol;

use super::Sender;
use super::connecting::ConnectAttempt;
use super::http1::Connection;
use super::multiplexed::{Opening, Slot};
use super::room::{Found, Room, Turn};
use crate::net::io::Stream;
use crate::protocol::error::{ProxyError, Unanswered};
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::{Body, Message, Request, Response};
use crate::upstream::Pool;
use crate::upstream::connect::Speaks;

/// How a request is sent.
enum Chosen {
    /// Over a pooled HTTP/1.1 connection, or a new one.
    Http1,
    /// Over a connection that requests share, or the protocol that the endpoint chooses.
    Multiplexed(Speaks),
    /// Bytes after a CONNECT.
    Tunnel,
}

/// A connection for a request.
enum Connected {
    Http1(Box<Connection>),
    /// A connection that other requests share.
    Shared(Slot),
}

impl Sender<'_> {
    /// Sends a request and returns the response as soon as its head has arrived.
    ///
    /// The caller holds the request with its body until it is sent: each of the futures below would otherwise reserve
    /// space for it, for as long as the request waits.
    pub(crate) fn send(
        &self,
        message: &mut Message,
    ) -> impl Future<Output = Result<Response, ProxyError>> {
        async move {
            match self.protocol(&message.request) {
                Chosen::Http1 => {}
                Chosen::Multiplexed(speaks) => {
                    return Box::pin(self.multiplexed(message, speaks)).await;
                }
                Chosen::Tunnel => return self.connect_tunnel().await,
            }
            // Not in another future, which would reserve space for what it is lent.
            loop {
                // In a statement of its own: what is borrowed for it does not wait for the response.
                let idle = self.idle_http1(&self.pool());
                let retries = idle.is_some() && is_repeatable(message);
                let connection = match idle {
                    Some(connection) => connection,
                    // Boxed: few requests open a connection, and all would reserve the space of this future.
                    None => Box::pin(self.returned_or_new_http1()).await?,
                };
                let answered = self.over_http1(connection, message).await;
                if !(retries && self.was_stale(&answered)) {
                    return answered;
                }
            }
        }
    }

    fn protocol(&self, request: &Request) -> Chosen {
        if request.method == Method::CONNECT {
            return Chosen::Tunnel;
        }
        let upgrading = request.fields.contains(Known::Upgrade);
        let protocol = match self.cluster.config().protocol {
            UpstreamProtocol::Downstream if request.version == Version::HTTP_2 => {
                UpstreamProtocol::Http2
            }
            _ if self.is_grpc(request) => match self.cluster.tls() {
                Some(_) => UpstreamProtocol::Auto,
                None => UpstreamProtocol::Http2,
            },
            protocol => protocol,
        };
        match protocol {
            UpstreamProtocol::Http2 if !upgrading => Chosen::Multiplexed(Speaks::Http2),
            UpstreamProtocol::Auto if self.is_alone(request) => Chosen::Http1,
            UpstreamProtocol::Auto if !upgrading && self.cluster.tls().is_some() => {
                Chosen::Multiplexed(Speaks::Negotiated)
            }
            _ => Chosen::Http1,
        }
    }

    /// Returns whether a request inside the mesh, where both versions are supported, has no other requests to share a
    /// connection with: an HTTP/2 connection takes three times the memory of an HTTP/1.1 connection. Requests
    /// received over HTTP/2 keep this version, because the endpoint's proxy could not restore it.
    fn is_alone(&self, request: &Request) -> bool {
        request.version < Version::HTTP_2
            && self.target.stats.outstanding() <= 1
            && self.is_in_mesh()
    }

    /// Returns whether the request is a gRPC call that the configuration allows to be sent over HTTP/2; gRPC servers
    /// support no other version.
    fn is_grpc(&self, request: &Request) -> bool {
        request.version == Version::HTTP_2
            && self.cluster.config().grpc_by_http2
            && request.is_grpc()
    }

    pub(super) fn is_in_mesh(&self) -> bool {
        self.cluster.is_in_mesh()
    }

    /// Returns an idle connection. Returned connections are for the requests that wait.
    fn idle_http1(&self, pool: &Pool) -> Option<Box<Connection>> {
        match pool.is_waited_for() {
            true => None,
            false => pool.take_idle(self.ends.as_deref()),
        }
    }

    /// Returns whether the endpoint has closed a kept-alive connection before it received the request.
    fn was_stale(&self, answered: &Result<Response, ProxyError>) -> bool {
        let stale = matches!(answered, Err(ProxyError::UpstreamClosed { reused: true }));
        if stale {
            self.cluster.metrics().stale_retries.inc(self.pools.shard);
        }
        stale
    }

    /// Opens a connection, or waits until one is returned if limits are reached.
    async fn returned_or_new_http1(&self) -> Result<Box<Connection>, ProxyError> {
        let pool = self.pool();
        let returned = || pool.take_idle(self.ends.as_deref());
        match self.room(Turn::Last, returned).await? {
            Found::Instead(connection) => Ok(connection),
            Found::Room(room) => {
                let connecting = self.attempt(room, Speaks::Http1).start(&pool, None);
                let (opened, _) = connecting.await?;
                self.connected();
                Ok(opened.into_http1(&pool))
            }
        }
    }

    /// Sends over a shared connection, or over the protocol that the endpoint chooses by ALPN.
    fn multiplexed(
        &self,
        message: &mut Message,
        speaks: Speaks,
    ) -> impl Future<Output = Result<Response, ProxyError>> {
        async move {
            let pool = self.pool();
            // Both protocols are spoken here only, however the connection is found: each further place would reserve
            // space of its own.
            loop {
                let idle = self.idle(&pool, message, speaks);
                // The endpoint may be closing a connection that is not new.
                let retries = idle.is_some();
                let connected = match idle {
                    Some(connected) => connected,
                    None => Box::pin(self.returned_or_opened(&pool, message, speaks)).await?,
                };
                match connected {
                    Connected::Http1(connection) => {
                        let retries = retries && is_repeatable(message);
                        let answered = self.over_http1(connection, message).await;
                        if !(retries && self.was_stale(&answered)) {
                            return answered;
                        }
                    }
                    Connected::Shared(slot) => match slot.round_trip(self, message).await {
                        Err(Unanswered::NotSent) if retries => {}
                        answered => return Ok(answered?),
                    },
                }
            }
        }
    }

    /// Returns whether a request needs a connection that requests share.
    fn needs_shared(&self, pool: &Pool, request: &Request, speaks: Speaks) -> bool {
        // The endpoint's proxy would treat the request as HTTP/1.1, and a gRPC server would reject it.
        !speaks.is_chosen()
            || request.version == Version::HTTP_2
                && (self.is_in_mesh() || self.is_grpc(request))
                && !pool.multiplexed.is_declined()
    }

    /// Returns a connection that is open and has room for a request; `None` if there is none.
    fn idle(&self, pool: &Pool, message: &Message, speaks: Speaks) -> Option<Connected> {
        let credit = !message.body.is_empty();
        if let Some(slot) = pool.free_slot(self.now, credit) {
            return Some(Connected::Shared(slot));
        }
        match self.needs_shared(pool, &message.request, speaks) {
            true => None,
            false => self.idle_http1(pool).map(Connected::Http1),
        }
    }

    /// Opens a connection, or waits until one is returned if limits are reached.
    async fn returned_or_opened(
        &self,
        pool: &Rc<Pool>,
        message: &Message,
        speaks: Speaks,
    ) -> Result<Connected, ProxyError> {
        let needs_shared = self.needs_shared(pool, &message.request, speaks);
        // If no further connection is allowed, one without credit is better than none.
        let free = || {
            let slot = pool.free_slot(self.now, false).map(Connected::Shared);
            let http1 = || match needs_shared {
                true => None,
                false => pool.take_idle(self.ends.as_deref()),
            };
            slot.or_else(|| http1().map(Connected::Http1))
        };
        match self.room(Turn::Any, free).await? {
            Found::Instead(connected) => Ok(connected),
            Found::Room(room) => {
                let credit = !message.body.is_empty();
                self.open(room, pool, speaks, credit).await
            }
        }
    }

    /// Opens a connection that requests share or whose protocol the endpoint chooses.
    async fn open(
        &self,
        room: Room,
        pool: &Rc<Pool>,
        speaks: Speaks,
        credit: bool,
    ) -> Result<Connected, ProxyError> {
        // The new connection may be shared by all requests that wait here.
        let Opening { turn, before } = pool.multiplexed.turn().await;
        if let Some(slot) = pool.free_slot(self.now, credit) {
            return Ok(Connected::Shared(slot));
        }
        pool.multiplexed.share_failure(before)?;
        let connecting = self.attempt(room, speaks).start(pool, turn);
        let (opened, _turn) = connecting.await?;
        self.connected();
        Ok(match opened.is_shared() {
            true => Connected::Shared(opened.into_slot(pool, self.now)),
            false => Connected::Http1(opened.into_http1(pool)),
        })
    }

    /// Terminates CONNECT: the bytes of the tunnel are forwarded to the endpoint.
    async fn connect_tunnel(&self) -> Result<Response, ProxyError> {
        let stream = Box::pin(self.stream()).await?;
        Ok(Response {
            status: StatusCode::OK,
            fields: Fields::default(),
            body: Body::tunnel(stream),
        })
    }

    /// Opens a connection for a TCP tunnel.
    pub(crate) async fn stream(&self) -> Result<Stream, ProxyError> {
        let nothing = || None::<Infallible>;
        let room = match self.room(Turn::Last, nothing).await? {
            Found::Room(room) => room,
            Found::Instead(never) => match never {},
        };
        let (io, open) = self.attempt(room, Speaks::Bytes).run().await?;
        Ok(Stream {
            io,
            prefix: Bytes::new(),
            guard: Some(Box::new(open)),
        })
    }

    fn attempt(&self, room: Room, speaks: Speaks) -> ConnectAttempt {
        if let Some(noted) = self.noted {
            noted.connects();
        }
        ConnectAttempt {
            cluster: Arc::clone(self.cluster),
            target: Arc::clone(self.target),
            ends: self.ends.as_deref().copied(),
            shard: self.pools.shard,
            now: self.now,
            speaks,
            room,
        }
    }

    fn connected(&self) {
        if let Some(noted) = self.noted {
            noted.connected();
        }
    }

    fn pool(&self) -> Rc<Pool> {
        self.pools.get(self.cluster, self.target, self.now)
    }
}

/// Returns whether a request can be sent again after the endpoint has closed a kept-alive connection: without a body,
/// nothing of it is lost, and an idempotent method is safe to repeat.
fn is_repeatable(message: &Message) -> bool {
    message.body.is_empty() && message.request.method.is_idempotent()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the size of the future of a request over a shared connection, which is a block of its own.
    #[test]
    fn the_future_of_a_shared_connections_request_stays_within_a_block() {
        fn size<'a, F>(_: impl FnOnce(&'a Sender<'a>, &'a mut Message, Speaks) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Sender::multiplexed);
        assert!(size <= 256, "{size} bytes");
    }
}
