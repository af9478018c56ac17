//! Decides whether a failed attempt is retried.
//!
//! [`Attempts`] belongs to one request and returns [`Decision::Retry`] or [`Decision::GiveUp`] after each attempt. A
//! retry requires, in the order of evaluation:
//!
//! 1. The route allows retries, and the outcome meets one of its conditions.
//! 2. The server did not reject retries (`grpc-retry-pushback-ms: -1`, `x-envoy-overloaded`, a `Retry-After` that is
//!    too long).
//! 3. The request may be repeated: the application has certainly not received it, or its method is idempotent (RFC 9110
//!    §9.2.2), or the operator listed its gRPC status, or allowed retries of all requests.
//! 4. The body can be sent again.
//! 5. There are attempts left. An attempt that no application has received does not count, up to [`FREE_RETRIES`]; all
//!    others count, and are not made for a request that is itself a retry of our client. So a chain of k hops with r
//!    retries each makes at most 1 + k·r attempts at its end, not (1 + r)^k.
//! 6. The deadline is later than the end of the pause.
//! 7. The [budget](super::retry_budget) allows the retry. Free retries do not count against it.
//!
//! A retry goes to another endpoint: the caller passes those attempted to
//! [`PickCtx::excluding`](crate::PickCtx::excluding).

mod back_off;
mod condition;
mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use back_off::BackOff;
pub use condition::{Condition, Conditions, UnknownCondition};
pub use outcome::{Answer, Failure, Outcome, Pushback, is_idempotent, retry_after_seconds};

use super::retry_budget::{Budget, RetryPermit};
use crate::{Rng, Time};

/// The number of free retries of a request, after attempts that no application received. It bounds the search for a
/// live endpoint in a set of dead ones.
pub const FREE_RETRIES: u32 = 5;

/// The retry policy of a route.
///
/// # Defaults
///
/// Retries that are safe for any request: `attempts`: 2, `conditions`: `connect-failure`,
/// `refused-stream`, `reset-before-request`; `back_off`: 25 ms to 250 ms; `max_retry_after`: 5 s.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RetryPolicy {
    /// The maximum number of retries after the first attempt (Envoy's `num_retries`, Istio's `attempts`); 0: none, not
    /// even free ones.
    pub attempts: u32,
    /// The conditions for a retry; an outcome is retried if it meets one of them.
    pub conditions: Conditions,
    /// The statuses of the condition `retriable-status-codes`.
    pub status_codes: Box<[u16]>,
    /// Whether to repeat requests that are not idempotent even if an application may have received them.
    pub non_idempotent: bool,
    /// The pauses between attempts.
    pub back_off: BackOff,
    /// The maximum `Retry-After` to wait for; after a longer one there is no retry.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 2,
            conditions: Conditions::of(&[
                Condition::ConnectFailure,
                Condition::RefusedStream,
                Condition::ResetBeforeRequest,
            ]),
            status_codes: Box::default(),
            non_idempotent: false,
            back_off: BackOff::default(),
            max_retry_after: Duration::from_secs(5),
        }
    }
}

impl RetryPolicy {
    /// Returns a policy without retries.
    #[must_use]
    pub fn off() -> Self {
        Self {
            attempts: 0,
            ..Self::default()
        }
    }

    /// Returns whether retries are allowed at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.attempts > 0 && !self.conditions.is_empty()
    }

    /// Returns whether an outcome meets a condition for a retry. For a successful response this costs a few branches.
    #[must_use]
    #[inline]
    pub fn covers(&self, outcome: &Outcome) -> bool {
        self.attempts > 0 && outcome.meets(self.conditions, &self.status_codes)
    }
}

/// The start of further attempts in parallel to a slow one.
///
/// The first good response wins, and the other attempts are cancelled. Several attempts may be processed, so hedging
/// has the same preconditions as a retry of a request that was received, and counts against the same budget.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HedgePolicy {
    /// The time to wait for the head of a response before the next attempt is started. `None` = the per-try timeout,
    /// which then does not end the attempt (Envoy's `hedge_on_per_try_timeout`).
    pub delay: Option<Duration>,
    /// The maximum number of attempts in addition to the first one, 1 or more.
    pub attempts: u32,
}

