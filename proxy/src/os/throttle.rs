//! Log lines that strangers can cause, or a process without descriptors: one a second, and how many there were besides.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Throttle {
    begun: Instant,
    /// Nanoseconds since `begun` at which the next one may pass.
    next: AtomicU64,
    held: AtomicU64,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            next: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written, and how many were not since the last one.
    pub(crate) fn allow(&self) -> Option<u64> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(self.begun.elapsed());
        // Relaxed: of two threads at the same moment both may pass, and one line more is no harm.
        if now < self.next.load(Ordering::Relaxed) {
            self.held.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.next
            .store(now.saturating_add(nanos(EVERY)), Ordering::Relaxed);
        Some(self.held.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_and_the_others_are_counted() {
        let throttle = Throttle::new();
        assert_eq!(throttle.allow(), Some(0));
        assert_eq!((throttle.allow(), throttle.allow()), (None, None));
        throttle.next.store(0, Ordering::Relaxed);
        assert_eq!(throttle.allow(), Some(2));
    }
}
