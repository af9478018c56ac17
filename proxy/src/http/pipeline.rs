//! The phases of a request, in their order. Read this file first.
//!
//! [`Service::handle`] is the only entry and the only exit for all versions of HTTP:
//!
//! 1. *begin*: the accounting record of the request is opened ([`super::accounting`]), and the path is normalized;
//! 2. *authorize*: the listener's rules ([`super::authorize`]);
//! 3. *discover*: the route table of a destination that is not known yet;
//! 4. *route*: the virtual host and the route;
//! 5. *limit*: rate limits of listener and route, then the route's fault;
//! 6. *forward*: header fields, cluster, attempts ([`super::forward`], [`super::attempt`]); or a direct response or
//!    redirect;
//! 7. *respond*: header fields of the response; the record is attached to its body and closed with the last
//!    byte.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Version};
use http_body::Body as _;
use maglor_config::route::{Forward, RouteAction};
use tokio::time::Instant;

use super::accounting::Accounting;
use super::connection::{Hop, RequestContext, Service, Upgrade};
use super::deadline::Deadline;
use super::recording::Recording;
use super::story::Ended;
use super::upload::Upload;
use super::{forward, headers, reply, rewrite_path};
use crate::net::io::Stream;
use crate::protocol::error::{ProxyError, Verdict};
use crate::protocol::mesh_transport::Closed;
use crate::protocol::message::{Account, Message, Request, Response};
use crate::routing::rate_limit::RateLimitState;
use crate::routing::route::{Host, Route, Table, header_matches};
use crate::upstream::relay::relay;

/// A request in the pipeline. Whatever cancels it, its text is known to the record of its end.
///
/// The phases are lent this one value: each further reference would be kept in their futures while the request waits.
struct Pending<'a> {
    service: &'a Rc<Service>,
    context: &'a RequestContext,
    message: &'a mut Message,
    /// `None` before the first use, and once the response has it.
    accounting: Option<Box<Accounting>>,
}

impl Pending<'_> {
    /// Returns the request, and its accounting record, which is opened by the first call.
    fn parts(&mut self) -> (&mut Message, &mut Accounting) {
        let accounting = self.accounting.get_or_insert_with(|| {
            let idle = self.service.settings().stream_idle_timeout;
            let timer = self.context.timer.clone();
            Accounting::new(self.service, self.context.started, timer, idle)
        });
        (self.message, accounting)
    }

    /// Returns the accounting record, for the body of the response.
    fn end(mut self) -> Option<Box<Accounting>> {
        let mut accounting = self.accounting.take()?;
        accounting.keep(&mut self.message.request);
        Some(accounting)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(accounting) = &mut self.accounting {
            accounting.keep(&mut self.message.request);
        }
    }
}

impl Service {
    /// Handles one request. Every outcome is returned here, with the accounting record in its body.
    ///
    /// The caller holds the request. Otherwise each of the futures from here to the endpoint would reserve space for
    /// a copy, for as long as the request waits.
    pub(crate) fn handle<'a>(
        self: &'a Rc<Self>,
        message: &'a mut Message,
        context: &'a RequestContext,
    ) -> impl Future<Output = Response> {
        // Here, not in the future, which would reserve space for the arguments, too.
        let mut pending = Pending {
            service: self,
            context,
            message,
            accounting: None,
        };
        async move {
            let service = pending.service;
            service.note_arrival(pending.context);
            let (message, accounting) = pending.parts();
            let request = &mut message.request;
            let grpc = request.is_grpc();
            headers::settle_host(request);
            accounting.begin_record(request, grpc);
            // The log contains the path as the client sent it; rules and endpoints get the normalized path.
            rewrite_path::normalize(request, service.settings().path_normalization);
            let table = service.chain.routes.load_full();
            let outcome = if let Err(denied) = service.authorize(request, &table) {
                Ok(service.deny(&denied, grpc, accounting))
            } else if service.worker.holders.refuses() {
                Err(ProxyError::MemoryBudget)
            } else if let Some(response) = service.channel_upgrade(request) {
                if let Some(recording) = accounting.recording() {
                    recording.internal();
                }
                Ok(response)
            } else {
                pending.dispatch(&table).await
            };
            let server = pending.service.server();
            let (_, accounting) = pending.parts();
            let mut response = outcome.unwrap_or_else(|error| {
                accounting.fail(&error);
                accounting.limit_refusal();
                reply::error(&error, server, grpc)
            });
            accounting.status(response.status);
            if let Some(accounting) = pending.end() {
                response.body = response.body.with_account(accounting);
            }
            response
        }
    }

    /// Notes that a request has arrived: its connection may have reached its age, and is no longer a new one.
    fn note_arrival(&self, context: &RequestContext) {
        if self
            .expires
            .is_some_and(|expires| expires <= context.started)
        {
            self.expired.set(true);
        }
        if !self.has_requests.replace(true) {
            self.worker.connections.mark_active(self.slot);
        }
    }

    /// Counts the end of a connection of the mesh transport.
    pub(super) fn count_closed(&self, closed: Closed) {
        if let Some(failures) = &self.chain.failures {
            failures.count(closed);
        }
    }
}

