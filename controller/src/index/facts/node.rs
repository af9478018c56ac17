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
    /// The allocatable CPU and memory.
    pub allocatable: Amounts,
    /// The allocatable number of pods.
    pub pods: Option<u64>,
    /// It accepts no new pods: it is cordoned, or not ready.
    pub closed: bool,
    /// It accepts only pods with a toleration.
    pub tainted: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: BTreeMap<String, Value>,
}

/// Returns whether a node reports that it is not ready; one without a report is ready.
fn is_unready(value: &Value) -> bool {
    let conditions = value
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] != "True")
}

/// Returns whether new pods need a toleration for a node.
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
pub const MTLS: &str = maglor_inject::keys::MTLS;

/// A namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// The mTLS mode of its pods, if it overrides that of the mesh; an invalid value is ignored.
    pub mtls: Option<raw::MeshMode>,
    /// The labels by which Gateways select namespaces of routes.
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

    /// Returns the label that the API server sets on every namespace, for selection by name; files need not have it.
    pub(crate) fn implied(name: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())])
    }
}
