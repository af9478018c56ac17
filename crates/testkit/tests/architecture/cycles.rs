//! Which top-level modules of a crate use which, and whether they do so in a circle.
//!
//! The files are split into tokens (so that comments and strings do not count, and macro calls
//! do), tests are left out, and every path that starts at the root of the crate is a use:
//! `crate::a::…`, `crate::{a, b::c}`, and as many `super::` as lead to the root. A name that
//! `lib.rs` re-exports counts as a use of the module that it comes from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::sources::is_test_file;

/// Uses between top-level modules: user, used, and where.
pub(crate) struct Modules {
    uses: BTreeMap<String, BTreeMap<String, String>>,
}

/// Reads the crate whose `lib.rs` is in `src`.
pub(crate) fn read(src: &Path) -> Modules {
    let root: Vec<_> = tokens(&src.join("lib.rs"));
    let names = declared(&root);
    let exported = exports(&root, &names);
    let mut modules = Modules {
        uses: names
            .iter()
            .map(|name| (name.clone(), BTreeMap::new()))
            .collect(),
    };
    for name in &names {
        let mut paths = Vec::new();
        collect(&src.join(format!("{name}.rs")), 1, &mut paths);
        collect(&src.join(name), 2, &mut paths);
        for (path, depth) in paths {
            let mut found = Vec::new();
            scan(&tokens(&path), depth, &mut found);
            let shown = path.strip_prefix(src).unwrap().display().to_string();
            for (used, line) in found {
                let used = exported.get(&used).cloned().unwrap_or(used);
                if names.contains(&used) && used != *name {
                    let uses = modules.uses.get_mut(name).unwrap();
                    uses.entry(used).or_insert(format!("{shown}:{line}"));
                }
            }
        }
    }
    modules
}

impl Modules {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.uses.keys().map(String::as_str).collect()
    }

    /// A shortest circle, one line for each use; `None` if there is none.
    pub(crate) fn cycle(&self) -> Option<String> {
        let circles = self.uses.keys().filter_map(|name| self.way(name, name));
        let circle = circles.min_by_key(Vec::len)?;
        let lines = circle.windows(2).map(|pair| {
            let place = &self.uses[pair[0]][pair[1]];
            format!("  {} uses {} at {place}", pair[0], pair[1])
        });
        Some(lines.collect::<Vec<_>>().join("\n"))
    }

    /// The largest set of modules that all reach each other; a single module is none.
    pub(crate) fn largest_component(&self) -> BTreeSet<&str> {
        let component = |name| {
            let others = self.uses.keys();
            others
                .filter(|other| self.way(name, other).is_some() && self.way(other, name).is_some())
                .map(String::as_str)
                .collect::<BTreeSet<_>>()
        };
        let components = self.uses.keys().map(|name| component(name));
        components.max_by_key(BTreeSet::len).unwrap_or_default()
    }

    /// A shortest way of at least one use.
    fn way<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for used in self.uses[at].keys() {
                if before.contains_key(used.as_str()) {
                    continue;
                }
                before.insert(used, at);
                if used == to {
                    let mut way = vec![used.as_str()];
                    while let Some(&previous) = before.get(way[way.len() - 1]) {
                        way.push(previous);
                        if previous == from {
                            break;
                        }
                    }
                    way.reverse();
                    return Some(way);
                }
                queue.push_back(used);
            }
        }
        None
    }
}

/// All files of a module with their depth: how many `super::` lead to the root of the crate.
fn collect(path: &Path, depth: usize, files: &mut Vec<(std::path::PathBuf, usize)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let deeper = usize::from(path.is_dir());
            collect(&path, depth + deeper, files);
        }
    } else if path.extension().is_some_and(|ext| ext == "rs")
        && path.exists()
        && !is_test_file(path)
    {
        files.push((path.to_owned(), depth));
    }
}

/// The tokens of a file without what is compiled for tests only.
fn tokens(path: &Path) -> Vec<TokenTree> {
    // The file may be incomplete during an edit; the compiler will report it.
    let text = fs::read_to_string(path).unwrap_or_default();
    let stream = text.parse::<TokenStream>().unwrap_or_default();
    without_tests(stream)
}

fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut rest = stream.into_iter().peekable();
    while let Some(token) = rest.next() {
        let is_test = is_punct(&token, '#')
            && rest
                .peek()
                .is_some_and(|next| next.to_string().replace(' ', "").starts_with("[cfg(test"));
        if !is_test {
            kept.push(token);
            continue;
        }
        // The attribute's group, then the item: it ends with a semicolon or a block.
        rest.next();
        for skipped in rest.by_ref() {
            let is_block = matches!(&skipped, TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace);
            if is_block || is_punct(&skipped, ';') {
                break;
            }
        }
    }
    kept
}

