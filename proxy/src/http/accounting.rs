//! Accounting of a request, from its arrival to the last byte of its response.
//!
//! The [`Accounting`] record is attached to the response's body. However a request ends (completed, rejected,
//! cancelled by the client, cut off), [`Accounting::drop`] runs exactly once.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use maglor_balance::guard::outlier::Sample;
use tokio::time::Instant;

use super::attempt::Progress;
use super::attempt::accounting::Attempt;
use super::connection::Service;
use super::deadline::Deadline;
use super::recording::Recording;
use super::story::Ended;
use super::timer::RequestTimer;
use super::upload::Upload;
use crate::mesh::load_feedback::calls::Call;
use crate::mesh::load_feedback::reporting::{Ending, InFlightGuard};
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::{Account, Request, Response};
use crate::protocol::response_flag::ResponseFlag;
use crate::runtime::timers::Timer;
use crate::telemetry::metrics::RouteMetrics;
use crate::telemetry::record::{Moment, Record};

/// The accounting record of one request.
#[derive(Debug)]
pub(crate) struct Accounting {
    service: Rc<Service>,
    time: RequestTimer,
    route: Option<Arc<RouteMetrics>>,
    /// The request's slot in its cluster, and its latest attempt: the one whose response is sent to the client.
    progress: Progress,
    /// Counts the request as in flight at the server behind this proxy; `None` where requests are not counted.
    in_flight_guard: Option<Box<InFlightGuard>>,
    /// The call by the local application to which the request belongs, until the request ends.
    call: Option<Box<Call>>,
    status: StatusCode,
    flag: ResponseFlag,
    response_bytes: u64,
    /// What is recorded for readers; `None` if there is none.
    recording: Option<Recording>,
    /// When the first byte of the response had arrived, if the last one had not arrived with it.
    begun: Moment,
    /// When its head was ready for the client.
    responded: Moment,
    /// When the last byte of the response was received from the endpoint.
    received: Moment,
    /// Whether the client's socket did not accept the whole response at once.
    late: bool,
    /// Whether the response ended before the endpoint had sent all of it.
    cut_off: bool,
    done: bool,
}

/// Status code that is logged if no response was sent.
const NONE: u16 = 499;

impl Accounting {
    pub(crate) fn new(
        service: &Rc<Service>,
        started: Instant,
        timer: Timer,
        idle: Duration,
    ) -> Box<Self> {
        Box::new(Self {
            service: Rc::clone(service),
            time: RequestTimer::new(timer, started, idle),
            route: None,
            progress: Progress::default(),
            in_flight_guard: None,
            call: None,
            status: StatusCode::from_u16(NONE).unwrap_or_default(),
            flag: ResponseFlag::None,
            response_bytes: 0,
            recording: None,
            begun: Moment::NONE,
            responded: Moment::NONE,
            received: Moment::NONE,
            late: false,
            cut_off: false,
            done: false,
        })
    }

    /// Records the route of the request and the deadline that follows from its timeout.
    pub(super) fn route(&mut self, metrics: &Arc<RouteMetrics>, deadline: Deadline) {
        self.route = Some(Arc::clone(metrics));
        self.time.allow(deadline);
    }

    /// Records that no route matches the request.
    pub(super) fn unrouted(&mut self, metrics: &Arc<RouteMetrics>) {
        self.route(metrics, Deadline::never(self.time.started()));
    }

    /// Limits the response to a request that was refused before it had a route, and so a deadline, by the idle timeout.
    pub(super) fn limit_refusal(&mut self) {
        if self.route.is_none() {
            self.time.allow(Deadline::never(self.time.started()));
        }
    }

