//! The tries of one request: pick, send, judge, and perhaps again at another endpoint.
//!
//! What is decided is decided in [`maglor_balance::guard::retry`]; here is what it takes: the body
//! that can be sent again, the endpoints that were tried, the clock.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use http_body::Body as _;
use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::budget::RetryPermit;
use maglor_balance::guard::retry::{self, Answer, Decision, Outcome, Pushback, RetryPolicy};
use tokio::time::Instant;

use super::forward::Hop;
use super::replay::Replay;
use super::tried::Tried;
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::message::{Body, Request, Response};
use crate::upstream::{Cluster, Place, Target};

/// Of a response that is not passed on, so much is read for its connection to be used again.
const DISCARD: usize = 64 * 1024;

/// See the module's documentation.
pub(super) struct Tries<'a> {
    hop: Hop<'a>,
    cluster: &'a Arc<Cluster>,
    policy: &'a RetryPolicy,
    hash: Option<u64>,
    /// When the client is answered at the latest.
    deadline: Option<Instant>,
    request: Request,
    facts: retry::Request,
    grpc: bool,
    body: Payload,
    state: retry::Tries,
    /// Endpoints that have failed.
    tried: Vec<u64>,
}

/// What a request holds while it is under way.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) place: Option<Place>,
    /// The last try.
    pub(super) tried: Option<Tried>,
}

/// The request's body, as far as it is there to be sent.
enum Payload {
    Empty,
    /// For one try.
    Once(Body),
    /// For any number of tries.
    Replay(Replay),
    Gone,
}

impl Payload {
    fn new(body: Body, policy: &RetryPolicy, limit: usize) -> Self {
        if body.is_empty() {
            Self::Empty
        } else if policy.is_on() {
            Self::Replay(Replay::new(body, limit))
        } else {
            Self::Once(body)
        }
    }

    fn take(&mut self) -> Body {
        match self {
            Self::Empty | Self::Gone => Body::empty(),
            Self::Replay(replay) => replay.body(),
            Self::Once(_) => match std::mem::replace(self, Self::Gone) {
                Self::Once(body) => body,
                _ => Body::empty(),
            },
        }
    }

    fn is_whole(&self) -> bool {
        match self {
            Self::Empty | Self::Once(_) => true,
            Self::Replay(replay) => replay.is_whole(),
            Self::Gone => false,
        }
    }
}

impl<'a> Tries<'a> {
    pub(super) fn new(
        hop: Hop<'a>,
        cluster: &'a Arc<Cluster>,
        hash: Option<u64>,
        request: Request,
        body: Body,
        deadline: Option<Instant>,
    ) -> Self {
        let policy = &hop.forward.retry.policy;
        let worker = &hop.service.worker;
        let idempotent = retry::is_idempotent(request.method.as_str())
            || request.fields.contains(Known::IdempotencyKey);
        let facts = retry::Request {
            idempotent,
            attempt: attempt_of(&request.fields),
            deadline: deadline.map(|deadline| worker.time(deadline)),
        };
        Self {
            hop,
            cluster,
            policy,
            hash,
            deadline,
            facts,
            grpc: request.is_grpc(),
            request,
            body: Payload::new(body, policy, hop.forward.request_buffer_limit),
            state: retry::Tries::new(),
            tried: Vec::new(),
        }
    }

    /// Tries until there is a response for the client, or none to be had. What is under way is in
    /// `progress` at every moment, for whoever loses patience.
    pub(super) async fn run(mut self, progress: &mut Progress) -> Result<Response, ProxyError> {
        let worker = &self.hop.service.worker;
        let mut now = self.hop.context.started;
        let place = Place::enter(self.cluster, worker.time(now)).await?;
        progress.place = Some(place);
        let mut permit = None;
        loop {
            let tried = progress.tried.insert(self.pick(now, permit.take())?);
            let result = self.attempt(tried, now).await;
            let next = match self.outcome(&result) {
                Some(outcome) => {
                    now = Instant::now();
                    self.next(&outcome, tried.target().id, now)
                }
                None => None,
            };
            let Some((after, granted)) = next else {
                return self.last(result);
            };
            permit = granted;
            match result {
                Ok(response) => discard(response),
                Err(error) => tried.failed(&error),
            }
            progress.tried = None;
            if after > Duration::ZERO {
                tokio::time::sleep(after).await;
                now = Instant::now();
            }
        }
    }

