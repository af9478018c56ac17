//! What all threads share whatever the configuration: metrics, who observes requests, the zero of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maglor_balance::Time;
use maglor_balance::guard::outlier::Finding;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use crate::net::own_connections::OwnConnections;
use crate::os::descriptors::Descriptors;
use crate::os::memory::Budget;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::observers::Observers;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) metrics: Metrics,
    base: Instant,
    /// How much memory there is, and who may have more of it.
    pub(crate) memory: Arc<Budget>,
    pub(crate) descriptors: Descriptors,
    /// Who wants to know of requests as they end.
    pub(crate) observers: Arc<Observers>,
    /// Connections that have given up their buffers since memory was last given back to the system.
    released: AtomicUsize,
    reports: UnboundedSender<Report>,
    /// Connections to where clients were going.
    pub(crate) own_connections: Arc<OwnConnections>,
}

/// What a worker has found about an endpoint.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) cluster: Arc<str>,
    /// The target's id.
    pub(crate) target: u64,
    pub(crate) finding: Finding,
}

impl Shared {
    /// State of so many workers, and what they report to the control thread.
    pub(crate) fn new(workers: usize) -> (Self, UnboundedReceiver<Report>) {
        let (reports, receiver) = mpsc::unbounded_channel();
        let metrics = Metrics::new(workers);
        let shared = Self {
            memory: Arc::new(Budget::new(metrics.memory(), workers)),
            descriptors: Descriptors::of_process(),
            metrics,
            base: Instant::now(),
            observers: Arc::default(),
            released: AtomicUsize::new(0),
            reports,
            own_connections: Arc::default(),
        };
        (shared, receiver)
    }

    /// Notifies the control thread, which decides what becomes of the endpoint.
    pub(crate) fn report(&self, report: Report) {
        // At the end of the process nobody listens any more.
        let _ = self.reports.send(report);
    }

    /// The instant as the balancer counts time.
    pub(crate) fn time(&self, now: Instant) -> Time {
        let nanos = now.saturating_duration_since(self.base).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// So many connections have closed, or become idle and given up their buffers.
    pub(crate) fn count_released(&self, connections: usize) {
        if connections > 0 {
            // Relaxed: a hint of how much there is to give back.
            self.released.fetch_add(connections, Ordering::Relaxed);
        }
    }

    /// How many connections have given up their buffers since the last call.
    pub(crate) fn take_released(&self) -> usize {
        self.released.swap(0, Ordering::Relaxed)
    }
}
