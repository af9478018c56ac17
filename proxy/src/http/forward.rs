//! One request to one endpoint and its response back.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http::{Method, StatusCode, Version};
use maglor_balance::{Excluded, PickCtx};
use maglor_config::cluster::UpstreamProtocol;
use maglor_config::route::{Forward, HostRewrite};
use tokio::time::Instant;

use super::hash_key::{HashKey, hash_key};
use super::record::Record;
use super::service::{RequestContext, Service};
use super::{headers, reply, rewrite};
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::io::{Io, Stream};
use crate::message::{Account, Body, Interim, Request, Response};
use crate::proxy_protocol::Addresses;
use crate::route::Route;
use crate::upstream::{self, Cluster, Connection, Open, Picked, Pool, Target, Unanswered};

/// A request on its way from a route to an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'a> {
    pub(crate) service: &'a Service,
    pub(crate) route: &'a Route,
    pub(crate) forward: &'a Forward,
    pub(crate) context: &'a RequestContext,
    /// The protocol that the client may and wants to switch to.
    pub(crate) upgrade: Option<&'a [u8]>,
}

/// Forwards a request and prepares its response for the client.
pub(crate) async fn forward(
    hop: Hop<'_>,
    mut request: Request,
    body: Body,
    record: &mut Record,
) -> Result<Response, ProxyError> {
    let worker = &hop.service.worker;
    let cluster = worker.with_rng(|rng| hop.route.cluster(hop.forward, rng).cloned());
    let cluster = cluster.ok_or(ProxyError::NoHealthyUpstream)?;
    let key = hop.hash_key(&request);
    hop.prepare(&mut request)?;

    let now = hop.context.started;
    let picked = hop.pick(&cluster, key.hash, now).ok_or_else(|| {
        cluster.metrics().no_endpoint.inc(worker.shard());
        ProxyError::NoHealthyUpstream
    })?;
    let Picked {
        target,
        outstanding,
    } = picked;
    record.upstream(&cluster, target.address, now, outstanding);
    hop.rewrite_host(&mut request, &target);

    let attempt = Attempt {
        hop,
        cluster: &cluster,
        target: &target,
    };
    let mut response = {
        let mut attempt = pin!(attempt.run(&request, body));
        poll_fn(|cx| match attempt.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => record.poll_timeout(cx).map(Err),
        })
        .await?
    };
    finish(&mut response, key, hop.upgrade.is_some(), record);
    Ok(response)
}

/// Takes off the response what concerned only the endpoint's connection.
fn finish(response: &mut Response, key: HashKey, upgrading: bool, record: &mut Record) {
    let fields = &mut response.fields;
    if upgrading && response.status == StatusCode::SWITCHING_PROTOCOLS {
        record.lift_deadline();
        let protocol = fields.get(Known::Upgrade).map(<[u8]>::to_vec);
        headers::remove_hop_by_hop(fields);
        if let Some(protocol) = protocol {
            headers::set_upgrade(fields, &protocol);
        }
        return;
    }
    headers::remove_hop_by_hop(fields);
    if let Some(cookie) = key.set_cookie {
        fields.push(Known::SetCookie, cookie.as_bytes());
    }
}

impl<'a> Hop<'a> {
    fn hash_key(&self, request: &Request) -> HashKey {
        if self.forward.hash_policy.is_empty() {
            return HashKey::default();
        }
        let policy = &self.forward.hash_policy;
        let client = &self.service.client;
        let worker = &self.service.worker;
        worker.with_rng(|rng| hash_key(policy, request, client, rng))
    }

    fn pick(&self, cluster: &Cluster, hash: Option<u64>, now: Instant) -> Option<Picked> {
        let worker = &self.service.worker;
        let excluded = Excluded::default();
        let context = PickCtx {
            now: worker.time(now),
            hash,
            excluded: &excluded,
        };
        worker.with_rng(|rng| cluster.pick(&context, rng))
    }

    /// Makes the client's request one of our own.
    fn prepare(&self, request: &mut Request) -> Result<(), ProxyError> {
        headers::keep_only_te_trailers(&mut request.fields);
        if let Some(protocol) = self.upgrade {
            headers::set_upgrade(&mut request.fields, protocol);
        }
        if request.version == Version::HTTP_2 {
            headers::join_cookies(&mut request.fields);
        }
        rewrite::path(request, self.forward, self.route)
    }

    fn rewrite_host(&self, request: &mut Request, target: &Target) {
        match &self.forward.host_rewrite {
            Some(HostRewrite::Literal(value)) => {
                request.fields.set(Known::Host, value.as_bytes());
            }
            None if request.fields.contains(Known::Host) => {}
            Some(HostRewrite::Endpoint) | None => {
                request
                    .fields
                    .set(Known::Host, target_host(target).as_bytes());
            }
        }
    }

    fn ends(&self) -> Addresses {
        Addresses {
            source: self.service.client.address,
            destination: self.service.local,
        }
    }
}

fn target_host(target: &Target) -> String {
    match &target.host {
        Some(host) => format!("{host}:{}", target.address.port()),
        None => target.address.to_string(),
    }
}

/// One try at one endpoint.
struct Attempt<'a> {
    hop: Hop<'a>,
    cluster: &'a Arc<Cluster>,
    target: &'a Arc<Target>,
}

