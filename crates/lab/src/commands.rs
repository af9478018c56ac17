//! The commands, one module each, and what they have in common.

pub(crate) mod figures;
pub(crate) mod format;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod model;
pub(crate) mod progress;
pub(crate) mod sim;
