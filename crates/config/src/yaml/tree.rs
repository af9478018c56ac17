//! Text → tree of nodes with positions, within bounds.
//!
//! Aliases share the anchored node, so that an "alias bomb" costs nothing here; `weight` counts what
//! it would cost expanded. Invariant: no node contains itself, its expanded size is at most
//! [`MAX_NODES`] and its nesting at most [`MAX_DEPTH`], so walking a tree needs no guard.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

/// Larger texts are refused.
pub(crate) const MAX_BYTES: usize = 8 << 20;
/// Values in a file, aliases expanded.
pub(crate) const MAX_NODES: u32 = 500_000;
/// Lists and mappings inside each other.
pub(crate) const MAX_DEPTH: u32 = 48;
/// Duplicate keys reported at once.
const MAX_DUPLICATES: usize = 64;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Id(u32);

/// A stretch of one line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Place {
    /// From 1.
    pub(crate) line: usize,
    /// Characters before it in the line.
    pub(crate) column: usize,
    /// Characters to underline; more than the line has when a value goes on below.
    pub(crate) length: usize,
}

impl Place {
    fn at(mark: &Marker) -> Self {
        Self {
            line: mark.line().max(1),
            column: mark.col(),
            length: 1,
        }
    }

    fn span(span: &Span) -> Self {
        let start = Self::at(&span.start);
        let length = span.end.index().saturating_sub(span.start.index());
        Self { length, ..start }
    }
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Keys are scalars and unique.
    Mapping(Vec<(Id, Id)>),
    /// Text; `plain` when it was not quoted, so that it may be a number.
    Scalar { text: String, plain: bool },
    /// A list.
    Sequence(Vec<Id>),
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    place: Place,
    weight: u32,
    height: u32,
}

/// A problem found while reading, with the path of the mapping that has it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) note: Option<String>,
}

/// A document.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    pub(crate) root: Id,
    /// Duplicate keys; the first one is in the tree.
    pub(crate) duplicates: Vec<Fault>,
}

impl Tree {
    pub(crate) fn kind(&self, id: Id) -> &Kind {
        &self.nodes[id.0 as usize].kind
    }

    pub(crate) fn place(&self, id: Id) -> Place {
        self.nodes[id.0 as usize].place
    }

    /// The text of a scalar.
    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        match self.kind(id) {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Reads one document.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        check_text(text)?;
        let mut builder = Builder::default();
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            match event {
                Ok((event, span)) => builder.event(event, &span)?,
                Err(error) => {
                    let path = builder.path();
                    return Err(syntax(Place::at(error.marker()), path, error.info()));
                }
            }
        }
        builder.finish()
    }
}

/// Bounds and characters, before the parser sees the text.
fn check_text(text: &str) -> Result<(), Fault> {
    let start = Place {
        line: 1,
        column: 0,
        length: 1,
    };
    if text.len() > MAX_BYTES {
        let message = format!(
            "the file has {} bytes; at most {MAX_BYTES} are read",
            text.len()
        );
        return Err(syntax(start, String::new(), &message));
    }
    // Characters that YAML 1.1 takes for line breaks and YAML 1.2 does not would let two readers
    // see two files.
    let breaks = ['\u{85}', '\u{2028}', '\u{2029}'];
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let forbidden = |c: char| control(c) || breaks.contains(&c);
    let Some(at) = text.find(forbidden) else {
        return Ok(());
    };
    let (before, rest) = text.split_at(at);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let place = Place {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count(),
        length: 1,
    };
    let code = rest.chars().next().map_or(0, u32::from);
    let message = format!("the invisible character U+{code:04X} is not allowed");
    Err(syntax(place, String::new(), &message))
}

