//! Translates `retries` and `fault` of a rule.

use maglor_config::raw::{self, OneOrMany};

use crate::istio::block::Block;
use crate::istio::finding::Effect;

/// The retry conditions that have the same name in both configurations.
const CONDITIONS: [&str; 12] = [
    "5xx",
    "cancelled",
    "connect-failure",
    "deadline-exceeded",
    "gateway-error",
    "internal",
    "refused-stream",
    "reset",
    "reset-before-request",
    "resource-exhausted",
    "retriable-4xx",
    "unavailable",
];

/// Istio's default retry conditions. Older versions of Istio had a 503 among them, which an application may have sent after
/// it had processed the request.
const DEFAULT: &str = "connect-failure,refused-stream,unavailable,cancelled";

/// Translates `retries`. As in Envoy, requests of any method are retried.
pub(crate) fn retries(block: &Block<'_>) -> raw::Retry {
    let words = block.text("retryOn").filter(|text| !text.trim().is_empty());
    let mut conditions = Vec::new();
    for word in words.unwrap_or(DEFAULT).split(',').map(str::trim) {
        let status = word.parse::<u16>().is_ok();
        match status || CONDITIONS.contains(&word) {
            true => conditions.push(word.to_owned()),
            false => block.ignore("retryOn", format!("`{word}` is not supported")),
        }
    }
    let retry = raw::Retry {
        attempts: Some(block.number("attempts").unwrap_or(2)),
        retry_on: Some(OneOrMany(conditions)),
        non_idempotent: Some(true),
        per_try_timeout: block.time("perTryTimeout").filter(|time| !time.0.is_zero()),
        back_off: block.time("backoff").map(|pause| raw::BackOff {
            base_interval: Some(pause),
            ..raw::BackOff::default()
        }),
        ..raw::Retry::default()
    };
    block.end(Effect::Ignored);
    match retry.attempts {
        Some(0) => raw::Retry {
            attempts: Some(0),
            ..raw::Retry::default()
        },
        _ => retry,
    }
}

/// Translates `fault`.
pub(crate) fn fault(block: &Block<'_>) -> raw::Fault {
    let delay = block.block("delay").map(|delay| {
        let read = raw::FaultDelay {
            percent: Some(share(&delay)),
            fixed_delay: delay.time("fixedDelay"),
        };
        delay.end(Effect::Ignored);
        read
    });
    let abort = block.block("abort").map(|abort| {
        let grpc = abort.text("grpcStatus");
        let grpc_status = grpc.and_then(grpc_code);
        if grpc.is_some() && grpc_status.is_none() {
            abort.refuse("grpcStatus", "not a gRPC status");
        }
        let read = raw::FaultAbort {
            percent: Some(share(&abort)),
            http_status: abort.number("httpStatus"),
            grpc_status,
        };
        abort.end(Effect::Refused);
        read
    });
    block.end(Effect::Ignored);
    raw::Fault {
        delay,
        abort,
        headers: Vec::new(),
    }
}

/// Reads `percentage: {value: 0.1}`, formerly `percent: 10`, in percent; 0 if both are absent, as in Istio.
fn share(block: &Block<'_>) -> f64 {
    let deprecated = block.number("percent").map(f64::from);
    let share = block.block("percentage").map(|percentage| {
        let value = percentage.float("value").unwrap_or(0.0);
        percentage.end(Effect::Ignored);
        value
    });
    share.or(deprecated).unwrap_or_else(|| {
        block.ignore("percentage", "missing, so it applies to no request");
        0.0
    })
}

fn grpc_code(name: &str) -> Option<u32> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let code = NAMES.iter().position(|one| *one == name)?;
    u32::try_from(code).ok()
}
