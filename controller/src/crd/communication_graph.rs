//! `CommunicationGraph`: the observed calls between services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::check::SpecError;
use super::schema::Shape;

/// The name of the only [`CommunicationGraph`] that is written.
pub const GRAPH_NAME: &str = "default";

/// Default of the maximum number of edges in a status.
const EDGES: u32 = 500;
/// Limit of the number of edges in a status, which then has about 300 kB.
const MOST_EDGES: u32 = 2000;

/// The observed calls between services of the mesh, with rates and latencies. The only object is named `default`; the
/// controller creates it and updates its status, at most once a minute, when it has changed significantly. `maglor
/// graph` shows more details.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
        group = "maglor.dev",
        version = "v1alpha1",
        kind = "CommunicationGraph",
        plural = "communicationgraphs",
        status = "CommunicationGraphStatus",
        schema = "disabled",
        shortname = "mcg",
        category = "maglor",
        derive = "PartialEq",
        derive = "Default",
        printcolumn = r#"{"name": "Services", "type": "integer", "jsonPath": ".status.services"}"#,
        printcolumn = r#"{"name": "Calls/s", "type": "number", "jsonPath": ".status.callsPerSecond"}"#,
        printcolumn = r#"{"name": "Observed", "type": "date", "jsonPath": ".status.observedAt"}"#,
        printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommunicationGraphSpec {
    /// Maximum number of edges in the status, 0 to 2000; those with the most calls are listed. Default: 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2000))]
    pub max_edges: Option<u32>,
}

impl CommunicationGraphSpec {
    /// Validates the constraints of the schema, for objects that no API server has validated.
    ///
    /// # Errors
    /// If a field is invalid; the error describes the first one.
    pub fn check(&self) -> Result<(), SpecError> {
        match self.max_edges {
            Some(edges) if edges > MOST_EDGES => Err(SpecError::Value {
                path: "spec.maxEdges".to_owned(),
                message: format!("must be 0 to {MOST_EDGES}"),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the maximum number of edges in the status.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.max_edges.unwrap_or(EDGES).min(MOST_EDGES) as usize
    }
}

/// The observed graph.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommunicationGraphStatus {
    /// Time of the snapshot (RFC 3339): that of the last significant change.
    #[schemars(extend("format" = "date-time"))]
    pub observed_at: String,
    /// Window of the moving averages, T, in seconds.
    pub window_seconds: u64,
    /// Number of services.
    pub services: u32,
    /// Calls per second, summed over all edges (Σλ).
    pub calls_per_second: f64,
    /// Edges, by decreasing number of calls.
    pub edges: Vec<GraphEdge>,
    /// Number of edges that are not listed.
    pub edges_left_out: u32,
    /// Number of controller replicas whose data is missing because they could not be reached.
    pub replicas_missing: u32,
}

/// Calls from one service to another.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GraphEdge {
    /// Calling service, `NAMESPACE/NAME`.
    pub from: String,
    /// Called service, `NAMESPACE/NAME`.
    pub to: String,
    /// Calls per second (λ).
    pub calls_per_second: f64,
    /// Mean response time in milliseconds (r).
    pub response_milliseconds: f64,
    /// 99th percentile of the response time in milliseconds; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_milliseconds: Option<f64>,
    /// Failed calls per second.
    pub failures_per_second: f64,
    /// Bytes per second in both directions.
    pub bytes_per_second: f64,
}

pub(super) fn schema() -> Value {
    let shape = Shape::of::<CommunicationGraphSpec, CommunicationGraphStatus>();
    let mut schema = shape.into_schema();
    schema["x-kubernetes-validations"] = json!([{
        "rule": format!("self.metadata.name == '{GRAPH_NAME}'"),
        "message": "the only CommunicationGraph is named `default`",
    }]);
    schema
}
