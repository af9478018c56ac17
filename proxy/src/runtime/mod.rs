//! State of a worker thread, and state that all threads share.

pub(crate) mod delayed_release;
pub(crate) mod open_connections;
pub(crate) mod shared;
pub(crate) mod timers;
pub(crate) mod worker;