/// The properties of a request that retries depend on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// Whether the method is idempotent ([`is_idempotent`]), or the request has an `idempotency-key`.
    pub idempotent: bool,
    /// The number of the attempt of the client, from 1 (`x-envoy-attempt-count`).
    pub attempt: u32,
    /// The deadline of the response; `None` = no deadline.
    pub deadline: Option<Time>,
}

/// The inputs of a decision about a retry.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The retry policy of the route.
    pub policy: &'a RetryPolicy,
    /// The request.
    pub request: Request,
    /// The retry budget of the cluster.
    pub budget: &'a Arc<Budget>,
    /// The number of requests in progress in the cluster, including pending ones.
    pub active: u32,
    /// Whether the body can be sent again: either nothing of it was consumed, or all that was consumed is buffered.
    pub replayable: bool,
    /// Whether there is a usable endpoint that this request has not attempted.
    pub elsewhere: bool,
    /// The present time.
    pub now: Time,
}

/// The decision about another attempt.
#[derive(Debug)]
pub enum Decision {
    /// There is no further attempt: the client gets the present outcome.
    GiveUp(GiveUp),
    /// There is a further attempt.
    Retry {
        /// The pause before the attempt.
        after: Duration,
        /// The permit of the retry budget, held until the attempt has ended; `None` for a free retry.
        permit: Option<RetryPermit>,
    },
}

/// The reason why there is no further attempt. All but the first two are suppressed retries, which a metric counts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum GiveUp {
    /// The outcome meets no condition for a retry; usually it is a success.
    NotRetriable,
    /// The route allows no retries.
    Off,
    /// All attempts are used up.
    Attempts,
    /// The body was longer than the buffer for retries.
    Body,
    /// The budget is exhausted.
    Budget,
    /// The request is itself a retry of the client.
    Chain,
    /// There is not enough time left until the deadline.
    Deadline,
    /// There is no other endpoint for a hedged attempt.
    NoOtherEndpoint,
    /// The request is not idempotent, and an application may have received it.
    NotIdempotent,
    /// The server rejected retries.
    Pushback,
}

impl GiveUp {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::NotRetriable,
        Self::Off,
        Self::Attempts,
        Self::Body,
        Self::Budget,
        Self::Chain,
        Self::Deadline,
        Self::NoOtherEndpoint,
        Self::NotIdempotent,
        Self::Pushback,
    ];

    /// Returns the name of the reason in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Body => "body",
            Self::Budget => "budget",
            Self::Chain => "chain",
            Self::Deadline => "deadline",
            Self::NoOtherEndpoint => "no-other-endpoint",
            Self::NotIdempotent => "not-idempotent",
            Self::NotRetriable => "not-retriable",
            Self::Off => "off",
            Self::Pushback => "pushback",
        }
    }

    /// Returns whether a retry that would have been useful was suppressed.
    #[must_use]
    pub const fn is_suppressed(self) -> bool {
        !matches!(self, Self::NotRetriable | Self::Off)
    }
}

/// The attempts of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    counted: u32,
    free: u32,
    hedged: u32,
}

