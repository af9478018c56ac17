//! Facts of nodes and namespaces.

use std::collections::BTreeMap;

use maglor_config::raw;
use serde::Deserialize;
use serde_json::Value;

use super::workload::Amounts;
use super::{Meta, ReadError, part};

/// A node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Node {
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Allocatable CPU and memory.
    pub allocatable: Amounts,
    /// Allocatable number of pods; `None` if it is unknown.
    pub pods: Option<u64>,
    /// Whether the node accepts no new pods, because it is cordoned or not ready.
    pub closed: bool,
    /// Whether the node accepts only pods with a toleration.
    pub tainted: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: BTreeMap<String, Value>,
}

/// Returns whether a node reports that it is not ready. A node without a report counts as ready.
fn is_unready(value: &Value) -> bool {
    let conditions = value
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] != "True")
}

/// Returns whether new pods need a toleration to run on a node.
fn is_tainted(value: &Value) -> bool {
    let taints = value.pointer("/spec/taints").and_then(Value::as_array);
    let mut taints = taints.into_iter().flatten();
    taints.any(|one| one["effect"] == "NoSchedule" || one["effect"] == "NoExecute")
}

impl Node {
    pub(super) fn read(meta: &Meta, value: &Value) -> Result<Self, ReadError> {
        let status: Status = part(value, "status")?;
        let pods = status.allocatable.get("pods");
        let pods = pods.and_then(|pods| pods.as_u64().or_else(|| pods.as_str()?.parse().ok()));
        let label = |name: &str| {
            meta.labels
                .get(name)
                .filter(|value| !value.is_empty())
                .cloned()
        };
        Ok(Self {
            region: label("topology.kubernetes.io/region"),
            zone: label("topology.kubernetes.io/zone"),
            allocatable: Amounts::read(&status.allocatable),
            pods,
            closed: value.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
                || is_unready(value),
            tainted: is_tainted(value),
        })
    }
}

/// The annotation of a namespace that overrides the mesh's `mtls`.
pub const MTLS: &str = maglor_manifests::inject::keys::MTLS;

/// A namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// The mTLS mode of the namespace's pods; `None` if it is that of the mesh. An invalid value is ignored.
    pub mtls: Option<raw::MeshMode>,
    /// Labels, by which Gateways select the namespaces of routes.
    pub labels: BTreeMap<String, String>,
}

impl Namespace {
    pub(super) fn read(meta: &Meta) -> Self {
        let mtls = meta.annotations.get(MTLS).map(String::as_str);
        let mut labels = meta.labels.clone();
        labels.extend(Self::implied(&meta.name));
        Self {
            labels,
            mtls: match mtls {
                Some("permissive") => Some(raw::MeshMode::Permissive),
                Some("strict") => Some(raw::MeshMode::Strict),
                _ => None,
            },
        }
    }

    /// Returns the label that the API server sets on every namespace for selection by name. Files need not contain
    /// this label.
    pub(crate) fn implied(name: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())])
    }
}
