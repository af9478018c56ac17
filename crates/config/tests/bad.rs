//! Invalid files and their exact messages: tests/bad/X.yaml is rejected with X.stderr,
//! tests/warn/X.yaml is accepted with X.stderr as warnings. `UPDATE=1` rewrites the latter.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::path::{Path, PathBuf};

fn check(folder: &str, render: impl Fn(&str, &str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut stale = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let said = render(&text, file.file_name().unwrap().to_str().unwrap()) + "\n";
        let expected = file.with_extension("stderr");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&expected, &said).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != said {
            stale.push(format!("{}:\n{said}", file.display()));
        }
    }
    assert!(
        stale.is_empty(),
        "run with UPDATE=1 and look at the difference:\n{}",
        stale.join("\n")
    );
}

#[test]
fn bad_files_are_refused() {
    check("bad", |text, file| match maglor_config::parse(text, file) {
        Err(errors) => errors.to_string(),
        Ok(_) => panic!("{file} is accepted"),
    });
}

#[test]
fn doubtful_files_are_accepted_with_warnings() {
    check("warn", |text, file| {
        match maglor_config::parse(text, file) {
            Err(errors) => panic!("{errors}"),
            Ok(loaded) => {
                assert!(!loaded.warnings.is_empty(), "{file}");
                let texts: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
                texts.join("\n\n")
            }
        }
    });
}
