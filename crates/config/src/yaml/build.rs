//! Converts parser events to nodes: tracks open collections, anchors and keys.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, ScalarStyle, Span, Tag};

use super::tree::{
    Fault, Id, Kind, MAX_DEPTH, MAX_NODES, Node, Place, Tree, join, syntax, too_deep,
};

/// The maximum number of reported duplicate keys.
const MAX_DUPLICATES: usize = 64;

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
        /// The key whose value comes next, and whether the key is a duplicate.
        key: Option<(Id, bool)>,
    },
    Sequence(Vec<Id>),
}

/// Builds a tree event by event.
#[derive(Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Id>,
    unfinished: HashSet<usize>,
    root: Option<Id>,
    documents: usize,
    duplicates: Vec<Fault>,
}

impl Builder {
    pub(super) fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.fault(
                        Place::at(&span.start),
                        "more than one YAML document; a file must contain one",
                    ));
                }
            }
            Event::Alias(anchor) => {
                let Some(&id) = self.anchors.get(&anchor) else {
                    let message = if self.unfinished.contains(&anchor) {
                        "an alias inside the value of its own anchor"
                    } else {
                        "the alias has no anchor"
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

    /// Returns whether a scalar may be something other than text. Rejects tags that have no meaning in a configuration.
    fn plain(&self, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Result<bool, Fault> {
        match tag {
            None => Ok(style == ScalarStyle::Plain),
            Some(tag) if tag.is_yaml_core_schema() => {
                Ok(style == ScalarStyle::Plain && tag.suffix != "str")
            }
            Some(tag) => Err(self.fault(Place::span(span), &format!("unsupported tag `{tag}`"))),
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
        fault.help = Some("each use of an alias counts".to_owned());
        fault
    }

    /// Adds a node to the innermost open list or mapping.
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
            return Err(self.fault(place, "a key must be a scalar, not a list or mapping"));
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
                    message: format!("duplicate key `{name}`"),
                    help: Some("remove one of them, or merge their values".to_owned()),
                    note: Some(format!("first defined at line {}", first.line)),
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

    /// Returns the path of the innermost open list or mapping.
    pub(super) fn path(&self) -> String {
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

    pub(super) fn finish(mut self) -> Result<Tree, Fault> {
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
