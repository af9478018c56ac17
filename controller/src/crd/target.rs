//! What a policy is attached to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SpecError;

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

impl TargetRef {
    /// Checks it, as the definition has an API server do it: files have none.
    ///
    /// # Errors
    /// When it is no Service that is named; `path` is where it stands.
    pub fn check(&self, path: &str) -> Result<(), SpecError> {
        let wrong = |field: &str, message: &str| {
            Err(SpecError::Value {
                path: format!("{path}.{field}"),
                message: message.to_owned(),
            })
        };
        if !self.group.is_empty() {
            return wrong("group", "must be empty for Services; remove it");
        }
        if self.kind != "Service" {
            return wrong("kind", "must be `Service`; name the Service of the pods");
        }
        if self.name.is_empty() {
            return wrong("name", "name a Service");
        }
        if self.port == Some(0) {
            return wrong("port", "must be 1 to 65535");
        }
        Ok(())
    }
}
