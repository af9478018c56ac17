//! The texts that are checked, and the list of files that are not rewritten yet.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 10] = [
    "conf", "expected", "go", "html", "md", "proto", "rs", "sh", "yaml", "yml",
];

/// Products of builds, generated and foreign code, kept results, and this check itself.
const SKIPPED: [&str; 9] = [
    "benches/results",
    // A link to crates/balance/src/guard.
    "crates/balance/loom/src/guard",
    "crates/testkit/tests/prose",
    "crates/testkit/tests/prose.rs",
    "crates/xds/proto/envoy",
    "crates/xds/proto/google",
    "crates/xds/src/gen",
    // A link to deploy/crds.
    "deploy/chart/crds",
    "target",
];

/// Paths below the root of the workspace, and their texts.
pub(crate) fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root(), &mut found);
    assert!(found.len() > 1000, "texts were found");
    found
}

/// How many private words each file may have.
pub(crate) fn not_yet() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(not_yet_path()).unwrap();
    let parsed = text.lines().map(|line| {
        let (count, path) = line.split_once(' ').unwrap();
        (path.to_owned(), count.parse().unwrap())
    });
    parsed.collect()
}

/// Writes the numbers of now. They are not above the ones of before.
pub(crate) fn keep_not_yet(counts: &BTreeMap<String, usize>) {
    fs::write(not_yet_path(), shown(counts)).unwrap();
}

pub(crate) fn shown(counts: &BTreeMap<String, usize>) -> String {
    let lines = counts
        .iter()
        .map(|(path, count)| format!("{count} {path}\n"));
    lines.collect()
}

pub(crate) fn not_yet_path() -> PathBuf {
    root().join("crates/testkit/tests/prose/not_yet.txt")
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

fn collect(dir: &Path, found: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().flatten().collect();
    entries.sort_by_key(fs::DirEntry::path);
    for path in entries.into_iter().map(|entry| entry.path()) {
        let shown = path.strip_prefix(root()).unwrap().display().to_string();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A build of the fuzz targets has its own folder of products.
        if SKIPPED.contains(&&*shown) || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            collect(&path, found);
        } else if path
            .extension()
            .is_some_and(|ext| EXTENSIONS.iter().any(|known| ext == *known))
        {
            // A file that vanishes while the tree is edited is no finding.
            if let Ok(text) = fs::read_to_string(&path) {
                found.push((shown, text));
            }
        }
    }
}
