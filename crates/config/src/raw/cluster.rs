//! `clusters`: sets of servers.

use std::borrow::Cow;

use maglor_balance as balance;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with_macros::skip_serializing_none;

use super::{
    CircuitBreaker, ConcurrencyLimit, Delay, HealthCheck, Limits, NotationError, OutlierEjection,
    Pairs, RetryBudget, Short, Shorthand, TimeSpan, UpstreamTls,
};

/// A set of endpoints that serve the same requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Cluster {
    /// Unique name, by which routes refer to the cluster; the label `cluster` in metrics.
    pub name: Option<String>,
    /// Load balancing policy: `random`, `round-robin`, `lor(choices=2)`, `peak-ewma`,
    /// `maglev(table_size=65537)`, `ring-hash(min=1024)`; or a mapping such as
    /// `{name: maglev, table_size: 251}`.
    #[schemars(with = "PolicySchema", extend("default" = "lor(choices=2)"))]
    pub policy: Option<balance::PolicySpec>,
    /// Source of the endpoints.
    #[schemars(extend("default" = "static"))]
    pub r#type: Option<ClusterType>,
    /// With `type: original-destination`: an IP address that replaces the destination's, or `loopback` for the loopback
    /// address of the same family. The port is kept. Absent: the destination's own address.
    pub address: Option<String>,
    /// The endpoints, by address or DNS name. If the list is empty, requests get 503.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Short<Endpoint>>,
    /// HTTP version for the endpoints. Default: `http1`, but `http2` for gRPC calls (under TLS, if the endpoint
    /// agrees to it by ALPN); with `tls: mesh`, `auto`.
    pub protocol: Option<UpstreamProtocol>,
    /// TLS to the endpoints. Absent: plain text.
    pub tls: Option<Short<UpstreamTls>>,
    /// PROXY protocol header to send on each new connection. The header names one client, so an HTTP/1.1 connection is
    /// reused only for requests of that client, and an HTTP/2 connection for none.
    #[schemars(extend("default" = "off"))]
    pub proxy_protocol: Option<ProxyProtocolOut>,
    /// Timeout of the TCP and TLS handshakes together, 1ms-10m. If the endpoint leaves the cluster during the
    /// handshakes, the attempt is abandoned within 200ms, and another endpoint is used.
    #[schemars(extend("default" = "5s"))]
    pub connect_timeout: Option<TimeSpan>,
    /// Idle timeout of pooled connections, 1ms-24h.
    #[schemars(extend("default" = "1m"))]
    pub idle_timeout: Option<TimeSpan>,
    /// Maximum number of requests on a connection, 1-4294967295. Absent: no limit.
    #[schemars(range(min = 1))]
    pub max_requests_per_connection: Option<u32>,
    /// Maximum number of HTTP/1.1 connections that stay open after one second without a request, for each worker and
    /// endpoint, 0-65536. 0: connections are not reused.
    #[schemars(range(max = 65536), extend("default" = 1024))]
    pub max_idle_connections: Option<u32>,
    /// Maximum concurrent HTTP/2 streams on a connection, 1-65536; further requests open another connection.
    #[schemars(range(min = 1, max = 65536), extend("default" = 100))]
    pub max_concurrent_streams: Option<u32>,
    /// Panic threshold, 0-100: if less than this percentage of the endpoints is healthy, requests are sent to all of
    /// them, regardless of health. 0: never.
    #[schemars(range(max = 100), extend("default" = 50))]
    pub panic_threshold: Option<u32>,
    /// A priority level keeps all of its traffic while `factor × healthy / all ≥ 1`, 1-10.
    #[schemars(range(min = 1.0, max = 10.0), extend("default" = 1.4))]
    pub overprovisioning_factor: Option<f64>,
    /// Shares of traffic by locality: locality → weight. Absent: localities are ignored.
    pub locality_weights: Option<Pairs<u32>>,
    /// Ramp-up of the traffic of endpoints that have just joined. Absent: no ramp.
    pub slow_start: Option<SlowStart>,
    /// Bounds of the interval between two resolutions of a DNS name. Between the bounds, the record's TTL is the
    /// interval.
    pub dns_refresh: Option<DnsRefresh>,
    /// Addresses of a DNS name that are endpoints: `all` or the `first` (Envoy's `LOGICAL_DNS`).
    #[schemars(extend("default" = "all"))]
    pub dns_addresses: Option<DnsAddresses>,
    /// Active health check; a string is the path of an HTTP check. Absent: no checks.
    pub health_check: Option<Short<HealthCheck>>,
    /// Ejection of failing endpoints. Absent: enabled with defaults.
    pub outlier_ejection: Option<OutlierEjection>,
    /// Limits on concurrency and queueing.
    pub limits: Option<Limits>,
    /// Share of the traffic that may be retries. Absent: defaults.
    pub retry_budget: Option<RetryBudget>,
    /// Circuit breaker that fails requests immediately while the cluster as a whole fails. Absent: none.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// A limit on the requests in progress that adapts to latency. Absent: no such limit.
    pub concurrency_limit: Option<ConcurrencyLimit>,
    /// Delay of every request, and of the start of every TCP connection, to emulate network distance; a string is the
    /// `fixed` part. Absent: no delay.
    pub delay: Option<Short<Delay>>,
}