impl Pending<'_> {
    /// Finds the route, applies the limits, and performs the route's action. `table` has the routes of the listener.
    fn dispatch(&mut self, table: &Table) -> impl Future<Output = Result<Response, ProxyError>> {
        async move {
            let discovered = self.discover(table).await?;
            let routes = discovered.as_deref().unwrap_or(table);
            let (service, context) = (self.service, self.context);
            let (message, accounting) = self.parts();
            let Some((host, route)) = routes.find(&message.request) else {
                accounting.unrouted(&service.chain.unrouted);
                return match service.limit(&message.request, table, None, context) {
                    Ok(_) => Err(ProxyError::NoRoute),
                    Err(refused) => {
                        Ok(service.too_many(&message.request, None, &refused, accounting))
                    }
                };
            };
            let Message { request, body } = &mut *message;
            if request.method == Method::CONNECT && !service.settings().allow_connect {
                return Err(ProxyError::ConnectNotAllowed);
            }
            let interim = context.interim.as_ref();
            let upload = Upload::watch(body, &request.fields, context.started, interim);
            let deadline = Deadline::of(&route.config.action, request, upload, context.started);
            accounting.route(&route.metrics, deadline);
            let limit_state = match service.limit(request, table, Some(route), context) {
                // Boxed: every waiting request would reserve the space.
                Ok(limit_state) => limit_state.map(Box::new),
                Err(refused) => {
                    return Ok(service.too_many(request, Some(route), &refused, accounting));
                }
            };
            service
                .inject_fault(&message.request, route, accounting)
                .await?;
            let mut response = match &route.config.action {
                RouteAction::Direct(direct) => reply::direct(direct, self.service.server()),
                RouteAction::Redirect(redirect) => {
                    let ends = (&self.service.client, self.service.ends());
                    let request = &self.message.request;
                    let location = rewrite_path::location(redirect, route, request, ends);
                    reply::redirect(redirect.status, &location, self.service.server())
                }
                RouteAction::Forward(forward) => {
                    let hop = self.next_hop(table, host, route, forward)?;
                    let (message, accounting) = self.parts();
                    let mut response = forward::forward(&hop, message, accounting).await?;
                    self.parts().1.describe_queue(&mut response.fields);
                    response
                }
            };
            headers::apply(
                route.config.response_headers.as_deref(),
                &mut response.fields,
            );
            headers::apply(host.response_headers.as_deref(), &mut response.fields);
            if let Some(limit_state) = limit_state {
                limit_state.describe(&mut response.fields);
            }
            Ok(response)
        }
    }

    /// Prepares the request for being forwarded by a route.
    ///
    /// # Errors
    /// [`ProxyError::Busy`].
    fn next_hop<'h>(
        &mut self,
        table: &Table,
        host: &Host,
        route: &'h Route,
        forward: &'h Forward,
    ) -> Result<Hop<'h>, ProxyError>
    where
        Self: 'h,
    {
        let (service, context) = (self.service, self.context);
        let (Message { request, .. }, accounting) = self.parts();
        accounting.in_flight_guard(service.count_in_flight(request, context)?);
        let upgrade = headers::upgrade_protocol(request, &service.settings().upgrades)
            .map(|protocol| Box::new(Upgrade(protocol)));
        // Done first, so that `connection` cannot name a field that the proxy or its operator adds.
        request.fields.remove_hop_by_hop();
        accounting.call(service.call(request));
        service.rewrite_headers(request, table, host, route);
        accounting.request_id(request);
        Ok(Hop {
            service,
            route,
            forward,
            context,
            upgrade,
            record: accounting.record().cloned(),
        })
    }

    /// Returns the routes of the original destination, or of a host that is not in the chain's own table, if
    /// the chain discovers them on demand.
    async fn discover(&mut self, table: &Table) -> Result<Option<Arc<Table>>, ProxyError> {
        let service = self.service;
        let Some(chain) = &service.chain.on_demand else {
            return Ok(None);
        };
        let host = self.message.request.host().unwrap_or_default();
        if table.has(host) {
            return Ok(None);
        }
        let now = service.worker.time(self.context.started);
        if let Some(known) = chain.recall(service.original(), host, now) {
            return Ok(known.table.clone());
        }
        let (message, accounting) = self.parts();
        let host = message.request.host().unwrap_or_default();
        // Boxed: the future is large, and few requests wait.
        let mut found = Box::pin(chain.find(service.original(), host, now));
        match accounting.with_deadline(found.as_mut()).await? {
            Ok(found) => Ok(found.table.clone()),
            // The connection is forwarded to its original destination like plain TCP, if the chain permits this.
            Err(_) if service.redirected => Ok(None),
            Err(error) => {
                accounting.unrouted(&service.chain.unrouted);
                Err(error)
            }
        }
    }
}

