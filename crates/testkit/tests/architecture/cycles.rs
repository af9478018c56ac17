//! Which modules of a crate use which, and whether they do so in a circle.
//!
//! The files are split into tokens (so that comments and strings do not count, and macro calls
//! do), tests are left out, and each path that leads to a module of the crate is a use: from
//! `crate::` or `super::`, from a name that a `use` has brought in, from a module declared in the
//! same file. A name that a module re-exports counts as a use of the module that it comes from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Uses between modules: user, used, and where. Modules are named by their paths, `a::b`.
#[derive(Default)]
pub(crate) struct Modules {
    uses: BTreeMap<String, BTreeMap<String, String>>,
    /// Modules that consist of declarations and re-exports of other modules.
    facades: BTreeSet<String>,
}

/// Reads all files of the crate whose root is `main` (`lib.rs`, `main.rs`) in `src`.
pub(crate) fn read(src: &Path, main: &str) -> Modules {
    let mut files = BTreeMap::new();
    collect(src, main, &mut Vec::new(), &mut files);
    let mut modules = Modules::default();
    for (path, file) in &files {
        let name = path.join("::");
        if file.is_facade {
            modules.facades.insert(name.clone());
        }
        let mut uses = BTreeMap::new();
        for used in &file.paths {
            let found = resolve(&files, path, &used.names, used.depth, &mut Vec::new());
            if let Some(module) = found.filter(|module| module != path) {
                let place = format!("{}:{}", file.shown, used.line);
                uses.entry(module.join("::")).or_insert(place);
            }
        }
        modules.uses.insert(name, uses);
    }
    modules
}

impl Modules {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.uses.keys().map(String::as_str).collect()
    }

    /// Whether a module consists of declarations and re-exports of other modules.
    pub(crate) fn is_facade(&self, name: &str) -> bool {
        self.facades.contains(name)
    }

    /// The same with each module counted for the one that `of` names; those that it leaves out are
    /// not counted.
    pub(crate) fn grouped(&self, of: impl Fn(&str) -> Option<String>) -> Self {
        let mut grouped = Self::default();
        for (user, uses) in &self.uses {
            let Some(group) = of(user) else { continue };
            let into = grouped.uses.entry(group.clone()).or_default();
            for (used, place) in uses {
                if let Some(other) = of(used).filter(|other| *other != group) {
                    into.entry(other).or_insert(place.clone());
                }
            }
        }
        grouped
    }

    /// The same without the uses of modules around the user's own: what a file and the files of
    /// its folder have in common may be in the file.
    pub(crate) fn without_nesting(mut self) -> Self {
        for (user, uses) in &mut self.uses {
            uses.retain(|used, _| !is_around(used, user));
        }
        self
    }

    /// Each use: user, used, where.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.uses.iter().flat_map(|(user, uses)| {
            uses.iter()
                .map(move |(used, place)| (user.as_str(), used.as_str(), place.as_str()))
        })
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

    /// The sets of modules that all reach each other, those of a single module left out.
    pub(crate) fn components(&self) -> BTreeSet<BTreeSet<&str>> {
        let reached: BTreeMap<_, _> = self
            .uses
            .keys()
            .map(|name| (name, self.reached(name)))
            .collect();
        let component = |name: &String| -> BTreeSet<&str> {
            let mutual = |other: &&str| reached[&(**other).to_owned()].contains(name.as_str());
            reached[name].iter().copied().filter(mutual).collect()
        };
        let components = self.uses.keys().map(component);
        components.filter(|component| component.len() > 1).collect()
    }

    /// All modules that one uses, directly or not.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for used in self.uses.get(at).into_iter().flat_map(BTreeMap::keys) {
                if self.uses.contains_key(used) && reached.insert(used.as_str()) {
                    queue.push_back(used);
                }
            }
        }
        reached
    }

    /// A shortest way of at least one use.
    fn way<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for used in self.uses.get(at).into_iter().flat_map(BTreeMap::keys) {
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

fn is_around(outer: &str, inner: &str) -> bool {
    outer.is_empty()
        || inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.starts_with("::"))
}

/// A module with a file of its own.
#[derive(Default)]
struct File {
    shown: String,
    /// Modules that it declares.
    children: BTreeSet<String>,
    /// Names that its `use`s bring in.
    imports: BTreeMap<String, Vec<String>>,
    paths: Vec<Used>,
    is_facade: bool,
}

/// A path in a file.
struct Used {
    names: Vec<String>,
    /// How many modules inside of the file it is in.
    depth: usize,
    line: usize,
}

type Files = BTreeMap<Vec<String>, File>;

