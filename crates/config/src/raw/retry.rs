//! What a route does when a try fails or takes long, and to whom else it sends requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{WordsOrNumbers, words_or_numbers};
use super::{Cookie, HeaderMatch, NotationError, OneOrMany, Short, Shorthand, TimeSpan};

/// When a request is sent again, to another endpoint where there is one. The cluster's
/// `retry_budget` limits how often that may happen; requests that no application has seen do not
/// count against it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Retries beyond the first try, 0-20; 0: none.
    #[schemars(range(max = 20), extend("default" = 2))]
    pub attempts: Option<u32>,
    /// Conditions, one of which is enough: `5xx`, `gateway-error`, `connect-failure`,
    /// `refused-stream`, `reset`, `reset-before-request`, `retriable-4xx`,
    /// `retriable-status-codes`, `retriable-headers`; for gRPC `cancelled`, `deadline-exceeded`,
    /// `internal`, `resource-exhausted`, `unavailable`. Also a status such as `503`.
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
    /// Responses that match one of these are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retriable_headers: Vec<HeaderMatch>,
    /// Also repeat requests whose method is not idempotent (POST, PATCH) and that an application may
    /// have seen. gRPC is repeated on the conditions listed in any case.
    #[schemars(extend("default" = false))]
    pub non_idempotent: Option<bool>,
    /// Time for each try, up to the head of its response, 1ms-30d; at most `timeout`. Absent: only
    /// `timeout` counts.
    pub per_try_timeout: Option<TimeSpan>,
    /// Pauses between tries.
    pub back_off: Option<BackOff>,
    /// A `Retry-After` (or `grpc-retry-pushback-ms`) up to this is waited for; a longer one means no
    /// retry, 0s-5m.
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

/// The pause before retry N is random between 0 and the lesser of `base_interval · 2^(N-1)` and
/// `max_interval`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BackOff {
    /// Upper end of the first pause, 0s-5m.
    #[schemars(extend("default" = "25ms"))]
    pub base_interval: Option<TimeSpan>,
    /// Upper end of every pause, `base_interval`-5m. Default: ten times `base_interval`.
    pub max_interval: Option<TimeSpan>,
}

/// A further try beside one that is slow; the first good answer wins. Only idempotent requests are
/// hedged, and the cluster's `retry_budget` counts each further try as a retry.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hedge {
    /// How long a try may take before the next one is started, 1ms-30d. Absent: the
    /// `per_try_timeout` of `retry`, which then ends no try.
    pub delay: Option<TimeSpan>,
    /// Further tries, 1-10.
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

    fn as_text(&self) -> Option<&str> {
        None
    }
}

/// A copy of each request for another cluster; its responses are thrown away.
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

/// What keeps a client at the cluster that it got first; one of the fields. Without the header the cluster is
/// drawn by weight for each request; a client without the cookie is given one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    /// The value of this header decides.
    pub header: Option<String>,
    /// The value of this cookie decides; a text is the cookie's name. Without `ttl` the cookie lasts until the
    /// browser is closed.
    pub cookie: Option<Short<Cookie>>,
}
