//! Facts that are read from pods, ReplicaSets and nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ticket::{CHEAPEST, Ticket};
use super::{DELETION_COST, HASH, MOVING};
use crate::index::facts::Key;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Namespace and name of the pod.
    pub key: Key,
    /// UID of the pod, which distinguishes it from others of the same name.
    pub uid: String,
    /// Resource version of the pod. A write to any other version fails.
    pub version: String,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Kind and name of the pod's controller; `None` if it has none.
    pub owner: Option<(String, String)>,
    /// Node on which the pod runs; `None` if it is not scheduled yet.
    pub node: Option<String>,
    /// Whether the pod is ready for requests.
    pub ready: bool,
    /// Whether the pod is terminating or has ended.
    pub ends: bool,
    /// `spec` of the pod.
    pub spec: Value,
}

/// A ReplicaSet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReplicaSet {
    /// The wanted number of pods.
    pub replicas: u32,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints` of the node.
    pub taints: Vec<Value>,
    /// Whether the node accepts no new pods, because it is cordoned or not ready.
    pub closed: bool,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

fn is_true(conditions: &Value, kind: &str) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

impl Pod {
    /// Reads a pod.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        let (meta, status) = (&value["metadata"], &value["status"]);
        let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.find(|one| one["controller"] == true);
        let ended = matches!(status["phase"].as_str(), Some("Failed" | "Succeeded"));
        Self {
            key: Key::new(&text(&meta["namespace"]), &text(&meta["name"])),
            uid: text(&meta["uid"]),
            version: text(&meta["resourceVersion"]),
            labels: map(&meta["labels"]),
            annotations: map(&meta["annotations"]),
            owner: owner.map(|one| (text(&one["kind"]), text(&one["name"]))),
            node: value["spec"]["nodeName"].as_str().map(str::to_owned),
            ready: is_true(&status["conditions"], "Ready"),
            ends: ended || !meta["deletionTimestamp"].is_null(),
            spec: value["spec"].clone(),
        }
    }

    /// Returns the ReplicaSet to which the pod belongs; `None` if it belongs to none.
    #[must_use]
    pub fn replica_set(&self) -> Option<&str> {
        let (kind, name) = self.owner.as_ref()?;
        (kind == "ReplicaSet").then_some(name)
    }

    /// Returns the hash of the pod's template and its Deployment; `None` if it belongs to no Deployment.
    #[must_use]
    pub fn deployment(&self) -> Option<(&str, &str)> {
        let hash = self.labels.get(HASH)?;
        let set = self.replica_set()?;
        let name = set.strip_suffix(hash.as_str())?.strip_suffix('-')?;
        Some((hash, name))
    }

    /// Returns the ticket of the pod's move; `None` if the pod is not moving.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.labels.get(MOVING)?;
        serde_json::from_str(self.annotations.get(MOVING)?).ok()
    }

    /// Returns whether the pod is moving.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.labels.contains_key(MOVING)
    }

    /// Returns whether the pod is marked as the first to be removed.
    #[must_use]
    pub fn is_cheapest(&self) -> bool {
        self.annotations
            .get(DELETION_COST)
            .is_some_and(|cost| cost == CHEAPEST)
    }
}

impl ReplicaSet {
    /// Reads a ReplicaSet; `None` if it is being deleted.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        let replicas = value["spec"]["replicas"].as_u64().unwrap_or(1);
        let stays = value["metadata"]["deletionTimestamp"].is_null();
        stays.then(|| Self {
            replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        })
    }
}

impl Node {
    /// Reads a node.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        let spec = &value["spec"];
        let ready = is_true(&value["status"]["conditions"], "Ready");
        Self {
            name: text(&value["metadata"]["name"]),
            labels: map(&value["metadata"]["labels"]),
            taints: spec["taints"].as_array().cloned().unwrap_or_default(),
            closed: spec["unschedulable"] == true || !ready,
        }
    }
}
