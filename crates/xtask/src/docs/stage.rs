//! The folder that mdBook reads: the pages at their paths below the root of the workspace, so that links between them
//! stay as they are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::index::Index;
use super::links::{self, Rewritten};

/// The index preprocessor makes `index.html` of each README.md. The others are off: pages are no templates.
/// The print page would hold everything once more. Folders of pages, such as the decisions, are folded.
const BOOK: &str = r#"[book]
title = "Maglor"
description = "A service mesh and reverse proxy"
language = "en"
src = "src"

[build]
use-default-preprocessors = false

[preprocessor.index]

[output.html]
git-repository-url = "https://github.com/maglor-mesh/maglor"
no-section-label = true

[output.html.fold]
enable = true
level = 0

[output.html.print]
enable = false

[output.html.search]
limit-results = 20
"#;

/// Writes everything that mdBook needs; returns the number of files that are no pages.
pub(crate) fn write(root: &Path, index: &Index, into: &Path) -> Result<usize, String> {
    let pages = index.pages();
    let mut copied = BTreeSet::new();
    for path in &pages {
        let page =
            fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
        let rewritten: Rewritten = links::rewrite(path, &page, &pages);
        put(&into.join("src").join(path), rewritten.text.as_bytes())?;
        copied.extend(rewritten.copied);
    }
    for path in &copied {
        // Pictures are not text.
        let bytes = fs::read(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
        put(&into.join("src").join(path), &bytes)?;
    }
    put(&into.join("src/SUMMARY.md"), index.summary().as_bytes())?;
    put(&into.join("book.toml"), BOOK.as_bytes())?;
    Ok(copied.len())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}
