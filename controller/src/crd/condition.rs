//! Conditions in the `status` of objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition of the object (`metav1.Condition`).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, such as `Accepted` or `ResolvedRefs`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason in CamelCase.
    pub reason: String,
    /// Human-readable message that names the affected field.
    pub message: String,
    /// Generation of the object for which the condition was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last change of `status` (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

impl Condition {
    /// Creates a condition without a transition time, which is added when the status is written.
    #[must_use]
    pub fn new(
        kind: &str,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
        generation: Option<i64>,
    ) -> Self {
        Self {
            r#type: kind.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            observed_generation: generation,
            last_transition_time: None,
        }
    }
}

/// Status of a policy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// `Accepted` is true if the policy is in force. Otherwise its reason is `Invalid`, `TargetNotFound`,
    /// `Conflicted` or `DefinitionOutdated`, and its message describes what is in force instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The last valid version of the policy. Controller replicas that start while the policy is invalid use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce<Recorded>>,
}

/// A version of an object that is or was in force.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InForce<T> {
    /// The `metadata.generation` of this version.
    pub generation: i64,
    /// The `spec` of this version.
    pub spec: T,
}

/// A `spec` that an earlier version of the controller may have written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
pub struct Recorded(pub serde_json::Value);