impl Attempts {
    /// Creates the state before the first attempt.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            counted: 0,
            free: 0,
            hedged: 0,
        }
    }

    /// Returns the number of attempts so far, including the first one.
    #[must_use]
    pub const fn count(&self) -> u32 {
        1 + self.counted + self.free + self.hedged
    }

    /// Returns the `x-envoy-attempt-count` of the current attempt for the next hop. For a request that is itself a
    /// retry of the client, it is never 1.
    #[must_use]
    pub fn announced(&self, request: &Request) -> u32 {
        self.count().max(request.attempt)
    }

    /// Decides what follows an attempt that ended with `outcome`.
    pub fn after(&mut self, outcome: &Outcome, cx: &Context<'_>, rng: &mut Rng) -> Decision {
        if !cx.policy.covers(outcome) {
            let off = cx.policy.attempts == 0;
            return Decision::GiveUp(if off {
                GiveUp::Off
            } else {
                GiveUp::NotRetriable
            });
        }
        match self.retry(outcome, cx, rng) {
            Ok((after, permit)) => Decision::Retry { after, permit },
            Err(reason) => Decision::GiveUp(reason),
        }
    }

    #[cold]
    fn retry(
        &mut self,
        outcome: &Outcome,
        cx: &Context<'_>,
        rng: &mut Rng,
    ) -> Result<(Duration, Option<RetryPermit>), GiveUp> {
        let asked = asked_pause(outcome, cx.policy, rng)?;
        if !outcome.is_unseen() && !may_repeat(outcome, cx) {
            return Err(GiveUp::NotIdempotent);
        }
        if !cx.replayable {
            return Err(GiveUp::Body);
        }
        let free = outcome.is_free();
        if free {
            self.check_free()?;
        } else {
            self.check_counted(cx)?;
        }
        let number = self.counted + self.free + 1;
        let after = match asked {
            Some(asked) => asked,
            // Another endpoint has not failed: there is no reason to wait.
            None if free && cx.elsewhere => Duration::ZERO,
            None => cx.policy.back_off.pause(number, rng),
        };
        in_time(after, cx)?;
        let permit = if free {
            self.free += 1;
            None
        } else {
            // The upper end of the pause, not the drawn value: of two retries the one with the
            // shorter pause needs no larger budget.
            let pause = after.max(cx.policy.back_off.ceiling(number));
            let permit = cx.budget.retry(cx.active, pause, cx.now);
            let permit = permit.ok_or(GiveUp::Budget)?;
            self.counted += 1;
            Some(permit)
        };
        Ok((after, permit))
    }

    /// Decides whether another attempt is started in addition to those in progress; returns the permit.
    ///
    /// # Errors
    /// The reason why no attempt is started.
    pub fn hedge(&mut self, hedge: &HedgePolicy, cx: &Context<'_>) -> Result<RetryPermit, GiveUp> {
        if self.hedged >= hedge.attempts {
            return Err(GiveUp::Attempts);
        }
        if cx.request.attempt > 1 {
            return Err(GiveUp::Chain);
        }
        if !cx.request.idempotent && !cx.policy.non_idempotent {
            return Err(GiveUp::NotIdempotent);
        }
        if !cx.replayable {
            return Err(GiveUp::Body);
        }
        if !cx.elsewhere {
            return Err(GiveUp::NoOtherEndpoint);
        }
        in_time(Duration::ZERO, cx)?;
        let permit = cx.budget.retry(cx.active, Duration::ZERO, cx.now);
        let permit = permit.ok_or(GiveUp::Budget)?;
        self.hedged += 1;
        Ok(permit)
    }

    fn check_free(&self) -> Result<(), GiveUp> {
        if self.free < FREE_RETRIES {
            Ok(())
        } else {
            Err(GiveUp::Attempts)
        }
    }

    fn check_counted(&self, cx: &Context<'_>) -> Result<(), GiveUp> {
        if cx.request.attempt > 1 {
            return Err(GiveUp::Chain);
        }
        if self.counted >= cx.policy.attempts {
            return Err(GiveUp::Attempts);
        }
        Ok(())
    }
}

/// Returns the pause that the server requested.
fn asked_pause(
    outcome: &Outcome,
    policy: &RetryPolicy,
    rng: &mut Rng,
) -> Result<Option<Duration>, GiveUp> {
    let Outcome::Answer(answer) = outcome else {
        return Ok(None);
    };
    match (answer.pushback, answer.retry_after) {
        _ if answer.overloaded => Err(GiveUp::Pushback),
        (Some(Pushback::Never), _) => Err(GiveUp::Pushback),
        (Some(Pushback::After(wait)), _) if wait > policy.max_retry_after => Err(GiveUp::Pushback),
        // gRPC requires exactly this pause: the server has spread its clients already.
        (Some(Pushback::After(wait)), _) => Ok(Some(wait)),
        (None, Some(wait)) if wait > policy.max_retry_after => Err(GiveUp::Pushback),
        (None, Some(wait)) if !wait.is_zero() => Ok(Some(back_off::spread(wait, rng))),
        (None, _) => Ok(None),
    }
}

/// Returns whether a request that an application may have received may be sent again. A gRPC status is among the
/// conditions only if the operator listed it, which is how gRPC declares methods retriable.
fn may_repeat(outcome: &Outcome, cx: &Context<'_>) -> bool {
    let by_grpc = matches!(outcome, Outcome::Answer(answer) if answer.grpc.is_some());
    cx.request.idempotent || cx.policy.non_idempotent || by_grpc
}

fn in_time(after: Duration, cx: &Context<'_>) -> Result<(), GiveUp> {
    match cx.request.deadline {
        Some(deadline) if cx.now + after >= deadline => Err(GiveUp::Deadline),
        _ => Ok(()),
    }
}
