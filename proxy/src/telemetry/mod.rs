//! Metrics, the access log, and live observation of requests.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod observers;
