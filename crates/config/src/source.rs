//! Converts findings to diagnostics, with their line or flag.

use std::collections::HashSet;

use crate::diagnostic::Snippet;
use crate::report::{Finding, Step};
use crate::yaml::{DecodeError, Id, Kind, Place, Tree, join};
use crate::{Diagnostic, Origin, Severity};

/// The length, in characters, above which source lines are shortened.
const MAX_LINE: usize = 160;

/// The origin of a raw configuration.
pub(crate) enum Source<'a> {
    /// Flags: for each part of the configuration, its path and the flag that it came from.
    Flags(Vec<(Vec<Step>, String)>),
    /// A remote sender, such as a control plane, by name.
    Resource(&'a str),
    /// A YAML text.
    Yaml(Yaml<'a>),
}

/// A YAML text, with its parsed tree.
pub(crate) struct Yaml<'a> {
    pub(crate) file: &'a str,
    pub(crate) lines: Lines<'a>,
    pub(crate) tree: &'a Tree,
    pub(crate) poisoned: HashSet<Id>,
}

impl Source<'_> {
    /// Returns the diagnostic of a finding; `None` if it only follows from another error.
    pub(crate) fn diagnostic(&self, finding: Finding) -> Option<Diagnostic> {
        match self {
            Source::Yaml(yaml) => yaml.diagnostic(finding),
            Source::Flags(flags) => Some(of_flag(flags, finding)),
            Source::Resource(name) => Some(of_resource(name, finding)),
        }
    }
}

/// Returns a diagnostic for the flag whose path is the longest prefix of the finding's path.
fn of_flag(flags: &[(Vec<Step>, String)], finding: Finding) -> Diagnostic {
    let flag = flags
        .iter()
        .filter(|(path, _)| finding.path.starts_with(path))
        .max_by_key(|(path, _)| path.len());
    Diagnostic {
        severity: finding.severity,
        origin: Origin::Flag(flag.map_or_else(|| "command line".into(), |(_, flag)| flag.clone())),
        path: String::new(),
        message: finding.message,
        help: finding.help,
        snippet: None,
        note: None,
    }
}

/// Returns a diagnostic without a source line: the path identifies the place.
fn of_resource(name: &str, finding: Finding) -> Diagnostic {
    let path = finding
        .path
        .iter()
        .fold(String::new(), |path, step| match step {
            Step::Field(name) => join(&path, name),
            Step::Index(index) => format!("{path}[{index}]"),
        });
    Diagnostic {
        severity: finding.severity,
        origin: Origin::File(name.to_owned()),
        path,
        message: finding.message,
        help: finding.help,
        snippet: None,
        note: None,
    }
}

/// The node that a path leads to.
struct Found<'t> {
    path: String,
    place: Place,
    /// The text of the node, if it is a scalar.
    text: Option<&'t str>,
    /// Whether the last step of the path, or something below the place, could not be read.
    unreadable: bool,
}

