//! Sources of objects: a directory of files, or an API server. Both produce the same [`Event`]s.

mod definition;
pub mod folder;
pub mod kubernetes;

use crate::index::facts::{Key, Kind, Object};

/// What a source has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A resource is new, or may have changed.
    Apply(Box<Object>),
    /// A resource is gone.
    Delete(Kind, Key),
    /// A field of `AuthorizationPolicy`s that the API server does not store, or that there is none. Before any
    /// policy.
    Pruned(Option<String>),
    /// Something cannot be read; what was read of it before holds.
    Refused {
        /// What, as `FILE` or `KIND NAMESPACE/NAME`.
        what: String,
        /// Why.
        why: String,
    },
    /// All resources of a kind; what is not among them is gone. A source begins with one for each kind.
    Reset {
        /// Which kind.
        kind: Kind,
        /// Those that can be read.
        objects: Vec<Object>,
        /// Those that cannot; what was read of them before holds.
        unread: Vec<Key>,
    },
}
