//! Sweeps over a parameter: one line per policy, one point per value. Nearly every figure is one.

use crate::chart::{Figure, Point, Series};
use crate::comparison::Compared;
use crate::des::{Estimate, Outcome, Scenario};

/// Lines over a parameter, of one set of simulations.
pub(super) struct Sweep {
    pub(super) name: &'static str,
    /// The name and scenario of each line.
    pub(super) lines: Vec<(String, Scenario)>,
    pub(super) values: &'static [f64],
    /// Sets the parameter.
    pub(super) set: fn(&mut Scenario, f64),
    pub(super) x_label: &'static str,
    pub(super) x_log: bool,
}

/// One chart of a sweep.
pub(super) struct Chart {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) y_label: &'static str,
    pub(super) y_log: bool,
    pub(super) value: fn(&Outcome) -> Estimate,
}

impl Sweep {
    /// Returns the scenarios line by line, from left to right.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let at = |line: &Scenario, x: f64| {
            let mut scenario = line.clone();
            (self.set)(&mut scenario, x);
            scenario
        };
        let lines = self.lines.iter();
        lines
            .flat_map(|(_, line)| self.values.iter().map(move |x| at(line, *x)))
            .collect()
    }

    pub(super) fn figure(&self, chart: &Chart, outcomes: &[Outcome]) -> Figure {
        let lines = self.lines.iter().zip(outcomes.chunks(self.values.len()));
        let series = lines.map(|((name, _), outcomes)| {
            let mut series = Series::new(name.clone());
            for (x, outcome) in self.values.iter().zip(outcomes) {
                let Estimate { value, half_width } = (chart.value)(outcome);
                let point = Point::within(*x, value, half_width);
                series.points.push(point.doubtful_if(!outcome.is_steady()));
            }
            series
        });
        Figure {
            id: chart.id.clone(),
            title: chart.title.clone(),
            x_label: self.x_label.to_owned(),
            y_label: chart.y_label.to_owned(),
            x_log: self.x_log,
            y_log: chart.y_log,
            caption: Vec::new(),
            stamp: None,
            series: series.collect(),
        }
    }
}

/// Returns a line named by the notation of its policy, in a scenario.
pub(super) fn line(policy: &str, base: &Scenario) -> (String, Scenario) {
    let policy_of: Result<Compared, _> = policy.parse();
    let scenario = Scenario {
        policy: policy_of.expect("figures name policies that exist"),
        ..base.clone()
    };
    (policy.to_owned(), scenario)
}

pub(super) fn lines(policies: &[&str], base: &Scenario) -> Vec<(String, Scenario)> {
    policies.iter().map(|policy| line(policy, base)).collect()
}

pub(super) fn set_balancers(scenario: &mut Scenario, x: f64) {
    scenario.balancers = x as u32;
}

pub(super) const MEAN: &str = "mean latency, ms";
