//! The context that the filter chains of one listener share during validation.

use std::sync::Arc;

use super::Scope;
use super::route::Tables;

/// The context of all chains of a listener.
pub(super) struct ListenerContext<'a, 'b> {
    /// The label of the listener.
    pub(super) listener: &'a Arc<str>,
    pub(super) scope: &'a Scope<'b>,
    /// The top-level route tables, which several listeners may share.
    pub(super) tables: &'a Tables,
}
