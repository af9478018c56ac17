//! Rate limits and fault injection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{HeaderMatch, NotationError, Shorthand, TimeSpan};

/// A limit on the rate of requests: a token bucket of this proxy, shared by its workers. Excess requests get 429 with
/// `Retry-After`, `RateLimit` and `RateLimit-Policy`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["requests"]))]
pub struct RateLimit {
    /// Requests in each period `per`, 1-1000000000.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub requests: Option<u32>,
    /// Length of the period, 1ms-24h.
    #[schemars(extend("default" = "1s"))]
    pub per: Option<TimeSpan>,
    /// Maximum burst, 1-1000000000. Default: `requests`.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub burst: Option<u32>,
    /// Part of a request whose values are limited separately. Absent: one limit for all requests.
    pub key: Option<RateKey>,
    /// Maximum number of values of `key` to track, 32-10000000. The least recently used values are dropped and start
    /// again with a full burst. A value takes up to 40 bytes.
    #[schemars(range(min = 32, max = 10_000_000), extend("default" = 10_000))]
    pub max_keys: Option<u32>,
}

impl Shorthand for RateLimit {
    const TEXT: &'static str = "a rate such as `100/s` or `1000/10m`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        let bad = || {
            let help = match crate::hints::shapes::rate(text) {
                Some(guess) => format!("write `{guess}`"),
                None => "write a number of requests and a time, as in `100/s` or `1000/10m`".into(),
            };
            let text = crate::yaml::short(text);
            NotationError::new(format!("`{text}` is not a rate; {help}"))
        };
        let (requests, per) = text.split_once('/').ok_or_else(bad)?;
        let per = per.trim();
        let unit = per.starts_with(|c: char| c.is_ascii_alphabetic());
        let per = if unit {
            format!("1{per}")
        } else {
            per.to_owned()
        };
        Ok(Self {
            requests: Some(requests.trim().parse().map_err(|_| bad())?),
            per: Some(per.parse().map_err(|_| bad())?),
            ..Self::default()
        })
    }
}

/// Key of separate limits; exactly one of the fields.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RateKey {
    /// Name of the header whose values are limited separately; requests without the header share one limit.
    pub header: Option<String>,
    /// `true`: limit each client address separately.
    pub source_address: Option<bool>,
}

/// Fault injection for tests: a share of the requests is delayed, and a share gets an error.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Delay of a share of the requests.
    pub delay: Option<FaultDelay>,
    /// Error response to a share of the requests, which are not forwarded.
    pub abort: Option<FaultAbort>,
    /// Conditions on headers, all of which must match, for requests that get a fault. Default: all requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

/// An injected delay.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["fixed_delay"]))]
pub struct FaultDelay {
    /// Share of the requests, in percent, 0-100.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 100.0))]
    pub percent: Option<f64>,
    /// Delay, 1ms-1h.
    pub fixed_delay: Option<TimeSpan>,
}

/// An injected error; exactly one of `http_status` and `grpc_status`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FaultAbort {
    /// Share of the requests, in percent, 0-100.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 100.0))]
    pub percent: Option<f64>,
    /// HTTP status of the response, 200-599.
    #[schemars(range(min = 200, max = 599))]
    pub http_status: Option<u32>,
    /// gRPC status of the response, 0-16.
    #[schemars(range(max = 16))]
    pub grpc_status: Option<u32>,
}
