//! Validates limits, retry budgets, circuit breakers, adaptive concurrency and distances.

use std::time::Duration;

use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::concurrency::ConcurrencyParams;
use maglor_balance::guard::fault::Distance;
use maglor_balance::guard::limits::{EndpointLimits, LimitParams};
use maglor_balance::guard::retry_budget::BudgetParams;

use super::rule::{self, DAY, HOUR, MILLISECOND, MINUTE, SECOND};
use crate::raw;
use crate::report::At;

/// The range of a limit on connections or requests.
const PLACES: std::ops::RangeInclusive<u32> = 1..=10_000_000;

pub(super) fn limits(raw: Option<&raw::Limits>, at: &At<'_>) -> LimitParams {
    let default = LimitParams::default();
    let Some(raw) = raw else {
        return default;
    };
    let endpoint = raw.endpoint.as_ref();
    let endpoint = endpoint.map(|raw| endpoint_limits(raw, &at.field("endpoint")));
    LimitParams {
        max_connections: places(raw.max_connections, &at.field("max_connections")),
        max_requests: places(raw.max_requests, &at.field("max_requests")),
        max_pending_requests: rule::number(
            raw.max_pending_requests,
            &at.field("max_pending_requests"),
            default.max_pending_requests,
            0..=1_000_000,
        ),
        queue_timeout: rule::time(
            raw.queue_timeout,
            &at.field("queue_timeout"),
            default.queue_timeout,
            MILLISECOND..=HOUR,
        ),
        endpoint: endpoint.unwrap_or_default(),
    }
}

fn endpoint_limits(raw: &raw::EndpointLimits, at: &At<'_>) -> EndpointLimits {
    EndpointLimits {
        max_connections: places(raw.max_connections, &at.field("max_connections")),
        max_requests: places(raw.max_requests, &at.field("max_requests")),
    }
}

fn places(raw: Option<u32>, at: &At<'_>) -> Option<u32> {
    raw.map(|number| rule::number(Some(number), at, 1, PLACES))
}

/// Warns about a queue that no limit uses.
pub(super) fn warn_of_queue(raw: &raw::Cluster, at: &At<'_>) {
    let Some(limits) = &raw.limits else {
        return;
    };
    let queue = limits.max_pending_requests.is_some() || limits.queue_timeout.is_some();
    let endpoint = limits.endpoint.as_ref();
    let limited = limits.max_connections.is_some()
        || limits.max_requests.is_some()
        || endpoint.is_some_and(|e| e.max_connections.is_some() || e.max_requests.is_some())
        || raw.concurrency_limit.is_some();
    if queue && !limited {
        at.field("limits")
            .warning("the queue has no effect without a limit")
            .on_key()
            .help("add `max_connections` or `max_requests`");
    }
}

/// Returns the retry budget, including `limits.max_retries`.
pub(super) fn budget(raw: &raw::Cluster, at: &At<'_>) -> BudgetParams {
    let default = BudgetParams::default();
    let max_retries = raw.limits.as_ref().and_then(|limits| limits.max_retries);
    let max_retries = max_retries.map(|number| {
        let at = at.field("limits");
        rule::number(Some(number), &at.field("max_retries"), 3, 0..=1_000_000)
    });
    let Some(raw) = &raw.retry_budget else {
        return BudgetParams {
            max_retries,
            ..default
        };
    };
    let at = at.field("retry_budget");
    let percent = rule::percent(raw.percent, &at.field("percent"), 20.0);
    if let Some((zero, set)) = useless_minimum(raw) {
        at.field(set)
            .error(format!(
                "`{set}` has no effect: with `percent: 0` and `{zero}: 0`, no retry is allowed"
            ))
            .on_key()
            .help(format!("remove `{zero}: 0`, or `{set}`"));
    }
    // With 0 % alone no retries are meant, not the default minimum of three a second.
    let least = |least| if allows_nothing(raw) { 0 } else { least };
    BudgetParams {
        percent,
        min_concurrency: rule::number(
            raw.min_concurrency,
            &at.field("min_concurrency"),
            least(default.min_concurrency),
            0..=10_000,
        ),
        min_per_second: rule::number(
            raw.min_per_second,
            &at.field("min_per_second"),
            least(default.min_per_second),
            0..=10_000,
        ),
        interval: rule::time(
            raw.interval,
            &at.field("interval"),
            default.interval,
            SECOND..=10 * MINUTE,
        ),
        max_retries,
    }
}

/// Returns whether a budget has 0 % and no minimum, and so allows no retry.
fn allows_nothing(raw: &raw::RetryBudget) -> bool {
    let none = |minimum: Option<u32>| matches!(minimum, None | Some(0));
    raw.percent == Some(0.0) && none(raw.min_concurrency) && none(raw.min_per_second)
}