/// The schema of a policy, which is written as a string or as a mapping.
struct PolicySchema;

impl JsonSchema for PolicySchema {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut forms = vec![
            json!({"type": "string", "examples": ["lor(choices=2)", "maglev(table_size=65537)"]}),
        ];
        forms.extend(balance::PolicySpec::forms().iter().map(mapping));
        json_schema!({
            "description": "A load balancing policy, `name` or `name(parameter=value,…)`, or a mapping with `name`.",
            "anyOf": forms,
        })
    }
}

/// Returns the schema of one policy written as a mapping.
fn mapping(form: &balance::Form) -> Value {
    let mut properties = Map::new();
    let name = json!({"description": "Name of the policy.", "const": form.name});
    properties.insert("name".to_owned(), name);
    for parameter in form.parameters {
        let numbers = parameter
            .numbers
            .map(|(least, most)| json!({"type": "integer", "minimum": least, "maximum": most}));
        let words = (!parameter.words.is_empty()).then(|| json!({"enum": parameter.words}));
        let schema = match (numbers, words) {
            (Some(numbers), Some(words)) => json!({"anyOf": [numbers, words]}),
            (numbers, words) => numbers.or(words).unwrap_or_default(),
        };
        properties.insert(parameter.name.to_owned(), schema);
    }
    json!({
        "type": "object",
        "required": ["name"],
        "properties": properties,
        "additionalProperties": false,
    })
}

/// An endpoint, or a DNS name that resolves to several.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub struct Endpoint {
    /// `IP:PORT`, `[IPv6]:PORT` or `NAME:PORT`, each address of which is an endpoint; or a Unix socket, `unix:/PATH`
    /// or `unix:@NAME`.
    pub address: Option<String>,
    /// Share of requests relative to other endpoints, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1))]
    pub weight: Option<u32>,
    /// Priority, 0-127. Endpoints with a higher number are used only if too few of those with a lower number are
    /// healthy.
    #[schemars(range(max = 127), extend("default" = 0))]
    pub priority: Option<u32>,
    /// `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`; the unit of `locality_weights`.
    pub locality: Option<String>,
}

impl Shorthand for Endpoint {
    const TEXT: &'static str = "an address such as `10.0.0.1:8080` or `app.internal:8080`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            address: Some(text.to_owned()),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self {
                address: Some(address),
                weight: None,
                priority: None,
                locality: None,
            } => Some(address),
            _ => None,
        }
    }
}

impl Cluster {
    /// Returns the HTTP version for the endpoints. Between proxies of the mesh, HTTP/2 if both
    /// support it: it was measured to take three quarters of HTTP/1.1's processor time at 64
    /// connections.
    pub(crate) fn spoken(&self) -> UpstreamProtocol {
        let mesh = self.tls.as_ref().is_some_and(|tls| tls.0.mesh.is_some());
        let default = match mesh {
            true => UpstreamProtocol::Auto,
            false => UpstreamProtocol::Http1,
        };
        self.protocol.unwrap_or(default)
    }
}

/// HTTP version for a cluster.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// Chosen by ALPN under TLS, otherwise HTTP/1.1, and HTTP/2 for gRPC calls. Upgrades stay HTTP/1.1.
    Auto,
    /// HTTP/1.1, also for gRPC calls, which few servers support.
    Http1,
    /// The version of the client's request, in plain text as under TLS.
    Downstream,
    /// HTTP/2, in plain text with prior knowledge.
    Http2,
}

/// Source of a cluster's endpoints.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterType {
    /// The original destination of each connection, on listeners with `original_destination`.
    OriginalDestination,
    /// The list `endpoints`.
    Static,
}

/// PROXY protocol header to send.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocolOut {
    /// No header.
    Off,
    /// Version 1: a line of text.
    V1,
    /// Version 2: binary.
    V2,
}

/// The ramp of an endpoint that has just joined: its weight is multiplied by
/// `max((age / window)^(1 / aggression), min_weight_percent / 100)`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlowStart {
    /// Length of the ramp, 1ms-24h.
    #[schemars(extend("default" = "30s"))]
    pub window: Option<TimeSpan>,
    /// Shape of the ramp, 0.01-100: 1 is linear; above 1, traffic rises faster at first.
    #[schemars(range(min = 0.01, max = 100.0), extend("default" = 1.0))]
    pub aggression: Option<f64>,
    /// Start of the ramp, in percent of the full weight, 1-100.
    #[schemars(range(min = 1, max = 100), extend("default" = 10))]
    pub min_weight_percent: Option<u32>,
}

/// Addresses of a DNS name that are endpoints.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DnsAddresses {
    /// Every address.
    All,
    /// Only the first address of a DNS response, as long as later responses contain it: for the name of one service
    /// with many addresses.
    First,
}

/// Bounds of the interval between two resolutions of a DNS name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DnsRefresh {
    /// Minimum interval, to which a smaller TTL is raised, 100ms-24h.
    #[schemars(extend("default" = "1s"))]
    pub min: Option<TimeSpan>,
    /// Maximum interval, to which a larger TTL is lowered, `min`-24h.
    #[schemars(extend("default" = "5m"))]
    pub max: Option<TimeSpan>,
}
