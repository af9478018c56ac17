//! Metrics of the memory budget.

use maglor_telemetry::Registry;

use crate::os::memory::BudgetMetrics;

/// Returns the metrics of the memory budget.
pub(super) fn budget(registry: &Registry) -> BudgetMetrics {
    let gauge = |name, help| registry.gauge(name, help, &[]).with(&[]);
    let shed = registry.counter(
        "memory_shed_total",
        "Connections, requests and streams rejected or reset because of the memory budget, by kind.",
        &["what"],
    );
    BudgetMetrics {
        limit: gauge("memory_budget_bytes", "The memory budget; 0 = none."),
        heap: gauge("memory_heap_bytes", "Memory allocated by all threads."),
        kept: gauge("memory_kept_bytes", "Request bodies buffered for retries."),
        used: gauge("memory_used_bytes", "Memory in use, if there is a budget."),
        requests: shed.with(&["request"]),
        connections: shed.with(&["connection"]),
        bodies: shed.with(&["body"]),
        holders: shed.with(&["holder"]),
    }
}
