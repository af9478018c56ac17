//! Moves pods so that few calls leave a node: `PlacementPolicy` (docs/placement.md).
//!
//! [`maglor_service_graph::relocate`] decides which services are moved, and which are moved back. This module
//! provides the inputs ([`inputs`]), the steps of moving a pod ([`moving`]), and the preferred nodes of new pods
//! ([`affinity`]).
//!
//! A pod of a Deployment is moved in steps, each of which is computed from the state of the cluster. The pod's label
//! `pod-template-hash` is changed, so that its ReplicaSet releases the pod and creates another one, to which the
//! webhook adds a preference for the target node. The old pod continues serving, because Services do not select by
//! this label. When the new pod is ready on the target node, the old one is evicted. If the new pod is not ready in
//! time, or runs on another node, the label of the old pod is restored, and the ReplicaSet removes the new pod, which
//! has the lowest deletion cost. There are never fewer pods than before, and neither the number of replicas nor an
//! autoscaler is changed.

pub mod affinity;
pub(crate) mod api;
pub mod fits;
pub mod inputs;
pub mod moving;
pub mod pod;
pub(crate) mod run;
pub mod status;
#[cfg(test)]
mod tests;
pub mod ticket;
pub(crate) mod wanted_nodes;

/// Label of a moving pod, and the annotation that contains its [`moving::Ticket`].
pub const MOVING: &str = maglor_manifests::inject::keys::MOVING;
/// Label or annotation of pods; with the value `disabled` they are not moved.
pub const PLACEMENT: &str = maglor_manifests::inject::keys::PLACEMENT;
/// Annotation of a new pod with its preferred node and the reason.
pub const PLACED: &str = maglor_manifests::inject::keys::PLACED;
/// The label by which a ReplicaSet selects its pods.
pub const HASH: &str = "pod-template-hash";
/// The annotation by which the ReplicaSet controller chooses the pod to remove: the one with the lowest value.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
