//! The record of a move in the moving pod.

use serde::{Deserialize, Serialize};

/// The deletion cost of a pod to remove first: lower than any value that users set.
pub const CHEAPEST: &str = "-2147483647";

/// The record of a pod that is being moved: everything that a new leader needs to continue.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The policy by which it moves.
    pub policy: String,
    /// Its service, `NAMESPACE/NAME`.
    pub service: String,
    /// The target node of its successor.
    pub to: String,
    /// Its ReplicaSet.
    pub replica_set: String,
    /// Its own `pod-template-hash`.
    pub hash: String,
    /// The other pods that its ReplicaSet had then: its successor is none of them.
    pub others: Vec<String>,
    /// It is abandoned then, in seconds since the Unix epoch.
    pub deadline: i64,
    /// It is abandoned: it only waits for its ReplicaSet to take it back.
    #[serde(default)]
    pub returned: bool,
}
