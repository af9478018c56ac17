//! The state of a cluster when it rejected a request.

use maglor_config::Address;

/// Guards and endpoints of a cluster at one moment.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) name: std::sync::Arc<str>,
    pub(crate) requests: u32,
    pub(crate) max_requests: Option<u32>,
    pub(crate) waiting: u32,
    pub(crate) max_pending: u32,
    pub(crate) connections: u32,
    pub(crate) max_connections: Option<u32>,
    /// Phase of the circuit breaker, if there is one.
    pub(crate) breaker: Option<&'static str>,
    /// Number of all endpoints, of which `endpoints` has several.
    pub(crate) total: usize,
    pub(crate) usable: usize,
    pub(crate) endpoints: Vec<EndpointState>,
}

/// The state of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointState {
    pub(crate) address: Address,
    pub(crate) in_flight: u32,
    pub(crate) healthy: bool,
    pub(crate) ejected: bool,
    pub(crate) draining: bool,
}
