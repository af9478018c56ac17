//! In-flight counts of failed requests, which are released only when a successful response would have arrived; see
//! [`maglor_balance::Usual`].
//!
//! There is one queue and one timer for each worker, so an error costs one entry of 40 bytes.

use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Maximum number of delayed counts of a worker; beyond this, a count is released immediately.
const MOST: usize = 4096;

/// Delayed releases of a worker.
#[derive(Default)]
pub(crate) struct DelayedReleases {
    entries: RefCell<BinaryHeap<Reverse<Entry>>>,
    /// Number of the next entry, which orders entries with equal times.
    number: Cell<u64>,
    /// Notified when an entry is added that is due before all others.
    earlier: Notify,
}

struct Entry {
    until: Instant,
    number: u64,
    release: Box<dyn FnOnce()>,
}

impl DelayedReleases {
    /// Calls `release` at `until`, or immediately if there are too many entries.
    pub(crate) fn add(&self, until: Instant, release: Box<dyn FnOnce()>) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() >= MOST {
            drop(entries);
            return release();
        }
        let first = entries
            .peek()
            .is_none_or(|Reverse(next)| until < next.until);
        let number = self.number.get();
        self.number.set(number + 1);
        entries.push(Reverse(Entry {
            until,
            number,
            release,
        }));
        drop(entries);
        if first {
            self.earlier.notify_one();
        }
    }

    /// Releases due entries; returns when the next entry is due, if there is one.
    fn release_due(&self, now: Instant) -> Option<Instant> {
        loop {
            let mut entries = self.entries.borrow_mut();
            let next = entries.peek().map(|Reverse(next)| next.until)?;
            if next > now {
                return Some(next);
            }
            let due = entries.pop();
            drop(entries);
            if let Some(Reverse(entry)) = due {
                (entry.release)();
            }
        }
    }
}

/// Releases a worker's entries when they are due; never returns.
pub(crate) async fn release(releases: Rc<DelayedReleases>) {
    loop {
        let earlier = releases.earlier.notified();
        match releases.release_due(Instant::now()) {
            Some(next) => drop(timeout_at(next, earlier).await),
            None => earlier.await,
        }
    }
}

impl fmt::Debug for DelayedReleases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.borrow().len();
        f.debug_struct("Kept").field("entries", &entries).finish()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.until, self.number).cmp(&(other.until, other.number))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_are_released_in_time_and_bounded() {
        let releases = DelayedReleases::default();
        let given = Rc::new(RefCell::new(Vec::new()));
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        for ms in [30, 10, 20, 10] {
            let given = Rc::clone(&given);
            releases.add(at(ms), Box::new(move || given.borrow_mut().push(ms)));
        }
        assert_eq!(releases.release_due(at(5)), Some(at(10)));
        assert_eq!(releases.release_due(at(20)), Some(at(30)));
        assert_eq!(*given.borrow(), [10, 10, 20]);
        assert_eq!(releases.release_due(at(30)), None);
        for _ in 0..MOST + 7 {
            let given = Rc::clone(&given);
            releases.add(at(99), Box::new(move || given.borrow_mut().push(99)));
        }
        assert_eq!(given.borrow().len(), 4 + 7, "what is too much goes at once");
    }
}
