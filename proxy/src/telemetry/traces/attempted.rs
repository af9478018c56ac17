//! An attempt that has ended, in the compact form in which it waits for the end of its request.

use std::sync::Arc;

use http::StatusCode;
use maglor_balance::guard::GrpcStatus;
use maglor_config::Address;
use maglor_telemetry::trace_context::SpanId;
use tokio::time::Instant;

/// The endpoint of an attempt, and why it has this one.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) cluster: Arc<str>,
    pub(crate) address: Address,
    pub(crate) tls: bool,
    /// Name of the policy that chose it.
    pub(crate) policy: &'static str,
    /// Number of requests in flight there, without this one, when it was chosen.
    pub(crate) queue: u32,
}

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Attempted {
    pub(super) span: SpanId,
    pub(super) endpoint: Endpoint,
    /// Number of the attempt within its request, from 1.
    pub(super) number: u32,
    pub(super) started: Instant,
    pub(super) ended: Instant,
    /// `None` without a response.
    pub(super) status: Option<StatusCode>,
    pub(super) grpc: Option<GrpcStatus>,
    /// Response flag of its error.
    pub(super) error: Option<&'static str>,
    /// Whether the endpoint's proxy has returned the request at once.
    pub(super) bounced: bool,
}
