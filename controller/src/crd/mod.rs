//! The mesh's own resources, group `maglor.dev/v1alpha1`: one file for each kind.
//!
//! Clusters, routes and authorization use the fields of [`maglor_config::raw`], so that a block can be copied from a
//! proxy's configuration into a resource and back. The fields `targetRefs`, `selector` and `conditions` follow the
//! conventions of Kubernetes.
//!
//! The CustomResourceDefinitions in `deploy/crds` are generated from the types ([`definitions`]).

mod authorization_policy;
pub mod check;
mod communication_graph;
mod condition;
mod derived_fields;
mod local_first;
mod mesh_config;
pub mod operated;
mod placement_policy;
mod proxy_service;
mod pruned;
mod resources;
mod schema;
mod target;
mod traffic_policy;
mod tuning_policy;
pub mod typed;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt;

pub use authorization_policy::{AuthorizationPolicy, AuthorizationPolicySpec, LabelSelector};
pub use check::SpecError;
pub use communication_graph::{
    CommunicationGraph, CommunicationGraphSpec, CommunicationGraphStatus, GRAPH_NAME, GraphEdge,
};
pub use condition::{Condition, InForce, PolicyStatus, Recorded};
pub use local_first::LocalFirst;
pub use mesh_config::{MeshConfig, MeshConfigSpec};
pub use placement_policy::{
    NodeDelay, NodeSelection, PlacementGuard, PlacementMeasure, PlacementMode, PlacementObjective,
    PlacementPolicy, PlacementPolicySpec, PlacementPolicyStatus, ServicePlacement,
};
pub use proxy_service::{
    AutoStatus, ProxyMode, ProxyService, ProxyServiceSpec, ProxyServiceStatus, ServiceBalance,
};
pub use pruned::pruned;
pub use resources::Resources;
pub use target::TargetRef;
pub use traffic_policy::{TrafficPolicy, TrafficPolicySpec, merge_cluster, merge_route};
pub use tuning_policy::{
    ServiceTuning, TunedValue, TuningChange, TuningGuard, TuningMeasure, TuningMode, TuningPart,
    TuningPolicy, TuningPolicySpec, TuningPolicyStatus, TuningScaling, TuningThresholds,
};

/// The API group of all kinds of the mesh.
pub const GROUP: &str = "maglor.dev";
/// The API version of all kinds of the mesh.
pub const VERSION: &str = "v1alpha1";
/// The annotation of a definition that contains the version of the mesh.
pub const VERSION_KEY: &str = "maglor.dev/definitions-version";
/// The name of the only [`MeshConfig`] that has an effect.
pub const MESH_CONFIG_NAME: &str = "default";

/// Error in creating a definition: the schema of a type is not allowed by Kubernetes.
#[derive(Debug, thiserror::Error)]
#[error("the schema of {kind} is not valid in Kubernetes: {source}")]
pub struct DefinitionError {
    /// Kind of the definition.
    pub kind: &'static str,
    /// Why the schema is not valid.
    #[source]
    pub source: serde_json::Error,
}

/// Returns the definitions of all kinds, by name.
///
/// # Errors
/// If a schema is not valid for Kubernetes, which a test rules out.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, DefinitionError> {
    Ok(vec![
        with_schema(
            "AuthorizationPolicy",
            AuthorizationPolicy::crd(),
            authorization_policy::schema(),
        )?,
        with_schema(
            "CommunicationGraph",
            CommunicationGraph::crd(),
            communication_graph::schema(),
        )?,
        with_schema("MeshConfig", MeshConfig::crd(), mesh_config::schema())?,
        with_schema(
            "PlacementPolicy",
            PlacementPolicy::crd(),
            placement_policy::schema(),
        )?,
        with_schema("ProxyService", ProxyService::crd(), proxy_service::schema())?,
        with_schema(
            "TrafficPolicy",
            TrafficPolicy::crd(),
            traffic_policy::schema(),
        )?,
        with_schema("TuningPolicy", TuningPolicy::crd(), tuning_policy::schema())?,
    ])
}

/// Returns the definitions as YAML documents, ready for `kubectl apply -f -`.
///
/// # Errors
/// Those of [`definitions`].
pub fn yaml() -> Result<Vec<(String, String)>, DefinitionError> {
    let mut documents = Vec::new();
    for definition in definitions()? {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let text = maglor_inject::yaml::to_string(&definition).unwrap_or_default();
        documents.push((name, text));
    }
    Ok(documents)
}

fn with_schema(
    kind: &'static str,
    mut definition: CustomResourceDefinition,
    schema: serde_json::Value,
) -> Result<CustomResourceDefinition, DefinitionError> {
    let schema: JSONSchemaProps =
        serde_json::from_value(schema).map_err(|source| DefinitionError { kind, source })?;
    let annotations = definition.metadata.annotations.get_or_insert_default();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    annotations.insert(VERSION_KEY.to_owned(), version);
    for version in &mut definition.spec.versions {
        if let Some(validation) = &mut version.schema {
            validation.open_api_v3_schema = Some(schema.clone());
        }
    }
    Ok(definition)
}

/// Returns whether a number is zero, so that its field can be omitted from statuses.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
pub(crate) fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_kubernetes_takes_for_booleans_are_quoted() {
        for (name, text) in yaml().unwrap() {
            assert!(!text.contains("- off\n"), "{name}");
            assert!(text.contains("openAPIV3Schema"), "{name}");
        }
    }
}
