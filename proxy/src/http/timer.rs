//! The timeouts of a request: the deadline of its response, and the idle timeout.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use super::upload::Upload;
use crate::protocol::error::ProxyError;
use crate::runtime::timers::Timer;
use crate::telemetry::record::{Moment, nanos};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The timeouts of one request: the deadline of its response, and the idle timeout.
#[derive(Debug)]
pub(super) struct RequestTimer {
    timer: Timer,
    deadline: Deadline,
    /// Idle timeout in milliseconds: how long no byte may be transferred.
    idle: u32,
    /// When the idle timeout expires if no byte is transferred; none if one has been transferred since the timer was last
    /// checked: then the timeout begins when it is next checked.
    idle_until: Cell<Moment>,
}

impl RequestTimer {
    pub(super) fn new(timer: Timer, started: Instant, idle: Duration) -> Self {
        Self {
            timer,
            deadline: Deadline::never(started),
            idle: whole_millis(idle),
            idle_until: Cell::new(Moment::after(idle)),
        }
    }

    pub(super) fn started(&self) -> Instant {
        self.deadline.started()
    }

    /// Sets the deadline of the request.
    pub(super) fn allow(&mut self, deadline: Deadline) {
        self.deadline = deadline;
        self.arm(self.started());
    }

    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Returns the upload of the request's body, and when the request began; `None` if there is no body.
    pub(super) fn upload(&self) -> Option<(&Upload, Instant)> {
        let upload = self.deadline.upload()?;
        Some((upload, self.started()))
    }

    /// Removes the deadline; only the idle timeout remains.
    pub(super) fn lift_deadline(&mut self) {
        self.deadline = Deadline::never(self.started());
    }

    /// Records that a byte has been transferred.
    pub(super) fn moved(&self) {
        self.idle_until.set(Moment::NONE);
    }

    /// Disarms the timer.
    pub(super) fn stop(&self, now: Instant) {
        self.timer.set(now, None);
    }

    /// Awaits a future until the request's deadline.
    ///
    /// The caller pins the future: passing a future of many kilobytes by value would take twice its size.
    ///
    /// # Errors
    /// [`ProxyError::RequestTimeout`], [`ProxyError::StreamIdleTimeout`].
    pub(super) fn limit<F: Future>(
        &self,
        mut future: Pin<&mut F>,
    ) -> impl Future<Output = Result<F::Output, ProxyError>> {
        poll_fn(move |cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_expired(cx).map(Err),
        })
    }

    /// Becomes ready with [`ProxyError::RequestTimeout`] or [`ProxyError::StreamIdleTimeout`].
    pub(super) fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<ProxyError> {
        loop {
            ready!(self.timer.poll_expired(cx));
            let now = Instant::now();
            if self.deadline.is_over(now) {
                return Poll::Ready(ProxyError::RequestTimeout);
            }
            if self.renew_idle(now) <= now {
                return Poll::Ready(ProxyError::StreamIdleTimeout);
            }
            self.arm(now);
        }
    }

    /// Returns when the idle timeout expires if no further byte is transferred. It begins now if one has been since the last
    /// call.
    fn renew_idle(&self, now: Instant) -> Instant {
        let has_uploaded = self.deadline.upload().is_some_and(Upload::take_moved);
        if has_uploaded || self.idle_until.get().is_none() {
            let idle = Duration::from_millis(self.idle.into());
            self.idle_until.set(Moment::new(self.started(), now + idle));
        }
        self.idle_until()
    }

    fn idle_until(&self) -> Instant {
        let started = self.started();
        self.idle_until.get().instant(started).unwrap_or(started)
    }

    fn arm(&self, now: Instant) {
        let idle = self.idle_until();
        let next = self.deadline.at(now).map_or(idle, |at| at.min(idle));
        self.timer.set(now, Some(next));
    }
}

/// Returns a duration in milliseconds, rounded up; one of more than 49 days counts as that.
fn whole_millis(duration: Duration) -> u32 {
    u32::try_from(nanos(duration).div_ceil(NANOS_PER_MILLI)).unwrap_or(u32::MAX)
}
