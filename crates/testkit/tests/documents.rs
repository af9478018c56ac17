//! Documents name files; the files exist. Kept results and documents name no place of the machine that they were made
//! on.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every page for people: those of the root and of benches, and all below `docs`.
fn documents() -> Vec<String> {
    let mut found = vec![
        "ARCHITECTURE.md".to_owned(),
        "CONTRIBUTING.md".to_owned(),
        "README.md".to_owned(),
        "benches/README.md".to_owned(),
    ];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root().join(&folder)).into_iter().flatten();
        for entry in entries.flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name);
            } else if Path::new(&name).extension().is_some_and(|ext| ext == "md") {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    let mut links = 0;
    for document in documents() {
        let text = read(&document);
        let folder = root().join(&document);
        let folder = folder.parent().unwrap_or(&folder);
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            links += 1;
            if !folder.join(file).exists() {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(links > 10, "links were found");
    assert!(broken.is_empty(), "dead links:\n{}", broken.join("\n"));
}

#[test]
fn files_in_documents_exist() {
    let mut missing = Vec::new();
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(document);
        let quoted = text.split('`').skip(1).step_by(2);
        let files: Vec<_> = quoted.filter(|text| is_path(text)).collect();
        assert!(files.len() > 10, "{document}: paths were found");
        for file in files {
            let found = ["", "proxy/src"]
                .iter()
                .any(|base| root().join(base).join(file).exists());
            if !found {
                missing.push(format!("{document}: {file}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
}

/// What only the machine had that a log was made on: home folders, and its package registry.
const OF_A_MACHINE: [&str; 5] = [
    "/root/",
    "/home/",
    "/work/",
    "/.cargo/registry",
    "index.crates.io",
];

#[test]
fn results_and_documents_name_no_place_of_a_machine() {
    let mut files = vec![
        root().join("README.md"),
        root().join("ARCHITECTURE.md"),
        root().join("CONTRIBUTING.md"),
    ];
    let mut folders = vec![root().join("benches/results"), root().join("docs")];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    assert!(files.len() > 100, "results were found");
    let mut found = Vec::new();
    for file in files {
        // Charts and archives are no text.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if let Some(place) = OF_A_MACHINE.iter().find(|place| line.contains(**place)) {
                found.push(format!("{}:{}: {place}", file.display(), number + 1));
            }
        }
    }
    assert!(
        found.is_empty(),
        "places of a machine:\n{}",
        found.join("\n")
    );
}

/// A source file, or something below a folder that is certainly meant.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let folders = ["benches/", "crates/", "deploy/", "docs/", "proxy/", ".ci/"];
    text.chars().all(plain)
        && (text.ends_with(".rs")
            || text.ends_with('/')
            || folders.iter().any(|folder| text.starts_with(folder)))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
