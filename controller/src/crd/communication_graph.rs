//! `CommunicationGraph`: who calls whom, as the controller sees it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::check::SpecError;
use super::schema::Shape;

/// The only [`CommunicationGraph`] that is written.
pub const GRAPH_NAME: &str = "default";

/// Edges of a status where nobody says how many.
const EDGES: u32 = 500;
/// Edges of a status at most: some 300 kB.
const MOST_EDGES: u32 = 2000;

/// Who calls whom in the mesh, how often and how fast. There is one, named `default`; the controller makes it
/// and writes its status every minute. `maglor graph` shows more.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
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
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommunicationGraphSpec {
    /// How many edges the status has at most, those with the most calls; 0 to 2000. Default: 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2000))]
    pub max_edges: Option<u32>,
}

impl CommunicationGraphSpec {
    /// Checks what the schema says, for those who have not asked it.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        match self.max_edges {
            Some(edges) if edges > MOST_EDGES => Err(SpecError::Value {
                path: "spec.maxEdges".to_owned(),
                message: format!("must be 0 to {MOST_EDGES}"),
            }),
            _ => Ok(()),
        }
    }

    /// How many edges the status has at most.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.max_edges.unwrap_or(EDGES).min(MOST_EDGES) as usize
    }
}

/// What was seen.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommunicationGraphStatus {
    /// When, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub observed_at: String,
    /// T, the window of the moving averages, in seconds.
    pub window_seconds: u64,
    /// How many services there are.
    pub services: u32,
    /// Σλ: calls a second of all edges together.
    pub calls_per_second: f64,
    /// Who calls whom, the most calls first.
    pub edges: Vec<GraphEdge>,
    /// Edges that are not listed.
    pub edges_left_out: u32,
    /// Replicas of the controller whose part is missing, because they could not be asked.
    pub replicas_missing: u32,
}

/// Calls of one service to another.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GraphEdge {
    /// Who calls, `NAMESPACE/NAME`.
    pub from: String,
    /// Who is called.
    pub to: String,
    /// λ: calls a second.
    pub calls_per_second: f64,
    /// r: mean response time in milliseconds.
    pub response_milliseconds: f64,
    /// The response time in milliseconds that 99 of 100 calls do not exceed, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_milliseconds: Option<f64>,
    /// Calls a second that failed.
    pub failures_per_second: f64,
    /// Bytes a second, both ways.
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
