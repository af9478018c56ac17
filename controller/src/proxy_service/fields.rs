//! Accessors for fields of JSON objects.

use serde_json::Value;

/// Returns a value as a string; empty if it is not a string.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
