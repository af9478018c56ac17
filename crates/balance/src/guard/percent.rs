//! Percentages of events and of counts, exact to a millionth.

use std::fmt;

use crate::Rng;

const WHOLE: u32 = 1_000_000;

/// A percentage, 0–100 %, in steps of a ten-thousandth of a percent (Envoy's `FractionalPercent`
/// with the denominator `MILLION`).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Percent(u32);

impl Percent {
    /// 100 %.
    pub const ALL: Self = Self(WHOLE);
    /// 0 %.
    pub const NONE: Self = Self(0);

    /// Returns the nearest step to `percent`; `None` outside 0–100.
    #[must_use]
    pub fn new(percent: f64) -> Option<Self> {
        let fits = (0.0..=100.0).contains(&percent);
        fits.then(|| Self((percent * 10_000.0).round() as u32))
    }

    /// Creates a whole number of percent; numbers above 100 are taken as 100.
    #[must_use]
    pub const fn whole(percent: u8) -> Self {
        let percent = if percent > 100 { 100 } else { percent };
        Self(percent as u32 * (WHOLE / 100))
    }

    /// Decides by a random draw whether an event is part of this share. For 0 % and 100 %, nothing is drawn.
    #[inline]
    pub fn hits(self, rng: &mut Rng) -> bool {
        self.0 > 0 && (self.0 >= WHOLE || rng.below(WHOLE) < self.0)
    }

    /// Returns this share of `count`, rounded down.
    #[must_use]
    pub const fn of(self, count: u64) -> u64 {
        ((count as u128 * self.0 as u128) / WHOLE as u128) as u64
    }

    /// Returns the percentage as a number between 0 and 100.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// Formats the number, such as `12.5`, without a percent sign.
impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_percentages_are_made() {
        assert_eq!(Percent::new(12.5).map(Percent::get), Some(12.5));
        assert_eq!(Percent::new(100.0), Some(Percent::ALL));
        assert_eq!(Percent::new(0.0), Some(Percent::NONE));
        assert_eq!(Percent::whole(200), Percent::ALL);
        for bad in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Percent::new(bad), None);
        }
    }

    #[test]
    fn shares_of_counts_round_down() {
        assert_eq!(Percent::whole(50).of(3), 1);
        assert_eq!(Percent::whole(33).of(3), 0);
        assert_eq!(Percent::ALL.of(u64::MAX), u64::MAX);
        assert_eq!(Percent::NONE.of(u64::MAX), 0);
    }

    #[test]
    fn events_are_hit_in_proportion() {
        let mut rng = Rng::seed(3);
        let share = Percent::new(12.5).unwrap();
        let hits = (0..80_000).filter(|_| share.hits(&mut rng)).count();
        // 5 standard deviations of a binomial with n = 80 000, p = 1/8.
        assert!(hits.abs_diff(10_000) < 470, "{hits}");
        let before = rng.clone();
        assert!(Percent::ALL.hits(&mut rng) && !Percent::NONE.hits(&mut rng));
        assert_eq!(
            format!("{before:?}"),
            format!("{rng:?}"),
            "nothing is drawn"
        );
    }
}
