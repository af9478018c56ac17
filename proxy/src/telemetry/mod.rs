//! Metrics, the access log, spans, and live observation of requests.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod observers;
pub(crate) mod traces;
