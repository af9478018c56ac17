//! Marks of results that are older than the code, after the links to them in docs/papers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::age::{Age, Ages, RESULTS};
use crate::docs::markdown;

/// Follows a link to a result that is older than the code that it measures.
const MARK: char = '†';
/// The pages whose links are marked.
pub(super) const PAGES: &str = "docs/papers";

/// A page, and its text with the marks of now.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Whether the page already has this text.
    pub(super) is_right: bool,
}

/// Returns all pages with marks, in order.
pub(super) fn pages(root: &Path, ages: &Ages) -> io::Result<Vec<Page>> {
    let entries = fs::read_dir(root.join(PAGES))?;
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.sort();
    let mut known = BTreeMap::new();
    let mut pages = Vec::new();
    for path in paths {
        let old = fs::read_to_string(&path)?;
        let mut age = |folder: &str| {
            let folder = folder.to_owned();
            *known
                .entry(folder)
                .or_insert_with_key(|folder| ages.age(folder))
        };
        let text = marked(&old, &mut age);
        let is_right = text == old;
        pages.push(Page {
            path,
            text,
            is_right,
        });
    }
    Ok(pages)
}

/// The text with a mark after each link to older results. Where the age is unknown, the text stays.
fn marked(text: &str, age: &mut impl FnMut(&str) -> Age) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut from = 0;
    for link in markdown::links(text) {
        let Some(folder) = folder(link.target) else {
            continue;
        };
        let age = age(folder);
        if age == Age::Unknown {
            continue;
        }
        let after = &text[link.range.end..];
        let mark = after.strip_prefix(MARK).map_or(0, |_| MARK.len_utf8());
        marked.push_str(&text[from..link.range.end]);
        if age == Age::Older {
            marked.push(MARK);
        }
        from = link.range.end + mark;
    }
    marked.push_str(&text[from..]);
    marked
}

/// The folder of results that a link leads to.
fn folder(target: &str) -> Option<&str> {
    let (_, below) = target.split_once(RESULTS)?;
    let folder = below.strip_prefix('/')?.split(['/', '#']).next()?;
    (!folder.is_empty()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn links_to_older_results_are_marked_once() {
        let age = |folder: &str| match folder {
            "old" => Age::Older,
            "new" => Age::Current,
            _ => Age::Unknown,
        };
        let text = "[a](../../benches/results/old/summary.md#bars), [b](benches/results/new)†, \
                    [c](benches/results/lost)†, [d](benches/results/gone), [e](../old), \
                    `[f](benches/results/old)`";
        let expected = "[a](../../benches/results/old/summary.md#bars)†, [b](benches/results/new), \
                        [c](benches/results/lost)†, [d](benches/results/gone), [e](../old), \
                        `[f](benches/results/old)`";
        assert_eq!(marked(text, &mut { age }), expected);
        assert_eq!(marked(expected, &mut { age }), expected);
    }

    /// The history may be absent; what the pages state must not contradict itself in any case.
    #[test]
    fn a_result_has_the_same_mark_on_every_page() {
        let mut marks = BTreeMap::new();
        for entry in fs::read_dir(shell::root().join(PAGES)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for link in markdown::links(&text) {
                let Some(folder) = folder(link.target) else {
                    continue;
                };
                let exists = shell::root().join(RESULTS).join(folder).is_dir();
                assert!(exists, "{}: no results {folder}", path.display());
                let mark = text[link.range.end..].starts_with(MARK);
                let first = *marks.entry(folder.to_owned()).or_insert(mark);
                assert_eq!(mark, first, "{}: {folder}", path.display());
            }
        }
        assert!(marks.len() > 5, "results are linked: {marks:?}");
    }
}
