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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: BTreeMap<String, Value>,
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
        Self {
            labels: meta.labels.clone(),
            mtls: match mtls {
                Some("permissive") => Some(raw::MeshMode::Permissive),
                Some("strict") => Some(raw::MeshMode::Strict),
                _ => None,
            },
        }
    }
}
