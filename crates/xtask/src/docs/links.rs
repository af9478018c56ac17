//! The links of a page, as the site needs them.
//!
//! A link to a page stays. A file that browsers show is copied next to the pages. Everything else, such as source
//! files, folders and results of measurements, becomes plain text with its path: the site has no source browser, and
//! the path is what a reader with a clone needs.

use std::collections::BTreeSet;

use super::markdown::{self, Link};

/// Extensions of files that browsers show.
const SHOWN: [&str; 6] = ["csv", "json", "png", "svg", "txt", "yaml"];

/// A page with its links rewritten, and the files that it needs next to it.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) copied: BTreeSet<String>,
}

/// Rewrites the links of the page at `path`.
pub(crate) fn rewrite(path: &str, page: &str, pages: &BTreeSet<String>) -> Rewritten {
    let (mut text, mut copied) = (String::new(), BTreeSet::new());
    let mut at = 0;
    for link in markdown::links(page) {
        // A picture that is a link: the picture is a link of its own, inside.
        if link.range.start < at {
            continue;
        }
        text.push_str(&page[at..link.range.start]);
        at = link.range.end;
        let whole = &page[link.range.clone()];
        let file = link.target.split('#').next().unwrap_or_default();
        let file_path = resolve(path, file);
        if file.is_empty() || file.contains("://") {
            text.push_str(whole);
        } else if pages.contains(&file_path) {
            text.push_str(&to_page(&link));
        } else if is_shown(&file_path) {
            text.push_str(whole);
            copied.insert(file_path);
        } else {
            text.push_str(&plain(&link, &file_path));
        }
    }
    text.push_str(&page[at..]);
    Rewritten { text, copied }
}

/// mdBook turns each README.md into the index of its folder, but not the links to it.
fn to_page(link: &Link<'_>) -> String {
    let target = link.target.replace("README.md", "index.md");
    format!("[{}]({target})", link.text)
}

fn plain(link: &Link<'_>, path: &str) -> String {
    let text = link.text;
    if text.contains(path) {
        return text.to_owned();
    }
    // A shortened path, such as the name of a module.
    if path.contains(text.trim_matches('`')) {
        return format!("`{path}`");
    }
    format!("{text} (`{path}`)")
}

fn is_shown(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| SHOWN.contains(&extension))
}

/// The path below the root of what the page at `from` links to.
pub(crate) fn resolve(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut path = Vec::new();
    for piece in folder.split('/').chain(target.split('/')) {
        match piece {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            piece => path.push(piece),
        }
    }
    path.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_root() {
        assert_eq!(resolve("docs/a.md", "../README.md"), "README.md");
        assert_eq!(resolve("docs/b/a.md", "./c.md"), "docs/b/c.md");
        assert_eq!(resolve("README.md", "docs/a.md"), "docs/a.md");
    }

    #[test]
    fn links_work_in_the_site() {
        let pages = ["docs/b.md", "docs/recipes/README.md"].map(str::to_owned);
        let pages = BTreeSet::from(pages);
        let page = "[b](b.md#c) [r](recipes/README.md) [here](#top) [far](https://a.example)\n\
                    [table](../benches/t.txt) [code](../src/a.rs) [`src/b.rs`](../src/b.rs) \
                    [`c`](../src/c.rs)";
        let Rewritten { text, copied } = rewrite("docs/a.md", page, &pages);
        assert_eq!(
            text,
            "[b](b.md#c) [r](recipes/index.md) [here](#top) [far](https://a.example)\n\
             [table](../benches/t.txt) code (`src/a.rs`) `src/b.rs` `src/c.rs`"
        );
        assert_eq!(copied, BTreeSet::from(["benches/t.txt".to_owned()]));
    }

    #[test]
    fn a_picture_may_be_a_link() {
        let page = "[![a](p/a.svg)](p/a.svg) [see](c.rs)";
        let Rewritten { text, copied } = rewrite("docs/a.md", page, &BTreeSet::new());
        assert_eq!(text, "[![a](p/a.svg)](p/a.svg) see (`docs/c.rs`)");
        assert_eq!(copied, BTreeSet::from(["docs/p/a.svg".to_owned()]));
    }
}
