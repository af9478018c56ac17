//! Hedged requests: a further attempt in parallel to a slow one. The first successful response is used.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use maglor_balance::guard::outlier::Sample;
use maglor_balance::guard::retry::HedgePolicy;
use maglor_balance::guard::retry_budget::RetryPermit;
use tokio::time::Instant;

use super::accounting::Attempt;
use super::{Attempts, Progress, discard};
use crate::http::deadline::Deadline;
use crate::protocol::error::ProxyError;
use crate::protocol::message::{Message, Response};
use crate::upstream::Target;

/// An attempt that has ended, and its result.
type Ended = (Attempt, Result<Response, ProxyError>);
/// Endpoints of concurrent attempts, and whether the outcome of each was recorded.
pub(super) type Racing = Vec<(Arc<Target>, bool)>;
/// An attempt in progress.
pub(super) type Racer<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

impl<'a> Attempts<'a> {
    /// Makes an attempt, and further ones in parallel to it; stores the one whose result is used in `progress`.
    ///
    /// # Errors
    /// If there is no endpoint for the first attempt. Any other outcome of the request is in the inner result.
    pub(super) async fn hedged(
        &mut self,
        hedge: &HedgePolicy,
        progress: &mut Progress,
        now: Instant,
        permit: Option<RetryPermit>,
    ) -> Result<Result<Response, ProxyError>, ProxyError> {
        let (picked, now) = self.choose_in_turn(now).await?;
        let first = self.begin_attempt(picked, now, permit);
        let racing = progress.racing.get_or_insert_default();
        let (attempt, result) = self.race(first, hedge, now, racing).await;
        progress.racing = None;
        progress.attempt = Some(attempt);
        Ok(result)
    }

    /// Runs an attempt, and further ones in parallel if it is slow. All but the one whose response is used are
    /// cancelled.
    ///
    /// At every moment `racing` lists the attempts in progress, the latest last, and whether their outcomes were
    /// recorded.
    async fn race(
        &mut self,
        first: Attempt,
        hedge: &HedgePolicy,
        now: Instant,
        racing: &mut Racing,
    ) -> Ended {
        let delay = hedge.delay.or(self.per_try_timeout());
        self.exclude(first.target().id);
        racing.push((Arc::clone(first.target()), false));
        let mut racers = vec![self.racer(first, now)];
        let mut next = delay.map(|delay| self.deadline_after(delay, now));
        loop {
            let Some((mut attempt, result)) = first_of(&mut racers, next.as_ref()).await else {
                // An attempt that is only slow has not failed, but one that has reached its timeout has. The next
                // attempt replaces it, and its result is not awaited.
                if let (None, Some((late, recorded))) = (hedge.delay, racing.last_mut()) {
                    *recorded = true;
                    let shared = self.service().worker.shared();
                    self.cluster()
                        .record_outcome(late, Sample::LocalFailure, shared);
                }
                let now = Instant::now();
                let joined = self.join(hedge, now, racing);
                let delay = delay.filter(|_| joined.is_some());
                next = delay.map(|delay| self.deadline_after(delay, now));
                racers.extend(joined);
                continue;
            };
            racing.retain(|(target, _)| target.id != attempt.target().id);
            if racers.is_empty() || !self.is_bad(&result) {
                return (attempt, result);
            }
            match result {
                Ok(response) => discard(response),
                Err(error) => attempt.failed(&error),
            }
        }
    }

    /// Starts another attempt if one is permitted.
    fn join(
        &mut self,
        hedge: &HedgePolicy,
        now: Instant,
        racing: &mut Racing,
    ) -> Option<Racer<'a>> {
        let permit = self.hedge(hedge, now)?;
        let attempt = self.pick(now, Some(permit)).ok()?;
        self.exclude(attempt.target().id);
        racing.push((Arc::clone(attempt.target()), false));
        Some(self.racer(attempt, now))
    }

    /// Returns an attempt as a separate future, to run in parallel to others.
    fn racer(&mut self, mut attempt: Attempt, now: Instant) -> Racer<'a> {
        let limit = self.racer_deadline(now);
        let sending = self.sending(&attempt, limit);
        let mut message = Message {
            request: self.message.request.clone(),
            body: self.message.body.take(),
        };
        Box::pin(async move {
            let result = sending.send(&mut message, &mut attempt).await;
            (attempt, result)
        })
    }

    /// Requests a permit for a further attempt in addition to those in progress.
    fn hedge(&mut self, hedge: &HedgePolicy, now: Instant) -> Option<RetryPermit> {
        let mut state = self.state;
        let decision = state.hedge(hedge, &self.retry_context(now));
        self.state = state;
        let metrics = self.cluster.metrics();
        match decision {
            Ok(permit) => {
                metrics.guards.retries.inc(self.hop.service.worker.shard());
                Some(permit)
            }
            Err(reason) => {
                metrics.guards.retry_suppressed(reason);
                None
            }
        }
    }

    /// Returns whether the client would be better served by the response of another attempt.
    fn is_bad(&self, result: &Result<Response, ProxyError>) -> bool {
        let outcome = self.outcome(result);
        result.is_err() || outcome.is_some_and(|outcome| self.policy().covers(&outcome))
    }
}

/// Returns the next attempt that ends; `None` if another attempt is due first.
async fn first_of(racers: &mut Vec<Racer<'_>>, next: Option<&Deadline>) -> Option<Ended> {
    let poll = |racers: &mut Vec<Racer<'_>>, cx: &mut Context<'_>| {
        for at in 0..racers.len() {
            if let Poll::Ready(ended) = racers[at].as_mut().poll(cx) {
                drop(racers.swap_remove(at));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    };
    let ended = poll_fn(|cx| poll(racers, cx));
    match next {
        Some(next) => next.wait(ended).await,
        None => Some(ended.await),
    }
}
