//! One attempt at one endpoint, as it is accounted for.
//!
//! From the pick to the last byte of the answer, or to whatever ends it before: it counts as
//! outstanding, it is judged once for outlier ejection, and it ends in the metrics once.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use maglor_balance::Outstanding;
use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::budget::RetryPermit;
use maglor_balance::guard::outlier::Sample;
use tokio::time::Instant;

use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::Response;
use crate::runtime::worker::Worker;
use crate::upstream::{Cluster, Picked, Seat, Target};
use maglor_config::Address;

/// Status that is counted when there was no response.
const NONE: u16 = 499;

/// That an endpoint takes longer than its client wants to wait says nothing about it before so long.
const FAIR: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Attempt {
    worker: Rc<Worker>,
    cluster: Arc<Cluster>,
    target: Arc<Target>,
    started: Instant,
    /// From 1.
    number: u32,
    status: StatusCode,
    judged: bool,
    success: bool,
    /// The head of the response was a good one: judged with its last byte, since a response that is cut off is
    /// none.
    promising: Option<Sample>,
    /// The response is an error, of whatever kind, or there is none: no sign of speed.
    erred: bool,
    /// It was not judged, because its client did not want to wait.
    excused: bool,
    /// Where the client allows less time than the route: how many good answers the endpoint had given
    /// when it began.
    hurried: Option<u32>,
    /// Counts the request as outstanding until it is dropped.
    outstanding: Option<Outstanding>,
    _seat: Option<Seat>,
    /// Counts it as a retry in progress.
    permit: Option<RetryPermit>,
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
            number,
            status: StatusCode::from_u16(NONE).unwrap_or_default(),
            judged: false,
            success: true,
            promising: None,
            erred: false,
            excused: false,
            hurried: None,
            outstanding: Some(picked.outstanding),
            _seat: picked.seat,
            permit,
        }
    }

    /// The client allows it less time than the route does.
    pub(in crate::http) fn hurry(&mut self) {
        self.hurried = Some(self.target.monitor.successes());
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Which attempt of its request it is, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn address(&self) -> &Address {
        &self.target.address
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The head of a response is there. That of a gRPC call says little unless it is all there is:
    /// the status comes with the trailers.
    pub(crate) fn answered(&mut self, response: &Response, grpc: bool) {
        self.status = response.status;
        let status = response.status.as_u16();
        self.erred = status >= 400;
        match response.fields.get(Known::GrpcStatus) {
            Some(value) if grpc => self.judge_call(GrpcStatus::parse(value)),
            _ if grpc && status == 200 => {}
            _ if response.status == StatusCode::GATEWAY_TIMEOUT => {
                self.timed_out(Sample::of_status(status));
            }
            _ => match Sample::of_status(status) {
                sample if sample.is_success() => self.promising = Some(sample),
                sample => self.judge(sample),
            },
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Whether the head of the response says that all is well.
    pub(crate) fn is_success(&self) -> bool {
        self.success
    }

    /// The trailers of a gRPC call.
    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        if let Some(value) = trailers.get(Known::GrpcStatus.as_str()) {
            self.judge_call(GrpcStatus::parse(value.as_bytes()));
        }
    }

    /// It has no response, or only a part of one.
    pub(crate) fn failed(&mut self, error: &ProxyError) {
        if self.has_head() && error.is_cut_off() {
            self.cluster.metrics().cut_off.inc(self.worker.shard());
            self.status = error.verdict().status;
        }
        self.erred |= error.is_upstreams();
        match error {
            // Who has begun to answer may go on for longer than anybody wants to listen.
            ProxyError::RequestTimeout if self.has_head() => {}
            ProxyError::RequestTimeout => self.timed_out(Sample::LocalFailure),
            _ if error.is_upstreams() => self.judge(Sample::LocalFailure),
            _ => {}
        }
    }

    fn has_head(&self) -> bool {
        self.status.as_u16() != NONE
    }

    fn judge_call(&mut self, status: GrpcStatus) {
        self.erred |= status != GrpcStatus::OK;
        let sample = Sample::of_grpc(status);
        match status {
            GrpcStatus::DEADLINE_EXCEEDED => self.timed_out(sample),
            _ => self.judge(sample),
        }
    }

    /// Time has run out, here or further on.
    fn timed_out(&mut self, sample: Sample) {
        match self.is_hurried() {
            true => self.excused = true,
            false => self.judge(sample),
        }
    }

    /// Whether its client has not waited for as long as it takes to say that the endpoint is at fault:
    /// anybody may ask for an answer within a millisecond. An endpoint that has not answered anybody
    /// for a second is another matter.
    fn is_hurried(&self) -> bool {
        self.hurried.is_some_and(|before| {
            self.started.elapsed() < FAIR || self.target.monitor.successes() != before
        })
    }

    /// Whether that time has run out says nothing about the endpoint, nor about its cluster.
    pub(in crate::http) fn is_excused(&self, error: Option<&ProxyError>) -> bool {
        match error {
            Some(ProxyError::RequestTimeout) => self.is_hurried(),
            Some(_) => false,
            None => self.excused,
        }
    }

    /// Nothing has come between the good head and the end of what was wanted of the response.
    fn settle(&mut self) {
        if let Some(sample) = self.promising {
            self.judge(sample);
        }
    }

    fn judge(&mut self, sample: Sample) {
        if !std::mem::replace(&mut self.judged, true) {
            self.success = sample.is_success();
            self.cluster
                .judge(&self.target, sample, self.worker.shared());
        }
    }

    /// It ended as it should: its duration says how fast the endpoint is. `bytes` are those of the
    /// response's body.
    pub(crate) fn complete(&mut self, now: Instant, bytes: u64) {
        if let Some(outstanding) = self.outstanding.take() {
            self.settle();
            self.count(now);
            self.cluster.metrics().body(self.worker.shard(), bytes);
            self.leave(outstanding, now, true);
        }
    }

    /// Whether the response was an error, or there was none.
    pub(in crate::http) fn erred(&self) -> bool {
        self.erred
    }

    /// Ends its place at the endpoint: at once, or when a good answer would have come.
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

    /// The endpoint's proxy has sent it back at once: nothing of it is counted. The permit serves for
    /// the next endpoint.
    pub(in crate::http) fn bounced(mut self) -> Option<RetryPermit> {
        self.outstanding = None;
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
            self.count(now);
            self.leave(outstanding, now, false);
        }
    }
}
