//! The attempts of one request: choose an endpoint, send the request, evaluate the outcome, and retry at another
//! endpoint if needed.
//!
//! The decisions are made in [`maglor_balance::guard::retry`]. This module holds the data for these decisions: the
//! replayable body, the attempted endpoints, and the clock.

pub(super) mod accounting;
mod body;
mod consult;
mod hedge;
mod mirror;
mod replay;
mod sending;
mod timeout;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use http_body::Body as _;
use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::retry::{self, Answer, Decision, Outcome, Pushback, RetryPolicy};
use maglor_balance::guard::retry_budget::RetryPermit;
use tokio::time::Instant;

use self::accounting::Attempt;
use self::body::{Payload, Reserved};
use self::hedge::Racing;
use self::sending::Sending;
use super::connection::{Hop, Service};
use super::deadline::{self, Deadline};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::{Message, Response};
use crate::telemetry::record::Record;
use crate::upstream::{Cluster, ClusterSlot, Picked};

/// Maximum number of bytes of an unused response that are read so that its connection can be reused.
const DISCARD: usize = 64 * 1024;

/// The attempts of one request.
pub(super) struct Attempts<'a> {
    hop: &'a Hop<'a>,
    cluster: &'a Arc<Cluster>,
    /// Whether the request has a hash, and which: an `Option` takes more space.
    has_hash: bool,
    hash: u64,
    /// Deadline for the response to the client.
    deadline: &'a Deadline,
    /// The request, and the body that is sent next, if it can be sent.
    message: &'a mut Message,
    idempotent: bool,
    /// Number of this proxy's first attempt, among those of all proxies on the way.
    first: u32,
    grpc: bool,
    payload: Payload,
    /// Memory reserved for the body; `None` if it need not be kept.
    _reserved: Option<Box<Reserved>>,
    state: retry::Attempts,
    /// `None` while none has failed. Boxed: every waiting request reserves the space.
    failed_endpoints: Option<Box<FailedEndpoints>>,
}

/// Target ids of endpoints that have failed.
#[derive(Default)]
struct FailedEndpoints(Vec<u64>);

/// A further attempt.
struct NextAttempt {
    decided: Instant,
    /// The pause before it.
    after: Duration,
    permit: Option<RetryPermit>,
}

/// Resources of a request in progress.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) slot: Option<ClusterSlot>,
    /// The latest attempt; `None` before the first one.
    pub(super) attempt: Option<Attempt>,
    /// Concurrent attempts, if the route hedges.
    pub(super) racing: Option<Box<Racing>>,
}

impl Progress {
    /// Returns whether the result of the latest attempt is that of the request.
    pub(super) fn is_answering(&self) -> bool {
        self.attempt.as_ref().is_some_and(Attempt::is_answering)
    }
}

impl<'a> Attempts<'a> {
    pub(super) fn new(
        hop: &'a Hop<'a>,
        cluster: &'a Arc<Cluster>,
        hash: Option<u64>,
        message: &'a mut Message,
        deadline: &'a Deadline,
    ) -> Self {
        let Message { request, body } = &mut *message;
        let policy = &hop.forward.retry.policy;
        let worker = &hop.service.worker;
        let idempotent = retry::is_idempotent(request.method.as_str())
            || request.fields.contains(Known::IdempotencyKey);
        let first = attempt_number(&request.fields);
        let copies = mirror::chosen(hop, request);
        let consults = cluster.queue_protocol().is_some();
        let kept = policy.is_on() || hop.forward.hedge.is_some() || !copies.is_empty() || consults;
        let limit = hop.forward.request_buffer_limit;
        let reserved = kept
            .then(|| Reserved::new(body, limit, worker.shared()))
            .flatten()
            .map(Box::new);
        // A body that cannot be kept cannot be mirrored.
        let copies = if reserved.is_some() || body.is_empty() {
            &copies[..]
        } else {
            &[]
        };
        let payload = Payload::new(body, reserved.is_some(), limit);
        mirror::send(hop, copies, request, payload.replay(), deadline);
        Self {
            hop,
            cluster,
            has_hash: hash.is_some(),
            hash: hash.unwrap_or_default(),
            deadline,
            idempotent,
            first,
            grpc: request.is_grpc(),
            message,
            payload,
            _reserved: reserved,
            state: retry::Attempts::new(),
            failed_endpoints: None,
        }
    }

