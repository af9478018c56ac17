//! Accounting of one attempt at one endpoint.
//!
//! It covers the time from the choice of the endpoint to the last byte of the response, or to an earlier end. During
//! this time the attempt counts as outstanding. It is recorded once for outlier ejection and counted once in the
//! metrics.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::outlier::Sample;
use maglor_balance::guard::retry_budget::RetryPermit;
use maglor_balance::{Outstanding, Rng};
use maglor_telemetry::trace_context::SpanId;
use tokio::time::Instant;

use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::Response;
use crate::runtime::worker::Worker;
use crate::telemetry::record::{AttemptIndex, Begun, EndpointAddresses, Noted, Record};
use crate::upstream::{Cluster, Picked, Seat, Target};

/// Status that is counted if there was no response.
const NONE: u16 = 499;

/// Shortest wait after which a timeout set by the client counts as a failure of the endpoint.
const FAIR: Duration = Duration::from_secs(1);

/// The accounting record of one attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    worker: Rc<Worker>,
    cluster: Arc<Cluster>,
    target: Arc<Target>,
    started: Instant,
    /// Number of the attempt within its request, from 1; the highest one stands for more.
    number: u16,
    status: StatusCode,
    /// Whether the attempt was a success, as it was recorded for its cluster; `None` before that.
    recorded: Option<bool>,
    /// Sample of a successful response head; `None` if there is none to record. It is recorded with the last byte,
    /// since a response that is cut off is not a success.
    promising: Option<Sample>,
    /// Whether the response is an error of any kind, or missing. Its duration is then no measure of the endpoint's
    /// speed.
    erred: bool,
    /// Whether the attempt was not recorded because the client's own timeout was too short.
    excused: bool,
    /// Whether the client allows less time than the route,
    hurried: bool,
    /// and in that case the endpoint's count of successful responses when the attempt began.
    successes_before: u32,
    /// Counts the attempt as outstanding until dropped.
    outstanding: Option<Outstanding>,
    /// Boxed: every waiting request would reserve the space.
    seat: Option<Box<Seat>>,
    /// Counts the attempt as a retry in progress; `None` for the first attempt.
    permit: Option<RetryPermit>,
    /// Its request's record, until the attempt is noted there with its end,
    record: Option<Rc<Record>>,
    /// and its index there; `None` if it is not noted (yet).
    at: Option<AttemptIndex>,
    /// `None` without tracing.
    span: Option<SpanId>,
    /// Status of a gRPC call; `None` if there is none (yet).
    grpc: Option<GrpcStatus>,
    /// Number of requests in flight at the endpoint, without this one, when it was chosen.
    queue: u32,
    /// Whether its result is that of the request.
    answers: bool,
}

