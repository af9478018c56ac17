//! The number of connections to an endpoint that traffic needs, which bounds the number of idle ones.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Minimum time for which a number of connections in use is remembered. The maximum is twice as long.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The largest number of connections that were recently in use at the same time.
#[derive(Debug)]
pub(super) struct WorkingSet {
    /// The largest number in the current period, and in the previous one.
    now: Cell<usize>,
    before: Cell<usize>,
    /// Start of the current period.
    since: Cell<Instant>,
}

impl WorkingSet {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now: Cell::new(0),
            before: Cell::new(0),
            since: Cell::new(now),
        }
    }

    /// Records the number of connections in use after one has been taken.
    pub(super) fn record(&self, in_use: usize) {
        if in_use > self.now.get() {
            self.now.set(in_use);
        }
    }

    /// Returns the number of connections that traffic needs.
    pub(super) fn size(&self) -> usize {
        self.now.get().max(self.before.get())
    }

    /// Forgets old numbers; `in_use` is the current number.
    pub(super) fn sweep(&self, now: Instant, in_use: usize) {
        if now - self.since.get() >= REMEMBERED {
            self.since.set(now);
            self.before.set(self.now.replace(in_use));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_remembered_for_ten_to_twenty_seconds() {
        let begin = Instant::now();
        let set = WorkingSet::new(begin);
        set.record(40);
        set.record(7);
        let sizes: Vec<_> = (1..=21)
            .map(|second| {
                set.sweep(begin + Duration::from_secs(second), 3);
                set.size()
            })
            .collect();
        assert_eq!(sizes[..19], [40; 19]);
        assert_eq!(sizes[19..], [3; 2]);
    }

    #[test]
    fn it_grows_at_once() {
        let set = WorkingSet::new(Instant::now());
        for in_use in [1, 5, 4, 9] {
            set.record(in_use);
        }
        assert_eq!(set.size(), 9);
    }
}
