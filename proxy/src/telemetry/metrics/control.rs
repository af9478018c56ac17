//! Metrics of the control thread.

use maglor_telemetry::{Counter, CounterFamily, Gauge, Registry};

/// Metrics of the control thread.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
    pub(crate) reload_time: Gauge,
    pub(crate) dns_failures: CounterFamily,
    pub(crate) access_log_dropped: Counter,
}

impl Control {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help, labels: &[&str]| registry.counter(name, help, labels);
        let reloads = counter(
            "config_reloads_total",
            "Configuration reloads, by result.",
            &["result"],
        );
        let reload_time = registry.gauge(
            "config_last_applied_timestamp_seconds",
            "Time when the current configuration was applied, in seconds since the Unix epoch.",
            &[],
        );
        let dropped = counter(
            "access_log_dropped_total",
            "Access log lines dropped because the file could not be written, or not fast enough.",
            &[],
        );
        Self {
            reloads: reloads.with(&["applied"]),
            reloads_failed: reloads.with(&["refused"]),
            reload_time: reload_time.with(&[]),
            dns_failures: counter(
                "dns_failures_total",
                "Failed resolutions of endpoint names.",
                &["cluster"],
            ),
            access_log_dropped: dropped.with(&[]),
        }
    }
}
