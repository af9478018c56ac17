//! What all threads share whatever the configuration: metrics, the access log, the zero of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use maglor_balance::Time;
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::metrics::Metrics;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) metrics: Metrics,
    base: Instant,
    access_log: ArcSwapOption<AccessLog>,
    /// Connections that have given up their buffers since memory was last given back to the system.
    released: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            metrics: Metrics::new(workers),
            base: Instant::now(),
            access_log: ArcSwapOption::empty(),
            released: AtomicUsize::new(0),
        }
    }

    /// The instant as the balancer counts time.
    pub(crate) fn time(&self, now: Instant) -> Time {
        let nanos = now.saturating_duration_since(self.base).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.access_log.load_full()
    }

    pub(crate) fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        self.access_log.store(log);
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
