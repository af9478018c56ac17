//! Pods.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Meta, ReadError, part};

/// The annotation of pods that have a sidecar; the webhook writes it.
pub const INJECTED: &str = "maglor.dev/injected";

/// A pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Workload {
    /// Policies select by them.
    pub labels: BTreeMap<String, String>,
    /// Whose identity it has.
    pub service_account: String,
    /// It has a sidecar.
    pub injected: bool,
    /// Where it runs.
    pub node: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    service_account_name: Option<String>,
    node_name: Option<String>,
}

impl Workload {
    pub(super) fn read(meta: Meta, value: &Value) -> Result<Self, ReadError> {
        let spec: Spec = part(value, "spec")?;
        Ok(Self {
            injected: meta
                .annotations
                .get(INJECTED)
                .is_some_and(|value| value == "true"),
            labels: meta.labels,
            service_account: spec
                .service_account_name
                .unwrap_or_else(|| "default".to_owned()),
            node: spec.node_name,
        })
    }
}
