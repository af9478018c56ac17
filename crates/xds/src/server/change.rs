//! The order of changes of resources.

/// The number of a change; later changes have higher numbers.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ChangeId(pub u64);
