//! Sharded metrics with Prometheus exposition.
//!
//! The proxy runs one thread a core and each thread (a *worker*, with an index `0..workers`) writes
//! only its own *shard* of a metric. A shard has a single writer, so that [`Counter::add`] is a
//! relaxed load and a store on a cache line with a single writer; the shards are summed when they
//! are read. Control threads, which have no index, use the `*_shared` methods: an atomic addition
//! on one extra shard.
//!
//! # Series and handles
//!
//! A *family* has a name, a help text and label names; a *series* is a family with label values.
//! [`CounterFamily::with`] returns a handle to the series with these values, the same series for the
//! same values. Handles are resolved when a cluster or an endpoint is built, never for each request.
//! A series lives as long as its last handle: **when it is dropped, the series disappears from the
//! exposition and its count is lost**. That is meant for endpoints that were removed; values that
//! must outlive them (totals of a cluster or a listener) need a handle with a longer life.
//!
//! A series with the same labels that comes back later starts at zero, which Prometheus reads as a
//! counter reset.
//!
//! ```
//! use maglor_telemetry::Registry;
//!
//! let registry = Registry::new(2); // two workers
//! let requests = registry.counter("requests_total", "Requests answered.", &["cluster"]);
//!
//! let web = requests.with(&["web"]); // when the cluster is built
//! web.inc(0); // on worker 0
//! web.add(1, 2); // on worker 1
//! assert_eq!(web.value(), 3);
//! assert!(registry.encode().contains("maglor_requests_total{cluster=\"web\"} 3"));
//!
//! drop(web);
//! assert!(!registry.encode().contains("web"));
//! ```
//!
//! # Cost
//!
//! One worker: a counter takes about 130 bytes, a latency histogram about 450, labels included;
//! each further worker adds 64 and 192 bytes. With traces, exemplars of
//! a histogram add 760 bytes a worker. `benches/metrics.rs` measures the time.

mod buckets;
mod cells;
mod counter;
mod exemplar;
mod exposition;
mod family;
mod gauge;
mod histogram;
mod histogram_row;
mod process;
mod registry;

pub use buckets::{Buckets, BucketsError};
pub use counter::{Counter, CounterFamily};
pub use exemplar::Exemplar;
pub use exposition::Exposition;
pub use gauge::{Gauge, GaugeFamily};
pub use histogram::{Histogram, HistogramFamily, Snapshot};
pub use registry::{Registry, Samples};