/// Reads a file and those of the modules that it declares.
fn collect(src: &Path, shown: &str, module: &mut Vec<String>, files: &mut Files) {
    let tokens = tokens(&src.join(shown));
    let mut file = File {
        shown: shown.to_owned(),
        is_facade: is_facade(&tokens),
        ..File::default()
    };
    scan(&tokens, 0, &mut file);
    let folder = match shown.rsplit_once('/') {
        _ if module.is_empty() => String::new(),
        Some((folder, "mod.rs")) => format!("{folder}/"),
        _ => format!("{}/", shown.trim_end_matches(".rs")),
    };
    for child in file.children.clone() {
        let found = [
            format!("{folder}{child}.rs"),
            format!("{folder}{child}/mod.rs"),
        ];
        let found = found.iter().find(|shown| src.join(shown).exists());
        // The file may be in the middle of a move; the compiler will report it.
        if let Some(shown) = found {
            module.push(child);
            collect(src, shown, module, files);
            module.pop();
        }
    }
    files.insert(module.clone(), file);
}

/// The tokens of a file without test-only code.
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

/// Whether there is nothing but `mod …;` and `use …;`.
fn is_facade(tokens: &[TokenTree]) -> bool {
    let keeps = |token: &&TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => true,
    };
    tokens
        .split(|token| is_punct(token, ';'))
        .map(|item| item.iter().filter(keeps).collect::<Vec<_>>())
        .all(|item| {
            let first = item.iter().find(|token| {
                !is_punct(token, '#') && !is_punct(token, '!') && !is_ident(token, "pub")
            });
            first.is_none_or(|first| is_ident(first, "mod") || is_ident(first, "use"))
        })
}

/// Finds declarations and paths in tokens, `depth` modules inside of a file.
fn scan(tokens: &[TokenTree], depth: usize, file: &mut File) {
    let mut at = 0;
    while at < tokens.len() {
        if is_ident(&tokens[at], "mod")
            && let (Some(TokenTree::Ident(name)), Some(next)) =
                (tokens.get(at + 1), tokens.get(at + 2))
        {
            match next {
                TokenTree::Group(group) => scan(&without_tests(group.stream()), depth + 1, file),
                _ if depth == 0 => drop(file.children.insert(name.to_string())),
                _ => {}
            }
            at += 3;
            continue;
        }
        if is_ident(&tokens[at], "use") {
            at += 1;
            let end = tokens[at..].iter().position(|token| is_punct(token, ';'));
            let end = end.map_or(tokens.len(), |end| at + end);
            imports(&tokens[at..end], &mut Vec::new(), depth, file);
            at = end;
            continue;
        }
        if let TokenTree::Group(group) = &tokens[at] {
            let inside = without_tests(group.stream());
            // `pub(in crate::a)` uses nothing.
            if !inside.first().is_some_and(|first| is_ident(first, "in")) {
                scan(&inside, depth, file);
            }
            at += 1;
            continue;
        }
        at += path(&tokens[at..], depth, file).unwrap_or(1);
    }
}

/// If the tokens start with a path of several names: how many tokens it has.
fn path(tokens: &[TokenTree], depth: usize, file: &mut File) -> Option<usize> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        names.push(name.to_string());
        at += 1;
        if !is_colons(&tokens[at..]) {
            break;
        }
        at += 2;
    }
    if names.len() < 2 {
        return None;
    }
    let line = tokens[0].span().start().line;
    file.paths.push(Used { names, depth, line });
    Some(at)
}

/// The paths of a `use`, and the names that it brings in.
fn imports(tokens: &[TokenTree], before: &mut Vec<String>, depth: usize, file: &mut File) {
    let length = before.len();
    let mut rest = tokens;
    let mut line = 0;
    let mut alias = None;
    loop {
        match rest {
            [TokenTree::Punct(punct), next @ ..] if punct.as_char() == ':' => rest = next,
            [TokenTree::Ident(name), TokenTree::Ident(known), ..] if name == "as" => {
                alias = Some(known.to_string());
                break;
            }
            [TokenTree::Ident(name), next @ ..] => {
                line = name.span().start().line;
                before.push(name.to_string());
                rest = next;
            }
            [TokenTree::Group(group), ..] => {
                let inside: Vec<_> = group.stream().into_iter().collect();
                for item in inside.split(|token| is_punct(token, ',')) {
                    if !item.is_empty() {
                        imports(item, before, depth, file);
                    }
                }
                before.truncate(length);
                return;
            }
            _ => break,
        }
    }
    let mut names = before.clone();
    if names.last().is_some_and(|last| last == "self") && names.len() > 1 {
        names.pop();
    }
    if let Some(last) = names.last().cloned() {
        if depth == 0 {
            file.imports.insert(alias.unwrap_or(last), names.clone());
        }
        file.paths.push(Used { names, depth, line });
    }
    before.truncate(length);
}

