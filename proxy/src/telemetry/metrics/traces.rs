//! Metrics of the export of spans.

use std::sync::Arc;

use maglor_telemetry::{Counter, Registry};

/// Metrics of the export of spans.
#[derive(Debug)]
pub(crate) struct TraceMetrics {
    pub(crate) exported: Counter,
    pub(crate) dropped_queue_full: Counter,
    pub(crate) dropped_unsent: Counter,
    pub(crate) dropped_rejected: Counter,
}

impl TraceMetrics {
    pub(super) fn new(registry: &Registry) -> Arc<Self> {
        let exported = registry.counter(
            "trace_spans_exported_total",
            "Spans accepted by the collector.",
            &[],
        );
        let dropped = registry.counter(
            "trace_spans_dropped_total",
            "Spans not exported, by reason.",
            &["reason"],
        );
        Arc::new(Self {
            exported: exported.with(&[]),
            dropped_queue_full: dropped.with(&["queue_full"]),
            dropped_unsent: dropped.with(&["unsent"]),
            dropped_rejected: dropped.with(&["rejected"]),
        })
    }
}
