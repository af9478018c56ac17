//! docs/policies.md has a table for each kind, with the fields and descriptions of its definition.
//! `UPDATE=1` rewrites them. docs/controller.md names every metric.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use maglor_controller::crd;
use serde_json::Value;

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name)
}

/// `path: kind` of a field, in readable form.
fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        if words != [""] {
            return words.join(", ");
        }
    }
    match schema["type"].as_str() {
        None => "string or number".to_owned(),
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("integer" | "number") => "number".to_owned(),
        Some("string") => "string".to_owned(),
        Some("object") if schema["additionalProperties"].is_object() => "mapping".to_owned(),
        Some(other) => other.to_owned(),
    }
}

fn rows(table: &mut String, path: &str, schema: &Value, depth: usize) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let text = field["description"].as_str().unwrap_or_default();
        let text = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace('|', "\\|");
        writeln!(table, "| `{path}` | {} | {text} |", kind(field)).unwrap();
        // Deeper down it is the vocabulary of the proxy's configuration, which has its own page.
        if depth > 0 {
            rows(table, &path, field, depth - 1);
        }
    }
}

#[test]
fn every_field_of_a_policy_is_documented() {
    let path = document("policies.md");
    let before = fs::read_to_string(&path).unwrap();
    let mut text = before.clone();
    for definition in crd::definitions().unwrap() {
        let kind = &definition.spec.names.kind;
        let version = &definition.spec.versions[0];
        let schema = version
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        let schema = serde_json::to_value(schema).unwrap();
        let mut table = "| field of `spec` | kind | what |\n| --- | --- | --- |\n".to_owned();
        rows(
            &mut table,
            "",
            &schema["properties"]["spec"],
            usize::from(kind == "TrafficPolicy"),
        );
        let (begin, end) = (
            format!("<!-- {kind} -->\n"),
            format!("<!-- end of {kind} -->\n"),
        );
        let from = text.find(&begin).unwrap() + begin.len();
        let to = text.find(&end).unwrap();
        text.replace_range(from..to, &table);
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    } else {
        assert_eq!(before, text, "docs/policies.md is stale: run with UPDATE=1");
    }
}

#[test]
fn every_metric_is_documented() {
    let mut source = String::new();
    read_all(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut source,
    );
    let documented = fs::read_to_string(document("controller.md")).unwrap();
    let names = source
        .split('"')
        .filter(|text| text.starts_with("controller_"))
        .filter(|text| {
            text.bytes()
                .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
        });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(
            documented.contains(&format!("`maglor_{name}`")),
            "maglor_{name} is not documented"
        );
    }
}

/// The texts of all files of a folder.
fn read_all(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => read_all(&path, into),
            false => into.push_str(&fs::read_to_string(path).unwrap()),
        }
    }
}
