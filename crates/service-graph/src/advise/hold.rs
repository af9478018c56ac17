//! Values with hysteresis. A value follows its series upwards immediately if the series leaves a band around the value,
//! and downwards only after the series has stayed below the band for a while. After each such change, the upper band is
//! narrower for some time, so that the value follows a rising series until the series has settled well within the band.

use std::time::Duration;

use maglor_balance::Time;

/// The range in which a series does not change a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The upper band: above `value × (1 + up)`, the value grows immediately.
    pub up: f64,
    /// The lower band: below `value × (1 − down)`, the value shrinks after `patience`.
    pub down: f64,
    /// The time for which the series must stay below the band before the value shrinks.
    pub patience: Duration,
    /// The time after a change for which the upper band is one fifth of its normal width.
    pub settle: Duration,
}

/// A value with hysteresis.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    value: Option<f64>,
    /// Since when the series has been below the band, and its maximum since then; `None` if it is not below.
    low: Option<(Time, f64)>,
    /// When the series last left the band.
    left: Time,
}

impl Hold {
    /// Adds an element of the series; returns the resulting value.
    pub(super) fn follow(&mut self, now: Time, series: f64, band: Band) -> f64 {
        let Some(value) = self.value.filter(|value| series <= value * (1.0 + band.up)) else {
            (self.value, self.low, self.left) = (Some(series), None, now);
            return series;
        };
        let settles = now.saturating_since(self.left) < band.settle;
        if settles && series > value * (1.0 + band.up / 5.0) {
            (self.value, self.low) = (Some(series), None);
            return series;
        }
        if series >= value * (1.0 - band.down) {
            self.low = None;
            return value;
        }
        let (since, most) = self.low.unwrap_or((now, series));
        let most = most.max(series);
        if now.saturating_since(since) < band.patience {
            self.low = Some((since, most));
            return value;
        }
        (self.value, self.low, self.left) = (Some(most), None, now);
        most
    }

    /// Returns the value; `None` before the first element.
    pub(super) fn known(&self) -> Option<f64> {
        self.value
    }

    /// Returns the value; 0 before the first element.
    pub(super) fn get(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: Band = Band {
        up: 0.2,
        down: 0.3,
        patience: Duration::from_secs(60),
        settle: Duration::from_secs(15),
    };

    #[test]
    fn it_grows_at_once_and_shrinks_slowly() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut hold = Hold::default();
        let mut follow = |seconds, series| hold.follow(at(seconds), series, BAND);
        assert_eq!(follow(0, 100.0), 100.0);
        assert_eq!(follow(1, 103.0), 100.0);
        assert_eq!(follow(20, 119.0), 100.0);
        assert_eq!(follow(21, 75.0), 100.0);
        assert_eq!(follow(22, 121.0), 121.0);
        // Low, but not for long enough; then long enough, to the most that it was meanwhile.
        assert_eq!(follow(30, 50.0), 121.0);
        assert_eq!(follow(60, 100.0), 121.0);
        assert_eq!(follow(70, 50.0), 121.0);
        assert_eq!(follow(100, 60.0), 121.0);
        assert_eq!(follow(130, 40.0), 60.0);
        // It settles, and has settled.
        assert_eq!(follow(140, 63.0), 63.0);
        assert_eq!(follow(141, 60.0), 63.0);
        assert_eq!(follow(150, 72.0), 63.0);
    }
}
