//! Validates retries, hedging, mirroring and sticky splits, alone and together with the rest of their route.

use std::time::Duration;

use maglor_balance::guard::retry::{BackOff, Condition, Conditions, HedgePolicy, RetryPolicy};

use super::{hash, matching};
use crate::check::rule::{self, DAY, MILLISECOND, MINUTE};
use crate::check::{Scope, guard, headers};
use crate::report::At;
use crate::route::HashKind;
use crate::suggest::nearest;
use crate::traffic::{Mirror, Retry};
use crate::{raw, yaml};

const MAX_WAIT: Duration = Duration::from_secs(300);

/// Validates a route's `retry`; `timeout` is the route's, zero = none.
pub(in crate::check) fn retry(
    raw: Option<&raw::Retry>,
    timeout: Duration,
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Retry {
    let Some(raw) = raw else {
        return Retry::default();
    };
    let default = RetryPolicy::default();
    let mut conditions = Wanted::new(raw, at);
    let list = at.field("retriable_headers");
    let each = raw.retriable_headers.iter().enumerate();
    let retriable_headers: Vec<_> = each
        .filter_map(|(i, raw)| matching::header(raw, &list.index(i), scope))
        .collect();
    let attempts = rule::number(
        raw.attempts,
        &at.field("attempts"),
        default.attempts,
        0..=20,
    );
    conditions.complete(raw, attempts, at);
    let per_try = raw.per_try_timeout.map(|time| {
        let at = at.field("per_try_timeout");
        rule::explicit_time(time, &at, MILLISECOND..=30 * DAY)
    });
    if let Some(per_try) = per_try {
        within_timeout(per_try, timeout, &at.field("per_try_timeout"));
    }
    let policy = RetryPolicy {
        attempts,
        conditions: conditions.set,
        status_codes: conditions.codes.into_boxed_slice(),
        non_idempotent: raw.non_idempotent.unwrap_or(false),
        back_off: back_off(raw.back_off.as_ref(), &at.field("back_off")),
        max_retry_after: rule::time(
            raw.max_retry_after,
            &at.field("max_retry_after"),
            default.max_retry_after,
            Duration::ZERO..=MAX_WAIT,
        ),
    };
    Retry {
        policy,
        per_try_timeout: per_try,
        retriable_headers,
    }
}

/// Checks that a part of a request's time is not longer than the timeout of the route.
fn within_timeout(part: Duration, timeout: Duration, at: &At<'_>) {
    if !timeout.is_zero() && part > timeout {
        let (part, timeout) = (raw::TimeSpan(part), raw::TimeSpan(timeout));
        at.error(format!("{part} is above the route's `timeout` ({timeout})"))
            .help("increase `timeout`; it covers all attempts and the delays between them");
    }
}

/// Retry conditions and statuses as written.
#[derive(Default)]
struct Wanted {
    set: Conditions,
    codes: Vec<u16>,
}

impl Wanted {
    fn new(raw: &raw::Retry, at: &At<'_>) -> Self {
        let mut wanted = Self::default();
        match &raw.retry_on {
            None => wanted.set = RetryPolicy::default().conditions,
            Some(raw::OneOrMany(list)) => {
                let at = at.field("retry_on");
                for (i, text) in list.iter().enumerate() {
                    for word in text.split(',').map(str::trim) {
                        wanted.read(word, &at.index(i));
                    }
                }
            }
        }
        let at = at.field("retriable_status_codes");
        for (i, code) in raw.retriable_status_codes.iter().enumerate() {
            wanted.status(*code, &at.index(i));
        }
        wanted
    }

    fn read(&mut self, word: &str, at: &At<'_>) {
        if let Ok(condition) = word.parse() {
            self.set.insert(condition);
            return;
        }
        if let Ok(code) = word.parse::<u32>() {
            return self.status(code, at);
        }
        let help = match nearest(word, Condition::ALL.map(Condition::name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if word == "envoy-ratelimited" => "write `429`".into(),
            None => format!(
                "available: {}, or a status such as `503`",
                Condition::ALL.map(Condition::name).join(", ")
            ),
        };
        at.error(format!("`{}` is not a retry condition", yaml::short(word)))
            .help(help);
    }

    fn status(&mut self, code: u32, at: &At<'_>) {
        let code = rule::number(Some(code), at, 503, 400..=599);
        self.codes.extend(u16::try_from(code).ok());
        self.set.insert(Condition::RetriableStatusCodes);
    }

    /// Checks that conditions have their lists, and adds the conditions that lists imply.
    fn complete(&mut self, raw: &raw::Retry, attempts: u32, at: &At<'_>) {
        if self.set.contains(Condition::RetriableStatusCodes) && self.codes.is_empty() {
            at.field("retry_on")
                .error("`retriable-status-codes` needs a list")
                .when_readable()
                .help("add `retriable_status_codes: [503]`");
        }
        if !raw.retriable_headers.is_empty() {
            self.set.insert(Condition::RetriableHeaders);
        } else if self.set.contains(Condition::RetriableHeaders) {
            at.field("retry_on")
                .error("`retriable-headers` needs a list")
                .when_readable()
                .help("add `retriable_headers: [{name: x-try-again, present: true}]`");
        }
        if attempts > 0 && self.set.is_empty() {
            at.field("retry_on")
                .error("without a condition, nothing is retried")
                .when_readable()
                .help("remove the line to use the default, or write `attempts: 0`");
        }
    }
}

fn back_off(raw: Option<&raw::BackOff>, at: &At<'_>) -> BackOff {
    let base = raw.and_then(|raw| raw.base_interval);
    let max = raw.and_then(|raw| raw.max_interval);
    let range = Duration::ZERO..=MAX_WAIT;
    let default = BackOff::default().base_interval;
    let base = rule::time(base, &at.field("base_interval"), default, range.clone());
    let ten_times = base.saturating_mul(10).min(5 * MINUTE);
    let max = rule::time(max, &at.field("max_interval"), ten_times, range);
    rule::ordered(("base_interval", base), ("max_interval", max), at);
    BackOff {
        base_interval: base,
        max_interval: max,
    }
}

/// Validates a route's `hedge`, together with its `retry`; `timeout` is the route's, zero = none.
pub(in crate::check) fn hedge(
    raw: &raw::Hedge,
    retry: &Retry,
    timeout: Duration,
    at: &At<'_>,
) -> HedgePolicy {
    let at_delay = &at.field("delay");
    let delay = raw
        .delay
        .map(|time| rule::explicit_time(time, at_delay, MILLISECOND..=30 * DAY));
    match (delay, retry.per_try_timeout) {
        (None, None) => {
            at.error("`hedge` does not say when the next attempt starts")
                .when_readable()
                .help("write `hedge: 50ms`, or set `per_try_timeout` of `retry`");
        }
        (Some(delay), Some(per_try)) if delay >= per_try => {
            let (delay, per_try) = (raw::TimeSpan(delay), raw::TimeSpan(per_try));
            at_delay
                .error(format!(
                    "the delay of {delay} is never reached: `per_try_timeout` is {per_try}"
                ))
                .help("reduce the delay, or remove `delay` to start the next attempt at `per_try_timeout`");
        }
        (Some(delay), _) => within_timeout(delay, timeout, at_delay),
        (None, Some(_)) => {}
    }
    HedgePolicy {
        delay,
        attempts: rule::number(raw.attempts, &at.field("attempts"), 1, 1..=10),
    }
}

/// Validates a route's `mirror`.
pub(in crate::check) fn mirrors(
    raw: &[raw::Short<raw::Mirror>],
    at: &At<'_>,
    scope: &Scope<'_>,
) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    for (i, raw::Short(raw)) in raw.iter().enumerate() {
        let at = at.index(i);
        let percent = rule::percent(raw.percent, &at.field("percent"), 100.0);
        let Some(name) = &raw.cluster else {
            at.missing("cluster", "write `cluster: NAME`");
            continue;
        };
        scope.resolve_cluster(name, &at.field("cluster"));
        mirrors.push(Mirror {
            cluster: name.as_str().into(),
            percent,
        });
    }
    mirrors
}

/// Checks a route's retries together with its mirrors and the retry budgets of its clusters.
pub(in crate::check) fn combinations(
    raw: &raw::Route,
    targets: &[&raw::Cluster],
    at: &At<'_>,
    scope: &Scope<'_>,
) {
    let retries = |raw: &raw::Short<raw::Retry>| raw.0.attempts != Some(0);
    let retries = raw.retry.as_ref().is_some_and(retries);
    let set = [("retry", retries), ("hedge", raw.hedge.is_some())];
    for (name, _) in set.iter().filter(|(_, there)| *there) {
        let at = at.field(name);
        if !raw.mirror.is_empty() && scope.has_one_author() {
            at.error(format!(
                "`{name}` cannot be combined with `mirror`: the mirror would receive repeated requests"
            ))
            .on_key()
            .help(format!("remove `{name}`, or mirror on a route without `{name}`"));
        }
        if let Some(cluster) = targets.iter().find(|c| guard::is_without_budget(c)) {
            let cluster = cluster.name.as_deref().map(yaml::short).unwrap_or_default();
            at.error(format!(
                "`{name}` has no effect: the retry budget of cluster `{cluster}` allows no retries"
            ))
            .on_key()
            .help(format!(
                "increase the cluster's `retry_budget`, or remove `{name}`"
            ));
        }
    }
}

/// Validates a route's `sticky`.
pub(in crate::check) fn sticky(raw: &raw::Route, at: &At<'_>) -> Option<HashKind> {
    let (raw, clusters) = (raw.sticky.as_ref()?, &raw.clusters);
    let at = at.field("sticky");
    if clusters.iter().filter(|c| c.weight != Some(0)).count() < 2 {
        at.warning("`sticky` has no effect: the route has only one cluster")
            .on_key()
            .help("add several `clusters` to the route; for sticky endpoints use `hash_policy`");
    }
    let set = [
        ("header", raw.header.is_some()),
        ("cookie", raw.cookie.is_some()),
    ];
    match (rule::exactly_one(&set, &at)?, &raw.header, &raw.cookie) {
        ("header", Some(name), _) => headers::name(name, &at.field("header")).map(HashKind::Header),
        (_, _, cookie) => {
            let mut kind = hash::cookie(&cookie.as_ref()?.0, &at.field("cookie"))?;
            // A client without the cookie gets one; otherwise its cluster would be drawn again for
            // each request.
            if let HashKind::Cookie { ttl, .. } = &mut kind {
                ttl.get_or_insert(Duration::ZERO);
            }
            Some(kind)
        }
    }
}
