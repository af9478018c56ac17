//! Nodes and namespaces.

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
    /// What pods may have of it.
    pub allocatable: Amounts,
    /// How many pods it takes.
    pub pods: Option<u64>,
    /// It takes no new pods: it is cordoned, or not ready.
    pub closed: bool,
    /// It takes only pods that tolerate something.
    pub tainted: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: BTreeMap<String, Value>,
}

/// Whether a node says that it is not ready; one that says nothing is.
fn is_unready(value: &Value) -> bool {
    let conditions = value
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] != "True")
}

/// Whether new pods have to tolerate something of a node.
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

/// The annotation by which a namespace differs from the mesh's `mtls`.
pub const MTLS: &str = maglor_inject::keys::MTLS;

/// A namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// What its pods take, where it differs from the mesh; a value that is no mode is none.
    pub mtls: Option<raw::MeshMode>,
    /// Gateways choose by them whose routes they take.
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

    /// The label that the API server sets on every namespace, for selection by name; files need not have it.
    pub(crate) fn implied(name: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())])
    }
}
