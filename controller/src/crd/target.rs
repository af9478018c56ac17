//! What a policy is attached to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Service of the policy's namespace, or one of its ports.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetRef {
    /// The API group; empty for Services.
    #[serde(default)]
    #[schemars(extend("enum" = [""]))]
    pub group: String,
    /// The kind; only `Service`.
    #[serde(default = "service")]
    #[schemars(extend("enum" = ["Service"]))]
    pub kind: String,
    /// The Service's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The number of one port of the Service. Absent: all of its ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

fn service() -> String {
    "Service".to_owned()
}