    /// Awaits a future until the request's deadline; see [`RequestTimer::limit`].
    ///
    /// # Errors
    /// [`ProxyError::RequestTimeout`], [`ProxyError::StreamIdleTimeout`].
    pub(super) fn with_deadline<'a, F: Future>(
        &'a self,
        future: Pin<&'a mut F>,
    ) -> impl Future<Output = Result<F::Output, ProxyError>> {
        self.time.limit(future)
    }

    /// Returns the timeouts of the request, and the resources that its attempts use. However the attempts end, the
    /// resources are still here.
    pub(super) fn attempts(&mut self) -> (&RequestTimer, &mut Progress) {
        (&self.time, &mut self.progress)
    }

    /// Returns the request's record, if it has a reader.
    pub(super) fn record(&self) -> Option<&Rc<Record>> {
        self.recording.as_ref().map(Recording::record)
    }

    /// Changes what is recorded, if there is a reader.
    pub(super) fn recording(&mut self) -> Option<&mut Recording> {
        self.recording.as_mut()
    }

    /// Begins the record of the request, if it has a reader.
    pub(super) fn begin_record(&mut self, request: &Request, grpc: bool) {
        self.recording = Recording::begin(&self.service, request, grpc);
    }

    /// Keeps the text of the request until its end, if there is a reader.
    pub(super) fn keep(&mut self, request: &mut Request) {
        if let Some(recording) = &mut self.recording {
            recording.keep(request);
        }
    }

    /// Records the request's identifier.
    pub(crate) fn request_id(&mut self, request: &Request) {
        if let Some(in_flight_guard) = &mut self.in_flight_guard
            && let Some(id) = request.fields.get(Known::XRequestId)
        {
            in_flight_guard.identify(id);
        }
    }

    /// Records the request as a call that the application behind this proxy makes to another service.
    pub(super) fn call(&mut self, call: Option<Call>) {
        self.call = call.map(Box::new);
    }

    /// Records the result of forwarding; after this only the response's body is pending.
    pub(super) fn forwarded(&mut self, result: &Result<Response, ProxyError>) {
        let racing = self.progress.racing.take().unwrap_or_default();
        if let Some(attempt) = &mut self.progress.attempt {
            attempt.answers();
        }
        let upstreams = |error| self.is_upstreams(error);
        let upstreams = result.as_ref().err().is_some_and(upstreams);
        let raced = upstreams && !racing.is_empty() && !self.time.deadline().is_hurried();
        let Some(slot) = &mut self.progress.slot else {
            return;
        };
        let success = match (result, &self.progress.attempt) {
            (Err(_), None) if raced => {
                let unrecorded = racing.iter().filter(|(_, recorded)| !recorded);
                for (target, _) in unrecorded {
                    let shared = self.service.worker.shared();
                    slot.cluster()
                        .record_outcome(target, Sample::LocalFailure, shared);
                }
                false
            }
            (result, Some(attempt)) if attempt.is_excused(result.as_ref().err()) => return,
            (Ok(_), Some(attempt)) => attempt.is_success(),
            (Err(_), Some(_)) if upstreams => false,
            (_, None) | (Err(_), Some(_)) => return,
        };
        if !slot.learns() {
            return;
        }
        let now = Instant::now();
        let answered = self.progress.attempt.as_ref().filter(|_| result.is_ok());
        let latency = answered.map(|attempt| now - attempt.started());
        let time = self.service.worker.time(now);
        self.service
            .worker
            .with_rng(|rng| slot.record_outcome(success, latency, time, rng));
    }

    /// Attaches the guard that counts the request at the server behind this proxy until it ends.
    pub(super) fn in_flight_guard(&mut self, in_flight_guard: Option<InFlightGuard>) {
        self.in_flight_guard = in_flight_guard.map(Box::new);
    }

    /// Adds the server's load to the response, if the request asked for it.
    pub(super) fn describe_queue(&self, fields: &mut Fields) {
        if let Some(in_flight_guard) = &self.in_flight_guard {
            in_flight_guard.describe(fields);
        }
    }

    /// Sets the status of the response.
    pub(crate) fn status(&mut self, status: StatusCode) {
        self.status = status;
        self.time.moved();
        if self.recording.as_ref().is_some_and(Recording::has_lines) {
            self.responded = self.moment(Instant::now());
        }
    }

    /// Removes the deadline for traffic in both directions, whose duration is not limited. The idle timeout remains.
    pub(crate) fn lift_deadline(&mut self) {
        self.time.lift_deadline();
    }

    /// Returns whether an error is evidence about the endpoint. A timeout is not while the client has not sent its
    /// whole request.
    fn is_upstreams(&self, error: &ProxyError) -> bool {
        let awaited = self
            .time
            .deadline()
            .upload()
            .is_some_and(Upload::is_awaited);
        error.is_upstreams() && !(awaited && matches!(error, ProxyError::RequestTimeout))
    }

    fn moment(&self, at: Instant) -> Moment {
        Moment::new(self.time.started(), at)
    }

    fn finish(&mut self, now: Instant) {
        self.done = true;
        let shard = self.service.worker.shard();
        let took = now - self.time.started();
        if let Some(route) = &self.route {
            // The client has received the status, but not the whole response: this is not a success.
            let status = match self.cut_off {
                true => StatusCode::BAD_GATEWAY,
                false => self.status,
            };
            route.request(shard, status, took, self.response_bytes);
        }
        if let Some(recording) = &self.recording {
            if self.received.is_none()
                && let Some(attempt) = &mut self.progress.attempt
            {
                attempt.end_note(now);
            }
            let started = self.time.started();
            let begun = match self.begun.is_none() {
                true => self.received,
                false => self.begun,
            };
            let ended = Ended {
                status: self.status,
                flag: self.flag,
                response_bytes: self.response_bytes,
                started,
                begun: begun.instant(started),
                received: self.received.instant(started),
                responded: self.responded.instant(started),
                ended: now,
                took,
            };
            let route = self.route.as_deref();
            recording.report(&self.service, route, self.progress.attempt.as_mut(), &ended);
        }
        self.time.stop(now);
        self.release();
        self.progress.attempt = None;
        if let Some(recording) = self.recording.take() {
            recording.recycle(&self.service.worker);
        }
    }

    /// Returns how the request ended at the server behind this proxy.
    fn ending(&self) -> Ending {
        let erred = self.progress.attempt.as_ref().is_some_and(Attempt::erred);
        if self.flag == ResponseFlag::ClientGone {
            Ending::Left
        } else if erred || self.cut_off || self.status.as_u16() >= 400 {
            Ending::Error
        } else {
            Ending::Good
        }
    }

    /// Releases the resources of the endpoint, which the rest of the request does not need.
    fn release(&mut self) {
        let ending = self.ending();
        if let Some(in_flight_guard) = &mut self.in_flight_guard {
            in_flight_guard.ended(ending);
        }
        // A reader may want it when the request has ended.
        if self.recording.is_none() {
            self.progress.attempt = None;
        }
        self.progress.slot = None;
        self.in_flight_guard = None;
        self.call = None;
    }
}