fn syntax(place: Place, path: String, message: &str) -> Fault {
    let help = if message.contains("tab") {
        Some("YAML is indented with spaces, never with tabs".to_owned())
    } else if message.contains("simple key") || message.contains("mapping values") {
        Some("check the indentation, and that there is a space after each `:`".to_owned())
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

fn too_deep(place: Place) -> Fault {
    let message = format!("lists and mappings are nested more than {MAX_DEPTH} deep");
    syntax(place, String::new(), &message)
}

/// A list or mapping that is not closed yet.
struct Open {
    anchor: usize,
    place: Place,
    items: Items,
    weight: u32,
    height: u32,
}

enum Items {
    Mapping {
        entries: Vec<(Id, Id)>,
        seen: HashMap<String, Place>,
        /// The key whose value comes next, and whether it was there before.
        key: Option<(Id, bool)>,
    },
    Sequence(Vec<Id>),
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Id>,
    unfinished: HashSet<usize>,
    root: Option<Id>,
    documents: usize,
    duplicates: Vec<Fault>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.fault(
                        Place::at(&span.start),
                        "a second YAML document begins; a file holds one",
                    ));
                }
            }
            Event::Alias(anchor) => {
                let Some(&id) = self.anchors.get(&anchor) else {
                    let message = if self.unfinished.contains(&anchor) {
                        "an alias inside the value that it names"
                    } else {
                        "an alias without anchor"
                    };
                    return Err(self.fault(Place::span(span), message));
                };
                self.place_child(id)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = self.plain(style, tag.as_deref(), span)?;
                let text = text.into_owned();
                let place = Place::span(span);
                let id = self.add(Kind::Scalar { text, plain }, place, 1, 0)?;
                self.anchor(anchor, id);
                self.place_child(id)?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.plain(ScalarStyle::Plain, tag.as_deref(), span)?;
                self.start(anchor, span, Items::Sequence(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                self.plain(ScalarStyle::Plain, tag.as_deref(), span)?;
                let (entries, seen) = (Vec::new(), HashMap::new());
                self.start(
                    anchor,
                    span,
                    Items::Mapping {
                        entries,
                        seen,
                        key: None,
                    },
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Whether a scalar may be something else than text; refuses tags that mean nothing here.
    fn plain(&self, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Result<bool, Fault> {
        match tag {
            None => Ok(style == ScalarStyle::Plain),
            Some(tag) if tag.is_yaml_core_schema() => {
                Ok(style == ScalarStyle::Plain && tag.suffix != "str")
            }
            Some(tag) => Err(self.fault(
                Place::span(span),
                &format!("the tag `{tag}` means nothing here"),
            )),
        }
    }

    fn start(&mut self, anchor: usize, span: &Span, items: Items) -> Result<(), Fault> {
        let place = Place::at(&span.start);
        if self.open.len() as u32 >= MAX_DEPTH {
            return Err(too_deep(place));
        }
        if anchor > 0 {
            self.unfinished.insert(anchor);
        }
        self.open.push(Open {
            anchor,
            place,
            items,
            weight: 1,
            height: 0,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let kind = match open.items {
            Items::Mapping { entries, .. } => Kind::Mapping(entries),
            Items::Sequence(items) => Kind::Sequence(items),
        };
        let id = self.add(kind, open.place, open.weight, open.height + 1)?;
        self.unfinished.remove(&open.anchor);
        self.anchor(open.anchor, id);
        self.place_child(id)
    }

    fn anchor(&mut self, anchor: usize, id: Id) {
        if anchor > 0 {
            self.anchors.insert(anchor, id);
        }
    }

    fn add(&mut self, kind: Kind, place: Place, weight: u32, height: u32) -> Result<Id, Fault> {
        match u32::try_from(self.nodes.len()) {
            Ok(index) if index < MAX_NODES => {
                self.nodes.push(Node {
                    kind,
                    place,
                    weight,
                    height,
                });
                Ok(Id(index))
            }
            _ => Err(self.too_many(place)),
        }
    }

    fn too_many(&self, place: Place) -> Fault {
        let mut fault = self.fault(place, &format!("more than {MAX_NODES} values"));
        fault.help = Some("aliases count as often as they are used".to_owned());
        fault
    }

    /// Puts a node into the innermost open list or mapping.
    fn place_child(&mut self, id: Id) -> Result<(), Fault> {
        let Node {
            place,
            weight,
            height,
            ..
        } = &self.nodes[id.0 as usize];
        let (place, weight, height) = (*place, *weight, *height);
        let depth = self.open.len() as u32;
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(id);
            return Ok(());
        };
        open.weight = open.weight.saturating_add(weight);
        open.height = open.height.max(height);
        let (total, deepest) = (open.weight, depth + height);
        if total > MAX_NODES {
            return Err(self.too_many(place));
        }
        if deepest > MAX_DEPTH {
            return Err(too_deep(place));
        }
        match &mut open.items {
            Items::Sequence(items) => items.push(id),
            Items::Mapping { entries, key, .. } => match key.take() {
                Some((_, true)) => {}
                Some((key, false)) => entries.push((key, id)),
                None => return self.place_key(id, place),
            },
        }
        Ok(())
    }

    fn place_key(&mut self, id: Id, place: Place) -> Result<(), Fault> {
        let Kind::Scalar { text, .. } = &self.nodes[id.0 as usize].kind else {
            return Err(self.fault(place, "a key must be a word, not a list or mapping"));
        };
        let name = text.clone();
        let parent = self.path();
        let Some(Open {
            items: Items::Mapping { seen, key, .. },
            ..
        }) = self.open.last_mut()
        else {
            return Ok(());
        };
        let first = seen.get(&name).copied();
        *key = Some((id, first.is_some()));
        if let Some(first) = first {
            if self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(Fault {
                    place,
                    path: join(&parent, &name),
                    message: format!("the key `{name}` is given twice"),
                    help: Some("remove one of them, or merge their values".to_owned()),
                    note: Some(format!("first given at line {}", first.line)),
                });
            }
        } else {
            seen.insert(name, place);
        }
        Ok(())
    }

    fn fault(&self, place: Place, message: &str) -> Fault {
        syntax(place, self.path(), message)
    }

    /// The path of the innermost open list or mapping.
    fn path(&self) -> String {
        let mut path = String::new();
        let parents = self.open.len().saturating_sub(1);
        for open in &self.open[..parents] {
            match &open.items {
                Items::Sequence(items) => path.push_str(&format!("[{}]", items.len())),
                Items::Mapping { key, .. } => {
                    let key = key.map(|(id, _)| &self.nodes[id.0 as usize].kind);
                    if let Some(Kind::Scalar { text, .. }) = key {
                        path = join(&path, text);
                    }
                }
            }
        }
        path
    }

    fn finish(mut self) -> Result<Tree, Fault> {
        let root = match self.root {
            Some(root) => root,
            None => {
                let place = Place {
                    line: 1,
                    column: 0,
                    length: 1,
                };
                let empty = Kind::Scalar {
                    text: String::new(),
                    plain: true,
                };
                self.add(empty, place, 1, 0)?
            }
        };
        Ok(Tree {
            nodes: self.nodes,
            root,
            duplicates: self.duplicates,
        })
    }
}

/// `path.key`, quoted where the key is not a plain word.
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
