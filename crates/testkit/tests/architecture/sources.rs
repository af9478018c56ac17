//! Source files of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders without code that is maintained by reading: build products, generated code, and
/// tests, which may be as long as what they test.
const SKIPPED: [&str; 4] = ["fuzz", "gen", "target", "tests"];

/// Paths below `root` and texts of all Rust files but tests.
pub(crate) fn files(root: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect(root, root, &mut files);
    files
}

/// Folders of the packages, below `root`.
pub(crate) fn packages(root: &Path) -> Vec<String> {
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut packages: Vec<_> = crates.map(|name| format!("crates/{name}")).collect();
    packages.extend(["benches", "controller", "proxy"].map(str::to_owned));
    packages.sort();
    packages
}

/// All words of the Rust files below a folder, tests included and comments left out.
pub(crate) fn words(dir: &Path) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // A folder with a manifest is another package.
            if !path.join("Cargo.toml").exists() {
                words.extend(self::words(&path));
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let code = text.lines().filter_map(|line| line.split("//").next());
            let code = code.flat_map(|line| line.split(|c: char| c != '_' && !c.is_alphanumeric()));
            words.extend(code.map(str::to_owned));
        }
    }
    words
}

/// Rust files directly in a folder, which need not exist.
pub(crate) fn directly_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .collect()
}

/// The modules that a file declares.
pub(crate) fn modules(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    names.map(str::to_owned).collect()
}

/// Whether a comment has Rust code that rustdoc runs or compiles.
pub(crate) fn has_example(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or(line.strip_prefix("//!"))
    });
    // A fence begins a block, the next one ends it.
    let fences = comments.filter_map(|line| line.trim().strip_prefix("```"));
    let mut languages = fences.step_by(2);
    languages
        .any(|language| ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&language))
}

/// Lines up to the first item that is compiled for tests only.
pub(crate) fn lines_before_tests(text: &str) -> usize {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .count()
}

/// Whether a file holds nothing but tests of the module that it is named after.
pub(crate) fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem == "tests" || stem.ends_with("_tests")
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&&*name) {
                collect(root, &path, files);
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") && !is_test_file(&path) {
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            // A file that vanishes during an edit is no finding.
            if let Ok(text) = fs::read_to_string(&path) {
                files.push((shown, text));
            }
        }
    }
}

#[test]
fn examples_are_rust() {
    assert!(has_example(
        "/// ```text\n/// a\n/// ```\n    //! ```no_run\n"
    ));
    assert!(!has_example(
        "/// ```text\n/// ```\n// ```\nlet a = \"```\";\n"
    ));
}

#[test]
fn lines_are_counted_up_to_the_tests() {
    assert_eq!(lines_before_tests("a\nb\n#[cfg(test)]\nmod tests {}\n"), 2);
    assert_eq!(lines_before_tests("a\n    #[cfg(test)]\nb\n"), 3);
    assert!(is_test_file(Path::new("src/a/tests.rs")));
    assert!(is_test_file(Path::new("src/route_tests.rs")));
    assert!(!is_test_file(Path::new("src/route.rs")));
}
