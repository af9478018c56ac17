//! The client side: from an accepted socket to the protocol of its connection.

pub(crate) mod accept;
pub(crate) mod handover;
pub(crate) mod thread;
