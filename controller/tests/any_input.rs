//! Any resource is parsed or rejected, without a panic.

use std::path::Path;

use maglor_controller::index::Index;
use maglor_controller::index::facts::Object;
use maglor_controller::resource_server::Table;
use maglor_controller::source::folder;
use maglor_testkit::property::runner;
use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The resources of all cases of the index.
fn resources() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/index");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = std::fs::read_to_string(path).unwrap();
            let documents = serde_yaml::Deserializer::from_str(&text);
            found.extend(documents.map(|document| Value::deserialize(document).unwrap()));
        }
    }
    found
}

/// Puts a value in place of the one at a position, counted through the tree.
fn replace(value: &mut Value, at: &mut usize, new: &Value) {
    if *at == 0 {
        *value = new.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Array(list) => list.iter_mut().for_each(|inner| replace(inner, at, new)),
        Value::Object(map) => map.values_mut().for_each(|inner| replace(inner, at, new)),
        _ => {}
    }
}

#[test]
fn nothing_in_a_resource_panics() {
    let resources = resources();
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(65_536),
        json!(""),
        json!("*"),
        json!("[::1"),
        json!("0s"),
        json!("Service"),
        json!([]),
        json!({}),
        json!([[null]]),
        json!({"name": "", "port": 0, "weight": 4_294_967_295_u32}),
        json!("x".repeat(100_000)),
    ];
    let change = (0..resources.len(), 0..60usize, 0..odd.len());
    runner(7, 100)
        .run(&prop::collection::vec(change, 1..8), |changes| {
            let mut all = resources.clone();
            for (which, mut at, new) in changes {
                replace(&mut all[which], &mut at, &odd[new]);
            }
            let mut index = Index::default();
            for value in &all {
                if let Ok(object) = Object::read(value) {
                    index.apply(object);
                }
            }
            Table::new(false).publish(&index.changes().resources);
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_text_panics() {
    for text in [
        "\0",
        "&a [*a]",
        "- - - -",
        "{",
        "!!binary x",
        "a: &x {b: *x}",
        "kind: List\nitems: {}",
        "%YAML 9",
    ] {
        let _ = folder::contents(text);
    }
}
