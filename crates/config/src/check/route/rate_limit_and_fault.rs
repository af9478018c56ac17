//! Validates rate limits and fault injection.

use maglor_balance::guard::GrpcStatus;
use maglor_balance::guard::fault::{AbortAnswer, FaultAbort, FaultDelay, FaultParams};
use maglor_balance::guard::rate::RateParams;

use super::matching;
use crate::check::rule::{self, DAY, HOUR, MILLISECOND, SECOND};
use crate::check::{Scope, headers};
use crate::raw;
use crate::report::At;
use crate::traffic::{Fault, RateKey, RateLimit};

pub(in crate::check) fn rate_limit(raw: &raw::RateLimit, at: &At<'_>) -> Option<RateLimit> {
    let per = rule::time(raw.per, &at.field("per"), SECOND, MILLISECOND..=DAY);
    let key = raw.key.as_ref();
    let key = key.map(|raw| rate_key(raw, &at.field("key")));
    if raw.max_keys.is_some() && key.is_none() {
        at.field("max_keys")
            .error("`max_keys` has no effect without `key`")
            .on_key()
            .when_readable()
            .help("remove `max_keys`, or add `key: {source_address: true}`");
    }
    let max_keys = rule::number(raw.max_keys, &at.field("max_keys"), 10_000, 32..=10_000_000);
    let number = |value, name: &str, default| {
        rule::number::<u32>(value, &at.field(name), default, 1..=1_000_000_000)
    };
    let Some(requests) = raw.requests else {
        at.missing("requests", "write `requests: N`, or a rate such as `100/s`");
        return None;
    };
    let requests = number(Some(requests), "requests", 1);
    Some(RateLimit {
        params: RateParams {
            requests,
            per,
            burst: number(raw.burst, "burst", requests),
        },
        key: key.flatten(),
        max_keys: max_keys as usize,
    })
}

fn rate_key(raw: &raw::RateKey, at: &At<'_>) -> Option<RateKey> {
    let set = [
        ("header", raw.header.is_some()),
        ("source_address", raw.source_address == Some(true)),
    ];
    match (rule::exactly_one(&set, at)?, &raw.header) {
        ("header", Some(name)) => headers::name(name, &at.field("header")).map(RateKey::Header),
        _ => Some(RateKey::SourceAddress),
    }
}

pub(in crate::check) fn fault(raw: &raw::Fault, at: &At<'_>, scope: &Scope<'_>) -> Fault {
    if raw.delay.is_none() && raw.abort.is_none() {
        at.error("one of `delay` and `abort` is required")
            .when_readable();
    }
    let delay = raw.delay.as_ref();
    let abort = raw.abort.as_ref();
    let params = FaultParams {
        delay: delay.and_then(|raw| fault_delay(raw, &at.field("delay"))),
        abort: abort.and_then(|raw| fault_abort(raw, &at.field("abort"))),
    };
    let list = at.field("headers");
    let each = raw.headers.iter().enumerate();
    Fault {
        params,
        headers: each
            .filter_map(|(i, raw)| matching::header(raw, &list.index(i), scope))
            .collect(),
    }
}

fn fault_delay(raw: &raw::FaultDelay, at: &At<'_>) -> Option<FaultDelay> {
    let percent = rule::percent(raw.percent, &at.field("percent"), 100.0);
    let Some(time) = raw.fixed_delay else {
        at.missing("fixed_delay", "write `fixed_delay: 500ms`");
        return None;
    };
    let at = &at.field("fixed_delay");
    Some(FaultDelay {
        percent,
        fixed_delay: rule::explicit_time(time, at, MILLISECOND..=HOUR),
    })
}

fn fault_abort(raw: &raw::FaultAbort, at: &At<'_>) -> Option<FaultAbort> {
    let percent = rule::percent(raw.percent, &at.field("percent"), 100.0);
    let set = [
        ("http_status", raw.http_status.is_some()),
        ("grpc_status", raw.grpc_status.is_some()),
    ];
    let answer = match rule::exactly_one(&set, at)? {
        "grpc_status" => {
            let code = rule::number(raw.grpc_status, &at.field("grpc_status"), 14, 0..=16);
            AbortAnswer::Grpc(GrpcStatus::new(code))
        }
        _ => {
            let status = rule::number(raw.http_status, &at.field("http_status"), 500, 200..=599);
            AbortAnswer::Http(u16::try_from(status).unwrap_or(500))
        }
    };
    Some(FaultAbort { percent, answer })
}
