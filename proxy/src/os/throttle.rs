//! Throttle for log lines that remote peers or a lack of descriptors can trigger: at most one line a second, with the
//! number of suppressed lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// Throttle of one log line.
#[derive(Debug)]
pub(crate) struct Throttle {
    begun: Instant,
    /// Nanoseconds after `begun` at which the next line may be written.
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

    /// Returns the number of suppressed lines since the last one if a line may be written, otherwise `None`.
    pub(crate) fn allow(&self) -> Option<u64> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(self.begun.elapsed());
        // Relaxed: two threads may both write a line at the same moment, which does no harm.
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
