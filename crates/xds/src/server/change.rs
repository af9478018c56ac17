//! The order of changes.

/// The number of a change; later changes have larger ones.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ChangeId(pub u64);
