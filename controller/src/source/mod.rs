//! Sources of objects: a directory of files, or an API server. Both produce the same [`Event`]s.

#[cfg(feature = "kubernetes")]
mod definition;
pub mod folder;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;

use crate::index::facts::{Key, Kind, Object};

/// An event of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A resource is new or may have changed.
    Apply(Box<Object>),
    /// A resource was deleted.
    Delete(Kind, Key),
    /// A field of `AuthorizationPolicy`s that the API server does not store; `None` if it stores all. Sent before any
    /// policy.
    Pruned(Option<String>),
    /// A resource cannot be read, so its last valid version stays in force.
    Refused {
        /// The resource, as `FILE` or `KIND NAMESPACE/NAME`.
        what: String,
        /// Why the resource cannot be read.
        why: String,
    },
    /// The complete list of a kind. Resources that are not in the list were deleted. The first event of each kind is
    /// such a list.
    Reset {
        /// The kind.
        kind: Kind,
        /// The valid resources.
        objects: Vec<Object>,
        /// The invalid resources, whose last valid versions stay in force.
        unread: Vec<Key>,
    },
}
