//! What a worker thread owns, and what all threads share.

pub(crate) mod delayed_release;
pub(crate) mod shared;
pub(crate) mod worker;