impl Attempt {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        cluster: &Arc<Cluster>,
        picked: Picked,
        number: u32,
        started: Instant,
        permit: Option<RetryPermit>,
    ) -> Self {
        Self {
            worker: Rc::clone(worker),
            cluster: Arc::clone(cluster),
            target: picked.target,
            started,
            number: u16::try_from(number).unwrap_or(u16::MAX),
            status: StatusCode::from_u16(NONE).unwrap_or_default(),
            recorded: None,
            promising: None,
            erred: false,
            excused: false,
            hurried: false,
            successes_before: 0,
            outstanding: Some(picked.outstanding),
            seat: picked.seat.map(Box::new),
            permit,
            record: None,
            at: None,
            span: None,
            grpc: None,
            queue: 0,
            answers: false,
        }
    }

    /// Sets the record of its request.
    #[inline]
    pub(super) fn record(&mut self, record: &Rc<Record>) {
        self.queue = self.target.stats.outstanding().saturating_sub(1);
        self.span = record.new_span(|| self.worker.with_rng(Rng::next_u64));
        self.record = Some(Rc::clone(record));
    }

    /// Notes the attempt if it is not; returns its record and its index there.
    #[cold]
    pub(super) fn note(&mut self) -> Option<(&Rc<Record>, AttemptIndex)> {
        let record = self.record.as_ref()?;
        let at = *self.at.get_or_insert_with(|| {
            let begun = Begun {
                span: self.span,
                cluster: self.cluster.config(),
                address: &self.target.address,
                queue: self.queue,
                number: self.number.into(),
                started: self.started,
            };
            record.begin_attempt(begun, || {
                Arc::downgrade(&self.cluster) as Weak<dyn EndpointAddresses>
            })
        });
        Some((record, at))
    }

    /// Returns its place in the record of its request, if there is one.
    pub(in crate::http) fn noted(&self) -> Option<Noted<'_>> {
        let record = self.record.as_ref()?;
        Some(Noted {
            record,
            at: self.at,
        })
    }

    /// Records that its result is that of the request.
    pub(in crate::http) fn answers(&mut self) {
        self.answers = true;
    }

    /// Returns whether its result is that of the request.
    pub(super) fn is_answering(&self) -> bool {
        self.answers
    }

    /// Sets the trace headers of its request, with tracing.
    pub(super) fn inject(&self, fields: &mut Fields) {
        if let (Some(record), Some(_)) = (&self.record, self.span) {
            record.inject(self.span, fields);
        }
    }

    /// Notes that the attempt has ended, if it is in its request's record or follows others there. A first attempt that
    /// succeeds is noted when the request has ended, if a reader keeps it ([`Self::end_note`]).
    #[inline]
    fn succeed_note(&mut self, now: Instant) {
        let record = self.record.as_ref();
        if record.is_some_and(|record| self.at.is_some() || record.has_attempts()) {
            self.end_note(now);
        }
    }

    /// Notes the attempt and its end in the record of its request, if it is not.
    #[cold]
    pub(in crate::http) fn end_note(&mut self, now: Instant) {
        let status = Some(self.status).filter(|_| self.has_head());
        let (grpc, answers) = (self.grpc, self.answers);
        if let Some((record, at)) = self.note() {
            record.attempt(at, |noted| {
                noted.status = status;
                noted.grpc = grpc;
                noted.ended = Some(now);
            });
            if answers {
                record.unusual().answering = Some(at);
            }
            self.record = None;
        }
    }

    /// Records that the client allows less time than the route does.
    pub(in crate::http) fn hurry(&mut self) {
        self.hurried = true;
        self.successes_before = self.target.monitor.successes();
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Records the head of a response. For a gRPC call the head proves little unless it is the whole response,
    /// because the status is in the trailers.
    pub(crate) fn answered(&mut self, response: &Response, grpc: bool) {
        self.status = response.status;
        let status = response.status.as_u16();
        self.erred = status >= 400;
        match response.fields.get(Known::GrpcStatus) {
            Some(value) if grpc => self.record_call_status(GrpcStatus::parse(value)),
            _ if grpc && status == 200 => {}
            _ if response.status == StatusCode::GATEWAY_TIMEOUT => {
                self.timed_out(Sample::of_status(status));
            }
            _ => match Sample::of_status(status) {
                sample if sample.is_success() => self.promising = Some(sample),
                sample => self.record_outcome(sample),
            },
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Returns whether the head of the response is a success.
    pub(crate) fn is_success(&self) -> bool {
        self.recorded != Some(false)
    }

    /// Records the trailers of a gRPC call.
    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        if let Some(value) = trailers.get(Known::GrpcStatus.as_str()) {
            self.record_call_status(GrpcStatus::parse(value.as_bytes()));
        }
    }

    /// Records that there is no response, or only a part of one.
    pub(crate) fn failed(&mut self, error: &ProxyError) {
        if self.has_head() && error.is_cut_off() {
            self.cluster.metrics().cut_off.inc(self.worker.shard());
            self.status = error.verdict().status;
        }
        self.erred |= error.is_upstreams();
        if let Some((record, at)) = self.note() {
            record.attempt(at, |noted| noted.fail(error));
        }
        match error {
            // An endpoint that has begun to respond may continue for longer than the client waits.
            ProxyError::RequestTimeout if self.has_head() => {}
            ProxyError::RequestTimeout => self.timed_out(Sample::LocalFailure),
            _ if error.is_upstreams() => self.record_outcome(Sample::LocalFailure),
            _ => {}
        }
    }

    fn has_head(&self) -> bool {
        self.status.as_u16() != NONE
    }

    fn record_call_status(&mut self, status: GrpcStatus) {
        self.erred |= status != GrpcStatus::OK;
        self.grpc = Some(status);
        if status != GrpcStatus::OK
            && let Some((record, at)) = self.note()
        {
            record.attempt(at, |noted| noted.grpc = Some(status));
        }
        let sample = Sample::of_grpc(status);
        match status {
            GrpcStatus::DEADLINE_EXCEEDED => self.timed_out(sample),
            _ => self.record_outcome(sample),
        }
    }

    /// Records a timeout, whether it occurred here or further upstream.
    fn timed_out(&mut self, sample: Sample) {
        match self.is_hurried() {
            true => self.excused = true,
            false => self.record_outcome(sample),
        }
    }

    /// Returns whether the client's own timeout is too short to blame the endpoint.
    ///
    /// A client may ask for a response within a millisecond. An endpoint that has sent no response to any client for
    /// [`FAIR`] is considered at fault nevertheless.
    fn is_hurried(&self) -> bool {
        self.hurried
            && (self.started.elapsed() < FAIR
                || self.target.monitor.successes() != self.successes_before)
    }

    /// Returns whether a timeout is no evidence about the endpoint or its cluster.
    pub(in crate::http) fn is_excused(&self, error: Option<&ProxyError>) -> bool {
        match error {
            Some(ProxyError::RequestTimeout) => self.is_hurried(),
            Some(_) => false,
            None => self.excused,
        }
    }

    /// Records the sample of the head, now that the required part of the response has arrived without an error.
    fn settle(&mut self) {
        if let Some(sample) = self.promising {
            self.record_outcome(sample);
        }
    }

    fn record_outcome(&mut self, sample: Sample) {
        if self.recorded.is_none() {
            self.recorded = Some(sample.is_success());
            self.cluster
                .record_outcome(&self.target, sample, self.worker.shared());
        }
    }

    /// Ends the attempt successfully, and records its duration as the endpoint's speed. `bytes` is the size of
    /// the response's body.
    pub(crate) fn complete(&mut self, now: Instant, bytes: u64) {
        if let Some(outstanding) = self.outstanding.take() {
            self.settle();
            self.succeed_note(now);
            self.count(now);
            self.cluster.metrics().body(self.worker.shard(), bytes);
            self.leave(outstanding, now, true);
            // Its record may outlive it.
            self.seat = None;
            self.permit = None;
        }
    }

    /// Returns whether the response was an error or missing.
    pub(in crate::http) fn erred(&self) -> bool {
        self.erred
    }

    /// Stops counting the attempt as outstanding: immediately, or, for an error, when a successful response would
    /// have arrived.
    fn leave(&self, outstanding: Outstanding, now: Instant, complete: bool) {
        let (time, usual) = (self.worker.time(now), self.cluster.usual());
        if self.erred {
            if let Err((place, until)) = outstanding.fail(usual, time) {
                let until = now + until.saturating_since(time);
                self.worker
                    .delayed_releases
                    .add(until, Box::new(|| drop(place)));
            }
        } else if complete {
            usual.observe(time.saturating_since(outstanding.began()));
            outstanding.finish(time);
        }
    }

    /// Discards the attempt after the endpoint's proxy has rejected it immediately: nothing is counted. Returns the
    /// retry permit for use with the next endpoint.
    pub(in crate::http) fn bounced(mut self) -> Option<RetryPermit> {
        self.outstanding = None;
        let now = Instant::now();
        if let Some((record, at)) = self.note() {
            record.attempt(at, |noted| {
                noted.bounced = true;
                noted.status = Some(StatusCode::SERVICE_UNAVAILABLE);
                noted.ended = Some(now);
            });
        }
        self.record = None;
        self.permit.take()
    }

    fn count(&self, now: Instant) {
        let metrics = self.cluster.metrics();
        metrics.request(self.worker.shard(), self.status, now - self.started);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(outstanding) = self.outstanding.take() {
            let now = Instant::now();
            self.settle();
            self.end_note(now);
            self.count(now);
            self.leave(outstanding, now, false);
        }
    }
}