/// Returns the names of a minimum that has no effect and of the one that is the reason. Both bounds apply: with 0 %, if
/// one minimum is 0, the other has nothing to allow.
fn useless_minimum(raw: &raw::RetryBudget) -> Option<(&'static str, &'static str)> {
    let (concurrency, per_second) = ("min_concurrency", "min_per_second");
    match (raw.percent?, raw.min_concurrency, raw.min_per_second) {
        (0.0, Some(0), Some(1..)) => Some((concurrency, per_second)),
        (0.0, Some(1..), Some(0)) => Some((per_second, concurrency)),
        _ => None,
    }
}

/// Returns whether the budget of a cluster is written so that it allows no retry.
pub(super) fn is_without_budget(raw: &raw::Cluster) -> bool {
    let most = raw
        .limits
        .as_ref()
        .is_some_and(|limits| limits.max_retries == Some(0));
    most || raw.retry_budget.as_ref().is_some_and(allows_nothing)
}

pub(super) fn breaker(raw: &raw::CircuitBreaker, at: &At<'_>) -> BreakerParams {
    let default = BreakerParams::default();
    let number = |value, name: &str, default, range| {
        rule::number::<u32>(value, &at.field(name), default, range)
    };
    let time = |value, name: &str, default: Duration, least| {
        rule::time(value, &at.field(name), default, least..=HOUR)
    };
    let params = BreakerParams {
        consecutive_failures: number(
            raw.consecutive_failures,
            "consecutive_failures",
            default.consecutive_failures,
            0..=1_000_000,
        ),
        failure_percent: rule::percent(raw.failure_percent, &at.field("failure_percent"), 50.0),
        minimum_requests: number(
            raw.minimum_requests,
            "minimum_requests",
            default.minimum_requests,
            1..=1_000_000,
        ),
        interval: time(
            raw.interval,
            "interval",
            default.interval,
            100 * MILLISECOND,
        ),
        base_open: time(
            raw.base_open_time,
            "base_open_time",
            default.base_open,
            MILLISECOND,
        ),
        max_open: time(
            raw.max_open_time,
            "max_open_time",
            default.max_open,
            MILLISECOND,
        ),
        half_open_requests: number(
            raw.half_open_requests,
            "half_open_requests",
            default.half_open_requests,
            1..=1000,
        ),
        success_threshold: number(
            raw.success_threshold,
            "success_threshold",
            default.success_threshold,
            1..=1000,
        ),
    };
    let (base, max) = (params.base_open, params.max_open);
    rule::ordered(("base_open_time", base), ("max_open_time", max), at);
    if params.consecutive_failures == 0 && params.failure_percent.get() == 0.0 {
        at.error("this circuit breaker would never open")
            .when_readable()
            .help("set `consecutive_failures` or `failure_percent` above 0");
    }
    params
}

pub(super) fn concurrency(raw: &raw::ConcurrencyLimit, at: &At<'_>) -> ConcurrencyParams {
    let default = ConcurrencyParams::default();
    let limit = |value, name: &str, default| {
        rule::number::<u32>(value, &at.field(name), default, 1..=1_000_000)
    };
    let min_limit = limit(raw.min_limit, "min_limit", default.min_limit);
    let max_limit = limit(raw.max_limit, "max_limit", default.max_limit.max(min_limit));
    let first = default.initial_limit.min(max_limit).max(min_limit);
    let initial_limit = limit(raw.initial_limit, "initial_limit", first);
    if min_limit > max_limit {
        at.field("min_limit").error(format!(
            "`min_limit` ({min_limit}) is above `max_limit` ({max_limit})"
        ));
    } else if !(min_limit..=max_limit).contains(&initial_limit) {
        at.field("initial_limit").error(format!(
            "{initial_limit} is not between `min_limit` ({min_limit}) and `max_limit` ({max_limit})"
        ));
    }
    ConcurrencyParams {
        min_limit,
        initial_limit,
        max_limit,
        window: rule::time(
            raw.sample_window,
            &at.field("sample_window"),
            default.window,
            10 * MILLISECOND..=MINUTE,
        ),
        minimum_samples: rule::number(
            raw.minimum_samples,
            &at.field("minimum_samples"),
            default.minimum_samples,
            1..=100_000,
        ),
        buffer: rule::percent(raw.buffer_percent, &at.field("buffer_percent"), 25.0),
        min_rtt_interval: rule::time(
            raw.min_rtt_interval,
            &at.field("min_rtt_interval"),
            default.min_rtt_interval,
            SECOND..=DAY,
        ),
        jitter: default.jitter,
    }
}

/// Validates a delay; `None` = it is zero.
pub(super) fn delay(raw: &raw::Delay, at: &At<'_>) -> Option<Distance> {
    let time = |value, name: &str| {
        let range = Duration::ZERO..=10 * MINUTE;
        rule::time(value, &at.field(name), Duration::ZERO, range)
    };
    let (fixed, jitter) = (time(raw.fixed, "fixed"), time(raw.jitter, "jitter"));
    let any = !fixed.is_zero() || !jitter.is_zero();
    any.then_some(Distance { fixed, jitter })
}
