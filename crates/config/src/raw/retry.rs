//! Retries, hedging and mirroring of a route.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::forms::{WordsOrNumbers, words_or_numbers};
use super::{Cookie, HeaderMatch, NotationError, OneOrMany, Short, Shorthand, TimeSpan};

/// Retries at another endpoint, if there is one. The cluster's `retry_budget` limits them; retries of requests that
/// have not reached an application do not count against it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Maximum number of retries after the first attempt, 0-20; 0: none.
    #[schemars(range(max = 20), extend("default" = 2))]
    pub attempts: Option<u32>,
    /// Conditions for a retry, any of `5xx`, `gateway-error`, `connect-failure`, `refused-stream`, `reset`,
    /// `reset-before-request`, `retriable-4xx`, `retriable-status-codes`, `retriable-headers`; for gRPC `cancelled`,
    /// `deadline-exceeded`, `internal`, `resource-exhausted`, `unavailable`. Also a status such as `503`.
    #[schemars(
        with = "Option<WordsOrNumbers>",
        extend("default" = ["connect-failure", "refused-stream", "reset-before-request"])
    )]
    #[serde(
        default,
        deserialize_with = "words_or_numbers",
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_on: Option<OneOrMany>,
    /// Statuses that are retried, 400-599.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retriable_status_codes: Vec<u32>,
    /// Conditions on response headers; responses that match one of them are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retriable_headers: Vec<HeaderMatch>,
    /// Whether to also retry requests with a non-idempotent method (POST, PATCH) that may have reached the application.
    /// gRPC requests are always retried on the listed conditions.
    #[schemars(extend("default" = false))]
    pub non_idempotent: Option<bool>,
    /// Timeout of each attempt, up to its response head, 1ms-30d; at most `timeout`. Absent: only `timeout` applies.
    pub per_try_timeout: Option<TimeSpan>,
    /// Backoff between attempts.
    pub back_off: Option<BackOff>,
    /// Maximum `Retry-After` (or `grpc-retry-pushback-ms`) to wait for, 0s-5m; a request with a longer one is not
    /// retried.
    #[schemars(extend("default" = "5s"))]
    pub max_retry_after: Option<TimeSpan>,
}

impl Shorthand for Retry {
    const TEXT: &'static str = "retry conditions such as `5xx` or `gateway-error,connect-failure`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            retry_on: Some(OneOrMany(vec![text.to_owned()])),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                attempts: None,
                retry_on: Some(OneOrMany(list)),
                retriable_status_codes,
                retriable_headers,
                non_idempotent: None,
                per_try_timeout: None,
                back_off: None,
                max_retry_after: None,
            } if list.len() == 1
                && retriable_status_codes.is_empty()
                && retriable_headers.is_empty() =>
            {
                list.first().map(String::as_str)
            }
            _ => None,
        }
    }
}

/// The backoff before retry N is random between 0 and the lesser of `base_interval · 2^(N-1)` and
/// `max_interval`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BackOff {
    /// Upper bound of the first backoff, 0s-5m.
    #[schemars(extend("default" = "25ms"))]
    pub base_interval: Option<TimeSpan>,
    /// Upper bound of every backoff, `base_interval`-5m. Default: ten times `base_interval`.
    pub max_interval: Option<TimeSpan>,
}

/// Further attempts in parallel to a slow one; the first successful response wins. Only idempotent requests are hedged,
/// and the cluster's `retry_budget` counts each further attempt as a retry.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hedge {
    /// Delay before the next attempt, 1ms-30d. Absent: the `per_try_timeout` of `retry`, which then cancels no attempt.
    pub delay: Option<TimeSpan>,
    /// Maximum further attempts, 1-10.
    #[schemars(range(min = 1, max = 10), extend("default" = 1))]
    pub attempts: Option<u32>,
}

impl Shorthand for Hedge {
    const TEXT: &'static str = "a time such as `50ms`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            delay: Some(text.parse()?),
            ..Self::default()
        })
    }
}

/// Sends copies of requests to another cluster, whose responses are discarded.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["cluster"]))]
pub struct Mirror {
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Share of the requests that are copied, in percent, 0-100.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 100.0))]
    pub percent: Option<f64>,
}

impl Shorthand for Mirror {
    const TEXT: &'static str = "the name of a cluster";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            cluster: Some(text.to_owned()),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                cluster: Some(cluster),
                percent: None,
            } => Some(cluster),
            _ => None,
        }
    }
}

/// Affinity of a client to one of `clusters`; exactly one of the fields. For requests without the header, the cluster
/// is chosen at random by weight; clients without the cookie get one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    /// Name of the header whose value selects the cluster.
    pub header: Option<String>,
    /// Cookie whose value selects the cluster; a string is its name. Without `ttl`, the cookie lasts until the browser
    /// is closed.
    pub cookie: Option<Short<Cookie>>,
}
