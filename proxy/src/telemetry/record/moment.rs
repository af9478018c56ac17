//! An instant in half of the space of an [`Instant`]: a request holds several of them while it waits.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

use super::nanos;

/// An instant after another one, such as the beginning of its request, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Option<NonZeroU64>);

impl Moment {
    pub(crate) const NONE: Self = Self(None);

    /// Nanoseconds between the two instants, and one more.
    pub(crate) fn new(started: Instant, at: Instant) -> Self {
        Self::after(at - started)
    }

    /// Returns the instant at this time after the beginning.
    pub(crate) fn after(time: Duration) -> Self {
        Self(NonZeroU64::new(nanos(time).saturating_add(1)))
    }

    /// Returns the time between the beginning and this instant.
    pub(crate) fn since_begin(self) -> Option<Duration> {
        let nanos = self.0?.get() - 1;
        Some(Duration::from_nanos(nanos))
    }

    pub(crate) fn is_none(self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn is_some(self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn instant(self, started: Instant) -> Option<Instant> {
        Some(started + self.since_begin()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact() {
        let started = Instant::now();
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 86_400_000_000_001] {
            let at = started + Duration::from_nanos(nanos);
            let moment = Moment::new(started, at);
            assert!(moment.is_some() && !moment.is_none());
            assert_eq!(moment.instant(started), Some(at));
        }
        let earlier = Moment::new(started + Duration::from_secs(1), started);
        assert_eq!(earlier.instant(started), Some(started));
        assert_eq!(Moment::NONE.instant(started), None);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
