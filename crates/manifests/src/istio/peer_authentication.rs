//! Translates `PeerAuthentication`: the pods that accept plain text.

use std::collections::BTreeMap;

use maglor_config::raw::MeshMode;
use serde_json::Value;

use crate::istio::block::Block;
use crate::istio::finding::{Effect, Read, Report};

/// A translated `PeerAuthentication`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PeerAuthentication {
    /// The labels of the selected pods; `None` = all pods of the resource's namespace, or of the mesh.
    pub selector: Option<BTreeMap<String, String>>,
    /// The mutual TLS mode; `None` = inherited from the namespace or the mesh.
    pub mode: Option<MeshMode>,
    /// The mutual TLS modes of single ports.
    pub ports: BTreeMap<u16, MeshMode>,
}

impl PeerAuthentication {
    /// Translates a `spec`.
    #[must_use]
    pub fn read(spec: &Value) -> Read<Self> {
        let report = Report::default();
        let block = Block::new(spec, "spec".to_owned(), &report);
        let selector = selector(&block);
        let mode = block.block("mtls").and_then(|mtls| {
            let mode = mode(&mtls);
            mtls.end(Effect::Ignored);
            mode
        });
        let mut ports = BTreeMap::new();
        for (port, own) in block.named_blocks("portLevelMtls") {
            let mode = self::mode(&own);
            own.end(Effect::Ignored);
            match (port.parse::<u16>(), mode) {
                (Ok(port @ 1..), mode) => ports.extend(mode.map(|mode| (port, mode))),
                _ => block.refuse("portLevelMtls", format!("`{port}` is not a port")),
            }
        }
        if selector.is_none() && !ports.is_empty() {
            ports.clear();
            block.ignore(
                "portLevelMtls",
                "portLevelMtls needs a `selector`, as in Istio",
            );
        }
        block.end(Effect::Ignored);
        drop(block);
        report.read(Some(Self {
            selector,
            mode,
            ports,
        }))
    }
}

fn mode(block: &Block<'_>) -> Option<MeshMode> {
    match block.text("mode") {
        None | Some("UNSET") => None,
        Some("STRICT") => Some(MeshMode::Strict),
        Some("PERMISSIVE") => Some(MeshMode::Permissive),
        Some("DISABLE") => {
            block.ignore(
                "mode",
                "`DISABLE` is treated as `PERMISSIVE`: mutual TLS remains possible",
            );
            Some(MeshMode::Permissive)
        }
        Some(other) => {
            let choices = "write `STRICT`, `PERMISSIVE` or `DISABLE`";
            block.refuse("mode", format!("`{other}` is not known; {choices}"));
            None
        }
    }
}

/// Reads `selector.matchLabels`; `None` without labels: like an absent selector, an empty one selects all workloads.
pub(crate) fn selector(block: &Block<'_>) -> Option<BTreeMap<String, String>> {
    let selector = block.block("selector")?;
    let labels = selector.pairs("matchLabels");
    selector.end(Effect::Refused);
    (!labels.is_empty()).then_some(labels)
}
