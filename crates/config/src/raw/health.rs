//! Active health checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::{WordsOrNumbers, words_or_numbers};
use super::{NotationError, OneOrMany, Short, Shorthand, TimeSpan};

/// How endpoints are asked whether they are well; one of `http`, `grpc` and `tcp`. An endpoint that
/// was not asked yet counts as healthy; the first answer decides at once.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    /// By a request; a text is its path.
    pub http: Option<Short<HttpCheck>>,
    /// By `grpc.health.v1.Health/Check`.
    pub grpc: Option<GrpcCheck>,
    /// By a connection.
    pub tcp: Option<TcpCheck>,
    /// Between two checks, 10ms-24h; plus a random extra of up to `interval_jitter_percent`.
    #[schemars(extend("default" = "5s"))]
    pub interval: Option<TimeSpan>,
    /// The same while the endpoint is unhealthy. Default: `interval`.
    pub unhealthy_interval: Option<TimeSpan>,
    /// Random extra of the interval in percent, 0-100.
    #[schemars(range(max = 100), extend("default" = 10))]
    pub interval_jitter_percent: Option<u32>,
    /// A check that takes longer has failed, 1ms-`interval`.
    #[schemars(extend("default" = "1s"))]
    pub timeout: Option<TimeSpan>,
    /// Failures in a row that make an endpoint unhealthy, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub unhealthy_threshold: Option<u32>,
    /// Successes in a row that make it healthy again, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 2))]
    pub healthy_threshold: Option<u32>,
    /// Port of the checks, 1-65535. Absent: the endpoint's own.
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
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub struct HttpCheck {
    /// Path, and query where one is wanted.
    pub path: Option<String>,
    /// `Host`. Default: the endpoint's DNS name (its address where it has none).
    pub host: Option<String>,
    /// Statuses of the healthy, such as `200` or `200-299`. Default: 200-399.
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

/// A check by the gRPC health protocol; the cluster speaks HTTP/2.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcCheck {
    /// Service that is asked about. Default: the server as a whole.
    pub service: Option<String>,
    /// `:authority`. Default: the endpoint's DNS name (its address where it has none).
    pub authority: Option<String>,
}

/// A check by a connection (and its TLS handshake, where the cluster has TLS).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TcpCheck {
    /// Text that is sent. Absent: nothing; that the connection is made is enough.
    pub send: Option<String>,
    /// Text that must come back, among others. Absent: any or none.
    pub receive: Option<String>,
}
