//! A document as a tree of nodes with positions.
//!
//! Aliases share the anchored node, so that an "alias bomb" costs nothing here; `weight` is the cost of the expanded
//! node. Invariant: no node contains itself, its expanded size is at most [`MAX_NODES`] and its nesting at most
//! [`MAX_DEPTH`], so walking a tree needs no guard.

use saphyr_parser::{Marker, Span};

/// The maximum number of values in a file, after expansion of aliases.
pub(crate) const MAX_NODES: u32 = 500_000;
/// The maximum nesting of lists and mappings.
pub(crate) const MAX_DEPTH: u32 = 48;

/// Fields with files and addresses, whose values can be unusable on a machine.
const SUBJECTS: &[&str] = &[
    "address",
    "ca",
    "certificate",
    "client_ca",
    "path",
    "private_key",
    "token_file",
    "trust_bundle",
];

/// The index of a node of a [`Tree`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Id(pub(super) u32);

/// A part of one line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Place {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The number of characters before the place in the line.
    pub(crate) column: usize,
    /// The number of characters to underline; it exceeds the rest of the line if a value continues below.
    pub(crate) length: usize,
}

impl Place {
    pub(super) fn at(mark: &Marker) -> Self {
        Self {
            line: mark.line().max(1),
            column: mark.col(),
            length: 1,
        }
    }

    pub(super) fn span(span: &Span) -> Self {
        let start = Self::at(&span.start);
        let length = span.end.index().saturating_sub(span.start.index());
        Self { length, ..start }
    }
}

/// The contents of a node.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A mapping. Keys are scalars and unique.
    Mapping(Vec<(Id, Id)>),
    /// A scalar; `plain` if it was not quoted, so that it may be something other than text.
    Scalar { text: String, plain: bool },
    /// A list.
    Sequence(Vec<Id>),
}

/// The contents of a node, for messages. For a mapping these are the scalars directly in it or, if it has none, those
/// one level below.
pub(crate) enum Found<'t> {
    List,
    Mapping(Vec<(&'t str, Option<&'t str>)>),
    /// The contents are unavailable.
    Nothing,
    Scalar(&'t str),
}

impl<'t> Found<'t> {
    pub(crate) fn of(tree: &'t Tree, node: Id) -> Self {
        match tree.kind(node) {
            Kind::Mapping(entries) => match entries.as_slice() {
                [] => Self::Nothing,
                [(_, value)] if matches!(tree.kind(*value), Kind::Mapping(_)) => {
                    Self::of(tree, *value)
                }
                entries => {
                    let pairs = entries.iter();
                    let pairs = pairs
                        .filter_map(|(key, value)| Some((tree.text(*key)?, tree.text(*value))));
                    Self::Mapping(pairs.collect())
                }
            },
            Kind::Scalar { text, .. } => Self::Scalar(text),
            Kind::Sequence(_) => Self::List,
        }
    }
}

/// A value with its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// The number of values in the node, including itself, after expansion of aliases.
    pub(super) weight: u32,
    /// The number of levels below the node.
    pub(super) height: u32,
}

/// A problem found while reading, with the path of the mapping that contains it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) note: Option<String>,
}

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(crate) root: Id,
    /// The duplicate keys; the tree contains the first occurrence of each.
    pub(crate) duplicates: Vec<Fault>,
}

impl Tree {
    pub(crate) fn kind(&self, id: Id) -> &Kind {
        &self.nodes[id.0 as usize].kind
    }

    pub(crate) fn place(&self, id: Id) -> Place {
        self.nodes[id.0 as usize].place
    }

    /// Returns the text of a scalar.
    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        match self.kind(id) {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the mapping that has a node as a key, and the key's value.
    pub(crate) fn pair_of(&self, key: Id) -> Option<(&[(Id, Id)], Id)> {
        self.nodes.iter().find_map(|node| match &node.kind {
            Kind::Mapping(entries) => {
                let (_, value) = entries.iter().find(|(id, _)| *id == key)?;
                Some((entries.as_slice(), *value))
            }
            _ => None,
        })
    }

    /// Returns the scalar that a message quotes, with its path. Files and addresses are preferred to names, and long
    /// texts to short ones.
    pub(crate) fn named_in(&self, message: &str) -> Option<(Place, String)> {
        let mut best: Option<((bool, usize), Id, String)> = None;
        let mut rest = vec![(self.root, String::new())];
        while let Some((id, path)) = rest.pop() {
            match self.kind(id) {
                Kind::Mapping(entries) => {
                    let each = entries.iter().rev();
                    rest.extend(each.map(|(key, value)| {
                        (*value, join(&path, self.text(*key).unwrap_or_default()))
                    }));
                }
                Kind::Sequence(items) => {
                    let each = items.iter().enumerate().rev();
                    rest.extend(each.map(|(i, item)| (*item, format!("{path}[{i}]"))));
                }
                Kind::Scalar { text, .. } => {
                    if text.len() < 4 || !message.contains(text.as_str()) {
                        continue;
                    }
                    let name = path.rsplit('.').next().unwrap_or_default();
                    let rank = (SUBJECTS.contains(&name), text.len());
                    if best.as_ref().is_none_or(|(other, _, _)| rank > *other) {
                        best = Some((rank, id, path));
                    }
                }
            }
        }
        best.map(|(_, id, path)| (self.place(id), path))
    }
}

/// Creates a fault, with help for common errors.
pub(super) fn syntax(place: Place, path: String, message: &str) -> Fault {
    let help = if message.contains("tab") {
        Some("YAML is indented with spaces, never with tabs".to_owned())
    } else if message.contains("simple key") || message.contains("mapping values") {
        Some("check the indentation, and that there is a space after each `:`".to_owned())
    } else if message.contains("anchor") {
        Some(
            "an unquoted `*` starts an alias: quote the string, as in \"*.example.com\"".to_owned(),
        )
    } else {
        None
    };
    Fault {
        place,
        path,
        message: message.to_owned(),
        help,
        note: None,
    }
}

/// Creates the fault of nesting above [`MAX_DEPTH`].
pub(super) fn too_deep(place: Place) -> Fault {
    let message = format!("lists and mappings are nested more than {MAX_DEPTH} deep");
    syntax(place, String::new(), &message)
}

/// Joins `path.key`, quoted if the key is not a plain word.
pub(crate) fn join(path: &str, key: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if key.is_empty() || !key.chars().all(word) {
        let short: String = key.chars().take(60).collect();
        return format!("{path}[{short:?}]");
    }
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
