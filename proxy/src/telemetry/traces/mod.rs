//! Spans of requests, for a collector.
//!
//! A request that arrives while tracing is on has a [`RequestTrace`], and each of its attempts an
//! [`AttemptTrace`]: a few words each. Which of them are exported is decided when the request has ended, because
//! failed and slow ones are exported whatever the decision of their beginning. Only then spans are encoded
//! ([`maglor_telemetry::otlp`]), and enter a bounded queue; [`crate::control`] sends it to the collector.
//!
//! Without tracing, a request costs what it costs without an access log: both are observers
//! ([`super::observers`]).

mod attempt;
mod attempted;
mod describe;
mod queue;
mod request;
mod slowest;
mod tracer;

pub(crate) use attempt::AttemptTrace;
pub(crate) use attempted::Endpoint;
pub(crate) use queue::{Encoded, Spans};
pub(crate) use request::{RequestTrace, Served};
pub(crate) use tracer::{Traced, Tracer};
