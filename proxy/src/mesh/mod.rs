//! Features of mesh members: identity, authorization, and load feedback.

pub(crate) mod authorization;
pub(crate) mod identity;
pub(crate) mod load_feedback;
