//! What a `TuningPolicy` says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{Condition, is_zero};

/// What is seen, advised and done.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TuningPolicyStatus {
    /// `Accepted`: it can be used, or why not; `Settled`: nothing is to change, or what is done, or waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// CPU and memory that the services request now, all replicas together.
    pub requested: String,
    /// And would by what is advised.
    pub advised: String,
    /// Changes that were made, since the resource is there.
    pub changes_done: u32,
    /// Those of them that were taken back.
    pub taken_back: u32,
    /// The services; at most 100, those that change first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceTuning>,
    /// Services that are not listed.
    pub services_left_out: u32,
}

/// A service, and what is advised for it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceTuning {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// The Deployment of its pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deployment: String,
    /// `Settled`; `Wanted`: something is to change; `Changing`; `Judged`: compared with before; `TakenBack`.
    pub state: String,
    /// What a change waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is left alone, and who decides it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Each value that is advised; not with `mode: Observe`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<TunedValue>,
    /// What was changed lately, by part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TuningChange>,
}

/// A value that is advised.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TunedValue {
    /// What: `replicas`, `requests.cpu` of a pod, `containers.NAME` of a pod with several, `splits.NAME` of a
    /// version, which is advised and never set, or a field of a `TrafficPolicy`.
    pub name: String,
    /// As it is set, where that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub present: String,
    /// As it is to be.
    pub value: String,
    /// The numbers that lead to it.
    pub reason: String,
}

/// A change of a part of a service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TuningChange {
    /// `Replicas`, `Requests` or `Traffic`.
    pub part: String,
    /// `Changing`, `Judged`, `Kept` or `TakenBack`.
    pub stage: String,
    /// Since when it is so (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub since: Option<String>,
    /// Why it was changed, or taken back.
    pub reason: String,
    /// How its calls fared before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TuningMeasure>,
    /// And afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TuningMeasure>,
    /// It is not tried again until then (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub rests_until: Option<String>,
    /// How often on end it was in vain.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Replicas that were not available before the change, which is not blamed for as many.
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable: u32,
}

/// How the calls of a service fare, over the window of the graph's averages.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TuningMeasure {
    /// Calls that it took.
    pub calls: f64,
    /// Those of them that failed.
    pub failures: f64,
    /// Their mean response time in milliseconds.
    pub response_milliseconds: f64,
}
