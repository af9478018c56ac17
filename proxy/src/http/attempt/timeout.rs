//! The per-try timeout: how long one attempt may take, apart from the time that the client takes to send the request.

use std::time::Duration;

use tokio::time::Instant;

use super::Attempts;
use crate::http::deadline::Deadline;

impl Attempts<'_> {
    pub(super) fn per_try_timeout(&self) -> Option<Duration> {
        self.hop.forward.retry.per_try_timeout
    }

    /// Returns the deadline of an attempt that begins now.
    pub(super) fn attempt_deadline(&self, now: Instant) -> Option<Box<Deadline>> {
        let limit = self.per_try_timeout()?;
        Some(Box::new(self.deadline_after(limit, now)))
    }

    /// Returns the deadline of an attempt in parallel to others. Without a hedging delay, the per-try timeout starts
    /// the next attempt and does not end this one.
    pub(super) fn racer_deadline(&self, now: Instant) -> Option<Box<Deadline>> {
        let hedge = self.hop.forward.hedge.as_ref();
        match hedge.is_none_or(|hedge| hedge.delay.is_some()) {
            true => self.attempt_deadline(now),
            false => None,
        }
    }

    /// Returns a deadline at `limit` after the client has sent the request, or after `now`, whichever is later.
    pub(super) fn deadline_after(&self, limit: Duration, now: Instant) -> Deadline {
        self.deadline.restarted(limit, now)
    }
}
