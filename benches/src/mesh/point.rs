//! A measured case and the simulator's result for the same parameters.

use maglor_lab::chart::Series;
use maglor_lab::des::{Estimate, Outcome};

use super::stage::Measured;
use crate::bar::Bar;
use crate::chart;
use crate::report::number;

/// The tolerated difference of a measured point from the simulator's, in percent.
const TOLERANCE_PCT: f64 = 5.0;

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

    /// The columns of [`Self::cells`].
    pub(super) const COLUMNS: [&str; 8] = [
        "measured ms",
        "simulated ms",
        "ratio",
        "beyond both intervals %",
        "p99 ms",
        "simulated",
        "added µs",
        "ρ",
    ];

    /// Returns the comparison as cells of a table; means have this many digits.
    pub(super) fn cells(&self, digits: usize) -> [String; 8] {
        let (run, simulated) = (&self.measured, &self.simulated);
        let interval =
            |one: Estimate| format!("{:.digits$} ± {:.digits$}", one.value, one.half_width);
        [
            interval(run.mean),
            interval(simulated.mean_ms),
            format!("{:.3}", self.ratio()),
            format!("{:.1}", self.beyond()),
            number(Some(run.p99)),
            number(Some(simulated.p99_ms.value)),
            number(Some(1000.0 * run.added.0)),
            format!("{:.3}", run.rho),
        ]
    }
}

/// Returns the bars of an experiment with these points.
pub(super) fn bars<'a>(
    experiment: &str,
    points: impl Iterator<Item = &'a Point> + Clone,
) -> Vec<Bar> {
    let failed: usize = points.clone().map(|point| point.measured.failed).sum();
    let worst = points.map(Point::beyond).reduce(f64::max);
    let off = "measured off simulated beyond both intervals, %, worst point";
    vec![
        Bar::at_most(format!("{experiment}: {off}"), TOLERANCE_PCT, worst),
        Bar::at_most(
            format!("{experiment}: failed requests"),
            0.0,
            Some(failed as f64),
        ),
    ]
}

/// Returns the lines of a way: measured, and simulated.
pub(super) fn lines<'a>(
    way: &str,
    points: impl Iterator<Item = (f64, &'a Point)> + Clone,
) -> [Series; 2] {
    let measured = points
        .clone()
        .map(|(x, point)| (x, point.measured.mean.value));
    let simulated = points.map(|(x, point)| (x, point.simulated.mean_ms.value));
    [
        chart::line(format!("{way}, measured"), measured),
        chart::line(format!("{way}, simulated"), simulated),
    ]
}
