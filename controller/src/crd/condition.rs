//! What the controller says about a resource, in its `status`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One statement about a resource (`metav1.Condition`).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the statement is about: `Accepted`, `ResolvedRefs`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence that names the field.
    pub message: String,
    /// The generation of the resource that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` became what it is (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

impl Condition {
    /// A statement without a time, which whoever writes it down adds.
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

/// What became of a policy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// `Accepted`: it is in force; or why it is not: `Invalid`, `TargetNotFound`, `Conflicted`, `DefinitionOutdated`. The
    /// message says what is in force in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The last version that could be used. Replicas of the controller that start while the policy cannot be used go by
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce<Recorded>>,
}

/// A version of a resource that was in force.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InForce<T> {
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Its `spec`.
    pub spec: T,
}

/// A `spec` that was read by an earlier version of the controller, maybe.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
pub struct Recorded(pub serde_json::Value);
