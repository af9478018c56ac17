//! Metrics of the worker threads.

use maglor_telemetry::{Gauge, GaugeFamily, Registry};
use tokio::runtime::Handle;

/// Metric families of the workers.
#[derive(Debug)]
pub(super) struct Families {
    tasks: GaugeFamily,
    connections: GaugeFamily,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            tasks: registry.gauge(
                "worker_tasks",
                "Asynchronous tasks of a worker: connections, streams, and a few internal ones.",
                &["worker"],
            ),
            connections: registry.gauge(
                "worker_connections",
                "Client connections of a worker.",
                &["worker"],
            ),
        }
    }

    pub(super) fn worker(&self, shard: usize) -> WorkerMetrics {
        let tasks = self.tasks.with(&[&shard.to_string()]);
        let connections = self.connections.with(&[&shard.to_string()]);
        WorkerMetrics { tasks, connections }
    }
}

/// Handles of a worker.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    tasks: Gauge,
    connections: Gauge,
}

impl WorkerMetrics {
    /// Sets the number of tasks of the calling thread's runtime, and of its connections; called about once a second.
    pub(crate) fn publish(&self, connections: usize) {
        let connections = i64::try_from(connections).unwrap_or(i64::MAX);
        self.connections.set(connections);
        let tasks = Handle::current().metrics().num_alive_tasks();
        self.tasks.set(i64::try_from(tasks).unwrap_or(i64::MAX));
    }
}
