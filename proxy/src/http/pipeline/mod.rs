//! What an HTTP connection does with each request: the pipeline.
//!
//! [`Service::handle`] is the one way in and the one way out, for HTTP/1.1 and HTTP/2 alike.

mod authorize;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Version};
use http_body::Body as _;
use maglor_config::route::RouteAction;
use tokio::time::Instant;

use super::accounting::Record;
use super::attempt::hop::Hop;
use super::connection::{RequestContext, Service};
use super::deadline::Deadline;
use super::upload::Upload;
use super::{forward, headers, path, reply, rewrite};
use crate::mesh::load_feedback::calls::Call;
use crate::mesh::load_feedback::queue_protocol::{PROTOCOL, QueueRequest};
use crate::mesh::load_feedback::reporting::{self, InFlightGuard};
use crate::net::io::Stream;
use crate::protocol::error::{ProxyError, Verdict};
use crate::protocol::fields::Known;
use crate::protocol::mesh_transport::Closed;
use crate::protocol::message::{Account, Body, Request, Response};
use crate::routing::rate_limit::RateLimitState;
use crate::routing::route::{Host, Route, Table, header_matches};
use crate::telemetry::access_log::{Ended, Entry};
use crate::upstream::relay::relay;

impl Service {
    /// Handles one request. Every outcome leaves through here, with a record in its body.
    pub(crate) async fn handle(
        &self,
        mut request: Request,
        body: Body,
        context: RequestContext,
    ) -> Response {
        if self
            .expires
            .is_some_and(|expires| expires <= context.started)
        {
            self.expired.set(true);
        }
        if !self.has_requests.replace(true) {
            self.worker.connections.mark_active(self.slot);
        }
        let grpc = request.is_grpc();
        headers::settle_host(&mut request);
        let observed = self.worker.shared().observers.any();
        let entry = observed.then(|| {
            let chain = (&self.chain.listener, self.chain.direction);
            Entry::new(&request, chain, self.client.address, self.client.peer())
        });
        // The log has the path that the client sent; rules and endpoints see the normalized one.
        path::normalize(&mut request, self.settings().path_normalization);
        let idle = self.settings().stream_idle_timeout;
        let mut record = Record::new(
            &self.worker,
            context.started,
            Rc::clone(&context.timer),
            idle,
            entry,
        );
        let table = self.chain.routes.load_full();
        let mut response = match self.authorize(&request, &table) {
            Err(denied) => self.deny(&denied, grpc, &mut record),
            Ok(()) => {
                let outcome = match self.channel_upgrade(&request) {
                    _ if self.worker.holders.refuses() => Err(ProxyError::MemoryBudget),
                    Some(response) => Ok(response),
                    None => {
                        self.dispatch(request, body, &table, &context, &mut record)
                            .await
                    }
                };
                outcome.unwrap_or_else(|error| {
                    record.fail(&error);
                    reply::error(&error, self.server(), grpc)
                })
            }
        };
        record.status(response.status);
        response.body = response.body.with_account(record);
        response
    }

    /// The answer to a proxy that wants to exchange messages about the queue of the server behind this
    /// chain.
    fn channel_upgrade(&self, request: &Request) -> Option<Response> {
        self.is_channel_upgrade(request)
            .then(reply::channel_upgrade)
    }

    fn is_channel_upgrade(&self, request: &Request) -> bool {
        self.chain.load_reporter.is_some()
            && self.trusts_queue_fields()
            && request.version == Version::HTTP_11
            && request.fields.get(Known::Upgrade) == Some(PROTOCOL)
            && request.fields.has_token(Known::Connection, "upgrade")
    }

    /// A connection of the mesh's own transport has ended.
    pub(super) fn count_closed(&self, closed: Closed) {
        if let Some(failures) = &self.chain.failures {
            failures.count(closed);
        }
    }

    /// Whether what the client says of queues is to be believed.
    fn trusts_queue_fields(&self) -> bool {
        self.chain.mesh.is_none() || self.client.peer().is_some()
    }

