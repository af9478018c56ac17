//! Sources of objects: a directory of files, or an API server. Both produce the same [`Event`]s.

mod definition;
pub mod folder;
pub mod kubernetes;

use crate::index::facts::{Key, Kind, Object};

/// An event of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A resource is new, or may have changed.
    Apply(Box<Object>),
    /// A resource is gone.
    Delete(Kind, Key),
    /// A field of `AuthorizationPolicy`s that the API server does not store; `None` = all are stored. Sent before any
    /// policy.
    Pruned(Option<String>),
    /// A resource cannot be read; its last valid version stays in force.
    Refused {
        /// The resource, as `FILE` or `KIND NAMESPACE/NAME`.
        what: String,
        /// The error.
        why: String,
    },
    /// The complete list of a kind; resources that are not in it were deleted. A source begins with one for each
    /// kind.
    Reset {
        /// The kind.
        kind: Kind,
        /// The valid resources.
        objects: Vec<Object>,
        /// The invalid resources, whose last valid versions stay in force.
        unread: Vec<Key>,
    },
}
