//! A deadline of a connection that is cheap to change.
//!
//! Requests set deadlines of seconds and almost always end after microseconds. Arming and disarming a runtime timer
//! for each request would cost more than routing it. So the armed timer is not changed: it fires after half a second,
//! checks the deadline, and is armed again. For a slower request the timer is then armed at the request's deadline,
//! so that the request is woken only once. Only a deadline before the armed instant changes the runtime's timer
//! wheel.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::deadline::Deadline;
use super::upload::Upload;
use crate::protocol::error::ProxyError;
use crate::telemetry::record::nanos;

/// Longest time for which a new deadline arms the timer. Deadlines of this length or more, such as those of idle
/// connections, need no rearming.
const MAX_ARM: Duration = Duration::from_millis(500);

/// A deadline that is cheap to change.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    deadline: Cell<Option<Instant>>,
    /// Armed unless it has elapsed.
    sleep: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl Timer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets or clears the deadline; `now` is the caller's reading of the clock.
    pub(crate) fn set(&self, now: Instant, deadline: Option<Instant>) {
        self.deadline.set(deadline);
        let Some(deadline) = deadline else { return };
        let mut sleep = self.sleep.borrow_mut();
        if let Some(sleep) = &*sleep
            && sleep.deadline() <= deadline
            && !sleep.is_elapsed()
        {
            return;
        }
        Self::arm(&mut sleep, deadline.min(now + MAX_ARM));
    }

    /// Clears the deadline.
    fn clear(&self) {
        self.deadline.set(None);
    }

    fn arm(sleep: &mut Option<Pin<Box<Sleep>>>, at: Instant) {
        match sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => *sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    /// Ready once the deadline has passed. Must be polled after each [`Timer::set`].
    pub(crate) fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(deadline) = self.deadline.get() else {
                return Poll::Pending;
            };
            let mut sleep = self.sleep.borrow_mut();
            let Some(armed) = &mut *sleep else {
                return Poll::Pending;
            };
            ready!(armed.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            // A deadline that has been unchanged for this long belongs to a slow request.
            Self::arm(&mut sleep, deadline);
        }
    }
}

/// The timeouts of one request: the deadline of its response, and the idle timeout.
#[derive(Debug)]
pub(super) struct RequestTimer {
    timer: Rc<Timer>,
    deadline: Deadline,
    /// Idle timeout in nanoseconds: how long no byte may be transferred.
    idle: u64,
    /// When the idle timeout expires if no byte is transferred, in nanoseconds after the beginning of the request.
    idle_until: Cell<u64>,
    /// Whether a byte has been transferred since the timer was last checked.
    moved: Cell<bool>,
}

impl RequestTimer {
    pub(super) fn new(timer: Rc<Timer>, started: Instant, idle: Duration) -> Self {
        Self {
            timer,
            deadline: Deadline::never(started),
            idle: nanos(idle),
            idle_until: Cell::new(nanos(idle)),
            moved: Cell::new(false),
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
        self.moved.set(true);
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
            if self.take_moved() {
                let passed = nanos(now - self.started());
                self.idle_until.set(passed.saturating_add(self.idle));
            }
            if self.idle_until() <= now {
                return Poll::Ready(ProxyError::StreamIdleTimeout);
            }
            self.arm(now);
        }
    }

    fn idle_until(&self) -> Instant {
        self.started() + Duration::from_nanos(self.idle_until.get())
    }

    fn arm(&self, now: Instant) {
        let idle = self.idle_until();
        let next = self.deadline.at(now).map_or(idle, |at| at.min(idle));
        self.timer.set(now, Some(next));
    }

    /// Returns whether a byte has been transferred, in either direction, since the last call.
    fn take_moved(&self) -> bool {
        let upload = self.deadline.upload();
        self.moved.take() | upload.is_some_and(Upload::take_moved)
    }
}

/// Maximum number of timers that are kept for further requests of a connection.
const TIMERS: usize = 64;
/// Maximum number of timers that are kept while no request is active.
const KEPT: usize = 2;

/// Timers of a connection's requests. They stay armed between requests, which costs less than arming one for
/// each.
#[derive(Debug, Default)]
pub(super) struct Timers {
    free: RefCell<Vec<Rc<Timer>>>,
    lent: Cell<usize>,
}

impl Timers {
    /// Lends a timer to a request.
    pub(super) fn lend(&self) -> Rc<Timer> {
        self.lent.set(self.lent.get() + 1);
        self.free.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back a timer that was lent.
    pub(super) fn take_back(&self, timer: &Rc<Timer>) {
        let mut free = self.free.borrow_mut();
        self.lent.set(self.lent.get() - 1);
        // A body that is still held elsewhere keeps its timer.
        if free.len() < TIMERS && Rc::strong_count(timer) == 1 {
            timer.clear();
            free.push(Rc::clone(timer));
        }
        if self.lent.get() == 0 {
            free.truncate(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fires_at_the_deadline_and_not_before() {
        let timer = Timer::new();
        for millis in [10u64, 499, 500, 501, 3000, 20] {
            let start = Instant::now();
            timer.set(start, Some(start + Duration::from_millis(millis)));
            poll_fn(|cx| timer.poll_expired(cx)).await;
            let took = start.elapsed().as_millis();
            assert!(
                (u128::from(millis)..=u128::from(millis) + 2).contains(&took),
                "{took}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_deadline_does_not_fire_at_the_earlier_one() {
        let timer = Timer::new();
        let start = Instant::now();
        timer.set(start, Some(start + Duration::from_millis(100)));
        assert!(
            poll_fn(|cx| Poll::Ready(timer.poll_expired(cx)))
                .await
                .is_pending()
        );
        timer.set(start, Some(start + Duration::from_secs(2)));
        poll_fn(|cx| timer.poll_expired(cx)).await;
        assert!(start.elapsed() >= Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_wakes_its_task_once_before_the_deadline() {
        let timer = Timer::new();
        let start = Instant::now();
        timer.set(start, Some(start + Duration::from_secs(10)));
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            timer.poll_expired(cx)
        })
        .await;
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(polls, 3, "at the begin, after half a second, at the end");
    }

    #[tokio::test(start_paused = true)]
    async fn without_deadline_it_never_fires() {
        let timer = Timer::new();
        let start = Instant::now();
        timer.set(start, Some(start + Duration::from_millis(5)));
        timer.set(start, None);
        let expired = poll_fn(|cx| timer.poll_expired(cx));
        assert!(
            tokio::time::timeout(Duration::from_secs(60), expired)
                .await
                .is_err()
        );
    }
}