    /// Nothing of the request is sent again.
    fn last(self, result: Result<Response, ProxyError>) -> Result<Response, ProxyError> {
        if let Payload::Replay(replay) = &self.body {
            replay.give_up();
        }
        result
    }

    fn pick(&self, now: Instant, permit: Option<RetryPermit>) -> Result<Tried, ProxyError> {
        let worker = &self.hop.service.worker;
        let time = worker.time(now);
        let picked = worker.with_rng(|rng| self.cluster.pick(time, self.hash, &self.tried, rng));
        let picked = picked.ok_or_else(|| {
            self.cluster.metrics().no_endpoint.inc(worker.shard());
            ProxyError::NoHealthyUpstream
        })?;
        Ok(Tried::new(
            worker,
            self.cluster,
            picked,
            self.state.count(),
            now,
            permit,
        ))
    }

    async fn attempt(&mut self, tried: &mut Tried, now: Instant) -> Result<Response, ProxyError> {
        let target = Arc::clone(tried.target());
        self.mark(&target, now);
        let sender = self.hop.sender(self.cluster, &target, now);
        let body = self.body.take();
        let exchange = sender.send(&self.request, body);
        let response = match self.hop.forward.retry.per_try_timeout {
            None => exchange.await?,
            Some(limit) => match tokio::time::timeout_at(now + limit, exchange).await {
                Ok(result) => result?,
                Err(_) => return Err(ProxyError::PerTryTimeout),
            },
        };
        tried.answered(&response, self.grpc);
        Ok(response)
    }

    /// What the endpoint is told about this try.
    fn mark(&mut self, target: &Target, now: Instant) {
        self.hop.rewrite_host(&mut self.request, target);
        let fields = &mut self.request.fields;
        let mut digits = itoa::Buffer::new();
        let count = self.state.count();
        if count > self.facts.attempt {
            let count = digits.format(count);
            fields.set(Known::XEnvoyAttemptCount, count.as_bytes());
        }
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(now);
            let limit = self.hop.forward.retry.per_try_timeout.unwrap_or(left);
            // 0 would mean no limit.
            let millis = left.min(limit).as_millis().max(1);
            let millis = digits.format(millis);
            fields.set(Known::XEnvoyExpectedRqTimeoutMs, millis.as_bytes());
        }
    }

    /// What retries go by; `None` where the endpoint has no part in it.
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
            .any(|header| crate::route::header_matches(header, fields));
        if answer.status >= 400 || answer.grpc.is_some() {
            answer.overloaded = fields.contains(Known::XEnvoyOverloaded);
            answer.retry_after = fields.get(Known::RetryAfter).and_then(retry_after);
            answer.pushback = fields.get(Known::GrpcRetryPushbackMs).map(Pushback::parse);
        }
        answer
    }

    /// The pause before the next try, if there is one.
    fn next(
        &mut self,
        outcome: &Outcome,
        id: u64,
        now: Instant,
    ) -> Option<(Duration, Option<RetryPermit>)> {
        if !self.policy.covers(outcome) {
            return None;
        }
        if !self.tried.contains(&id) {
            self.tried.push(id);
        }
        let worker = &self.hop.service.worker;
        let guard = self.cluster.guard();
        let context = retry::Context {
            policy: self.policy,
            request: self.facts,
            budget: &guard.budget,
            active: guard.requests.active(),
            replayable: self.body.is_whole(),
            elsewhere: self.cluster.is_usable_beyond(&self.tried),
            now: worker.time(now),
        };
        let state = &mut self.state;
        let metrics = self.cluster.metrics();
        match worker.with_rng(|rng| state.after(outcome, &context, rng)) {
            Decision::Retry { after, permit } => {
                metrics.retries.inc(worker.shard());
                Some((after, permit))
            }
            Decision::GiveUp(reason) => {
                metrics.retry_left_out(reason);
                None
            }
        }
    }
}

/// Which try of its client a request is.
fn attempt_of(fields: &Fields) -> u32 {
    let value = fields.get(Known::XEnvoyAttemptCount);
    let number = value.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    number.unwrap_or(1).max(1)
}

/// `Retry-After` in both of its forms (RFC 9110 §10.2.3).
fn retry_after(value: &[u8]) -> Option<Duration> {
    retry::retry_after_seconds(value).or_else(|| {
        let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
        let left = date.duration_since(std::time::SystemTime::now());
        Some(left.unwrap_or_default())
    })
}

/// Reads what has come of a response, so that its connection may be used again.
fn discard(response: Response) {
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
