//! Spans of requests, for a collector.
//!
//! Which requests are exported is decided when they have ended, because failed and slow ones are exported whatever the
//! decision of their beginning. Only then spans are encoded from the request's record ([`super::record`]) by
//! [`maglor_telemetry::otlp`], and enter a bounded queue; [`crate::control`] sends it to the collector.

mod describe;
mod queue;
mod tracer;

pub(crate) use queue::{Encoded, Spans};
pub(crate) use tracer::Tracer;
