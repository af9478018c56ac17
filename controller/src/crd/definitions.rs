//! The CustomResourceDefinitions of all kinds, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt;

pub use super::authorization_policy::AuthorizationPolicy;
pub use super::communication_graph::CommunicationGraph;
pub use super::mesh_config::MeshConfig;
pub use super::placement_policy::PlacementPolicy;
pub use super::proxy_service::ProxyService;
pub use super::traffic_policy::TrafficPolicy;
pub use super::tuning_policy::TuningPolicy;
use super::{
    VERSION_KEY, authorization_policy, communication_graph, mesh_config, placement_policy,
    proxy_service, traffic_policy, tuning_policy,
};

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
        let text = maglor_manifests::inject::yaml::to_string(&definition).unwrap_or_default();
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
