//! What an API server refuses by a definition's schema, found without one: values of another type.
//!
//! The types of the mesh's kinds take the short forms of the proxy's file, too (`namespaces: shop`). An API server does
//! not: a field has one type there.

use serde_json::Value;

use super::check::SpecError;

/// Checks the `spec` of a resource of the mesh's own by its definition. Other resources pass.
///
/// # Errors
/// The first value that is not of its field's type.
pub fn check(object: &Value) -> Result<(), SpecError> {
    let definitions = super::definitions().unwrap_or_default();
    let of_kind = definitions
        .into_iter()
        .find(|one| object["kind"] == one.spec.names.kind);
    let versions = of_kind.map(|one| one.spec.versions).unwrap_or_default();
    let version = versions.into_iter().next();
    let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
    let schema = serde_json::to_value(schema).unwrap_or_default();
    of_type(&schema["properties"]["spec"], &object["spec"], "spec")
}

fn of_type(schema: &Value, value: &Value, path: &str) -> Result<(), SpecError> {
    let wanted = |what: &str| {
        Err(SpecError::Value {
            path: path.to_owned(),
            message: format!("{what} is wanted, not `{value}`"),
        })
    };
    // An API server takes `null` for a field that is not there.
    if value.is_null() {
        return Ok(());
    }
    match schema["type"].as_str() {
        Some("array") => {
            let Some(items) = value.as_array() else {
                return wanted("a list");
            };
            let mut items = items.iter().enumerate();
            items.try_for_each(|(at, item)| {
                of_type(&schema["items"], item, &format!("{path}[{at}]"))
            })
        }
        Some("boolean") if !value.is_boolean() => wanted("true or false"),
        Some("integer") if !(value.is_i64() || value.is_u64()) => wanted("a whole number"),
        Some("number") if !value.is_number() => wanted("a number"),
        Some("object") => {
            let Some(fields) = value.as_object() else {
                return wanted("a mapping");
            };
            let mut fields = fields.iter();
            fields.try_for_each(|(name, field)| {
                let known = schema["properties"].get(name);
                // What is unknown is told of by who reads it.
                let inner = known.unwrap_or(&schema["additionalProperties"]);
                of_type(inner, field, &format!("{path}.{name}"))
            })
        }
        Some("string") if !value.is_string() => wanted("a text"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_has_one_type() {
        let with = |kind: &str, spec: Value| check(&json!({"kind": kind, "spec": spec}));
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
            assert_eq!(with(kind, spec.clone()), Ok(()), "{kind} {spec}");
        }
        for (kind, spec, expected) in [
            (
                "AuthorizationPolicy",
                json!({"rules": [{}, {"from": [{"namespaces": "a"}]}]}),
                "spec.rules[1].from[0].namespaces: a list is wanted, not `\"a\"`",
            ),
            (
                "TrafficPolicy",
                json!({"route": {"retry": "5xx"}}),
                "spec.route.retry: a mapping is wanted, not `\"5xx\"`",
            ),
            (
                "TrafficPolicy",
                json!({"cluster": {"locality_weights": {"a": "b"}}}),
                "spec.cluster.locality_weights.a: a whole number is wanted, not `\"b\"`",
            ),
            (
                "MeshConfig",
                json!({"mtls": true}),
                "spec.mtls: a text is wanted, not `true`",
            ),
            (
                "TrafficPolicy",
                json!({"localFirst": {"enabled": "yes"}}),
                "spec.localFirst.enabled: true or false is wanted, not `\"yes\"`",
            ),
            (
                "ProxyService",
                json!([]),
                "spec: a mapping is wanted, not `[]`",
            ),
        ] {
            let error = with(kind, spec).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
    }
}
