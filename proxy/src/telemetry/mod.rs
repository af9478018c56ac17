//! What is counted and logged of connections and requests, and who may watch them.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod observers;
