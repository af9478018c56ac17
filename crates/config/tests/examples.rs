//! Every file in deploy/examples is accepted, without warnings, and its YAML form means the same.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::path::{Path, PathBuf};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn examples_are_accepted() {
    let files = examples();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let loaded = maglor_config::load(&file).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.warnings, [], "{}", file.display());
    }
}

#[test]
fn printed_configurations_mean_the_same() {
    for file in examples() {
        let first = maglor_config::load(&file).unwrap();
        let second = maglor_config::parse(&first.yaml, "printed").unwrap();
        assert_eq!(first.yaml, second.yaml);
        assert_eq!(
            format!("{:?}", first.config),
            format!("{:?}", second.config)
        );
    }
}

/// The flags in the quick start are equivalent to it, except for names.
#[test]
fn quickstart_is_the_one_line_mode() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let file = maglor_config::load(&folder.join("quickstart.yaml")).unwrap();
    let upstreams = [
        "127.0.0.1:9001",
        "127.0.0.1:9002",
        "127.0.0.1:9003,weight=2",
    ];
    let flags = maglor_config::Config::from_flags(
        "0.0.0.0:8080".parse().unwrap(),
        &upstreams.map(str::to_owned),
        None,
        Some("127.0.0.1:9901".parse().unwrap()),
        1,
    )
    .unwrap();
    let renamed = format!("{:?}", file.config).replace("\"backend\"", "\"upstream\"");
    assert_eq!(renamed, format!("{:?}", flags.config));
}

/// The configuration that docs/configuration.md begins with.
#[test]
fn the_documented_beginning_works() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let block = text
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let loaded = maglor_config::parse(block, "docs").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings, []);
}
