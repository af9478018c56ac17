//! `AuthorizationPolicy`: rules for which clients may call a workload.

use std::collections::BTreeMap;

use maglor_config::raw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PolicyStatus;
use super::schema::Shape;

/// Authorizes requests to the pods that `selector` matches, or to all pods of the namespace if it is absent. The
/// rules of all policies for a pod are evaluated together: first deny rules, then allow rules.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
        group = "maglor.dev",
        version = "v1alpha1",
        kind = "AuthorizationPolicy",
        plural = "authorizationpolicies",
        namespaced,
        status = "PolicyStatus",
        schema = "disabled",
        shortname = "ap",
        category = "maglor",
        derive = "PartialEq",
        derive = "Default",
        printcolumn = r#"{"name": "Default", "type": "string", "jsonPath": ".spec.default"}"#,
        printcolumn = r#"{"name": "Audit", "type": "boolean", "jsonPath": ".spec.audit"}"#,
        printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
        printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].reason"}"#,
        printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationPolicySpec {
    /// Selects the pods to which the policy applies. Absent: all pods of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Decision for requests that match no rule of any policy. If policies differ, `deny` wins. If no policy sets it:
    /// `allow` if all rules deny or audit, otherwise `deny`. A policy without rules means `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<raw::Effect>,
    /// Dry run: requests that the rules and `default` of this policy would deny are only logged and counted. If other
    /// policies apply, only the deny rules of this policy are evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<bool>,
    /// The rules, as in the proxy's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub rules: Vec<raw::AuthorizationRule>,
}

/// Selects objects that have all of these labels.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels and their values; empty selects all objects.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}

impl LabelSelector {
    /// Returns whether an object with these labels is selected.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let there = |(name, value): (&String, &String)| labels.get(name) == Some(value);
        self.match_labels.iter().all(there)
    }
}

pub(super) fn schema() -> Value {
    let mut shape = Shape::of::<AuthorizationPolicySpec, PolicyStatus>();
    shape.spec["x-kubernetes-validations"] = json!([{
        "rule": "has(self.rules) || has(self.default)",
        "message": "set `rules` or `default`",
    }]);
    shape.into_schema()
}
