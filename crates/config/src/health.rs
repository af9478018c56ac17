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
    /// The interval, timeout and thresholds.
    pub params: HealthParams,
    /// The port of the checks; `None` = the endpoint's own port.
    pub port: Option<NonZeroU16>,
}

/// The kinds of checks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HealthCheckKind {
    /// A call of `grpc.health.v1.Health/Check`; the endpoint is healthy if it answers `SERVING`. The cluster uses
    /// HTTP/2.
    Grpc {
        /// The name of the service to check; empty = the whole server.
        service: String,
        /// The `:authority` of the call; `None` = the endpoint's DNS name or address.
        authority: Option<HeaderValue>,
    },
    /// A GET request; the endpoint is healthy if its status is expected.
    Http {
        /// The path with query.
        path: String,
        /// The `Host` of the request; `None` = the endpoint's DNS name or address.
        host: Option<HeaderValue>,
        /// The statuses of a healthy endpoint; at least one range.
        expected: Vec<RangeInclusive<u16>>,
    },
    /// A connection, with TLS if the cluster uses it.
    Tcp {
        /// The bytes to send after connecting; empty = none.
        send: Vec<u8>,
        /// The bytes expected within the first 4 KiB of the response; empty = none.
        receive: Vec<u8>,
    },
}
