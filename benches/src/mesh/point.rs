//! A measured case and the simulator's result for the same parameters.

use maglor_sim::des::{Estimate, Outcome};

use super::stage::Measured;

/// A measured point; see the module's documentation.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) measured: Measured,
    pub(super) simulated: Outcome,
}

impl Point {
    /// Returns measured mean / simulated mean.
    pub(super) fn ratio(&self) -> f64 {
        self.measured.mean.value / self.simulated.mean_ms.value
    }

    /// Returns the distance of the two beyond their intervals, in percent.
    pub(super) fn beyond(&self) -> f64 {
        let Estimate { value, half_width } = self.simulated.mean_ms;
        let interval = half_width.hypot(self.measured.mean.half_width);
        let off = (self.measured.mean.value - value).abs();
        100.0 * (off - interval).max(0.0) / value
    }
}