    /// Makes attempts until there is a response for the client, or no further attempt is possible.
    ///
    /// `progress` always holds the resources in use, so that a caller that stops waiting can release them.
    pub(super) fn run(
        &mut self,
        progress: &mut Progress,
    ) -> impl Future<Output = Result<Response, ProxyError>> {
        async move {
            let worker = &self.hop.service.worker;
            let arrived = worker.time(self.hop.context.started);
            progress.slot = Some(ClusterSlot::enter(self.cluster, arrived).await?);
            // Not before, where it would be kept while the request waits.
            let mut now = self.hop.context.started;
            if progress.slot.as_ref().is_some_and(ClusterSlot::has_waited) {
                self.note_wait(now);
            }
            let mut permit = None;
            loop {
                let cluster = self.cluster;
                // Boxed: few requests are hedged or consult servers.
                let result = match (&self.hop.forward.hedge, cluster.queue_protocol()) {
                    (None, None) => {
                        let (picked, now) = self.choose_in_turn(now).await?;
                        let attempt = self.begin_attempt(picked, now, permit.take());
                        let attempt = progress.attempt.insert(attempt);
                        let limit = self.attempt_deadline(now);
                        let sending = self.sending(attempt, limit);
                        sending.send(self.message, attempt).await
                    }
                    (None, Some(metrics)) => {
                        Box::pin(self.consult(metrics, progress, now, permit.take())).await?
                    }
                    (Some(hedge), _) => {
                        Box::pin(self.hedged(hedge, progress, now, permit.take())).await?
                    }
                };
                let next = match self.conclude(result, progress) {
                    ControlFlow::Break(result) => return result,
                    ControlFlow::Continue(next) => next,
                };
                (now, permit) = (next.decided, next.permit);
                if next.after > Duration::ZERO {
                    Box::pin(tokio::time::sleep(next.after)).await;
                    now = Instant::now();
                }
            }
        }
    }

    /// Decides what follows the result of an attempt: the response to the client (`Break`), or another attempt.
    fn conclude(
        &mut self,
        result: Result<Response, ProxyError>,
        progress: &mut Progress,
    ) -> ControlFlow<Result<Response, ProxyError>, NextAttempt> {
        let Some(attempt) = &mut progress.attempt else {
            return ControlFlow::Break(self.last(result));
        };
        let next = match self.outcome(&result) {
            Some(outcome) if self.policy().covers(&outcome) => {
                self.next(&outcome, attempt.target().id, Instant::now())
            }
            _ => None,
        };
        let Some(next) = next else {
            return ControlFlow::Break(self.last(result));
        };
        match result {
            Ok(response) => discard(response),
            Err(error) => attempt.failed(&error),
        }
        progress.attempt = None;
        ControlFlow::Continue(next)
    }

    /// Returns the final result, and stops keeping the body for further attempts.
    fn last(&self, result: Result<Response, ProxyError>) -> Result<Response, ProxyError> {
        if let Some(replay) = self.payload.replay() {
            replay.abandon();
        }
        result
    }

    /// Chooses an endpoint for an attempt.
    pub(super) fn pick(
        &self,
        now: Instant,
        permit: Option<RetryPermit>,
    ) -> Result<Attempt, ProxyError> {
        Ok(self.begin_attempt(self.choose(now)?, now, permit))
    }

    /// Returns the endpoint that the policy chooses from the local data of this proxy.
    pub(super) fn choose(&self, now: Instant) -> Result<Picked, ProxyError> {
        let worker = &self.hop.service.worker;
        let time = worker.time(now);
        worker.with_rng(|rng| {
            let record = self.hop.record.as_deref();
            self.cluster
                .pick_noted(time, self.hash(), (self.failed_endpoints(), record), rng)
        })
    }

