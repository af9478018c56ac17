//! `MeshConfig`: settings of the whole mesh.

use maglor_config::raw;
use maglor_identity::TrustDomain;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::Shape;
use super::traffic_policy::limit_blocks;
use super::{LocalFirst, MESH_CONFIG_NAME, PolicyStatus, SpecError, check};

/// Settings of the whole mesh. Only the object named `default` has an effect; without it, the defaults apply.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
        group = "maglor.dev",
        version = "v1alpha1",
        kind = "MeshConfig",
        plural = "meshconfigs",
        status = "PolicyStatus",
        schema = "disabled",
        category = "maglor",
        derive = "PartialEq",
        derive = "Default",
        printcolumn = r#"{"name": "mTLS", "type": "string", "jsonPath": ".spec.mtls"}"#,
        printcolumn = r#"{"name": "Trust domain", "type": "string", "jsonPath": ".spec.trustDomain"}"#,
        printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
        printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MeshConfigSpec {
    /// Whether pods of the mesh accept plain text (`permissive`) or only mutual TLS (`strict`). The annotation
    /// `maglor.dev/mtls` of a namespace overrides it. Default: `permissive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtls: Option<raw::MeshMode>,
    /// Trust domain of SPIFFE IDs. Default: `cluster.local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = "^[a-z0-9._-]+$"))]
    pub trust_domain: Option<String>,
    /// Domain of Service names. Default: `cluster.local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9.-]+$"))]
    pub cluster_domain: Option<String>,
    /// Handling of connections from the mesh's pods to unknown destinations. Default: `pass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<raw::Unknown>,
    /// Cluster settings of all Services, unless a `TrafficPolicy` overrides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<raw::Cluster>,
    /// Route settings of all Services, unless a `TrafficPolicy` overrides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<raw::Route>,
    /// Spans of all proxies of the mesh, for an OpenTelemetry collector. Absent: trace headers are forwarded unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<raw::MeshTracing>,
    /// Whether proxies keep why requests failed or were slow, for `maglor why`. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stories: Option<bool>,
    /// Prefers endpoints on the caller's node, as far as they have capacity. Absent: disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_first: Option<LocalFirst>,
}

impl MeshConfigSpec {
    /// Validates the object by the rules of the proxy and of the CustomResourceDefinition, because no API server
    /// validates files.
    ///
    /// # Errors
    /// If a field is invalid; the error describes the first one.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |field: &str, message: String| {
            Err(SpecError::Value {
                path: format!("spec.{field}"),
                message,
            })
        };
        if let Some(name) = &self.trust_domain
            && let Err(error) = name.parse::<TrustDomain>()
        {
            return wrong("trustDomain", error.to_string());
        }
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        let domain = self.cluster_domain.as_deref();
        if domain.is_some_and(|name| name.is_empty() || !name.chars().all(fits)) {
            let message = "must be a DNS name, such as `cluster.local`";
            return wrong("clusterDomain", message.to_owned());
        }
        if let Some(tracing) = &self.tracing {
            check::tracing(tracing)?;
        }
        check::blocks(self.cluster.as_ref(), self.route.as_ref())
    }
}

pub(super) fn schema() -> Value {
    let mut shape = Shape::of::<MeshConfigSpec, PolicyStatus>();
    limit_blocks(&mut shape.spec["properties"]);
    let mut schema = shape.into_schema();
    schema["x-kubernetes-validations"] = json!([{
        "rule": format!("self.metadata.name == '{MESH_CONFIG_NAME}'"),
        "message": "the only MeshConfig is named `default`",
    }]);
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_domains_are_checked() {
        let check = |text: &str| {
            let spec: MeshConfigSpec = serde_yaml::from_str(text).unwrap();
            spec.check().map_err(|error| error.to_string())
        };
        assert_eq!(
            check("{trustDomain: mesh.example, clusterDomain: edge.local}"),
            Ok(())
        );
        for (text, expected) in [
            ("{trustDomain: 'A_B!'}", "spec.trustDomain: "),
            ("{clusterDomain: ''}", "spec.clusterDomain: "),
            ("{clusterDomain: a b}", "spec.clusterDomain: "),
            ("{tracing: {}}", "spec.tracing.collector: "),
            (
                "{tracing: {collector: 'otel:4317', sampling: {percent: 101}}}",
                "spec.tracing.sampling.percent: ",
            ),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
