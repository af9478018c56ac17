//! `TrafficPolicy`: load balancing, limits and retries of requests to Services.

use maglor_config::raw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::derived_fields::{OF_THE_ROUTE, OF_THE_SERVICE};
use super::schema::{Shape, without};
use super::{LocalFirst, PolicyStatus, SpecError, TargetRef, check};

/// Configures load balancing, limits and retries of requests to Services. With `targetRefs` it applies to those
/// Services, otherwise to all Services of its namespace. Several policies for a Service are merged field by field: a
/// policy for the port takes precedence over one for the Service, followed by the namespace and by `MeshConfig`. On
/// the same level the older policy takes precedence, or the first by name if they are equally old.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
        group = "maglor.dev",
        version = "v1alpha1",
        kind = "TrafficPolicy",
        plural = "trafficpolicies",
        namespaced,
        status = "PolicyStatus",
        schema = "disabled",
        shortname = "tp",
        category = "maglor",
        derive = "PartialEq",
        derive = "Default",
        printcolumn = r#"{"name": "Targets", "type": "string", "jsonPath": ".spec.targetRefs[*].name"}"#,
        printcolumn = r#"{"name": "Policy", "type": "string", "jsonPath": ".spec.cluster.policy"}"#,
        printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
        printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].reason"}"#,
        printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrafficPolicySpec {
    /// Services to which the policy applies. Absent: all Services of the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub target_refs: Vec<TargetRef>,
    /// Cluster settings as in the proxy's configuration, without fields that the Service determines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<raw::Cluster>,
    /// Route settings as in the proxy's configuration, without match and action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<raw::Route>,
    /// Prefers endpoints on the caller's node, as far as they have capacity. Absent: inherited from the next level,
    /// by default disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_first: Option<LocalFirst>,
}

impl TrafficPolicySpec {
    /// Validates the object by the rules of the proxy and of the CustomResourceDefinition, because no API server
    /// validates files.
    ///
    /// # Errors
    /// If a field is invalid; the error describes the first one.
    pub fn check(&self) -> Result<(), SpecError> {
        for (i, target) in self.target_refs.iter().enumerate() {
            target.check(&format!("spec.targetRefs[{i}]"))?;
        }
        if self.cluster.is_none() && self.route.is_none() && self.local_first.is_none() {
            return Err(SpecError::Value {
                path: "spec".to_owned(),
                message: SAYS_NOTHING.to_owned(),
            });
        }
        check::blocks(self.cluster.as_ref(), self.route.as_ref())
    }
}

const SAYS_NOTHING: &str = "set at least one of `cluster`, `route` and `localFirst`";

/// Restricts the schemas of the cluster and route blocks that several kinds have in common.
pub(super) fn limit_blocks(properties: &mut Value) {
    without(&mut properties["cluster"], &OF_THE_SERVICE);
    without(&mut properties["route"], &OF_THE_ROUTE);
    properties["cluster"]["properties"]["policy"]["description"] = json!(
        "Load balancing policy, with parameters in parentheses, such as `lor(choices=2)`. \
         Default: `lor(choices=2)`."
    );
    // The defaults differ from those of a standalone proxy.
    properties["cluster"]["properties"]["protocol"]["description"] = json!(
        "HTTP version of requests to the endpoints. Absent: HTTP/2 if the Service's port declares it \
         (`h2c`, `grpc`), else that of the client."
    );
    properties["route"]["properties"]["timeout"]["description"] = json!(
        "From the end of the request to the end of the response, up to 30d; `0s`: no limit, as \
         needed by streams. Absent: no limit; those of the application apply."
    );
}

pub(super) fn schema() -> Value {
    let mut shape = Shape::of::<TrafficPolicySpec, PolicyStatus>();
    limit_blocks(&mut shape.spec["properties"]);
    shape.spec["x-kubernetes-validations"] = json!([{
        "rule": "has(self.cluster) || has(self.route) || has(self.localFirst)",
        "message": SAYS_NOTHING,
    }]);
    shape.into_schema()
}

/// Copies the fields that `$into` leaves unset from `$outer`.
macro_rules! inherit {
    ($into:ident, $outer:ident, $($field:ident),*) => {$(
        if $into.$field.is_none() {
            $into.$field.clone_from(&$outer.$field);
        }
    )*};
}

/// Sets fields of `into` that are not set to the values of an outer level.
pub fn merge_cluster(into: &mut raw::Cluster, outer: &raw::Cluster) {
    inherit!(
        into,
        outer,
        policy,
        protocol,
        proxy_protocol,
        connect_timeout,
        idle_timeout,
        max_requests_per_connection,
        max_idle_connections,
        max_concurrent_streams,
        panic_threshold,
        overprovisioning_factor,
        locality_weights,
        slow_start,
        health_check,
        outlier_ejection,
        limits,
        retry_budget,
        circuit_breaker,
        concurrency_limit,
        delay
    );
}

/// Sets fields of `into` that are not set to the values of an outer level.
pub fn merge_route(into: &mut raw::Route, outer: &raw::Route) {
    inherit!(
        into,
        outer,
        timeout,
        retry,
        hedge,
        request_buffer_limit,
        rate_limit,
        fault
    );
    if into.hash_policy.is_empty() {
        into.hash_policy.clone_from(&outer.hash_policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of a cluster must be either determined by the Service or inherited, so that no new field is
    /// forgotten.
    #[test]
    fn every_field_is_inherited_or_the_services() {
        let full = |schema: Value| -> Vec<String> {
            let properties = schema["properties"].as_object().unwrap();
            properties.keys().cloned().collect()
        };
        let cluster = full(schemars::schema_for!(raw::Cluster).to_value());
        let route = full(schemars::schema_for!(raw::Route).to_value());
        assert_eq!(cluster.len(), OF_THE_SERVICE.len() + 19, "{cluster:?}");
        assert_eq!(route.len(), OF_THE_ROUTE.len() + 7, "{route:?}");
    }

    #[test]
    fn the_inner_level_wins_field_by_field() {
        let yaml = |text: &str| serde_yaml::from_str::<raw::Cluster>(text).unwrap();
        let mut inner = yaml("{policy: random, panic_threshold: 10}");
        merge_cluster(
            &mut inner,
            &yaml("{policy: round-robin, connect_timeout: 1s}"),
        );
        let merged = yaml("{policy: random, panic_threshold: 10, connect_timeout: 1s}");
        assert_eq!(inner, merged);
    }

    /// Values that no API server has validated must not be misinterpreted.
    #[test]
    fn what_a_definition_would_refuse_is_refused() {
        let check = |text: &str| {
            let spec: TrafficPolicySpec = serde_yaml::from_str(text).unwrap();
            spec.check().map_err(|error| error.to_string())
        };
        let about =
            |target: &str| format!("{{targetRefs: [{{name: a}}, {target}], localFirst: {{}}}}");
        assert_eq!(check(&about("{kind: Service, name: b, port: 80}")), Ok(()));
        for (text, expected) in [
            (
                about("{kind: Deployment, name: a}"),
                "spec.targetRefs[1].kind: ",
            ),
            (
                about("{group: apps, name: a}"),
                "spec.targetRefs[1].group: ",
            ),
            (about("{name: ''}"), "spec.targetRefs[1].name: "),
            (about("{name: a, port: 0}"), "spec.targetRefs[1].port: "),
            ("{}".to_owned(), "spec: set at least one"),
        ] {
            let error = check(&text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
