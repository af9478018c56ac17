//! The recommended settings of callers: limits by Little's law, timeouts from tail latencies, retries and breakers from
//! failures.

use std::time::Duration;

use super::chain::{Bound, Calls};
use super::number_format::{count, number, percent, round_up, span};
use super::params::Params;
use super::track::EdgeTrack;
use super::{Advised, BreakerAdvice, RetryAdvice, TrafficAdvice};

/// The maximum value that a configuration accepts.
const MOST: u32 = 1_000_000;
/// The interval of a breaker, as in the paper's Fig. 5.
const INTERVAL: Duration = Duration::from_secs(10);

/// Returns the settings of callers; `None` without calls (TCP connections are not calls), for streams, or if latencies
/// are unknown.
pub(super) fn advise(at: usize, calls: &Calls<'_>, params: &Params) -> Option<TrafficAdvice> {
    if !calls.is_timed(at) {
        return None;
    }
    // Each proxy of each caller has its own limits: the busiest caller's decide.
    let into = calls.into.get(at)?.iter();
    let busiest = into.max_by(|(_, a), (_, b)| a.requests.get().total_cmp(&b.requests.get()))?;
    let (caller, edge) = (calls.services.get(busiest.0)?.0, busiest.1);
    let into = calls.into.get(at)?.iter();
    let rps = into.map(|(_, edge)| edge.calls.get()).fold(0.0, f64::max);
    let into = calls.into.get(at)?.iter();
    let open = into
        .map(|(_, edge)| edge.connections.get())
        .fold(0.0, f64::max);
    let track = calls.services.get(at)?.1;
    let timeout = timeout(at, calls, params)?;
    let max_requests = max_requests(caller, edge, params);
    let queue_timeout = queue_timeout(timeout.value);
    let window = params.scaling.slow_start;
    Some(TrafficAdvice {
        max_pending_requests: max_pending(rps, queue_timeout.value),
        max_connections: max_connections(max_requests.value, open, params),
        max_idle_connections: max_idle(edge.requests.get(), track.planned()),
        slow_start: Advised::new(
            window,
            format!(
                "a new replica's share of the requests grows for {}",
                span(window)
            ),
        ),
        retry: retry(at, calls, params),
        breaker: breaker(at, rps, calls, params),
        max_requests,
        queue_timeout,
        timeout,
    })
}

fn max_requests(caller: &str, edge: &EdgeTrack, params: &Params) -> Advised<u32> {
    let p = &params.traffic;
    let requests = edge.requests.get();
    let wanted = round_up(requests * p.requests_margin);
    let value = count(wanted, MOST).max(p.least_requests.max(1));
    let slow = edge.latency.get() > params.thresholds.latency.as_secs_f64() * 1e3;
    let cut = match slow {
        true => format!(
            " (counted with {}, the threshold, instead of {} ms)",
            span(params.thresholds.latency),
            number(edge.latency.get())
        ),
        false => String::new(),
    };
    let floor = match f64::from(value) > wanted {
        true => format!("; {} at least", p.least_requests),
        false => String::new(),
    };
    Advised::new(
        value,
        format!(
            "{} of the time a replica of {caller} has λ·r = {} requests in progress or fewer{cut}, \
             times {} is {}{floor}",
            percent(p.quantile),
            number(requests),
            number(p.requests_margin),
            number(requests * p.requests_margin),
        ),
    )
}