impl Attempt<'_> {
    async fn run(self, request: &Request, body: Body) -> Result<Response, ProxyError> {
        if request.method == Method::CONNECT {
            return self.connect_tunnel().await;
        }
        let upgrading = request.fields.contains(Known::Upgrade);
        match self.cluster.config().protocol {
            UpstreamProtocol::Http2 if !upgrading => Box::pin(self.http2(request, body)).await,
            UpstreamProtocol::Auto if !upgrading && self.cluster.tls().is_some() => {
                Box::pin(self.negotiated(request, body)).await
            }
            _ => self.http1(request, body).await,
        }
    }

    /// Over a pooled HTTP/1.1 connection, or a new one.
    async fn http1(&self, request: &Request, body: Body) -> Result<Response, ProxyError> {
        let pool = self.pool();
        let body = match self.pooled_http1(&pool, request, body).await? {
            ControlFlow::Break(response) => return Ok(response),
            ControlFlow::Continue(body) => body,
        };
        let connection = self.new_http1(&pool).await?;
        upstream::exchange(connection, request, body, self.interim()).await
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
        while let Some(connection) = pool.take() {
            let body = body.take().unwrap_or_else(Body::empty);
            match upstream::exchange(connection, request, body, self.interim()).await {
                Err(ProxyError::UpstreamClosed { reused: true }) if repeatable => {
                    self.cluster.metrics().stale_retries.inc(self.shard());
                }
                result => return result.map(ControlFlow::Break),
            }
        }
        Ok(ControlFlow::Continue(body.unwrap_or_else(Body::empty)))
    }

    async fn new_http1(&self, pool: &Rc<Pool>) -> Result<Box<Connection>, ProxyError> {
        let io = Box::pin(self.connect()).await?;
        Ok(self.as_http1(io, pool))
    }

    fn as_http1(&self, io: Io, pool: &Rc<Pool>) -> Box<Connection> {
        let open = Open::new(self.cluster, self.shard());
        Connection::new(io, Rc::clone(pool), open, self.hop.context.started)
    }

    /// Over a shared HTTP/2 connection.
    async fn http2(&self, request: &Request, body: Body) -> Result<Response, ProxyError> {
        let pool = self.pool();
        let now = self.hop.context.started;
        let mut converted = self.http2_request(request, body)?;
        while let Some(slot) = pool.http2.free_slot(now) {
            match slot.exchange(converted).await {
                Err(Unanswered::NotSent(unsent)) => converted = *unsent,
                answered => return Ok(answered?),
            }
        }
        let open = || Open::new(self.cluster, self.shard());
        let slot = pool.http2.slot(now, self.connect(), open).await?;
        Ok(slot.exchange(converted).await?)
    }

    /// Over whatever the endpoint agrees to by ALPN.
    async fn negotiated(&self, request: &Request, mut body: Body) -> Result<Response, ProxyError> {
        let pool = self.pool();
        let now = self.hop.context.started;
        while let Some(slot) = pool.http2.free_slot(now) {
            match slot.exchange(self.http2_request(request, body)?).await {
                Err(Unanswered::NotSent(unsent)) => body = unsent.into_body(),
                answered => return Ok(answered?),
            }
        }
        let body = match self.pooled_http1(&pool, request, body).await? {
            ControlFlow::Break(response) => return Ok(response),
            ControlFlow::Continue(body) => body,
        };
        let io = self.connect().await?;
        if io.alpn() == Some(b"h2") {
            let open = Open::new(self.cluster, self.shard());
            let slot = pool.http2.adopt(io, now, open).await?;
            return Ok(slot.exchange(self.http2_request(request, body)?).await?);
        }
        let connection = self.as_http1(io, &pool);
        upstream::exchange(connection, request, body, self.interim()).await
    }

    /// CONNECT ends here: the endpoint gets the bytes inside.
    async fn connect_tunnel(&self) -> Result<Response, ProxyError> {
        let io = Box::pin(self.connect()).await?;
        let guard = Open::new(self.cluster, self.shard());
        let stream = Stream {
            io,
            prefix: bytes::Bytes::new(),
            guard: Some(Box::new(guard)),
        };
        Ok(reply::connected(Body::tunnel(stream)))
    }

    async fn connect(&self) -> Result<Io, ProxyError> {
        let connected = upstream::connect(self.cluster, self.target, self.hop.ends()).await;
        if connected.is_err() {
            self.cluster.metrics().connect_failures.inc(self.shard());
        }
        connected
    }

    /// The request as HTTP/2 has it.
    fn http2_request(
        &self,
        request: &Request,
        body: Body,
    ) -> Result<http::Request<Body>, ProxyError> {
        if request.fields.contains(Known::Expect) {
            // The endpoint's window says how much it takes; the client need not wait.
            if let Some(interim) = self.interim() {
                interim.send(StatusCode::CONTINUE, &Fields::default());
            }
        }
        upstream::http2_request(request, body, self.cluster.tls().is_some())
    }

    fn pool(&self) -> Rc<Pool> {
        let service = self.hop.service;
        service
            .pools
            .get(self.cluster, self.target, self.hop.context.started)
    }

    fn interim(&self) -> Option<&dyn Interim> {
        self.hop.context.interim.as_deref()
    }

    fn shard(&self) -> usize {
        self.hop.service.worker.shard()
    }
}
