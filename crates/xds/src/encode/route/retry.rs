//! Encodes retries.

use maglor_config::raw;

use super::matching;
use crate::proto::envoy::config::route::v3::{
    HeaderMatcher, RetryPolicy, retry_policy::RetryBackOff,
};
use crate::time;

/// Encodes retries; absent fields have our defaults.
pub(crate) fn retry(raw: Option<&raw::Retry>) -> RetryPolicy {
    let default = "connect-failure,refused-stream,reset-before-request";
    let raw = raw.cloned().unwrap_or_default();
    let conditions = raw.retry_on.map(|list| list.0.join(","));
    RetryPolicy {
        retry_on: conditions.unwrap_or_else(|| default.to_owned()),
        num_retries: Some(raw.attempts.unwrap_or(2)),
        per_try_timeout: raw.per_try_timeout.map(time::encode),
        retriable_status_codes: raw.retriable_status_codes,
        retry_back_off: raw.back_off.and_then(|raw| {
            Some(RetryBackOff {
                base_interval: Some(time::encode(raw.base_interval?)),
                max_interval: raw.max_interval.map(time::encode),
            })
        }),
        retriable_headers: raw.retriable_headers.iter().filter_map(header).collect(),
    }
}

/// Encodes a condition on a response header; one that Envoy cannot express is sent only in the metadata.
fn header(raw: &raw::HeaderMatch) -> Option<HeaderMatcher> {
    let matcher = matching::header(raw);
    (matcher.invert_match == raw.value().invert).then_some(matcher)
}
