//! What only members of a mesh do: prove who they are, say who may, send each other their load.

pub(crate) mod authorization;
pub(crate) mod identity;
pub(crate) mod load_feedback;
