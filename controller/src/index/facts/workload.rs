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
    /// It has a sidecar that takes what others send.
    pub injected: bool,
    /// It has a sidecar.
    pub has_sidecar: bool,
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
        let injected = meta.annotations.get(INJECTED).map(String::as_str);
        Ok(Self {
            injected: injected == Some("true"),
            has_sidecar: matches!(injected, Some("outbound" | "true")),
            labels: meta.labels,
            service_account: spec
                .service_account_name
                .unwrap_or_else(|| "default".to_owned()),
            node: spec.node_name,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sidecar_that_only_calls_takes_nothing() {
        let read = |value: &str| {
            let meta = Meta {
                annotations: [(INJECTED.to_owned(), value.to_owned())].into(),
                ..Meta::default()
            };
            let workload = Workload::read(meta, &json!({})).unwrap();
            (workload.injected, workload.has_sidecar)
        };
        assert_eq!(read("true"), (true, true));
        assert_eq!(read("outbound"), (false, true));
        assert_eq!(read("yes"), (false, false));
    }
}
