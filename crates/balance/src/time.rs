//! Time in this crate: nanoseconds since an epoch that the caller chooses.
//!
//! Invariant: nothing in this crate reads a clock. The proxy converts its own clock once per request; the simulator
//! passes virtual time. So both run the same decisions.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in nanoseconds since an arbitrary epoch shared by all callers of one view.
///
/// The range is 584 years; arithmetic saturates instead of wrapping.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);

    /// Returns the point `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Adds a duration; saturates at the end of the range.
    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let late = Time::from_nanos(u64::MAX - 1) + Duration::from_secs(1);
        assert_eq!(late.as_nanos(), u64::MAX);
        assert_eq!(Time::ZERO.saturating_since(late), Duration::ZERO);
        assert_eq!(
            (Time::ZERO + Duration::from_millis(3)).saturating_since(Time::from_nanos(1_000_000)),
            Duration::from_millis(2)
        );
    }
}
