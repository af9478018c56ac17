//! The pages, and their headings, links and blocks.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A block between two fences.
pub(crate) struct Block {
    pub(crate) page: String,
    /// The line of its first fence.
    pub(crate) line: usize,
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// Every page for people: those of the root and of benches, and all below `docs`.
pub(crate) fn documents() -> Vec<String> {
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

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blocks of a page.
pub(crate) fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(kind), None) => {
                open = Some(Block {
                    page: page.to_owned(),
                    line: index + 1,
                    kind: kind.trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: the last block has no end");
    blocks
}

/// The text with its blocks blanked out, so that lines keep their numbers.
pub(crate) fn prose(text: &str) -> String {
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        if !in_block && !fence {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    prose
}

/// The code between backticks: line, and text.
pub(crate) fn spans(text: &str) -> Vec<(usize, String)> {
    let prose = prose(text);
    let code = code_spans(&prose);
    let spans = code.into_iter().map(|range| {
        let code = prose[range.clone()].trim_matches('`');
        (line_of(&prose, range.start), code.replace('\n', " "))
    });
    spans.collect()
}

/// Links and pictures: line, and target.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let prose = prose(text);
    let code = code_spans(&prose);
    let mut links = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let target = prose[at + 2..].split(')').next().unwrap_or_default();
        if !code.iter().any(|range| range.contains(&at)) {
            links.push((line_of(&prose, at), target.to_owned()));
        }
    }
    links
}

/// What a link can name after `#`, as code hosts and mdBook make it of headings.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in prose(text).lines() {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title.trim());
        let count = seen.entry(anchor.clone()).or_default();
        anchors.push(match *count {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *count += 1;
    }
    anchors
}

fn anchor(title: &str) -> String {
    // Of a link only the text is left.
    let mut text = String::new();
    for piece in title.split(']') {
        text.push_str(match piece.strip_prefix('(') {
            Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
            None => piece,
        });
    }
    let kept = text.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

fn code_spans(prose: &str) -> Vec<Range<usize>> {
    let ticks = |at: usize| prose[at..].bytes().take_while(|b| *b == b'`').count();
    let mut spans = Vec::new();
    let mut open: Option<(usize, usize)> = None;
    let mut at = 0;
    while let Some(found) = prose[at..].find('`') {
        let start = at + found;
        let count = ticks(start);
        at = start + count;
        open = match open {
            None => Some((start, count)),
            Some((from, opened)) if opened == count => {
                spans.push(from..at);
                None
            }
            open => open,
        };
    }
    spans
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn headings_become_anchors() {
    let page = "# `a.b`: C, _d_ & e\n```\n# no\n```\n## [F](g.md) x\n## a\n### a\n#no\n";
    assert_eq!(anchors(page), ["ab-c-_d_--e", "f-x", "a", "a-1"]);
}

#[test]
fn code_is_no_link() {
    let page = "`[a](b)` [`c`](d.md)\n```sh\n[e](f)\n```\n`g h`\n";
    assert_eq!(links(page), [(1, "d.md".to_owned())]);
    assert_eq!(spans(page).last(), Some(&(5, "g h".to_owned())));
    let blocks = blocks("p", page);
    assert_eq!((blocks[0].line, &*blocks[0].kind), (2, "sh"));
}