/// Names of the modules that these tokens declare.
fn declared(tokens: &[TokenTree]) -> BTreeSet<String> {
    tokens
        .windows(2)
        .filter(|pair| is_ident(&pair[0], "mod"))
        .map(|pair| pair[1].to_string())
        .collect()
}

/// For each name that a `use` at the root makes visible: the module that it comes from.
fn exports(tokens: &[TokenTree], modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in tokens.split(|token| is_punct(token, ';')) {
        let Some(at) = statement.iter().position(|token| is_ident(token, "use")) else {
            continue;
        };
        let mut path = &statement[at + 1..];
        while path
            .first()
            .is_some_and(|token| is_ident(token, "crate") || is_punct(token, ':'))
        {
            path = &path[1..];
        }
        let Some(module) = path.first().map(ToString::to_string) else {
            continue;
        };
        if modules.contains(&module) {
            let names = TokenStream::from_iter(path[1..].iter().cloned()).to_string();
            let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
            exports.extend(names.map(|name| (name.to_owned(), module.clone())));
        }
    }
    exports.retain(|name, _| !modules.contains(name));
    exports
}

/// Finds paths from the root of the crate in tokens `depth` modules below it.
fn scan(tokens: &[TokenTree], depth: usize, found: &mut Vec<(String, usize)>) {
    let mut at = 0;
    while at < tokens.len() {
        if let Some(start) = after_root(&tokens[at..], depth) {
            at += start;
            first_names(&tokens[at..], found);
            continue;
        }
        if let TokenTree::Group(group) = &tokens[at] {
            let opens_module = group.delimiter() == Delimiter::Brace
                && at >= 2
                && is_ident(&tokens[at - 2], "mod");
            let inside = without_tests(group.stream());
            scan(&inside, depth + usize::from(opens_module), found);
        }
        at += 1;
    }
}

/// If the tokens start with `crate::` or with `super::` up to the root: how many tokens that is.
fn after_root(tokens: &[TokenTree], depth: usize) -> Option<usize> {
    const COLONS: usize = 2;
    let step = |at: usize, word: &str| {
        let is_step = is_ident(tokens.get(at)?, word)
            && is_punct(tokens.get(at + 1)?, ':')
            && is_punct(tokens.get(at + 2)?, ':');
        is_step.then_some(at + 1 + COLONS)
    };
    if let Some(end) = step(0, "crate") {
        return Some(end);
    }
    let mut at = 0;
    for _ in 0..depth {
        at = step(at, "super")?;
    }
    (depth > 0).then_some(at)
}

/// The first name of a path, or of each path in braces.
fn first_names(tokens: &[TokenTree], found: &mut Vec<(String, usize)>) {
    match tokens.first() {
        Some(TokenTree::Ident(name)) => {
            found.push((name.to_string(), name.span().start().line));
        }
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inside: Vec<_> = group.stream().into_iter().collect();
            for path in inside.split(|token| is_punct(token, ',')) {
                first_names(path, found);
            }
        }
        _ => {}
    }
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        read(dir.path())
    }

    #[test]
    fn a_cycle_is_found_and_shown_with_its_places() {
        let modules = modules(&[
            (
                "lib.rs",
                "pub mod a; mod b;\nmod c; mod d;\npub use b::{Thing, other::*};",
            ),
            (
                "a.rs",
                "use crate::{c::X, std};\nfn f() { select! { crate::b::g() } }",
            ),
            ("b/deep/er.rs", "use super::super::super::c;"),
            (
                "c.rs",
                "// crate::d\nfn f() { \"crate::d\"; super::a::f() }",
            ),
            ("d.rs", "use crate::Thing;"),
        ]);
        assert_eq!(
            modules.cycle().unwrap(),
            "  a uses c at a.rs:1\n  c uses a at c.rs:2"
        );
        assert_eq!(modules.largest_component(), BTreeSet::from(["a", "b", "c"]));
        assert_eq!(modules.uses["d"].keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn tests_and_a_modules_own_paths_do_not_count() {
        let modules = modules(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod t;"),
            (
                "a.rs",
                "use crate::b; mod inner { use super::f; use super::super::b; }",
            ),
            (
                "b.rs",
                "use crate::b::x;\n#[cfg(test)]\nuse crate::a;\n#[cfg(test)] mod tests { use crate::a; }\nfn f() {}",
            ),
            ("b/tests.rs", "use crate::a;"),
            ("t.rs", "use crate::a;"),
        ]);
        assert_eq!(modules.names(), ["a", "b"]);
        assert_eq!(modules.cycle(), None);
        assert_eq!(modules.largest_component().len(), 0);
    }
}