impl Service {
    /// Takes a token of the rate limits of the listener and the route. Returns the state of the limit, as an
    /// error if it is exhausted.
    fn limit<'a>(
        &self,
        request: &Request,
        table: &'a Table,
        route: Option<&'a Route>,
        context: &RequestContext,
    ) -> Result<Option<RateLimitState<'a>>, RateLimitState<'a>> {
        let mut last = None;
        let of_route = route.and_then(|route| route.rate_limit.as_ref());
        for limiter in table.rate_limit.as_ref().into_iter().chain(of_route) {
            let client = self.client.address.ip();
            let now = self.worker.time(context.started);
            let limit_state = limiter.take(request, client, now);
            if !limit_state.is_allowed() {
                return Err(limit_state);
            }
            last = Some(limit_state);
        }
        Ok(last)
    }

    fn too_many(
        &self,
        request: &Request,
        route: Option<&Route>,
        limit_state: &RateLimitState<'_>,
        accounting: &mut Accounting,
    ) -> Response {
        let error = ProxyError::RateLimited(limit_state.retry_after());
        accounting.fail(&error);
        if let Some(recording) = accounting.recording() {
            let of_route = route.filter(|route| {
                let limiter = route.rate_limit.as_ref();
                limiter.is_some_and(|limiter| limiter.is_of(limit_state))
            });
            let whose = match of_route {
                Some(route) => format!("route `{}`", route.config.name),
                None => format!("listener `{}`", self.chain.listener),
            };
            recording.rule("rate_limit", format!("{whose} ({})", limit_state.params()));
        }
        let mut response = reply::error(&error, self.server(), request.is_grpc());
        limit_state.describe(&mut response.fields);
        response
    }

    /// Delays or fails a request according to the route's fault injection.
    async fn inject_fault(
        &self,
        request: &Request,
        route: &Route,
        accounting: &mut Accounting,
    ) -> Result<(), ProxyError> {
        let Some(fault) = &route.config.fault else {
            return Ok(());
        };
        let wanted = |header| header_matches(header, &request.fields);
        if !fault.headers.iter().all(wanted) {
            return Ok(());
        }
        let injected = self.worker.with_rng(|rng| fault.params.decide(rng));
        if let Some(counts) = &route.faults {
            let shard = self.worker.shard();
            counts.delays.add(shard, injected.delay.is_some().into());
            counts.aborts.add(shard, injected.abort.is_some().into());
        }
        if let Some(recording) = accounting.recording()
            && (injected.delay.is_some() || injected.abort.is_some())
        {
            recording.rule("fault", format!("route `{}`", route.config.name));
            recording.delayed(injected.delay.unwrap_or_default());
        }
        if let Some(delay) = injected.delay {
            let mut delay = Box::pin(tokio::time::sleep(delay));
            accounting.with_deadline(delay.as_mut()).await?;
        }
        injected
            .abort
            .map_or(Ok(()), |answer| Err(ProxyError::Fault(answer)))
    }

    /// Applies the header changes of every forwarded request, before those of the route.
    fn rewrite_headers(&self, request: &mut Request, table: &Table, host: &Host, route: &Route) {
        let settings = self.settings();
        headers::add_forwarded(request, &self.client, settings);
        let asserted = self.asserted_client(request, table).ok().flatten();
        let element = self.client.element(asserted.as_ref());
        let fields = &mut request.fields;
        headers::set_client_cert(fields, element.as_deref(), settings.client_cert);
        if settings.request_id {
            self.worker
                .with_rng(|rng| headers::set_request_id(fields, settings, rng));
        }
        headers::apply(host.request_headers.as_deref(), fields);
        headers::apply(route.config.request_headers.as_deref(), fields);
    }

    /// Returns the response to a request that could not be parsed.
    pub(crate) fn refuse(&self, error: &ProxyError, version: Version) -> Response {
        tracing::debug!(client = %self.client.address, %error, "request rejected");
        let Verdict { status, flag, .. } = error.verdict();
        self.chain.unrouted.refused(self.worker.shard(), status);
        let response = reply::error(error, self.server(), false);
        if let Some(mut recording) = Recording::unread(self, version) {
            recording.fail(error, None);
            let now = Instant::now();
            let ended = Ended {
                status,
                flag,
                response_bytes: response.body.size_hint().exact().unwrap_or_default(),
                started: now,
                begun: None,
                received: None,
                responded: Some(now),
                ended: now,
                took: Duration::ZERO,
            };
            recording.report(self, None, None, &ended);
            recording.recycle(&self.worker);
        }
        response
    }

    /// Relays bytes between a client and an endpoint that have switched from HTTP to another protocol.
    pub(crate) async fn tunnel(
        &self,
        downstream: Stream,
        upstream: Stream,
        accounting: Option<Box<dyn Account>>,
    ) {
        let idle = self.settings().stream_idle_timeout;
        let metrics = &self.chain.metrics;
        // The accounting record counts the bytes for the cluster.
        let outcome = relay(&self.worker, metrics, None, downstream, upstream, idle).await;
        if let Some(mut accounting) = accounting {
            accounting.sent(outcome.bytes_to_upstream);
            accounting.count(outcome.bytes_to_downstream);
            accounting.complete();
        }
    }

    /// Returns the value of the `server` field for responses that the proxy generates.
    pub(super) fn server(&self) -> &str {
        &self.chain.settings.server_name
    }
}
