//! Export of spans.

use std::collections::BTreeMap;
use std::sync::Arc;

use maglor_balance::guard::Percent;

/// The collectors, and the spans that they get.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tracing {
    /// The name of the cluster of collectors.
    pub cluster: Arc<str>,
    /// The transport.
    pub transport: OtlpTransport,
    /// The attributes of the resource, including `service.name`.
    pub resource: BTreeMap<String, String>,
    /// The spans that are exported.
    pub sampling: TraceSampling,
}

/// The transport of OTLP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OtlpTransport {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    Http {
        /// The path of the requests.
        path: String,
    },
}

/// The traces that are exported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceSampling {
    /// The share of traces without a decision of their beginning.
    pub share: Percent,
    /// Whether a decision that arrives with a request is followed.
    pub parent_based: bool,
    /// Whether failed requests are exported.
    pub errors: bool,
    /// The share of the slowest requests that are exported.
    pub slowest: Percent,
}
