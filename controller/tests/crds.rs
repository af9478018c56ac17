//! `deploy/crds` holds the definitions of the types, and Kubernetes would take them. `UPDATE=1`
//! rewrites the files.

use std::path::{Path, PathBuf};

use maglor_controller::crd;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}

#[test]
fn the_definitions_are_checked_in() {
    let mut names = Vec::new();
    for (name, text) in crd::yaml().unwrap() {
        let file = folder().join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(
            there,
            text,
            "{} is stale: run with UPDATE=1",
            file.display()
        );
        names.push(format!("{name}.yaml"));
    }
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            names.contains(&name),
            "{name} defines nothing that is there"
        );
    }
}

/// The rules of structural schemas (apiextensions.k8s.io/v1): one type everywhere, no references, no
/// alternatives, no defaults here, a description for every field.
#[test]
fn the_schemas_are_structural() {
    for definition in crd::definitions().unwrap() {
        let name = definition.metadata.name.clone().unwrap();
        for version in &definition.spec.versions {
            let schema = version.schema.as_ref().unwrap();
            let schema = schema.open_api_v3_schema.as_ref().unwrap();
            structural(&serde_json::to_value(schema).unwrap(), &name);
        }
    }
}

fn structural(schema: &Value, path: &str) {
    let map = schema
        .as_object()
        .unwrap_or_else(|| panic!("{path}: {schema}"));
    for word in [
        "$ref", "anyOf", "oneOf", "allOf", "not", "default", "const", "nullable",
    ] {
        assert!(!map.contains_key(word), "{path} has {word}: {schema}");
    }
    let int_or_string = map.get("x-kubernetes-int-or-string").is_some();
    assert!(
        map.contains_key("description") || path.ends_with("[]") || path.ends_with("{}"),
        "{path} is not described"
    );
    match map.get("type").and_then(Value::as_str) {
        None => assert!(int_or_string, "{path} has no type: {schema}"),
        Some("array") => structural(
            map.get("items")
                .unwrap_or_else(|| panic!("{path} has no items: {schema}")),
            &format!("{path}[]"),
        ),
        Some("object") => {
            let fields = map.get("properties").and_then(Value::as_object);
            for (name, inner) in fields.into_iter().flatten() {
                structural(inner, &format!("{path}.{name}"));
            }
            let values = map.get("additionalProperties");
            // Fields that an earlier version may have written are kept.
            let kept = map.get("x-kubernetes-preserve-unknown-fields");
            assert!(
                kept.is_none() || path.ends_with(".status.inForce.spec"),
                "{path} keeps anything"
            );
            assert!(
                kept.is_some() || fields.is_some() != values.is_some(),
                "{path} has neither or both: {schema}"
            );
            if let Some(values) = values {
                structural(values, &format!("{path}{{}}"));
            }
        }
        Some("boolean" | "integer" | "number" | "string") => {
            assert!(!int_or_string, "{path} has two types");
        }
        Some(other) => panic!("{path}: {other} is no type"),
    }
}
