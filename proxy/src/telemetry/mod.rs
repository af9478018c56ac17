//! Metrics, the access log, spans, stories, and live observation of requests.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod observers;
pub(crate) mod record;
pub(crate) mod stories;
pub(crate) mod traces;
