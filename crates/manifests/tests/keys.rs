//! The table of keys is the one source: what code and documents call by name is in it, and documents name all.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use maglor_manifests::inject::keys;

/// Texts of the same form that are not keys of labels or annotations.
const OTHERS: [&str; 8] = [
    // Controllers, as events and Gateway classes name them.
    "maglor.dev/controller",
    "maglor.dev/gateway",
    "maglor.dev/webhook",
    // The version of a definition.
    "maglor.dev/definitions-version",
    // The audience of a token.
    "maglor.dev/identity",
    // Images and nodes of the cluster for tests.
    "maglor.dev/coredns",
    "maglor.dev/pause",
    "maglor.dev/simulated",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The texts of files with an ending, below a folder.
fn texts(folder: &Path, ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(texts(&path, ending));
        } else if path.extension().is_some_and(|one| one == ending) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// Every `maglor.dev/WORD` of a text.
fn named(text: &str) -> impl Iterator<Item = String> {
    text.match_indices("maglor.dev/").filter_map(|(at, start)| {
        let rest = &text[at + start.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let word = rest[..end.unwrap_or(rest.len())].trim_end_matches('-');
        // A group's version, as in `apiVersion`.
        (!word.is_empty() && word != "v1alpha1").then(|| format!("maglor.dev/{word}"))
    })
}

#[test]
fn documents_list_every_key() {
    let text = fs::read_to_string(root().join("docs/injection.md")).unwrap();
    let listed: BTreeSet<String> = named(&text).collect();
    for key in keys::all() {
        assert!(listed.contains(key.name), "{} is not listed", key.name);
    }
}

#[test]
fn nothing_is_called_by_a_key_that_is_not_in_the_table() {
    let root = root();
    let mut known: BTreeSet<&str> = keys::all().map(|key| key.name).collect();
    known.extend(OTHERS);
    let mut files = texts(&root.join("docs"), "md");
    files.extend(texts(&root.join("deploy/chart/templates"), "yaml"));
    files.extend(texts(&root.join("controller/src"), "rs"));
    for folder in [
        "cli/src",
        "config/src",
        "manifests/src/istio",
        "service-graph/src",
        "testkit/src/cluster",
    ] {
        files.extend(texts(&root.join("crates").join(folder), "rs"));
    }
    // Deliberately misspelt keys in tests are after the test attribute, or in separate files.
    files.retain(|(path, _)| !path.components().any(|part| part.as_os_str() == "tests"));
    files.retain(|(path, _)| path.file_name().is_some_and(|name| name != "tests.rs"));
    for (path, text) in files {
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for name in named(shipped) {
            assert!(known.contains(&*name), "{}: {name}", path.display());
        }
    }
}
