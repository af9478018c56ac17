//! A connection's deadline that is cheap to move.
//!
//! Requests set deadlines of seconds and almost always end after microseconds. Arming and disarming
//! a runtime timer for each would cost more than routing the request. So the armed timer is left
//! alone: it fires a few times a second while the connection is busy, looks at the deadline, and is
//! armed again. Only a deadline that is nearer than the armed instant touches the runtime's wheel.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The armed timer is never further away than this, so that deadlines of this length or more (idle
/// parking among them) need no re-arming.
const MAX_ARM: Duration = Duration::from_millis(500);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    deadline: Cell<Option<Instant>>,
    armed: Cell<Option<Instant>>,
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
        if self.armed.get().is_some_and(|armed| armed <= deadline) {
            return;
        }
        self.arm(deadline.min(now + MAX_ARM));
    }

    fn arm(&self, at: Instant) {
        self.armed.set(Some(at));
        let mut sleep = self.sleep.borrow_mut();
        match sleep.as_mut() {
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
            {
                let mut sleep = self.sleep.borrow_mut();
                let Some(sleep) = sleep.as_mut() else {
                    return Poll::Pending;
                };
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            let now = Instant::now();
            if now >= deadline {
                self.armed.set(None);
                return Poll::Ready(());
            }
            self.arm(deadline.min(now + MAX_ARM));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

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
