//! Texts and names use the terms of docs/glossary.md: private words are listed here with what to
//! write instead, and none may come back.
//!
//! Files that still have some stand in `prose/not_yet.txt` with their number, which only falls.
//! After a rewrite, `MAGLOR_PROSE=update cargo test -p maglor-testkit --test prose` lowers it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod prose {
    pub(crate) mod files;
    pub(crate) mod words;
}

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs};

use prose::{files, words};

/// A private word in a file.
struct Finding {
    line: usize,
    found: &'static str,
    write: &'static str,
}

#[test]
fn private_words_do_not_come_back() {
    let expected = files::not_yet();
    let mut counts = BTreeMap::new();
    let mut report = String::new();
    for (path, text) in files::texts() {
        let findings = findings(&path, &text);
        let allowed = expected.get(&path).copied().unwrap_or(0);
        if findings.len() > allowed {
            for Finding { line, found, write } in &findings {
                writeln!(report, "{path}:{line}: `{found}`; write: {write}").unwrap();
            }
        }
        if !findings.is_empty() {
            counts.insert(path, findings.len());
        }
    }
    assert!(report.is_empty(), "private words:\n{report}");
    if env::var_os("MAGLOR_PROSE").is_some_and(|value| value == "update") {
        files::keep_not_yet(&counts);
        return;
    }
    let stale: Vec<_> = expected
        .iter()
        .filter(|(path, count)| counts.get(*path).unwrap_or(&0) < *count)
        .map(|(path, _)| path.as_str())
        .collect();
    assert!(
        stale.is_empty(),
        "fewer private words than prose/not_yet.txt says; run with MAGLOR_PROSE=update:\n{}",
        stale.join("\n")
    );
}

fn findings(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |line: usize, text: &str| {
        let words = words::of(text);
        for at in 0..words.len() {
            if let Some((private, write)) = words::private_at(&words, at) {
                found.push(Finding {
                    line,
                    found: private,
                    write,
                });
            }
        }
    };
    // The name of a file is a text, too.
    find(0, path.rsplit('/').next().unwrap_or(path));
    for (index, line) in text.lines().enumerate() {
        find(index + 1, line);
    }
    found
}

#[test]
fn words_are_found_in_names_and_sentences() {
    let found = |text: &str| -> Vec<_> {
        let all = findings("a.rs", text);
        all.into_iter().map(|finding| finding.found).collect()
    };
    assert_eq!(
        found("fn is_tried_again(nobodyKnows: u8)"),
        ["tried", "nobody"]
    );
    assert_eq!(
        found("// it is to be said by\n// Whoever"),
        ["is to be said", "whoever"]
    );
    assert!(found("the state of the world, fn visit_str(), a retried request").is_empty());
    assert!(found("bounce(tries=3), `tries`, maglor_exchange_bounces_total").is_empty());
    assert_eq!(found("StateOfTheWorld, but a World"), ["world"]);
    assert_eq!(findings("a/stranger.rs", "").len(), 1);
}

#[test]
fn the_list_names_files_in_order() {
    let text = fs::read_to_string(files::not_yet_path()).unwrap();
    assert_eq!(text, files::shown(&files::not_yet()));
}
