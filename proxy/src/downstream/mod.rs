//! From an accepted socket to the protocol that is spoken on it.

pub(crate) mod accept;
pub(crate) mod thread;
