//! Metrics of kept stories.

use std::sync::Arc;

use maglor_telemetry::{Counter, Registry};

/// Metrics of kept stories.
#[derive(Debug)]
pub(crate) struct StoryMetrics {
    pub(crate) failed: Counter,
    pub(crate) slow: Counter,
    pub(crate) dropped_room: Counter,
    pub(crate) dropped_rate: Counter,
}

impl StoryMetrics {
    pub(super) fn new(registry: &Registry) -> Arc<Self> {
        let kept = registry.counter(
            "stories_total",
            "Stories of requests and connections kept for `maglor why`, by kind.",
            &["kind"],
        );
        let dropped = registry.counter(
            "stories_dropped_total",
            "Stories not kept, or not for ten minutes, by reason.",
            &["reason"],
        );
        Arc::new(Self {
            failed: kept.with(&["failed"]),
            slow: kept.with(&["slow"]),
            dropped_room: dropped.with(&["no_room"]),
            dropped_rate: dropped.with(&["rate"]),
        })
    }
}