impl Yaml<'_> {
    fn diagnostic(&self, finding: Finding) -> Option<Diagnostic> {
        let found = self.find(&finding.path, finding.on_key);
        if finding.missing && found.unreadable {
            return None;
        }
        let note = finding
            .other
            .map(|(path, what)| format!("{what} at line {}", self.find(&path, false).place.line));
        // A placeholder of a template program is the error.
        let template = found.text.and_then(crate::hints::shapes::template);
        let refused = finding.severity == Severity::Error;
        let help = template.filter(|_| refused).or(finding.help);
        let mut diagnostic = self.at(found.place, found.path, finding.message, help);
        diagnostic.severity = finding.severity;
        diagnostic.note = note;
        Some(diagnostic)
    }

    /// Returns the diagnostic of a type error.
    pub(crate) fn decode_error(&self, error: &DecodeError) -> Diagnostic {
        let place = self.tree.place(error.node().unwrap_or(self.tree.root));
        let own = || error.help().map(str::to_owned);
        let help = crate::hints::refine(self.tree, error).or_else(own);
        let message = error.message().to_owned();
        self.at(place, error.path(), message, help)
    }

    fn at(&self, place: Place, path: String, message: String, help: Option<String>) -> Diagnostic {
        self.lines.error(self.file, place, path, message, help)
    }

    fn find(&self, steps: &[Step], on_key: bool) -> Found<'_> {
        let (mut node, mut path) = (Some(self.tree.root), String::new());
        let mut place = self.tree.place(self.tree.root);
        let mut unreadable = false;
        for (i, step) in steps.iter().enumerate() {
            let last = i + 1 == steps.len();
            match step {
                Step::Field(name) => {
                    path = join(&path, name);
                    let entry = node.and_then(|node| self.entry(node, name));
                    unreadable |= entry.is_some_and(|(key, value)| self.is_poisoned(key, value));
                    unreadable |= last && entry.is_none() && node.is_some_and(|n| self.holed(n));
                    node = entry.map(|(_, value)| value);
                    if let Some((key, value)) = entry {
                        place = self.tree.place(if last && on_key { key } else { value });
                    }
                }
                Step::Index(index) => {
                    let item = node.and_then(|node| self.item(node, *index));
                    path = format!("{path}[{}]", item.map_or(*index, |(real, _)| real));
                    node = item.map(|(_, id)| id);
                    if let Some((_, id)) = item {
                        place = self.tree.place(id);
                    }
                }
            }
        }
        unreadable |= node.is_some_and(|node| self.holed(node));
        Found {
            path,
            place,
            text: node.and_then(|node| self.tree.text(node)),
            unreadable,
        }
    }

    fn entry(&self, node: Id, name: &str) -> Option<(Id, Id)> {
        match self.tree.kind(node) {
            Kind::Mapping(entries) => entries
                .iter()
                .find(|(key, _)| self.tree.text(*key) == Some(name))
                .copied(),
            _ => None,
        }
    }

    /// Returns the `index`-th item that could be read, with its number in the file.
    fn item(&self, node: Id, index: usize) -> Option<(usize, Id)> {
        match self.tree.kind(node) {
            Kind::Sequence(items) => items
                .iter()
                .copied()
                .enumerate()
                .filter(|(_, id)| !self.poisoned.contains(id))
                .nth(index),
            _ => None,
        }
    }

    fn is_poisoned(&self, key: Id, value: Id) -> bool {
        self.poisoned.contains(&key) || self.poisoned.contains(&value)
    }

    /// Returns whether some value directly inside a node could not be read.
    fn holed(&self, node: Id) -> bool {
        match self.tree.kind(node) {
            Kind::Mapping(entries) => entries.iter().any(|(k, v)| self.is_poisoned(*k, *v)),
            Kind::Sequence(items) => items.iter().any(|id| self.poisoned.contains(id)),
            Kind::Scalar { .. } => false,
        }
    }
}

/// The lines of a text, from which the wrong one is shown.
pub(crate) struct Lines<'a>(Vec<&'a str>);

impl<'a> Lines<'a> {
    /// Splits a text into lines, which end as in YAML: with LF, CR LF or CR.
    pub(crate) fn new(text: &'a str) -> Self {
        let lines = text.split_inclusive('\n').flat_map(|line| {
            let line = line.strip_suffix('\n').unwrap_or(line);
            line.strip_suffix('\r').unwrap_or(line).split('\r')
        });
        Self(lines.collect())
    }

    /// Creates an error at a place.
    pub(crate) fn error(
        &self,
        file: &str,
        place: Place,
        path: String,
        message: String,
        help: Option<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            origin: Origin::Place {
                file: file.to_owned(),
                line: place.line,
                column: place.column + 1,
            },
            path,
            message,
            help,
            snippet: self.snippet(place),
            note: None,
        }
    }

    fn snippet(&self, place: Place) -> Option<Snippet> {
        let line = self.0.get(place.line - 1)?;
        let (mut text, mut start) = (String::new(), place.column);
        let skipped = place.column.saturating_sub(MAX_LINE / 2);
        if skipped > 0 {
            text.push('…');
            start = place.column - skipped + 1;
        }
        let rest = line.chars().skip(skipped);
        text.extend(
            rest.take(MAX_LINE)
                .map(|c| if c.is_control() { ' ' } else { c }),
        );
        if line.chars().count() > skipped + MAX_LINE {
            text.push('…');
        }
        let room = text.trim_end().chars().count().saturating_sub(start);
        Some(Snippet {
            line: place.line,
            start,
            length: place.length.clamp(1, room.max(1)),
            text,
        })
    }
}
