//! Active health checks of a cluster.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use http::HeaderValue;
use maglor_balance::guard::health::HealthParams;

/// The active health check of endpoints.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    /// The request and the expected response.
    pub kind: HealthCheckKind,
    /// Interval, timeout, thresholds.
    pub params: HealthParams,
    /// The port of the checks; `None` = the endpoint's own.
    pub port: Option<NonZeroU16>,
}

/// The kinds of checks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HealthCheckKind {
    /// `grpc.health.v1.Health/Check`; healthy is `SERVING`. The cluster speaks HTTP/2.
    Grpc {
        /// The name of the service; empty = the whole server.
        service: String,
        /// `:authority`; `None` = the endpoint's DNS name or address.
        authority: Option<HeaderValue>,
    },
    /// GET; healthy is an expected status.
    Http {
        /// The path with query.
        path: String,
        /// `Host`; `None` = the endpoint's DNS name or address.
        host: Option<HeaderValue>,
        /// The statuses of a healthy endpoint, at least one range.
        expected: Vec<RangeInclusive<u16>>,
    },
    /// A connection, with TLS if the cluster uses it.
    Tcp {
        /// The bytes to send first; empty = none.
        send: Vec<u8>,
        /// The bytes expected somewhere in the first 4 KiB; empty = none.
        receive: Vec<u8>,
    },
}
