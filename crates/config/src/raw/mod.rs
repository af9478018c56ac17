//! What the operator typed: the YAML vocabulary, one struct a block.
//!
//! Nothing here is judged beyond its type: names, ranges and references are checked in `check`, so
//! every field is optional here and documented with its default there. Words are Envoy's and Istio's
//! where they have one. The doc comments become the descriptions of the JSON Schema.

mod action;
mod authorization;
mod cluster;
mod control_plane;
mod forms;
mod guard;
mod health;
mod listener;
mod notation;
mod retry;
mod route;
mod sidecar;
mod tls;
mod traffic;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
pub use health::{GrpcCheck, HealthCheck, HttpCheck, TcpCheck};
pub use listener::{
    ClientCertMode, FilterChain, FilterChainMatch, ForwardedMode, Http, HttpProtocol, Listener,
    LoadReports, PathNormalization, ProxyProtocolIn, Tcp, TrafficDirection,
};
pub use notation::{NotationError, Size, TimeSpan};
pub use retry::{BackOff, Hedge, Mirror, Retry, Sticky};
pub use route::{
    HeaderMatch, HeaderRules, PathMatch, QueryMatch, Route, RouteMatch, RouteTable, StringMatch,
    VirtualHost,
};
pub use sidecar::{ApplicationPort, ApplicationProtocol, Inbound, Outbound, Service, Unknown};
pub use tls::{
    CertificateFiles, DownstreamTls, Identity, MeshMode, MeshPeers, TlsVersion, UpstreamTls,
};
pub use traffic::{Fault, FaultAbort, FaultDelay, RateKey, RateLimit};

/// Configuration of maglor-proxy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["listeners"]))]
pub struct Document {
    /// Worker threads, 1-256. Each has its own listening sockets, connections and pools. One worker
    /// serves tens of thousands of requests a second.
    #[schemars(range(min = 1, max = 256), extend("default" = 1))]
    pub workers: Option<u32>,
    /// The admin server with `/metrics`, `/ready`, `/live`, `/config`, `/clusters` and `/drain`.
    /// Absent: no admin port.
    pub admin: Option<Admin>,
    /// Verbosity of the proxy's own log at start; the admin port changes it at run time. A release says at `trace`
    /// what it says at `debug`; a development build adds what libraries say.
    #[schemars(extend("default" = "info"))]
    pub log_level: Option<LogLevel>,
    /// One line for each request. Absent: no access log.
    pub access_log: Option<AccessLog>,
    /// Who the proxy is inside the mesh; `tls: mesh` needs it. Absent: nobody.
    pub identity: Option<Identity>,
    /// Who tells of services that are not in this file. Absent: nobody.
    pub control_plane: Option<ControlPlane>,
    /// How long open connections may finish after SIGTERM, or after their listener has gone, 0s-24h.
    #[schemars(extend("default" = "30s"))]
    pub drain_timeout: Option<TimeSpan>,
    /// Where there are listeners of direction `outbound`: after SIGTERM they go on for so long at least,
    /// and then until no connection is left, 0s-24h and no longer than `drain_timeout`. An application
    /// that ends may still have to call somebody.
    #[schemars(extend("default" = "5s"))]
    pub outbound_grace: Option<TimeSpan>,
    /// Memory that the proxy may use, 8MiB-1TiB: connections, kept bodies, what waits for slow peers, and new
    /// requests are limited by it, the latter by 503 with `retry-after`; the largest holders are reset. See
    /// docs/memory.md. Absent: as much as it needs.
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
    /// The same configuration as YAML text, without what is not set.
    ///
    /// # Errors
    /// If the YAML writer fails, which it does not for these types.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        let mut value = serde_yaml::to_value(self)?;
        remove_nulls(&mut value);
        serde_yaml::to_string(&value)
    }
}

fn remove_nulls(value: &mut serde_yaml::Value) {
    match value {
        serde_yaml::Value::Mapping(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        serde_yaml::Value::Sequence(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The admin server. It has no authentication: what is not for every peer is answered over loopback only.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Admin {
    /// `IP:PORT` to listen on; port 0 lets the kernel choose.
    pub address: Option<String>,
    /// What peers from the network get, where `address` is not a loopback address. Over loopback, also through
    /// `kubectl port-forward`, all pages are answered.
    #[schemars(extend("default" = "public"))]
    pub remote_access: Option<RemoteAccess>,
    /// Questions to the application that `GET /probe/NAME` asks over loopback, by name: `http:PORT/PATH`,
    /// `tcp:PORT` or `grpc:PORT/SERVICE`. For a kubelet, which has no mutual TLS.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, String>,
}

/// What peers from the network get of the admin server.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RemoteAccess {
    /// Everything, `/config`, `/tap` and `POST /drain` among it, by address and not by name: only on a network
    /// where every peer may do that.
    Full,
    /// `/ready`, `/live`, `/metrics` and `/probe/NAME`.
    Public,
}

/// Where and how requests are logged.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessLog {
    /// A file that is appended to, or `/dev/stdout`.
    #[schemars(extend("default" = "/dev/stdout"))]
    pub path: Option<String>,
    /// Layout of a line.
    #[schemars(extend("default" = "json"))]
    pub format: Option<AccessLogFormat>,
    /// The keys of each JSON object, in this order; docs/access-log.md has them. Default: all.
    pub fields: Option<OneOrMany>,
    /// A line of its own, in place of `format`: text with fields in braces, as in
    /// `{client} {method} {target} {status}`; `{{` and `}}` are braces.
    pub template: Option<String>,
}

/// Layout of an access log line.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One JSON object a line.
    Json,
    /// Space-separated, quoted where needed.
    Text,
}

/// Verbosity of the proxy's own log.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only what needs an operator now.
    Error,
    /// Also what may need one soon.
    Warn,
    /// Also starts, stops, reloads.
    Info,
    /// Also each connection's fate.
    Debug,
    /// Also each request's steps.
    Trace,
}
