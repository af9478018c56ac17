//! Services where few of their calls leave a node: `PlacementPolicy` (docs/placement.md).
//!
//! [`maglor_service_graph::relocate`] decides what moves, and what is moved back. Here is what it sees ([`inputs`]),
//! how a pod is moved ([`moving`]), and where new pods are asked to run ([`affinity`]).
//!
//! A pod of a Deployment moves in steps, each of which follows from what stands in the cluster. Its label
//! `pod-template-hash` is changed: its ReplicaSet lets it go and makes another pod, which the webhook asks to run
//! where one is wanted. The old one continues serving, since Services do not select by that label. When the new one
//! is ready there, the old one is evicted. If it is not in time, or runs elsewhere, the old one gets its label back,
//! and the ReplicaSet removes the new one, which is marked as the cheapest to lose. At no time are there fewer pods
//! than before, and neither the number of replicas nor an autoscaler is touched.

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
pub(crate) mod wishes;

/// Label of a pod that is on its way out, and annotation with its [`moving::Ticket`].
pub const MOVING: &str = maglor_inject::keys::MOVING;
/// Label or annotation of pods; `disabled`: they stay where they are.
pub const PLACEMENT: &str = maglor_inject::keys::PLACEMENT;
/// Annotation of a new pod: on which node it is asked to run, and why.
pub const PLACED: &str = maglor_inject::keys::PLACED;
/// The label by which a ReplicaSet knows its pods.
pub const HASH: &str = "pod-template-hash";
/// The annotation by which the ReplicaSet controller chooses a pod to remove; the lowest first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
