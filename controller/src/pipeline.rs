//! Applies events to the index, returns the changes, and tracks whether the index is complete.
//!
//! Changes are published only after every kind has been listed once: otherwise a proxy could receive a Service
//! without endpoints, which is worse than receiving no response.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::facts::{Key, Kind};
use crate::index::{Called, Changes, Index};
use crate::source::Event;

/// The index, and the kinds that have been listed.
#[derive(Debug, Default)]
pub struct Pipeline {
    index: Index,
    listed: BTreeSet<Kind>,
}

impl Pipeline {
    /// Applies events, and returns the resulting changes.
    pub fn take(&mut self, events: impl IntoIterator<Item = Event>) -> Changes {
        for event in events {
            match event {
                Event::Apply(object) => self.index.apply(*object),
                Event::Delete(kind, key) => self.index.delete(kind, &key),
                Event::Pruned(field) => self.index.set_pruned(field),
                Event::Refused { what, why } => {
                    tracing::warn!(
                        resource = what,
                        error = why,
                        "invalid object; keeping the last valid version"
                    );
                }
                Event::Reset {
                    kind,
                    objects,
                    unread,
                } => {
                    self.listed.insert(kind);
                    self.index.reset(kind, objects, &unread);
                }
            }
        }
        match self.is_whole() {
            true => self.index.changes(),
            false => Changes::default(),
        }
    }

    /// Sets the nodes from which Services are called, with their shares of the calls, and returns the resulting
    /// changes.
    pub fn set_callers(&mut self, callers: BTreeMap<Key, BTreeMap<String, u32>>) -> Changes {
        self.index.set_callers(callers);
        match self.is_whole() {
            true => self.index.changes(),
            false => Changes::default(),
        }
    }

    /// Sets the Services that pods call, and returns the resulting changes.
    pub fn set_called(&mut self, called: Called) -> Changes {
        self.index.set_called(called);
        match self.is_whole() {
            true => self.index.changes(),
            false => Changes::default(),
        }
    }

    /// Returns whether every kind has been listed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.listed.len() == Kind::ALL.len()
    }

    /// Returns the index.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::facts::Object;
    use crate::source::folder;

    fn all(kind: Kind, objects: Vec<Object>) -> Event {
        Event::Reset {
            kind,
            objects,
            unread: Vec::new(),
        }
    }

    #[test]
    fn nothing_is_given_before_everything_is_known() {
        let service =
            "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}";
        let mut pipeline = Pipeline::default();
        for kind in Kind::ALL {
            let objects = match kind {
                Kind::Service => folder::contents(service).objects,
                _ => Vec::new(),
            };
            let changes = pipeline.take([all(kind, objects)]);
            assert_eq!(
                changes.resources.is_empty(),
                !pipeline.is_whole(),
                "{kind:?}"
            );
        }
        assert!(pipeline.is_whole());
        let unread = pipeline.take([Event::Reset {
            kind: Kind::Service,
            objects: Vec::new(),
            unread: vec![Key::new("default", "a")],
        }]);
        assert!(unread.resources.is_empty(), "exists, but is invalid");
        let gone = pipeline.take([all(Kind::Service, Vec::new())]);
        assert!(!gone.resources.is_empty());
    }
}
