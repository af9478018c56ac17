//! `tracing`: spans of requests for a collector.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// Spans of requests for an OpenTelemetry collector (OTLP), and the trace headers of forwarded requests; see
/// docs/tracing.md.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["cluster"]))]
pub struct Tracing {
    /// Name of the cluster of collectors, with their addresses and TLS.
    pub cluster: Option<String>,
    /// Transport of OTLP. Collectors usually listen on port 4317 for `grpc`, and on 4318 for `http`.
    #[schemars(extend("default" = "grpc"))]
    pub protocol: Option<OtlpProtocol>,
    /// With `protocol: http`: path of the requests.
    #[schemars(extend("default" = "/v1/traces"))]
    pub path: Option<String>,
    /// `service.name` of all spans: the application that the proxy serves.
    #[schemars(extend("default" = "maglor-proxy"))]
    pub service_name: Option<String>,
    /// Further attributes of the resource, such as `deployment.environment.name`. `k8s.namespace.name`, `k8s.pod.name` and
    /// `service.instance.id` follow from `control_plane.node`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Which traces are exported.
    pub sampling: Option<TraceSampling>,
}

/// Spans of the requests of a mesh, for an OpenTelemetry collector (OTLP).
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["collector"]))]
pub struct MeshTracing {
    /// `HOST:PORT` of the collector, such as `otel-collector.monitoring:4317`. It is called in plain text.
    pub collector: Option<String>,
    /// Transport of OTLP. Collectors usually listen on port 4317 for `grpc`, and on 4318 for `http`.
    #[schemars(extend("default" = "grpc"))]
    pub protocol: Option<OtlpProtocol>,
    /// With `protocol: http`: path of the requests.
    #[schemars(extend("default" = "/v1/traces"))]
    pub path: Option<String>,
    /// `service.name` of all spans. Default: the pod's label `app.kubernetes.io/name` or `app`, or its owner.
    pub service_name: Option<String>,
    /// Further attributes of the resource, such as `deployment.environment.name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Which traces are exported.
    pub sampling: Option<TraceSampling>,
}

/// Transport of OTLP.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC: HTTP/2.
    Grpc,
    /// Protobuf in requests by the HTTP version of the cluster.
    Http,
}

/// Which traces are exported. Spans of other requests exist only until their requests end, when failed and slow ones
/// are exported, too.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSampling {
    /// Percentage of traces for which no decision has arrived, 0-100. By the trace identifier, so that proxies with the
    /// same percentage agree.
    #[schemars(range(min = 0, max = 100), extend("default" = 1))]
    pub percent: Option<f64>,
    /// Follow the decision of a request that belongs to a trace; otherwise `percent` applies to these, too.
    #[schemars(extend("default" = true))]
    pub parent_based: Option<bool>,
    /// Export requests that fail: status 5xx, a gRPC status of a server's failure, or cut off.
    #[schemars(extend("default" = true))]
    pub errors: Option<bool>,
    /// Percentage of the slowest requests that are exported, 0-100; an estimate that follows changes of the load. 0:
    /// disabled.
    #[schemars(range(min = 0, max = 100), extend("default" = 1))]
    pub slowest_percent: Option<f64>,
}
