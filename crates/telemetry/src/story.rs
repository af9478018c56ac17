//! Stories of requests: what a proxy keeps of a request that failed or was slow, and why it went as it did.
//!
//! A proxy writes them as JSON; `maglor why` and the dashboard read them ([`Filter`], [`Collected`]). [`explain`] finds
//! the cause, without I/O.

mod cause;
mod chain;
mod collect;
mod kind;
mod slow;
mod spent;
mod words;

use serde::{Deserialize, Serialize};

pub use cause::explain;
pub use chain::explain_all;
pub use collect::{Collected, Explained, Filter, Listed, Page, StoryDetails};
pub use kind::{Cause, CauseKind};
pub use spent::{Part, Spent, spent};
pub use words::duration;

/// What a proxy keeps of one request, or of a connection that failed before it had one.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Story {
    /// `x-request-id`, or, without one, a number that is unique in the proxy, such as `#17`.
    pub id: String,
    /// The time of the end, RFC 3339.
    pub time: String,
    /// Name of the listener.
    pub listener: String,
    /// `inbound`, `outbound` or `unspecified`.
    pub direction: String,
    /// Address of the client.
    pub client: String,
    /// SPIFFE ID that the client has proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The request; `None` for a connection that failed before it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Response flag of the access log; for a connection the reason of
    /// `maglor_downstream_connections_refused_total`.
    pub flag: String,
    /// Why the request was refused, where a flag has several reasons, such as `queue-full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// The rule that decided, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// The cluster that rejected the request, at that moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterState>,
    /// The attempts, by their beginning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Where the time went.
    pub times: Times,
    /// The trace identifier, with tracing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The proxy; set by the reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
}

/// The request of a story.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query, as the client sent them.
    pub target: String,
    /// The host, as the client sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Status that the client got; 499 if it left before.
    pub status: u16,
    /// Bytes of the response's body that were sent.
    pub response_bytes: u64,
}

/// The route of a request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Route {
    /// Domains of the virtual host.
    pub virtual_host: String,
    /// Name of the route.
    pub name: String,
    /// The path that it matches.
    pub path: String,
}

/// The rule that decided about a request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Rule {
    /// Field of the configuration: `authorization`, `rate_limit` or `fault`.
    pub field: String,
    /// Name of the rule, or its parameters.
    pub name: String,
}

/// Guards and endpoints of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClusterState {
    /// The name.
    pub name: String,
    /// Requests in progress.
    pub requests: u32,
    /// The limit of requests in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
    /// Requests that wait.
    pub waiting: u32,
    /// The limit of requests that wait.
    pub max_pending_requests: u32,
    /// Open connections.
    pub connections: u32,
    /// The limit of open connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Phase of the circuit breaker, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<String>,
    /// Number of endpoints.
    pub endpoints: usize,
    /// Number of usable endpoints.
    pub usable: usize,
    /// Some of the endpoints.
    pub each: Vec<EndpointState>,
}

/// The state of an endpoint.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct EndpointState {
    /// The address.
    pub endpoint: String,
    /// Requests in flight there.
    pub in_flight: u32,
    /// Whether health checks pass.
    pub healthy: bool,
    /// Whether outlier detection has ejected it.
    pub ejected: bool,
    /// Whether it is being drained.
    pub draining: bool,
}

/// One attempt.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub number: u32,
    /// The cluster.
    pub cluster: String,
    /// The policy that chose the endpoint.
    pub policy: String,
    /// The endpoint.
    pub endpoint: String,
    /// TLS to the endpoint: `mesh` or `names`; `None` without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Requests in flight there, without this one, when it was chosen.
    pub in_flight: u32,
    /// The endpoints among which it was chosen, itself first; at most eight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// Number of endpoints of the cluster.
    pub candidates_total: u32,
    /// From the request's beginning to that of the attempt.
    pub began_ms: f64,
    /// How long it took: for the attempt whose response was sent, until its last byte.
    pub took_ms: f64,
    /// How long it waited for the permission to open a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_ms: Option<f64>,
    /// How long it took to connect; `None` for a reused connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<f64>,
    /// Whether a connection that it began to open is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// Status of the response; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Name of the status of a gRPC call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<String>,
    /// How it ended: `status`, `error`, `bounced`, `cancelled`.
    pub outcome: String,
    /// Response flag of its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// Message of its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it was not retried although the route retries such outcomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_refused: Option<String>,
    /// Whether the request's response is that of this attempt.
    pub answered: bool,
}

/// An endpoint among which a policy has chosen.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Candidate {
    /// The address.
    pub endpoint: String,
    /// Requests in flight there.
    pub in_flight: u32,
}

/// Where the time of a request went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Times {
    /// From the first byte of the request to the last of the response.
    pub total_ms: f64,
    /// In the queue of its cluster.
    pub queued_ms: f64,
    /// The delay of an injected fault.
    pub fault_ms: f64,
    /// Until the last part of the request's body was received, for a request with a body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_ms: Option<f64>,
    /// Until the first byte of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// From the first to the last byte that the endpoint sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_ms: Option<f64>,
    /// From the last byte that the endpoint sent to the last one that the client accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ms: Option<f64>,
}

impl Story {
    /// Returns whether it is a story of a request that did not fail and was only slow.
    #[must_use]
    pub fn is_slow_only(&self) -> bool {
        let status = self.request.as_ref().map(|request| request.status);
        self.flag == "-" && status.is_some_and(|status| status < 500) && !self.has_failed_call()
    }

    /// Returns whether the call has a gRPC status other than OK.
    fn has_failed_call(&self) -> bool {
        self.answer()
            .and_then(|attempt| attempt.grpc_status.as_deref())
            .is_some_and(|status| status != "OK")
    }

    /// Returns the cluster of the first attempt, or the one that rejected the request.
    #[must_use]
    pub fn cluster_name(&self) -> Option<&str> {
        let attempted = self.attempts.first().map(|attempt| &*attempt.cluster);
        attempted.or(self.cluster.as_ref().map(|cluster| &*cluster.name))
    }

    /// Returns the attempt whose result is the request's: the one that answered, or the last one.
    #[must_use]
    pub fn answer(&self) -> Option<&Attempt> {
        let answered = self.attempts.iter().find(|attempt| attempt.answered);
        answered.or(self.attempts.last())
    }
}
