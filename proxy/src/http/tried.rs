//! One try at one endpoint, as it is accounted for.
//!
//! From the pick to the last byte of the answer, or to whatever ends it before: it counts as
//! outstanding, it is judged once for outlier ejection, and it ends in the metrics once.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use maglor_balance::Outstanding;
use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::budget::RetryPermit;
use maglor_balance::guard::outlier::Sample;
use tokio::time::Instant;

use crate::error::ProxyError;
use crate::fields::Known;
use crate::message::Response;
use crate::upstream::{Cluster, Picked, Seat, Target};
use crate::worker::Worker;

/// Status that is counted when there was no response.
const NONE: u16 = 499;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Tried {
    worker: Rc<Worker>,
    cluster: Arc<Cluster>,
    target: Arc<Target>,
    started: Instant,
    /// From 1.
    number: u32,
    status: StatusCode,
    judged: bool,
    success: bool,
    /// Counts the request as outstanding until it is dropped.
    outstanding: Option<Outstanding>,
    _seat: Option<Seat>,
    /// Counts it as a retry in progress.
    permit: Option<RetryPermit>,
}

impl Tried {
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
            outstanding: Some(picked.outstanding),
            _seat: picked.seat,
            permit,
        }
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Which try of its request it is, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.target.address
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The head of a response is there. That of a gRPC call says little unless it is all there is:
    /// the status comes with the trailers.
    pub(crate) fn answered(&mut self, response: &Response, grpc: bool) {
        self.status = response.status;
        let status = response.status.as_u16();
        match response.fields.get(Known::GrpcStatus) {
            Some(value) if grpc => self.judge(Sample::of_grpc(GrpcStatus::parse(value))),
            _ if grpc && status == 200 => {}
            _ => self.judge(Sample::of_status(status)),
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
            self.judge(Sample::of_grpc(GrpcStatus::parse(value.as_bytes())));
        }
    }

    /// It has no response, or only a part of one.
    pub(crate) fn failed(&mut self, error: &ProxyError) {
        if error.is_upstreams() {
            self.judge(Sample::LocalFailure);
        }
    }

    fn judge(&mut self, sample: Sample) {
        if !std::mem::replace(&mut self.judged, true) {
            self.success = sample == Sample::Success;
            self.cluster
                .judge(&self.target, sample, self.worker.shared());
        }
    }

    /// It ended as it should: its duration says how fast the endpoint is. `bytes` are those of the
    /// response's body.
    pub(crate) fn complete(&mut self, now: Instant, bytes: u64) {
        if let Some(outstanding) = self.outstanding.take() {
            self.count(now);
            self.cluster.metrics().body(self.worker.shard(), bytes);
            outstanding.finish(self.worker.time(now));
        }
    }

    /// The endpoint's proxy has sent it back at once: nothing of it is counted. The permit serves for
    /// the next endpoint.
    pub(super) fn bounced(mut self) -> Option<RetryPermit> {
        self.outstanding = None;
        self.permit.take()
    }

    fn count(&self, now: Instant) {
        let metrics = self.cluster.metrics();
        metrics.request(self.worker.shard(), self.status, now - self.started);
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        if self.outstanding.take().is_some() {
            self.count(Instant::now());
        }
    }
}
