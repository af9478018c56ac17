//! The YAML structure as written, one struct for each block.
//!
//! Only types are validated here. Names, ranges and references are validated in `check`, which also applies the
//! defaults; so every field is optional here. Terms are those of Envoy and Istio, where they have one. The doc comments
//! become the descriptions of the JSON Schema.

mod access_log;
mod action;
mod authorization;
mod cluster;
mod control_plane;
mod forms;
mod guard;
mod header_rules;
mod health;
mod listener;
mod load_reports;
mod matching;
mod notation;
mod retry;
mod route;
mod sidecar;
mod tls;
mod tracing;
mod traffic;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use std::collections::BTreeMap;

pub use access_log::{AccessLog, AccessLogFields, AccessLogFormat};
pub use action::{ClusterWeight, Cookie, DirectResponse, HashPolicy, Redirect, Rewrite};
pub use authorization::{
    Authorization, AuthorizationAction, AuthorizationHeader, AuthorizationOperation,
    AuthorizationRule, AuthorizationSource, Effect,
};
pub use cluster::{
    Cluster, ClusterType, DnsAddresses, DnsRefresh, Endpoint, ProxyProtocolOut, SlowStart,
    UpstreamProtocol,
};
pub use control_plane::{ControlPlane, Discovery, Node};
pub use forms::{OneOrMany, Pairs, Short, Shorthand};
pub use guard::{
    CircuitBreaker, ConcurrencyLimit, Delay, EndpointLimits, Limits, OutlierEjection, RetryBudget,
};
pub use header_rules::HeaderRules;
pub use health::{GrpcCheck, HealthCheck, HttpCheck, TcpCheck};
pub use listener::{
    ClientCertMode, FilterChain, FilterChainMatch, ForwardedMode, Http, HttpProtocol, Listener,
    PathNormalization, ProxyProtocolIn, Tcp, TrafficDirection,
};
pub use load_reports::LoadReports;
pub use matching::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, StringMatch};
pub use notation::{NotationError, Size, TimeSpan};
pub use retry::{BackOff, Hedge, Mirror, Retry, Sticky};
pub use route::{Route, RouteTable, VirtualHost};
pub use sidecar::{ApplicationPort, ApplicationProtocol, Inbound, Outbound, Service, Unknown};
pub use tls::{
    CertificateFiles, DownstreamTls, Identity, MeshMode, MeshPeers, TlsVersion, UpstreamTls,
};
pub use tracing::{MeshTracing, OtlpProtocol, TraceSampling, Tracing};
pub use traffic::{Fault, FaultAbort, FaultDelay, RateKey, RateLimit};

/// Configuration of maglor-proxy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["listeners"]))]
pub struct Document {
    /// Number of worker threads, 1-256. Each has its own listening sockets, connections and pools. One worker serves
    /// tens of thousands of requests a second.
    #[schemars(range(min = 1, max = 256), extend("default" = 1))]
    pub workers: Option<u32>,
    /// Admin server with `/metrics`, `/ready`, `/live`, `/config`, `/clusters` and `/drain`. Absent: no admin port.
    pub admin: Option<Admin>,
    /// Initial log level of the proxy; the admin port changes it at run time. In a release build `trace` equals
    /// `debug`; a development build adds the logs of libraries.
    #[schemars(extend("default" = "info"))]
    pub log_level: Option<LogLevel>,
    /// Access log: one line for each request. Absent: no access log.
    pub access_log: Option<AccessLog>,
    /// Spans of requests for an OpenTelemetry collector. Absent: trace headers are forwarded unchanged.
    pub tracing: Option<Tracing>,
    /// Keep why requests failed or were slow, for `maglor why`: all failed requests and the slowest 1 %, for ten minutes
    /// and in at most 1 MB. See docs/why.md.
    #[schemars(extend("default" = true))]
    pub stories: Option<bool>,
    /// Identity of the proxy inside the mesh; required by `tls: mesh`. Absent: none.
    pub identity: Option<Identity>,
    /// Control plane for services that are not in this file. Absent: none.
    pub control_plane: Option<ControlPlane>,
    /// Drain timeout of open connections after SIGTERM, or after their listener was removed, 0s-24h.
    #[schemars(extend("default" = "30s"))]
    pub drain_timeout: Option<TimeSpan>,
    /// Minimum time for which `outbound` listeners continue after SIGTERM, 0s-24h and at most `drain_timeout`;
    /// afterwards they continue until no connection is left. An application may still make calls while it shuts down.
    #[schemars(extend("default" = "5s"))]
    pub outbound_grace: Option<TimeSpan>,
    /// Memory budget of the proxy, 8MiB-1TiB. It limits connections, buffered bodies, data for slow peers, and new
    /// requests, which get 503 with `retry-after`; the connections and streams with the largest buffers are reset. See
    /// docs/memory.md. Absent: unlimited.
    pub memory_budget: Option<Size>,
    /// Sockets that accept connections; at least one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Tables of virtual hosts that several listeners share; `http.routes` refers to them by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub route_tables: Vec<RouteTable>,
    /// Sets of servers; routes and `tcp` refer to them by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Cluster>,
}

impl Document {
    /// Returns the configuration as YAML text, without unset fields.
    ///
    /// # Errors
    ///
    /// If the YAML writer fails, which it does not for these types.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        serde_yaml::to_string(self)
    }
}

/// The admin server. It has no authentication: pages for operators are served only over loopback.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Admin {
    /// `IP:PORT` to listen on; port 0 lets the kernel choose.
    pub address: Option<String>,
    /// Pages for non-loopback clients, if `address` is not a loopback address. Loopback clients, including
    /// `kubectl port-forward`, get all pages.
    #[schemars(extend("default" = "public"))]
    pub remote_access: Option<RemoteAccess>,
    /// Health probes of the application, by name, for `GET /probe/NAME`: `http:PORT/PATH`, `tcp:PORT` or
    /// `grpc:PORT/SERVICE`. They are for a kubelet, which does not use mutual TLS.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, String>,
}

/// Pages of the admin server for non-loopback clients.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RemoteAccess {
    /// All pages, including `/config`, `/tap` and `POST /drain`, if they are requested by address and not by name. Use
    /// it only on a trusted network.
    Full,
    /// `/ready`, `/live`, `/metrics` and `/probe/NAME`.
    Public,
}

/// Verbosity of the proxy's own log.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only errors.
    Error,
    /// Errors and warnings.
    Warn,
    /// Also starts, stops and reloads.
    Info,
    /// Also events of connections.
    Debug,
    /// Also events of requests.
    Trace,
}