/// The module in which the path leads to something; `None` where that is not of this crate.
fn resolve(
    files: &Files,
    from: &[String],
    names: &[String],
    depth: usize,
    seen: &mut Vec<(Vec<String>, String)>,
) -> Option<Vec<String>> {
    let (first, mut rest) = names.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Vec::new(),
        "self" => {
            // Of a module inside of the file.
            if depth > 0 {
                return None;
            }
            from.to_vec()
        }
        "super" => {
            let more = rest.iter().take_while(|name| *name == "super").count();
            rest = &rest[more..];
            let up = (1 + more).checked_sub(depth)?;
            from[..from.len().checked_sub(up)?].to_vec()
        }
        _ if depth > 0 => return None,
        _ => {
            let file = files.get(from)?;
            if !file.children.contains(first) {
                let meant = file.imports.get(first)?;
                return follow(files, from, (first, meant), rest, seen);
            }
            rest = names;
            from.to_vec()
        }
    };
    while let Some((name, after)) = rest.split_first() {
        let file = files.get(&at)?;
        if file.children.contains(name) {
            at.push(name.clone());
            rest = after;
            continue;
        }
        if let Some(meant) = file.imports.get(name)
            && let Some(found) = follow(files, &at, (name, meant), after, seen)
        {
            return Some(found);
        }
        break;
    }
    files.contains_key(&at).then_some(at)
}

/// The target of a name imported by `use`.
fn follow(
    files: &Files,
    at: &[String],
    (name, meant): (&String, &[String]),
    rest: &[String],
    seen: &mut Vec<(Vec<String>, String)>,
) -> Option<Vec<String>> {
    let key = (at.to_vec(), name.clone());
    // `use http;` brings in a crate by its own name.
    if seen.contains(&key) || meant == [name.clone()] {
        return None;
    }
    seen.push(key);
    let names = [meant, rest].concat();
    resolve(files, at, &names, 0, seen)
}

fn is_colons(tokens: &[TokenTree]) -> bool {
    tokens.len() > 1 && is_punct(&tokens[0], ':') && is_punct(&tokens[1], ':')
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
        read(dir.path(), "lib.rs")
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
            ("b/mod.rs", "pub use deep::Thing; mod deep;"),
            ("b/deep.rs", "mod er;"),
            ("b/deep/er.rs", "use super::super::super::c;"),
            (
                "c.rs",
                "// crate::d\nfn f() { \"crate::d\"; super::a::f() }",
            ),
            ("d.rs", "use crate::Thing;"),
        ]);
        assert_eq!(modules.uses["d"].keys().collect::<Vec<_>>(), ["b::deep"]);
        assert!(modules.is_facade("b") && !modules.is_facade("c"));
        let roots = |name: &str| {
            let root = name.split("::").next().map(str::to_owned);
            root.filter(|root| !root.is_empty())
        };
        let modules = modules.grouped(roots);
        assert_eq!(
            modules.cycle().unwrap(),
            "  a uses c at a.rs:1\n  c uses a at c.rs:2"
        );
        let component = BTreeSet::from(["a", "b", "c"]);
        assert_eq!(modules.components(), BTreeSet::from([component]));
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
        assert_eq!(modules.names(), ["", "a", "b"]);
        assert_eq!(modules.cycle(), None);
        assert_eq!(modules.components().len(), 0);
    }

    #[test]
    fn names_lead_to_where_they_come_from() {
        let modules = modules(&[
            ("lib.rs", "mod folder; mod user;"),
            (
                "folder/mod.rs",
                "mod one; pub(crate) mod two; pub(crate) use one::Thing as Renamed;",
            ),
            ("folder/one.rs", "pub(in crate::user) fn f() {}"),
            (
                "folder/two.rs",
                "use super::Renamed; fn f() { Renamed::new() }",
            ),
            ("user.rs", "use crate::folder; fn f() { folder::two::f(); }"),
        ]);
        assert_eq!(modules.uses["folder::one"].len(), 0);
        assert_eq!(
            modules.uses["folder::two"].keys().collect::<Vec<_>>(),
            ["folder::one"]
        );
        let user: Vec<_> = modules.uses["user"].keys().collect();
        assert_eq!(user, ["folder", "folder::two"]);
    }

    #[test]
    fn a_file_may_use_what_is_around_it() {
        let modules = modules(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c; fn f() { b::g() }"),
            ("a/b.rs", "use super::f; fn g() {}"),
            ("a/c.rs", "use super::b::g;"),
        ]);
        assert!(modules.cycle().is_some());
        assert!(modules.without_nesting().cycle().is_none());
    }
}