impl Account for Accounting {
    fn count(&mut self, bytes: u64) {
        self.response_bytes += bytes;
        self.time.moved();
    }

    fn sent(&mut self, bytes: u64) {
        if let Some(attempt) = &self.progress.attempt {
            let metrics = attempt.cluster().metrics();
            metrics.sent(self.service.worker.shard(), bytes);
        }
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        if let Some(attempt) = &mut self.progress.attempt {
            attempt.trailers(trailers);
        }
    }

    fn moved(&mut self) {
        self.time.moved();
    }

    fn received(&mut self) {
        if self.done || self.received.is_some() {
            return;
        }
        let now = Instant::now();
        if let Some(attempt) = &mut self.progress.attempt {
            attempt.complete(now, self.response_bytes);
        }
        self.release();
        if let Some(recording) = &mut self.recording {
            recording.uploaded(self.time.upload(), now);
        }
        // The time that the client takes to read the rest is not attributed to the endpoint.
        self.lift_deadline();
        self.received = self.moment(now);
    }

    fn complete(&mut self) {
        if self.done {
            return;
        }
        self.received();
        // Usually the socket accepts the last bytes at once, and the clock need not be read again.
        let received = self.received.instant(self.time.started());
        let at_once = received.filter(|_| !self.late);
        self.finish(at_once.unwrap_or_else(Instant::now));
    }

    fn fail(&mut self, error: &ProxyError) {
        // What happens after the endpoint's last byte is not its failure.
        let upstreams = self.received.is_none() && self.is_upstreams(error);
        if let Some(attempt) = self.progress.attempt.as_mut().filter(|_| upstreams) {
            attempt.failed(error);
        }
        let begun = self.status.as_u16() != NONE;
        self.cut_off |= begun && error.is_cut_off();
        self.flag = error.verdict().flag;
        if let Some(recording) = &mut self.recording {
            recording.fail(error, self.time.upload());
        }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<ProxyError> {
        self.late |= self.received.is_some();
        // The head has arrived, and the rest of the response has not.
        if self.begun.is_none() && self.recording.is_some() && self.status.as_u16() != NONE {
            self.begun = self.moment(Instant::now());
        }
        self.time.poll_expired(cx)
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // Attempts that were cancelled with the request do not determine how it ended.
        if !self.progress.is_answering() {
            self.progress = Progress::default();
        }
        if memory::is_resetting() {
            self.fail(&ProxyError::MemoryBudget);
        }
        if self.flag == ResponseFlag::None && self.received.is_some() {
            return self.complete();
        }
        if self.flag == ResponseFlag::None {
            // Neither completed nor failed: the client disconnected before the end.
            self.flag = ResponseFlag::ClientGone;
        }
        self.finish(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every waiting request has one: it fits into a block of the allocator.
    #[test]
    fn the_accounting_of_a_request_stays_within_a_block() {
        let size = size_of::<Accounting>();
        assert!(size <= 320, "{size} bytes");
    }
}
