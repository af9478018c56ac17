//! Active health checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::forms::{WordsOrNumbers, words_or_numbers};
use super::{NotationError, OneOrMany, Short, Shorthand, TimeSpan};

/// Active health check; exactly one of `http`, `grpc` and `tcp`. An endpoint counts as healthy until its first check,
/// whose result takes effect immediately.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// Check by an HTTP request; a string is its path.
    pub http: Option<Short<HttpCheck>>,
    /// Check by `grpc.health.v1.Health/Check`.
    pub grpc: Option<GrpcCheck>,
    /// Check by a TCP connection.
    pub tcp: Option<TcpCheck>,
    /// Interval between checks, 10ms-24h; a random part of up to `interval_jitter_percent` is added.
    #[schemars(extend("default" = "5s"))]
    pub interval: Option<TimeSpan>,
    /// Interval between checks of an unhealthy endpoint. Default: `interval`.
    pub unhealthy_interval: Option<TimeSpan>,
    /// Maximum random addition to the interval, in percent, 0-100.
    #[schemars(range(max = 100), extend("default" = 10))]
    pub interval_jitter_percent: Option<u32>,
    /// Timeout of a check, 1ms-`interval`.
    #[schemars(extend("default" = "1s"))]
    pub timeout: Option<TimeSpan>,
    /// Consecutive failures that make an endpoint unhealthy, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub unhealthy_threshold: Option<u32>,
    /// Consecutive successes that make an unhealthy endpoint healthy again, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 2))]
    pub healthy_threshold: Option<u32>,
    /// Port of the checks, 1-65535. Absent: the endpoint's own port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u32>,
}

impl Shorthand for HealthCheck {
    const TEXT: &'static str = "a path such as `/healthz`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            http: Some(Short(HttpCheck::from_text(text)?)),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                http: Some(Short(http)),
                grpc: None,
                tcp: None,
                interval: None,
                unhealthy_interval: None,
                interval_jitter_percent: None,
                timeout: None,
                unhealthy_threshold: None,
                healthy_threshold: None,
                port: None,
            } => http.as_text(),
            _ => None,
        }
    }
}

/// A check by a GET request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub struct HttpCheck {
    /// Path of the request, with an optional query.
    pub path: Option<String>,
    /// `Host` of the request. Default: the endpoint's DNS name (its address if it has none).
    pub host: Option<String>,
    /// Statuses that count as healthy, such as `200` or `200-299`. Default: 200-399.
    #[schemars(with = "Option<WordsOrNumbers>")]
    #[serde(
        default,
        deserialize_with = "words_or_numbers",
        skip_serializing_if = "Option::is_none"
    )]
    pub expected_statuses: Option<OneOrMany>,
}

impl Shorthand for HttpCheck {
    const TEXT: &'static str = "a path such as `/healthz`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            path: Some(text.to_owned()),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                path: Some(path),
                host: None,
                expected_statuses: None,
            } => Some(path),
            _ => None,
        }
    }
}

/// A check by the gRPC health protocol; the cluster must use HTTP/2.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcCheck {
    /// Service to check. Default: the whole server.
    pub service: Option<String>,
    /// `:authority` of the call. Default: the endpoint's DNS name (its address if it has none).
    pub authority: Option<String>,
}

/// A check by a TCP connection, and its TLS handshake if the cluster has TLS.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TcpCheck {
    /// String to send. Absent: nothing is sent.
    pub send: Option<String>,
    /// String that the response must contain. Absent: no response is required.
    pub receive: Option<String>,
}
