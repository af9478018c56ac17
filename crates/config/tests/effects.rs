//! `effects.txt` names for each field of the configuration a test that shows its effect; the tests exist, and their
//! files name the field.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

const TABLE: &str = include_str!("effects.txt");

/// Field, test, and the observed effect.
fn rows() -> Vec<[&'static str; 3]> {
    let lines = TABLE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| -> [&'static str; 3] {
        let cells: Vec<_> = line.split(" | ").collect();
        let cells = cells.try_into();
        cells.unwrap_or_else(|_| panic!("BLOCK.FIELD | FILE::TEST | what is seen, not {line}"))
    };
    lines.map(row).collect()
}

/// `BLOCK.FIELD` of all blocks with fields; the parameters of policies are not among them.
fn fields() -> BTreeSet<String> {
    let (schema, mut fields) = (maglor_config::schema(), BTreeSet::new());
    let blocks = schema["$defs"].as_object().unwrap();
    let blocks = blocks.iter().map(|(name, block)| (&**name, block));
    for (name, block) in blocks.chain([("Document", &schema)]) {
        let properties = block.get("properties").and_then(Value::as_object);
        let names = properties.into_iter().flat_map(|fields| fields.keys());
        fields.extend(names.map(|field| format!("{name}.{field}")));
    }
    fields
}

#[test]
fn every_field_has_one_row() {
    let mut named: Vec<_> = rows().iter().map(|row| row[0].to_owned()).collect();
    named.sort();
    let set: BTreeSet<_> = named.iter().cloned().collect();
    let fields = fields();
    let missing: Vec<_> = fields.difference(&set).collect();
    assert!(
        missing.is_empty(),
        "without a test of their effect: {missing:?}"
    );
    let unknown: Vec<_> = set.difference(&fields).collect();
    assert!(unknown.is_empty(), "there are no such fields: {unknown:?}");
    let twice: Vec<_> = named.windows(2).filter(|two| two[0] == two[1]).collect();
    assert!(twice.is_empty(), "they have two rows: {twice:?}");
}

#[test]
fn every_row_names_a_test_whose_file_has_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wrong = Vec::new();
    for [field, test, seen] in rows() {
        let (file, function) = test.split_once("::").unwrap();
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        let name = field.split('.').next_back().unwrap();
        // As a function of a test, not in a comment.
        let tested = ["#[test]", "#[tokio::test"].iter().any(|mark| {
            text.split(mark).skip(1).any(|rest| {
                let head = rest.split('{').next().unwrap_or_default();
                head.contains(&format!("fn {function}("))
            })
        });
        if !tested || !text.contains(name) || seen.is_empty() {
            wrong.push(format!("{field}: {test}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "no such test, or it does not name the field: {wrong:#?}"
    );
}
