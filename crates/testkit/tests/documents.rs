//! Documents, checked: links and anchors lead somewhere, files that are named exist, examples are covered by tests, and
//! nothing names a place of the machine that results were made on.
#![allow(clippy::panic, reason = "a test fails by panicking")]

mod documents {
    pub(crate) mod commands;
    pub(crate) mod definitions;
    pub(crate) mod derived;
    pub(crate) mod examples;
    pub(crate) mod pages;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use documents::commands::Programs;
use documents::examples;
use documents::pages::{self, documents, read, root};

#[test]
fn links_lead_somewhere() {
    let pages: BTreeMap<_, _> = documents()
        .into_iter()
        .map(|page| (page.clone(), read(&page)))
        .collect();
    let (mut broken, mut links, mut anchors) = (Vec::new(), 0, 0);
    for (page, text) in &pages {
        for (line, link) in pages::links(text) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            links += 1;
            anchors += usize::from(!anchor.is_empty());
            if let Some(problem) = dead(page, file, anchor) {
                broken.push(format!("{page}:{line}: {link}: {problem}"));
            }
        }
    }
    println!(
        "{} pages, {links} links, {anchors} of them to anchors",
        pages.len()
    );
    assert!(links > 300 && anchors > 100, "links were found");
    assert!(broken.is_empty(), "dead links:\n{}", broken.join("\n"));
}

/// Why a link of a page leads nowhere.
fn dead(page: &str, file: &str, anchor: &str) -> Option<String> {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let target = match file {
        "" => page.into(),
        file => folder.join(file),
    };
    if !root().join(&target).exists() {
        return Some("no such file".to_owned());
    }
    if anchor.is_empty() {
        return None;
    }
    let text = fs::read_to_string(root().join(&target)).unwrap_or_default();
    let known = pages::anchors(&text);
    (!known.iter().any(|known| known == anchor)).then(|| "no such heading".to_owned())
}

#[test]
fn examples_are_covered_by_tests() {
    let programs = Programs::read();
    let (mut problems, mut blocks, mut lines) = (Vec::new(), 0, 0);
    for page in documents() {
        let text = read(&page);
        let mut add = |place: String, checked: documents::commands::Checked| {
            lines += checked.ours;
            let found = checked.problems.into_iter();
            problems.extend(found.map(|problem| format!("{place}: {problem}")));
        };
        for block in pages::blocks(&page, &text) {
            blocks += 1;
            add(block.place(), examples::check(&block, &programs));
        }
        for (line, span) in pages::spans(&text) {
            add(format!("{page}:{line}"), programs.script(&span, false));
        }
    }
    println!("{blocks} blocks, {lines} command lines of ours");
    assert!(blocks > 100 && lines > 150, "examples were found");
    assert!(problems.is_empty(), "examples:\n{}", problems.join("\n"));
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

/// Paths of the machine where a log was written: home folders, and its package registry.
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
