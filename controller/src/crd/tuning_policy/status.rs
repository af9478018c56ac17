//! Status of a `TuningPolicy`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{Condition, is_zero};

/// Observations, recommendations, and changes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TuningPolicyStatus {
    /// `Accepted`: whether the policy is valid. `Settled`: whether no changes are pending, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Current CPU and memory requests over all services and replicas.
    pub requested: String,
    /// Recommended CPU and memory requests over all services and replicas.
    pub advised: String,
    /// Number of changes since the policy was created.
    pub changes_done: u32,
    /// Number of changes that were rolled back.
    pub taken_back: u32,
    /// At most 100 services, changing ones first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceTuning>,
    /// Number of services that are not listed.
    pub services_left_out: u32,
}

/// A service, and its recommendations.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceTuning {
    /// Name of the service, `NAMESPACE/NAME`.
    pub name: String,
    /// Deployment of the service's pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deployment: String,
    /// State of the service: `Settled`, `Wanted` (a change is pending), `Changing`, `Judged` (under evaluation) or
    /// `TakenBack` (rolled back).
    pub state: String,
    /// Reason why a change is pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Parts that are not tuned, each with what manages it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Recommended values; empty with `mode: Observe`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<TunedValue>,
    /// Most recent change of each part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TuningChange>,
}

/// A recommended value.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TunedValue {
    /// Name of the value: `replicas`, `requests.cpu` of a pod, `containers.NAME` of a pod with several containers,
    /// `splits.NAME` of a version (recommended, but never set), or a field of a `TrafficPolicy`.
    pub name: String,
    /// Current value; absent if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub present: String,
    /// Recommended value.
    pub value: String,
    /// Reason for the recommendation, with the numbers.
    pub reason: String,
}

/// A change of one part of a service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TuningChange {
    /// Changed part: `Replicas`, `Requests` or `Traffic`.
    pub part: String,
    /// Stage of the change: `Changing`, `Judged`, `Kept` or `TakenBack`.
    pub stage: String,
    /// Time of the last transition (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
    /// Reason for the change or the rollback.
    pub reason: String,
    /// Statistics of the service's calls before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TuningMeasure>,
    /// Statistics of the service's calls after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TuningMeasure>,
    /// Time until which the change is not repeated (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub rests_until: Option<String>,
    /// Number of consecutive unsuccessful changes.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Number of replicas that were unavailable before the change; this many are not attributed to it.
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable: u32,
}

/// Statistics of the calls of a service, over the window of the graph's averages.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TuningMeasure {
    /// Number of calls.
    pub calls: f64,
    /// Number of failed calls.
    pub failures: f64,
    /// Mean response time in milliseconds.
    pub response_milliseconds: f64,
}
