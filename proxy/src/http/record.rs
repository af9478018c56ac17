//! What a request is accounted for: one record from its arrival to the last byte of its response.
//!
//! The record travels with the response's body, so that every way a request can end (answered,
//! refused, cancelled by the client, cut off) passes through [`Record::drop`] exactly once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::tried::Tried;
use super::tries::Progress;
use crate::access_log::{Ended, Entry};
use crate::calls::Call;
use crate::error::ProxyError;
use crate::fields::{Fields, Known};
use crate::message::{Account, Request, Response};
use crate::metrics::RouteMetrics;
use crate::station::Visit;
use crate::timer::Timer;
use crate::upstream::Place;
use crate::worker::Worker;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Record {
    worker: Rc<Worker>,
    started: Instant,
    timer: Rc<Timer>,
    /// When the route's timeout runs out.
    deadline: Option<Instant>,
    /// How long no byte may move.
    idle: Duration,
    /// Whether a byte has moved since the timer was last looked at.
    moved: bool,
    route: Option<Arc<RouteMetrics>>,
    /// The request's place in its cluster.
    place: Option<Place>,
    /// The try whose response the client gets.
    tried: Option<Tried>,
    /// Its stay at the server behind this proxy, where that is counted.
    visit: Option<Visit>,
    /// Whose call it is, until it ends.
    call: Option<Call>,
    status: StatusCode,
    flag: &'static str,
    response_bytes: u64,
    entry: Option<Box<Entry>>,
    done: bool,
}

/// Status that is logged when nothing was sent.
const NONE: u16 = 499;

impl Record {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        started: Instant,
        timer: Rc<Timer>,
        idle: Duration,
        entry: Option<Box<Entry>>,
    ) -> Box<Self> {
        Box::new(Self {
            worker: Rc::clone(worker),
            started,
            timer,
            deadline: None,
            idle,
            moved: false,
            route: None,
            place: None,
            tried: None,
            visit: None,
            call: None,
            status: StatusCode::from_u16(NONE).unwrap_or_default(),
            flag: "-",
            response_bytes: 0,
            entry,
            done: false,
        })
    }

    /// The request goes by this route, which allows it so much time.
    pub(crate) fn route(&mut self, metrics: &Arc<RouteMetrics>, timeout: Option<Duration>) {
        self.route = Some(Arc::clone(metrics));
        self.deadline = timeout.map(|timeout| self.started + timeout);
        self.arm(self.started);
    }

    /// Waits for something as long as the request may take. It is pinned by the caller: an argument
    /// that is a future of many kilobytes would be there twice.
    ///
    /// # Errors
    /// [`ProxyError::RequestTimeout`], [`ProxyError::StreamIdleTimeout`].
    pub(super) async fn patiently<F: Future>(
        &mut self,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, ProxyError> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_timeout(cx).map(Err),
        })
        .await
    }

    /// The request's identifier is known.
    pub(crate) fn request_id(&mut self, request: &Request) {
        if let Some(entry) = &mut self.entry {
            entry.request_id(request);
        }
        if let Some(visit) = &mut self.visit
            && let Some(id) = request.fields.get(Known::XRequestId)
        {
            visit.identify(id);
        }
    }

    /// The request is a call that an application behind this proxy makes for another one.
    pub(super) fn call(&mut self, call: Option<Call>) {
        self.call = call;
    }

    /// When the route's timeout runs out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Forwarding is over, but for the response's body.
    pub(super) fn forwarded(&mut self, progress: Progress, result: &Result<Response, ProxyError>) {
        let Progress { place, tried } = progress;
        if let (Some(entry), Some(tried)) = (&mut self.entry, &tried) {
            entry.upstream(tried.address(), tried.cluster().name(), tried.number());
        }
        self.place = place;
        self.tried = tried;
        let (Some(place), Some(tried)) = (&mut self.place, &self.tried) else {
            return;
        };
        let success = match result {
            Ok(_) => tried.is_success(),
            Err(error) if error.is_upstreams() => false,
            Err(_) => return,
        };
        if !place.learns() {
            return;
        }
        let now = Instant::now();
        let latency = result.is_ok().then(|| now - tried.started());
        let time = self.worker.time(now);
        self.worker
            .with_rng(|rng| place.judge(success, latency, time, rng));
    }

    /// The request counts at the server behind this proxy until it ends.
    pub(super) fn visit(&mut self, visit: Option<Visit>) {
        self.visit = visit;
    }

    /// Says in a response how busy the server is, where its request asked.
    pub(super) fn describe_queue(&self, fields: &mut Fields) {
        if let Some(visit) = &self.visit {
            visit.describe(fields);
        }
    }

    /// The response has this status.
    pub(crate) fn status(&mut self, status: StatusCode) {
        self.status = status;
        self.moved = true;
    }

    /// Something moves both ways without bound: only idleness ends it.
    pub(crate) fn lift_deadline(&mut self) {
        self.deadline = None;
    }

    fn arm(&self, now: Instant) {
        let idle = now + self.idle;
        let next = self.deadline.map_or(idle, |deadline| deadline.min(idle));
        self.timer.set(now, Some(next));
    }

    fn finish(&mut self, now: Instant) {
        self.done = true;
        let shard = self.worker.shard();
        if let Some(route) = &self.route {
            route.request(shard, self.status, now - self.started, self.response_bytes);
        }
        if let Some(entry) = self.entry.take() {
            let ended = Ended {
                status: self.status,
                flag: self.flag,
                response_bytes: self.response_bytes,
                took: now - self.started,
            };
            self.worker.tell(&entry, ended, now);
        }
        self.timer.set(now, None);
        self.tried = None;
        self.place = None;
        self.visit = None;
        self.call = None;
    }
}

impl Account for Record {
    fn count(&mut self, bytes: u64) {
        self.response_bytes += bytes;
        self.moved = true;
    }

    fn sent(&mut self, bytes: u64) {
        if let Some(tried) = &self.tried {
            let metrics = tried.cluster().metrics();
            metrics.sent(self.worker.shard(), bytes);
        }
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        if let Some(tried) = &mut self.tried {
            tried.trailers(trailers);
        }
    }

    fn complete(&mut self) {
        if self.done {
            return;
        }
        let now = Instant::now();
        if let Some(mut tried) = self.tried.take() {
            tried.complete(now, self.response_bytes);
        }
        self.finish(now);
    }

    fn fail(&mut self, error: &ProxyError) {
        if let Some(tried) = &mut self.tried {
            tried.failed(error);
        }
        self.flag = error.verdict().flag;
        if let Some(entry) = &mut self.entry {
            entry.error(error);
        }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<ProxyError> {
        loop {
            ready!(self.timer.poll_expired(cx));
            let now = Instant::now();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(ProxyError::RequestTimeout);
            }
            if !std::mem::take(&mut self.moved) {
                return Poll::Ready(ProxyError::StreamIdleTimeout);
            }
            self.arm(now);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if self.flag == "-" {
            // Neither completed nor failed: the client left before the end.
            self.flag = "DC";
        }
        self.finish(Instant::now());
    }
}
