//! The chapters of the site, from docs/README.md: the index by reader is the only list of pages.
//!
//! A row of its table with a bold text begins a part, the links of the other rows are the pages of the part. A page is
//! a chapter where it is listed first. The README.md of a folder below docs is itself an index: of that folder.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::links::resolve;
use super::markdown;

const INDEX: &str = "docs/README.md";
/// Pages before the parts.
const FIRST: [&str; 2] = ["README.md", INDEX];

/// All pages of the site, in order.
#[derive(Debug)]
pub(crate) struct Index {
    first: Vec<Page>,
    parts: Vec<Part>,
}

/// The pages for one kind of reader.
#[derive(Debug)]
struct Part {
    title: String,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Page {
    /// Below the root of the workspace.
    path: String,
    /// Its first heading.
    title: String,
    children: Vec<Page>,
}

impl Index {
    /// Reads the index and the titles of its pages.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut reader = Reader {
            root,
            listed: BTreeSet::new(),
        };
        let first = FIRST.map(|path| reader.page(path));
        let first = first.into_iter().collect::<Result<Vec<_>, _>>()?;
        let first = first.into_iter().flatten().collect();
        let parts = reader.parts()?;
        let missing: Vec<_> = pages_below(root, "docs")?
            .into_iter()
            .filter(|path| !reader.listed.contains(path))
            .map(|path| {
                format!(
                    "{path} is in no index; add it to the table of {}",
                    of(&path)
                )
            })
            .collect();
        match missing.is_empty() {
            true => Ok(Self { first, parts }),
            false => Err(missing.join("\n")),
        }
    }

    /// The paths of all pages.
    pub(crate) fn pages(&self) -> BTreeSet<String> {
        let parts = self.parts.iter().flat_map(|part| &part.pages);
        let top = self.first.iter().chain(parts);
        let all = top.flat_map(|page| std::iter::once(page).chain(&page.children));
        all.map(|page| page.path.clone()).collect()
    }

    /// The list of chapters in mdBook's format.
    pub(crate) fn summary(&self) -> String {
        let mut text = "# Summary\n\n".to_owned();
        for Page { path, title, .. } in &self.first {
            let _ = writeln!(text, "[{title}]({path})");
        }
        for part in &self.parts {
            let _ = write!(text, "\n# {}\n\n", part.title);
            for Page {
                path,
                title,
                children,
            } in &part.pages
            {
                let _ = writeln!(text, "- [{title}]({path})");
                for Page { path, title, .. } in children {
                    let _ = writeln!(text, "  - [{title}]({path})");
                }
            }
        }
        text
    }
}

/// The index that has to list a page.
fn of(path: &str) -> String {
    match path.matches('/').count() {
        1 => INDEX.to_owned(),
        _ => resolve(path, "README.md"),
    }
}

struct Reader<'a> {
    root: &'a Path,
    listed: BTreeSet<String>,
}

impl Reader<'_> {
    fn parts(&mut self) -> Result<Vec<Part>, String> {
        let text = read(self.root, INDEX)?;
        let mut parts: Vec<Part> = Vec::new();
        for row in text.lines().filter(|line| line.starts_with("| ")) {
            if let Some(title) = bold(row) {
                let (title, pages) = (capital(title), Vec::new());
                parts.push(Part { title, pages });
            }
            let Some(part) = parts.last_mut() else {
                continue;
            };
            for link in markdown::links(row) {
                part.pages.extend(self.page(&resolve(INDEX, link.target))?);
            }
        }
        Ok(parts)
    }

    /// A page that was not listed before, with the pages of its folder if it is the index of one.
    fn page(&mut self, path: &str) -> Result<Option<Page>, String> {
        let path = path.split('#').next().unwrap_or(path);
        if !path.ends_with(".md") || !self.listed.insert(path.to_owned()) {
            return Ok(None);
        }
        let text = read(self.root, path)?;
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        let title = title.ok_or_else(|| format!("{path} has no heading"))?;
        let mut children = Vec::new();
        let folder = path.strip_suffix("README.md").unwrap_or_default();
        if folder.starts_with("docs/") && path != INDEX {
            for link in markdown::links(&text) {
                let child = resolve(path, link.target);
                if child.starts_with(folder) {
                    children.extend(self.page(&child)?);
                }
            }
        }
        Ok(Some(Page {
            path: path.to_owned(),
            title: title.replace('`', ""),
            children,
        }))
    }
}

/// The bold text that a row begins with.
fn bold(row: &str) -> Option<&str> {
    Some(row.strip_prefix("| **")?.split_once("**")?.0)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// The paths of all pages below a folder.
fn pages_below(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let entries = fs::read_dir(root.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    for entry in entries.flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            found.extend(pages_below(root, &path)?);
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
    Ok(found)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn every_page_is_a_chapter() {
        let index = Index::read(&shell::root()).unwrap_or_else(|error| unreachable!("{error}"));
        let summary = index.summary();
        let chapters = summary.matches("](").count();
        assert_eq!(chapters, index.pages().len(), "each page once:\n{summary}");
        for expected in [
            "[Maglor](README.md)\n[Documentation](docs/README.md)\n",
            "\n# Use it as a proxy\n\n- [Recipes](docs/recipes/README.md)\n  - [",
            "\n# Reference\n",
            "(ARCHITECTURE.md)",
            "(CONTRIBUTING.md)",
            "  - [The folders of the proxy are layers](docs/decisions/032-layers.md)",
        ] {
            assert!(summary.contains(expected), "{expected} in\n{summary}");
        }
    }

    #[test]
    fn a_page_in_no_index_is_named() {
        let root = std::env::temp_dir().join(format!("maglor-index-{}", std::process::id()));
        fs::create_dir_all(root.join("docs/recipes")).expect("a folder for the test");
        for (path, text) in [
            ("README.md", "# Maglor"),
            (
                "docs/README.md",
                "# Docs\n\n| **all** | |\n| a | [a](a.md) |\n",
            ),
            ("docs/a.md", "# A"),
            ("docs/b.md", "# B"),
            ("docs/recipes/c.md", "# C"),
        ] {
            fs::write(root.join(path), text).expect("a page for the test");
        }
        let error = Index::read(&root).expect_err("two pages are in no index");
        let _ = fs::remove_dir_all(&root);
        assert!(error.contains("docs/b.md is in no index; add it to the table of docs/README.md"));
        assert!(error.contains(
            "docs/recipes/c.md is in no index; add it to the table of docs/recipes/README.md"
        ));
    }
}