    /// Like [`Self::choose`], but waits while all endpoints have reached their limit of requests.
    async fn choose_in_turn(&self, now: Instant) -> Result<(Picked, Instant), ProxyError> {
        let guard = self.cluster.guard();
        let chosen = guard.when_admitted(now, |now| self.choose(now)).await?;
        if chosen.1 != now {
            self.note_wait(now);
        }
        Ok(chosen)
    }

    /// Notes that the request has waited in a queue since an instant.
    #[cold]
    fn note_wait(&self, since: Instant) {
        if let Some(record) = &self.hop.record {
            record.unusual().queued += since.elapsed();
        }
    }

    pub(super) fn begin_attempt(
        &self,
        picked: Picked,
        now: Instant,
        permit: Option<RetryPermit>,
    ) -> Attempt {
        let worker = &self.hop.service.worker;
        let count = self.state.count();
        let mut attempt = Attempt::new(worker, self.cluster, picked, count, now, permit);
        if let Some(record) = &self.hop.record {
            attempt.record(record);
            // Attempts in parallel share no notes of their connections and candidates.
            if self.hop.forward.hedge.is_some() {
                attempt.note();
            }
        }
        if self.deadline.is_hurried() {
            attempt.hurry();
        }
        attempt
    }

    /// Prepares the request and its body for their sending to the endpoint of an attempt, which has this deadline of its
    /// own.
    fn sending(&mut self, attempt: &Attempt, limit: Option<Box<Deadline>>) -> Sending<'a> {
        self.mark(attempt, attempt.started());
        self.payload.restore(&mut self.message.body);
        Sending {
            hop: self.hop,
            limit,
            held: self.deadline.held(),
        }
    }

    fn policy(&self) -> &'a RetryPolicy {
        &self.hop.forward.retry.policy
    }

    pub(super) fn service(&self) -> &'a Service {
        self.hop.service
    }

    pub(super) fn cluster(&self) -> &'a Arc<Cluster> {
        self.cluster
    }

    pub(super) fn record(&self) -> Option<&'a Rc<Record>> {
        self.hop.record.as_ref()
    }

    pub(super) fn shard(&self) -> usize {
        self.hop.service.worker.shard()
    }

    pub(super) fn hash(&self) -> Option<u64> {
        self.has_hash.then_some(self.hash)
    }

    /// Returns the target ids of endpoints that have failed.
    pub(super) fn failed_endpoints(&self) -> &[u64] {
        self.failed_endpoints
            .as_ref()
            .map_or(&[], |failed| &failed.0)
    }

    pub(super) fn fields(&mut self) -> &mut Fields {
        &mut self.message.request.fields
    }

    /// Returns whether the request could be sent again, regardless of the outcome of this attempt.
    pub(super) fn is_resendable(&self) -> bool {
        self.payload
            .is_resendable(self.hop.forward.request_buffer_limit as u64)
    }

    /// Adds the header fields about this attempt to the request.
    fn mark(&mut self, attempt: &Attempt, now: Instant) {
        let request = &mut self.message.request;
        self.hop.rewrite_host(request, attempt.target());
        let fields = &mut request.fields;
        attempt.inject(fields);
        let mut digits = itoa::Buffer::new();
        let count = self.state.count();
        if count > self.first {
            let count = digits.format(count);
            fields.set(Known::XEnvoyAttemptCount, count.as_bytes());
        }
        if let Some(upload) = self.deadline.upload() {
            upload.leave();
        }
        if let Some(at) = self.deadline.at(now) {
            let left = at.saturating_duration_since(now);
            let limit = self.hop.forward.retry.per_try_timeout.unwrap_or(left);
            // 0 would mean no limit.
            let millis = left.min(limit).as_millis().max(1);
            let millis = u64::try_from(millis).unwrap_or(u64::MAX);
            fields.set(
                Known::XEnvoyExpectedRqTimeoutMs,
                digits.format(millis).as_bytes(),
            );
            // A `grpc-timeout` counts from the first attempt, so a later one must subtract the time that has
            // passed.
            if now > self.hop.context.started && fields.contains(Known::GrpcTimeout) {
                fields.set(Known::GrpcTimeout, &deadline::grpc(millis));
            }
        }
    }

    /// Returns the outcome that determines whether to retry; `None` if the endpoint did not cause it.
    fn outcome(&self, result: &Result<Response, ProxyError>) -> Option<Outcome> {
        match result {
            Ok(response) if response.status == StatusCode::SWITCHING_PROTOCOLS => None,
            Ok(response) => Some(Outcome::Answer(self.answer(response))),
            Err(error) => error.as_failure().map(Outcome::Failure),
        }
    }

    fn answer(&self, response: &Response) -> Answer {
        let fields = &response.fields;
        let grpc = fields.get(Known::GrpcStatus).filter(|_| self.grpc);
        let conditions = &self.hop.forward.retry.retriable_headers;
        let mut answer = Answer::status(response.status.as_u16());
        answer.grpc = grpc.map(GrpcStatus::parse);
        answer.retriable_header = conditions
            .iter()
            .any(|header| crate::routing::route::header_matches(header, fields));
        if answer.status >= 400 || answer.grpc.is_some() {
            answer.overloaded = fields.contains(Known::XEnvoyOverloaded);
            answer.retry_after = fields.get(Known::RetryAfter).and_then(retry_after);
            answer.pushback = fields.get(Known::GrpcRetryPushbackMs).map(Pushback::parse);
        }
        answer
    }

    /// Returns the next attempt; `None` if the policy permits no attempt after this outcome.
    fn next(&mut self, outcome: &Outcome, id: u64, now: Instant) -> Option<NextAttempt> {
        self.exclude(id);
        let worker = &self.hop.service.worker;
        let mut state = self.state;
        let decision = worker.with_rng(|rng| state.after(outcome, &self.retry_context(now), rng));
        self.state = state;
        let metrics = self.cluster.metrics();
        match decision {
            Decision::Retry { after, permit } => {
                metrics.guards.retries.inc(worker.shard());
                Some(NextAttempt {
                    decided: now,
                    after,
                    permit,
                })
            }
            Decision::GiveUp(reason) => {
                metrics.guards.retry_suppressed(reason);
                if let Some(record) = &self.hop.record {
                    record.refuse_retry(reason.name());
                }
                None
            }
        }
    }

    fn retry_context(&self, now: Instant) -> retry::Context<'_> {
        let guard = self.cluster.guard();
        let deadline = self.deadline.at(now);
        retry::Context {
            policy: self.policy(),
            request: retry::Request {
                // Not the worker's clock, which caches the instant of the request's arrival.
                deadline: deadline.map(|at| self.hop.service.worker.shared().time(at)),
                attempt: self.first,
                idempotent: self.idempotent,
            },
            budget: &guard.budget,
            active: guard.requests.active(),
            replayable: self.payload.is_whole(),
            elsewhere: self.cluster.is_usable_beyond(self.failed_endpoints()),
            now: self.hop.service.worker.time(now),
        }
    }

    /// Excludes an endpoint from further choices while there are others.
    pub(super) fn exclude(&mut self, id: u64) {
        let failed = self.failed_endpoints.get_or_insert_default();
        if !failed.0.contains(&id) {
            failed.0.push(id);
        }
    }
}

/// Returns the attempt number that the client sent in a request.
fn attempt_number(fields: &Fields) -> u32 {
    let value = fields.get(Known::XEnvoyAttemptCount);
    let number = value.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    number.unwrap_or(1).max(1)
}

/// Parses `Retry-After` in both of its forms (RFC 9110 §10.2.3).
fn retry_after(value: &[u8]) -> Option<Duration> {
    retry::retry_after_seconds(value).or_else(|| {
        let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
        let left = date.duration_since(std::time::SystemTime::now());
        Some(left.unwrap_or_default())
    })
}

/// Reads the available part of an unused response, so that its connection may be reused.
pub(super) fn discard(response: Response) {
    let mut body = std::pin::pin!(response.body);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut read = 0;
    while read < DISCARD {
        match body.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => read += frame.data_ref().map_or(0, bytes::Bytes::len),
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => return,
        }
    }
}
