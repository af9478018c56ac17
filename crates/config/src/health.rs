//! Active health checks of a cluster.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use http::HeaderValue;
use maglor_balance::guard::health::HealthParams;

/// How endpoints are asked whether they are well.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HealthCheck {
    /// What is sent and what must come back.
    pub kind: HealthCheckKind,
    /// Interval, timeout, thresholds.
    pub params: HealthParams,
    /// Port of the checks; `None` = the endpoint's own.
    pub port: Option<NonZeroU16>,
}

/// The ways to ask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HealthCheckKind {
    /// `grpc.health.v1.Health/Check`; healthy is `SERVING`. The cluster speaks HTTP/2.
    Grpc {
        /// Service asked about; empty = the server as a whole.
        service: String,
        /// `:authority`; `None` = the endpoint's DNS name or address.
        authority: Option<HeaderValue>,
    },
    /// GET; healthy is an expected status.
    Http {
        /// Path and query.
        path: String,
        /// `Host`; `None` = the endpoint's DNS name or address.
        host: Option<HeaderValue>,
        /// Statuses of the healthy, at least one range.
        expected: Vec<RangeInclusive<u16>>,
    },
    /// A connection, with TLS where the cluster has it.
    Tcp {
        /// Sent first; empty = nothing.
        send: Vec<u8>,
        /// Must come back somewhere in the first 4 KiB; empty = nothing needs to.
        receive: Vec<u8>,
    },
}
