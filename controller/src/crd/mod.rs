//! The mesh's own resources, group `maglor.dev/v1alpha1`: one file for each kind.
//!
//! Clusters, routes and authorization use the fields of [`maglor_config::raw`], so that a block can be copied from a
//! proxy's configuration into a resource and back. The fields `targetRefs`, `selector` and `conditions` follow the
//! conventions of Kubernetes.
//!
//! The CustomResourceDefinitions in `deploy/crds` are generated from the types (`definitions`), which
//! are kube's only with the feature `kubernetes`.

mod authorization_policy;
pub mod check;
mod communication_graph;
mod condition;
#[cfg(feature = "kubernetes")]
mod definitions;
mod derived_fields;
mod local_first;
mod mesh_config;
pub mod operated;
mod placement_policy;
mod proxy_service;
#[cfg(feature = "kubernetes")]
mod pruned;
mod resources;
mod schema;
mod target;
mod traffic_policy;
mod tuning_policy;
#[cfg(feature = "kubernetes")]
pub mod typed;

pub use authorization_policy::{AuthorizationPolicySpec, LabelSelector};
pub use check::SpecError;
pub use communication_graph::{
    CommunicationGraphSpec, CommunicationGraphStatus, GRAPH_NAME, GraphEdge,
};
pub use condition::{Condition, InForce, PolicyStatus, Recorded};
#[cfg(feature = "kubernetes")]
pub use definitions::{
    AuthorizationPolicy, CommunicationGraph, DefinitionError, MeshConfig, PlacementPolicy,
    ProxyService, TrafficPolicy, TuningPolicy, definitions, yaml,
};
pub use local_first::LocalFirst;
pub use mesh_config::MeshConfigSpec;
pub use placement_policy::{
    NodeDelay, NodeSelection, PlacementGuard, PlacementMeasure, PlacementMode, PlacementObjective,
    PlacementPolicySpec, PlacementPolicyStatus, ServicePlacement,
};
pub(crate) use proxy_service::DRAIN_SECONDS;
pub use proxy_service::{
    AutoStatus, ProxyMode, ProxyServiceSpec, ProxyServiceStatus, ServiceBalance,
};
#[cfg(feature = "kubernetes")]
pub use pruned::pruned;
pub use resources::Resources;
pub use target::TargetRef;
pub use traffic_policy::{TrafficPolicySpec, merge_cluster, merge_route};
pub use tuning_policy::{
    ServiceTuning, TunedValue, TuningChange, TuningGuard, TuningMeasure, TuningMode, TuningPart,
    TuningPolicySpec, TuningPolicyStatus, TuningScaling, TuningThresholds,
};

/// The API group of all kinds of the mesh.
pub const GROUP: &str = "maglor.dev";
/// The API version of all kinds of the mesh.
pub const VERSION: &str = "v1alpha1";
/// The annotation of a definition that contains the version of the mesh.
pub const VERSION_KEY: &str = "maglor.dev/definitions-version";
/// The name of the only [`MeshConfig`] that has an effect.
pub const MESH_CONFIG_NAME: &str = "default";

/// Returns whether a number is zero, so that its field can be omitted from statuses.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
pub(crate) fn is_zero(value: &u32) -> bool {
    *value == 0
}
