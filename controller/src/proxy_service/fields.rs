//! Fields of objects in JSON.

use serde_json::Value;

/// Returns a string; empty if there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
