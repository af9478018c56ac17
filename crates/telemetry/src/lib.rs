//! Telemetry of Maglor processes: metrics, logs and traces.
//!
//! # Layout
//!
//! - [`metrics`]: a registry of counters, gauges and histograms, exposed in the formats of Prometheus. Metrics are
//!   sharded by worker, so that counting on the data path is a load and a store without a lock.
//! - `admin`: which requests an admin port answers, and its connection limits; feature `admin`.
//! - `command_line`: arguments, standard output and man pages of command lines; features `command-line`, `manual`.
//! - [`logs`]: `tracing` on standard error, with a handle that changes the level at run time.
//! - [`otlp`]: spans in the encoding of OpenTelemetry's protocol.
//! - [`scrape`]: a parser for the Prometheus text format, and the growth of counters between pages.
//! - [`story`]: what a proxy keeps of a failed or slow request, and the cause that follows from it.
//! - [`trace_context`]: W3C `traceparent`/`tracestate` and B3, without I/O and without a source of randomness: the
//!   caller passes the bytes of new identifiers.
//!
//! Without these features, nothing here depends on HTTP or tokio; nothing depends on the configuration.

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(any(feature = "command-line", feature = "manual"))]
pub mod command_line;
pub mod logs;
pub mod metrics;
pub mod otlp;
pub mod scrape;
pub mod story;
pub mod trace_context;

pub use metrics::{
    Buckets, Counter, CounterFamily, Gauge, GaugeFamily, Histogram, HistogramFamily, Registry,
};
