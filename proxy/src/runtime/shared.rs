//! State that all threads share, independent of the configuration: metrics, request observers, and the origin of
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maglor_balance::Time;
use maglor_balance::guard::outlier::Finding;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use crate::net::own_connections::OwnConnections;
use crate::os::descriptors::Descriptors;
use crate::os::memory::Budget;
use crate::runtime::open_connections::OpenConnections;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::observers::Observers;

/// State shared by all threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) metrics: Metrics,
    base: Instant,
    /// The memory budget and its use.
    pub(crate) memory: Arc<Budget>,
    pub(crate) descriptors: Descriptors,
    /// Observers of finished requests.
    pub(crate) observers: Arc<Observers>,
    /// Number of connections that released their buffers since memory was last returned to the system.
    released: AtomicUsize,
    reports: UnboundedSender<Report>,
    pub(crate) open_connections: OpenConnections,
    /// Connections of this process to original destinations.
    pub(crate) own_connections: Arc<OwnConnections>,
}

/// An observation of a worker about an endpoint.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) cluster: Arc<str>,
    /// Id of the target.
    pub(crate) target: u64,
    pub(crate) finding: Finding,
}

impl Shared {
    /// Creates the state of this many workers, and the receiver of their reports for the control thread.
    pub(crate) fn new(workers: usize) -> (Self, UnboundedReceiver<Report>) {
        let (reports, receiver) = mpsc::unbounded_channel();
        let metrics = Metrics::new(workers);
        let shared = Self {
            memory: Arc::new(Budget::new(metrics.memory(), workers)),
            descriptors: Descriptors::of_process(),
            observers: Arc::new(Observers::new(workers, Arc::clone(&metrics.stories))),
            metrics,
            base: Instant::now(),
            released: AtomicUsize::new(0),
            reports,
            open_connections: OpenConnections::new(workers),
            own_connections: Arc::default(),
        };
        (shared, receiver)
    }

    /// Sends an observation to the control thread, which decides whether to eject the endpoint.
    pub(crate) fn report(&self, report: Report) {
        // The receiver is gone at the end of the process.
        let _ = self.reports.send(report);
    }

    /// Converts an instant to the balancer's time.
    pub(crate) fn time(&self, now: Instant) -> Time {
        let nanos = now.saturating_duration_since(self.base).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Counts connections that were closed, or became idle and released their buffers.
    pub(crate) fn count_released(&self, connections: usize) {
        if connections > 0 {
            // Relaxed: only an indication of how much memory can be returned.
            self.released.fetch_add(connections, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections that released their buffers since the last call.
    pub(crate) fn take_released(&self) -> usize {
        self.released.swap(0, Ordering::Relaxed)
    }
}
