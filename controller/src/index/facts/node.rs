//! Nodes and namespaces.

use maglor_config::raw;

use super::Meta;

/// A node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Node {
    /// `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
}

impl Node {
    pub(super) fn read(meta: &Meta) -> Self {
        let label = |name: &str| {
            meta.labels
                .get(name)
                .filter(|value| !value.is_empty())
                .cloned()
        };
        Self {
            region: label("topology.kubernetes.io/region"),
            zone: label("topology.kubernetes.io/zone"),
        }
    }
}

/// The annotation by which a namespace differs from the mesh's `mtls`.
pub const MTLS: &str = "maglor.dev/mtls";

/// A namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// What its pods take, where it differs from the mesh; a value that is no mode is none.
    pub mtls: Option<raw::MeshMode>,
}

impl Namespace {
    pub(super) fn read(meta: &Meta) -> Self {
        let mtls = meta.annotations.get(MTLS).map(String::as_str);
        Self {
            mtls: match mtls {
                Some("permissive") => Some(raw::MeshMode::Permissive),
                Some("strict") => Some(raw::MeshMode::Strict),
                _ => None,
            },
        }
    }
}