/// Returns the maximum time for which a request may be pending: a quarter of its timeout.
fn queue_timeout(timeout: Duration) -> Advised<Duration> {
    let value = (timeout / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
    let value = Duration::from_millis(value.as_millis().try_into().unwrap_or(1000));
    let reason = format!(
        "a quarter of the timeout of {}, 10 ms to 1 s",
        span(timeout)
    );
    Advised::new(value, reason)
}

fn max_pending(rps: f64, wait: Duration) -> Advised<u32> {
    const LEAST: u32 = 16;
    let arrive = rps * wait.as_secs_f64();
    let value = count(round_up(arrive), MOST).max(LEAST);
    Advised::new(
        value,
        format!(
            "a caller's replica makes {} calls a second, {} in the {} that one may wait; {LEAST} at least",
            number(rps),
            number(arrive),
            span(wait),
        ),
    )
}

/// Returns the limit for both used and idle connections.
fn max_connections(requests: u32, open: f64, params: &Params) -> Advised<u32> {
    let margin = params.traffic.requests_margin;
    let by_requests = requests.saturating_mul(2).min(MOST);
    let by_open = count(round_up(open * margin), MOST);
    let reason = match by_open > by_requests {
        true => format!(
            "a caller's replica has {} connections of bytes open, times {}",
            number(open),
            number(margin)
        ),
        false => format!("one for each of {requests} requests, and as many idle ones"),
    };
    Advised::new(by_requests.max(by_open), reason)
}

fn max_idle(requests: f64, replicas: u32) -> Advised<u32> {
    let each = requests / f64::from(replicas.max(1));
    let value = count(round_up(2.0 * each), 65_536).max(4);
    let reason = format!(
        "{} requests in progress at {replicas} replica(s), twice; 4 at least",
        number(requests)
    );
    Advised::new(value, reason)
}

fn timeout(at: usize, calls: &Calls<'_>, params: &Params) -> Option<Advised<Duration>> {
    let p = &params.traffic;
    let limit = calls.timeouts.get(at)?;
    let name = |service: usize| calls.services.get(service).map_or("", |(name, _)| name);
    let tail = calls.tail(at);
    let mut timed = calls.into.get(at)?.iter().filter(|(_, edge)| edge.timed);
    let from_mean = timed.any(|(_, edge)| edge.from_mean);
    let what = match from_mean {
        true => format!("{} times the mean response time", number(p.tail)),
        false => "the 99th percentile of the response time".to_owned(),
    };
    let reason = match limit.of {
        Some(Bound::Deadline(caller)) => {
            format!("bounded by the deadline of {}", name(caller))
        }
        Some(Bound::Caller(caller)) => {
            format!(
                "bounded by the timeout of the call of {} that depends on it",
                name(caller)
            )
        }
        None => {
            let own = Duration::from_secs_f64(tail * p.timeout_margin / 1e3).max(p.least_timeout);
            // Rounding a time up adds a tenth at most.
            let more = match limit.time > own + own / 10 {
                true => ", including time for further attempts on the path",
                false => "",
            };
            format!(
                "{what} is {} ms, times {}{more}; at least {} and at most {}",
                number(tail),
                number(p.timeout_margin),
                span(p.least_timeout),
                span(p.most_timeout),
            )
        }
    };
    Some(Advised::new(limit.time, reason))
}

fn retry(at: usize, calls: &Calls<'_>, params: &Params) -> Option<Advised<RetryAdvice>> {
    let retry_plans = calls.retry_plans.get(at).copied().flatten()?;
    let failures = calls.failures(at);
    let most = params.traffic.most_budget_percent;
    // Half as much again as all failures together, in steps of five.
    let budget = ((failures * 150.0 / 5.0).ceil() * 5.0).clamp(5.0, most.max(5.0));
    let value = RetryAdvice {
        attempts: retry_plans.attempts,
        per_try_timeout: retry_plans.each,
        budget_percent: budget.min(most),
    };
    let left = failures.powi(i32::try_from(retry_plans.attempts).unwrap_or(20) + 1);
    let reason = format!(
        "{} of its calls fail on their own, above {}; {} further attempts leave {}, and no other service on the path retries",
        percent(failures),
        percent(params.thresholds.error_rate),
        retry_plans.attempts,
        percent(left),
    );
    Some(Advised::new(value, reason))
}

fn breaker(
    at: usize,
    rps: f64,
    calls: &Calls<'_>,
    params: &Params,
) -> Option<Advised<BreakerAdvice>> {
    let failures = calls.failures(at);
    if failures <= params.thresholds.error_rate {
        return None;
    }
    // If failures are independent, so many in a row have a probability of one in a million.
    let row = (1e-6f64.ln() / failures.min(0.99).ln()).ceil();
    let row = (row as u32).clamp(5, 50);
    let value = BreakerAdvice {
        consecutive_failures: row,
        failure_percent: (failures * 200.0).round().clamp(50.0, 95.0),
        minimum_requests: count(round_up(rps * INTERVAL.as_secs_f64() / 2.0), 1000).max(10),
        interval: INTERVAL,
        ejection_time: 3 * INTERVAL,
    };
    let reason = format!(
        "{} of its calls fail on their own, above {}; {row} consecutive failures, or twice that share of \
         half of {} calls in {}, do not occur by chance",
        percent(failures),
        percent(params.thresholds.error_rate),
        number(rps * INTERVAL.as_secs_f64()),
        span(INTERVAL),
    );
    Some(Advised::new(value, reason))
}
