//! The record of a move that is stored in the moving pod.

use serde::{Deserialize, Serialize};

/// The deletion cost of a pod that must be removed first: lower than any value that users set.
pub const CHEAPEST: &str = "-2147483647";

/// The record of a pod that is being moved. It contains everything that a new leader needs to continue.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// Name of the policy that causes the move.
    pub policy: String,
    /// Service of the pod, `NAMESPACE/NAME`.
    pub service: String,
    /// Target node, on which the successor should run.
    pub to: String,
    /// ReplicaSet of the pod.
    pub replica_set: String,
    /// Original `pod-template-hash` of the pod.
    pub hash: String,
    /// The other pods of the ReplicaSet when the move started; none of them is the successor.
    pub others: Vec<String>,
    /// Time at which the move is abandoned, in seconds since the Unix epoch.
    pub deadline: i64,
    /// Whether the move is abandoned and the pod only waits for its ReplicaSet to adopt it.
    #[serde(default)]
    pub returned: bool,
}
