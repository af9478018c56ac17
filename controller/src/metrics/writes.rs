//! Metrics of write requests of the leader.

use maglor_telemetry::{Counter, Registry};

/// The result of a write request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteResult {
    Conflict,
    Done,
    Failed,
    Late,
}

/// Counters of the results of write requests.
#[derive(Clone, Debug)]
pub(crate) struct WriteMetrics {
    conflict: Counter,
    done: Counter,
    failed: Counter,
    late: Counter,
}

impl WriteMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let family = registry.counter(
            "controller_writes_total",
            "Write requests of the leader, by result.",
            &["result"],
        );
        let with = |result| family.with(&[result]);
        Self {
            conflict: with("conflict"),
            done: with("done"),
            failed: with("failed"),
            late: with("late"),
        }
    }

    /// Counts a result.
    pub(crate) fn count(&self, result: WriteResult) {
        let counter = match result {
            WriteResult::Conflict => &self.conflict,
            WriteResult::Done => &self.done,
            WriteResult::Failed => &self.failed,
            WriteResult::Late => &self.late,
        };
        counter.add_shared(1);
    }
}