    /// Exchanges messages about the queue of the server behind this chain.
    pub(super) async fn serve_channel(&self, downstream: Stream) {
        let Some(load_reporter) = &self.chain.load_reporter else {
            return;
        };
        let host = reporting::Host {
            worker: &self.worker,
            idle_timeout: self.settings().idle_timeout,
            may_report: self.chain.mesh.is_none() || self.client.is_of_own_workload(),
            is_draining: &|| self.is_draining(),
        };
        reporting::serve(downstream, load_reporter, host).await;
    }

    /// A call that the application behind this proxy makes for a request.
    fn call(&self, request: &Request) -> Option<Call> {
        if self.chain.load_reporter.is_some() {
            return None;
        }
        let id = request.fields.get(Known::XRequestId)?;
        self.feedback.calls.begin(id)
    }

    /// Lets a request in at the server behind this chain, where the chain counts what is in flight
    /// there.
    ///
    /// # Errors
    /// [`ProxyError::Busy`], when its balancer wants to find the server less busy than it is.
    fn count_in_flight(
        &self,
        request: &Request,
        context: &RequestContext,
    ) -> Result<Option<InFlightGuard>, ProxyError> {
        let Some(load_reporter) = &self.chain.load_reporter else {
            return Ok(None);
        };
        let asked = QueueRequest::of(&request.fields).filter(|_| self.trusts_queue_fields());
        let here = (&self.worker, &self.feedback);
        let guard = InFlightGuard::begin(load_reporter, here, asked, context.started);
        guard.map(Some).map_err(ProxyError::Busy)
    }

    /// Route, limit, then do what the route says.
    async fn dispatch(
        &self,
        mut request: Request,
        body: Body,
        table: &Table,
        context: &RequestContext,
        record: &mut Record,
    ) -> Result<Response, ProxyError> {
        let discovered = self.discover(&request, table, context, record).await?;
        let routes = discovered.as_deref().unwrap_or(table);
        let Some((host, route)) = routes.find(&request) else {
            record.unrouted(&self.chain.unrouted);
            return match self.limit(&request, table, None, context) {
                Ok(_) => Err(ProxyError::NoRoute),
                Err(refused) => Ok(self.too_many(&request, &refused, record)),
            };
        };
        if request.method == Method::CONNECT && !self.settings().allow_connect {
            return Err(ProxyError::ConnectNotAllowed);
        }
        let interim = context.interim.as_ref();
        let (body, upload) = Upload::watch(body, &request.fields, context.started, interim);
        let action = &route.config.action;
        let deadline = Deadline::of(action, &request, upload, context.started);
        record.route(&route.metrics, deadline);
        let limit_state = match self.limit(&request, table, Some(route), context) {
            Ok(limit_state) => limit_state,
            Err(refused) => return Ok(self.too_many(&request, &refused, record)),
        };
        self.inject_fault(&request, route, record).await?;
        let mut response = match action {
            RouteAction::Direct(direct) => reply::direct(direct, self.server()),
            RouteAction::Redirect(redirect) => {
                let location =
                    rewrite::location(redirect, route, &request, (&self.client, self.ends));
                reply::redirect(redirect.status, &location, self.server())
            }
            RouteAction::Forward(forward) => {
                record.in_flight_guard(self.count_in_flight(&request, context)?);
                let upgrade = headers::upgrade_protocol(&request, &self.settings().upgrades);
                // First: `connection` may name nothing that the proxy or its operator adds.
                request.fields.remove_hop_by_hop();
                record.call(self.call(&request));
                self.rewrite_headers(&mut request, table, host, route);
                record.request_id(&request);
                let hop = Hop {
                    service: self,
                    route,
                    forward,
                    context,
                    upgrade: upgrade.as_deref(),
                };
                let mut response = forward::forward(hop, request, body, record).await?;
                record.describe_queue(&mut response.fields);
                response
            }
        };
        headers::apply(&route.config.response_headers, &mut response.fields);
        headers::apply(&host.response_headers, &mut response.fields);
        if let Some(limit_state) = limit_state {
            limit_state.describe(&mut response.fields);
        }
        Ok(response)
    }

