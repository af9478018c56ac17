//! Places that are kept after errors until a good answer would have come; see [`maglor_balance::Usual`].
//!
//! One queue and one timer a worker: what an error costs here is an entry of 40 bytes.

use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Places of a worker, at most. So many say enough; one more is given up at once.
const MOST: usize = 4096;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct DelayedReleases {
    places: RefCell<BinaryHeap<Reverse<Place>>>,
    /// Numbers places, so that equal times have an order.
    number: Cell<u64>,
    /// A place is to be given up before all others.
    earlier: Notify,
}

struct Place {
    until: Instant,
    number: u64,
    release: Box<dyn FnOnce()>,
}

impl DelayedReleases {
    /// Calls `release` at `until`, or now if there are too many places.
    pub(crate) fn add(&self, until: Instant, release: Box<dyn FnOnce()>) {
        let mut places = self.places.borrow_mut();
        if places.len() >= MOST {
            drop(places);
            return release();
        }
        let first = places.peek().is_none_or(|Reverse(next)| until < next.until);
        let number = self.number.get();
        self.number.set(number + 1);
        places.push(Reverse(Place {
            until,
            number,
            release,
        }));
        drop(places);
        if first {
            self.earlier.notify_one();
        }
    }

    /// Gives up what is due; returns when the next one is.
    fn release_due(&self, now: Instant) -> Option<Instant> {
        loop {
            let mut places = self.places.borrow_mut();
            let next = places.peek().map(|Reverse(next)| next.until)?;
            if next > now {
                return Some(next);
            }
            let due = places.pop();
            drop(places);
            if let Some(Reverse(place)) = due {
                (place.release)();
            }
        }
    }
}

/// Gives up a worker's places in time, for as long as it lives.
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
        let places = self.places.borrow().len();
        f.debug_struct("Kept").field("places", &places).finish()
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.until, self.number).cmp(&(other.until, other.number))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn places_are_given_up_in_time_and_bounded() {
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
