//! Finds type errors in files that an API server would report according to the schema.
//!
//! The Rust types of the mesh's kinds also accept the short forms of the proxy's file (`namespaces: shop`). An API
//! server does not, because in a schema each field has a single type.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::check::SpecError;

/// The schema of the `spec` of each kind. Created once, because files may contain thousands of resources.
static SPECS: LazyLock<HashMap<String, Value>> = LazyLock::new(|| {
    let definitions = super::definitions().unwrap_or_default().into_iter();
    let schemas = definitions.filter_map(|definition| {
        let version = definition.spec.versions.into_iter().next()?;
        let mut schema = serde_json::to_value(version.schema?.open_api_v3_schema).ok()?;
        Some((
            definition.spec.names.kind,
            schema["properties"]["spec"].take(),
        ))
    });
    schemas.collect()
});

/// Checks the `spec` of one of the mesh's own resources against its definition: returns an error for each value of a
/// wrong type, and removes the value. Returns no errors for other resources.
pub fn check(object: &mut Value) -> Vec<SpecError> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let schema = SPECS.get(kind).unwrap_or(&Value::Null);
    let mut errors = Vec::new();
    if let Some(spec) = object.get_mut("spec")
        && !of_type(schema, spec, "spec", &mut errors)
    {
        *spec = Value::Object(serde_json::Map::new());
    }
    errors
}

/// Returns whether a value has the right type; removes values of wrong types inside it.
fn of_type(schema: &Value, value: &mut Value, path: &str, errors: &mut Vec<SpecError>) -> bool {
    // An API server treats `null` like a missing field.
    if value.is_null() {
        return true;
    }
    let wanted = match schema["type"].as_str() {
        Some("array") => match value.as_array_mut() {
            Some(items) => {
                let mut good = true;
                for (at, item) in items.iter_mut().enumerate() {
                    good &= of_type(&schema["items"], item, &format!("{path}[{at}]"), errors);
                }
                // The list is removed as a whole: if a single item were removed, the indices of the others would
                // change.
                return good;
            }
            None => "a list",
        },
        Some("object") => match value.as_object_mut() {
            Some(fields) => {
                for (name, field) in fields {
                    let known = schema["properties"].get(name);
                    // Unknown fields are reported when the resource is read.
                    let inner = known.unwrap_or(&schema["additionalProperties"]);
                    if !of_type(inner, field, &format!("{path}.{name}"), errors) {
                        *field = Value::Null;
                    }
                }
                return true;
            }
            None => "a mapping",
        },
        Some("boolean") if !value.is_boolean() => "true or false",
        Some("integer") if !(value.is_i64() || value.is_u64()) => "a whole number",
        Some("number") if !value.is_number() => "a number",
        Some("string") if !value.is_string() => "a string",
        _ => return true,
    };
    errors.push(SpecError::Value {
        path: path.to_owned(),
        message: format!(
            "expected {wanted}, found `{value}`{}",
            instead(wanted, value)
        ),
    });
    false
}

/// Returns what to write instead of a value of a wrong type.
fn instead(wanted: &str, value: &Value) -> String {
    match (wanted, value) {
        ("a string", Value::Number(number)) => {
            format!("; write `{number}s` for a time in seconds, `\"{number}\"` for a string")
        }
        ("a string", Value::Bool(truth)) => format!("; write `\"{truth}\"` for a string"),
        ("a list", Value::String(text)) => format!("; write `[{text}]`"),
        ("a list", Value::Object(_)) => "; start each item with `- `".to_owned(),
        ("a whole number" | "a number", Value::String(text)) => {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            match digits.parse::<f64>() {
                Ok(number) => format!("; write `{number}`"),
                Err(_) => String::new(),
            }
        }
        ("true or false", Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" | "enabled" => "; write `true`".to_owned(),
            "no" | "off" | "false" | "disabled" => "; write `false`".to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_has_one_type() {
        let with = |kind: &str, spec: Value| {
            let mut object = json!({"kind": kind, "spec": spec});
            let errors = check(&mut object);
            let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
            texts.join("\n")
        };
        for (kind, spec) in [
            (
                "TrafficPolicy",
                json!({"cluster": {"policy": "random", "limits": null}}),
            ),
            (
                "TrafficPolicy",
                json!({"route": {"request_buffer_limit": 5, "unknown": {}}}),
            ),
            (
                "TrafficPolicy",
                json!({"route": {"request_buffer_limit": "5KiB"}}),
            ),
            (
                "AuthorizationPolicy",
                json!({"rules": [{"from": [{"namespaces": ["a"]}]}]}),
            ),
            (
                "PlacementPolicy",
                json!({"namespaces": ["a"], "windows": 3}),
            ),
            ("Service", json!(5)),
        ] {
            assert_eq!(with(kind, spec.clone()), "", "{kind} {spec}");
        }
        for (kind, spec, expected) in [
            (
                "AuthorizationPolicy",
                json!({"rules": [{}, {"from": [{"namespaces": "a"}]}]}),
                "spec.rules[1].from[0].namespaces: expected a list, found `\"a\"`; write `[a]`",
            ),
            (
                "TrafficPolicy",
                json!({"route": {"retry": "5xx"}}),
                "spec.route.retry: expected a mapping, found `\"5xx\"`",
            ),
            (
                "TrafficPolicy",
                json!({"cluster": {"locality_weights": {"a": "b"}}}),
                "spec.cluster.locality_weights.a: expected a whole number, found `\"b\"`",
            ),
            (
                "MeshConfig",
                json!({"mtls": true}),
                "spec.mtls: expected a string, found `true`; write `\"true\"` for a string",
            ),
            (
                "TrafficPolicy",
                json!({"localFirst": {"enabled": "yes"}}),
                "spec.localFirst.enabled: expected true or false, found `\"yes\"`; write `true`",
            ),
            (
                "TrafficPolicy",
                json!({"route": {"timeout": 5, "retry": {"attempts": "3"}}, "cluster": {"policy": "random"}}),
                "spec.route.retry.attempts: expected a whole number, found `\"3\"`; write `3`\n\
                 spec.route.timeout: expected a string, found `5`; write `5s` for a time in seconds, `\"5\"` for a string",
            ),
            (
                "ProxyService",
                json!([]),
                "spec: expected a mapping, found `[]`",
            ),
        ] {
            assert_eq!(with(kind, spec), expected);
        }
    }
}