    /// The table of where the connection was going, or of a host that the chain's own table does not
    /// have, where the chain asks for such.
    async fn discover(
        &self,
        request: &Request,
        table: &Table,
        context: &RequestContext,
        record: &mut Record,
    ) -> Result<Option<Arc<Table>>, ProxyError> {
        let Some(chain) = &self.chain.on_demand else {
            return Ok(None);
        };
        let host = request.host().unwrap_or_default();
        if table.has(host) {
            return Ok(None);
        }
        let now = self.worker.time(context.started);
        if let Some(known) = chain.recall(self.original, host, now) {
            return Ok(known.table.clone());
        }
        // On its own: it is large, and few requests wait.
        let mut found = Box::pin(chain.find(self.original, host, now));
        match record.with_deadline(found.as_mut()).await? {
            Ok(found) => Ok(found.table.clone()),
            // The connection goes where it was going, as one of bytes would, if the chain lets it.
            Err(_) if self.original.is_some() => Ok(None),
            Err(error) => {
                record.unrouted(&self.chain.unrouted);
                Err(error)
            }
        }
    }

    /// Takes a token of the listener's and of the route's rate limit: where the request stands, or
    /// which limit is against it.
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
        limit_state: &RateLimitState<'_>,
        record: &mut Record,
    ) -> Response {
        let error = ProxyError::RateLimited(limit_state.retry_after());
        record.fail(&error);
        let mut response = reply::error(&error, self.server(), request.is_grpc());
        limit_state.describe(&mut response.fields);
        response
    }

    /// Delays or fails a request because its route says so.
    async fn inject_fault(
        &self,
        request: &Request,
        route: &Route,
        record: &mut Record,
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
        if let Some(delay) = injected.delay {
            let mut delay = Box::pin(tokio::time::sleep(delay));
            record.with_deadline(delay.as_mut()).await?;
        }
        injected
            .abort
            .map_or(Ok(()), |answer| Err(ProxyError::Fault(answer)))
    }

    /// What every forwarded request gets, before the route's own changes.
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
        headers::apply(&host.request_headers, fields);
        headers::apply(&route.config.request_headers, fields);
    }

    /// The answer to a request that could not be read.
    pub(crate) fn refuse(&self, error: &ProxyError, version: Version) -> Response {
        tracing::debug!(client = %self.client.address, %error, "request refused");
        let Verdict { status, flag, .. } = error.verdict();
        self.chain.unrouted.refused(self.worker.shard(), status);
        let response = reply::error(error, self.server(), false);
        if self.worker.shared().observers.any() {
            let chain = (&self.chain.listener, self.chain.direction);
            let mut entry = Entry::unread(version, chain, self.client.address, self.client.peer());
            entry.error(error);
            let ended = Ended {
                status,
                flag,
                response_bytes: response.body.size_hint().exact().unwrap_or_default(),
                took: Duration::ZERO,
            };
            self.worker.notify_observers(&entry, ended, Instant::now());
        }
        response
    }

    /// Moves bytes between a client and an endpoint that have left HTTP behind.
    pub(crate) async fn tunnel(
        &self,
        downstream: Stream,
        upstream: Stream,
        record: Option<Box<dyn Account>>,
    ) {
        let idle = self.settings().stream_idle_timeout;
        let metrics = &self.chain.metrics;
        // The record knows the cluster.
        let outcome = relay(&self.worker, metrics, None, downstream, upstream, idle).await;
        if let Some(mut record) = record {
            record.sent(outcome.bytes_to_upstream);
            record.count(outcome.bytes_to_downstream);
            record.complete();
        }
    }

    /// The name of this server, for responses that it makes itself.
    fn server(&self) -> &str {
        &self.chain.settings.server_name
    }
}
