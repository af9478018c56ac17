//! The target of a policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SpecError;

/// A Service of the policy's namespace, or one of its ports.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetRef {
    /// API group; empty for Services.
    #[serde(default)]
    #[schemars(extend("enum" = [""]))]
    pub group: String,
    /// Kind; only `Service` is supported.
    #[serde(default = "service")]
    #[schemars(extend("enum" = ["Service"]))]
    pub kind: String,
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Port number of the Service. Absent: all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

fn service() -> String {
    "Service".to_owned()
}

impl TargetRef {
    /// Validates the target as an API server would, because no API server validates files.
    ///
    /// # Errors
    /// If the target is not a Service; `path` is the path of the field.
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
