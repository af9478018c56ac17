//! Figures of simulations: the scenarios that a figure needs, and the drawing of their outcomes.
//!
//! A [`Study`] lists its scenarios first, so that a program that draws several studies simulates all of them
//! in one pool, with one progress bar, and draws afterwards:
//!
//! ```
//! use maglor_lab::des::{simulate_all, threads};
//! use maglor_lab::figures::{Effort, studies};
//!
//! let mut studies = studies(Effort::Custom { requests: 200, runs: 2 });
//! studies.truncate(1);
//! let scenarios: Vec<_> = studies.iter().flat_map(|s| s.scenarios().to_vec()).collect();
//! let outcomes = simulate_all(&scenarios, threads(), &|_done, _all| {})?;
//! let mut rest = &outcomes[..];
//! for study in &studies {
//!     let (own, others) = rest.split_at(study.scenarios().len());
//!     rest = others;
//!     for figure in study.draw(own) {
//!         assert!(!figure.series.is_empty());
//!     }
//! }
//! # Ok::<(), maglor_lab::des::ScenarioError>(())
//! ```

mod collaboration;
mod graphs;
mod scale;
mod sweep;
mod theory;

use crate::chart::{Figure, Series};
use crate::des::{Outcome, Scenario};
use sweep::{Chart, Sweep};

/// How long to simulate for each point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effort {
    /// This number of requests in each of this number of runs.
    Custom {
        /// The number of requests, at least 100.
        requests: u64,
        /// The number of runs, at least 2.
        runs: u32,
    },
    /// For print: intervals of about one per cent.
    Full,
    /// For a preview, all studies in about a minute on two cores: intervals of some per cent, and means that are too
    /// low near saturation. The pictures say so.
    Quick,
}

impl Effort {
    fn apply(self, scenario: &mut Scenario) {
        // Queues need the same time to settle and to visit all states, regardless of their number.
        let servers = u64::from(scenario.servers.max(40));
        (scenario.requests, scenario.runs) = match self {
            Self::Custom { requests, runs } => (requests, runs),
            Self::Full => (100_000 * servers / 40, 5),
            Self::Quick => (16_000 * servers / 40, 3),
        };
    }
}

/// Scenarios, and the figures drawn from their outcomes.
pub struct Study {
    scenarios: Vec<Scenario>,
    effort: Effort,
    sweep: Sweep,
    charts: Vec<Chart>,
    formulas: fn() -> Vec<Series>,
}

impl Study {
    fn new(effort: Effort, sweep: Sweep, charts: Vec<Chart>) -> Self {
        let mut scenarios = sweep.scenarios();
        for scenario in &mut scenarios {
            effort.apply(scenario);
        }
        Self {
            scenarios,
            effort,
            sweep,
            charts,
            formulas: Vec::new,
        }
    }

    /// Also draws these lines into each of its charts, before those of simulations.
    fn with_formulas(self, formulas: fn() -> Vec<Series>) -> Self {
        Self { formulas, ..self }
    }

    /// Returns the name of the study for a progress bar.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.sweep.name
    }

    /// Returns the names of its figures.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.charts.iter().map(|chart| &*chart.id)
    }

    /// Returns the scenarios to simulate.
    #[must_use]
    pub fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// Draws the figures from the outcomes of [`scenarios`](Self::scenarios) in the same order.
    #[must_use]
    pub fn draw(&self, outcomes: &[Outcome]) -> Vec<Figure> {
        let formulas = (self.formulas)();
        let figure = |chart| {
            let mut figure = self.sweep.figure(chart, outcomes);
            figure.caption = self.caption(&figure, !formulas.is_empty());
            figure.stamp = (self.effort == Effort::Quick).then_some("quick preview");
            figure.series.splice(..0, formulas.iter().cloned());
            figure
        };
        self.charts.iter().map(figure).collect()
    }

    /// Says how the values were found.
    fn caption(&self, figure: &Figure, has_formulas: bool) -> Vec<String> {
        let Some(scenario) = self.scenarios.first() else {
            return Vec::new();
        };
        let (runs, requests) = (scenario.runs, scenario.requests);
        let mut how = format!(
            "Markers: {runs} simulated runs of {requests} requests; whiskers: 95 % confidence intervals."
        );
        if has_formulas {
            how += " Lines without markers: formulas.";
        }
        let mut points = figure.series.iter().flat_map(|series| &series.points);
        let doubtful = points.any(|point| point.doubtful);
        let mut values = String::new();
        if self.effort == Effort::Quick {
            values += "Preview: short runs; values near saturation are too low, by more than their intervals. ";
        }
        if doubtful {
            values += "Hollow: still growing at the end, too low.";
        }
        let mut lines = vec![how, values.trim_end().to_owned()];
        lines.retain(|line| !line.is_empty());
        lines
    }
}

/// Returns all studies: the paper's Figs. 9, 7, 3 and 4, and ours.
#[must_use]
pub fn studies(effort: Effort) -> Vec<Study> {
    let mut studies = vec![collaboration::paper(effort)];
    studies.extend(graphs::studies(effort));
    studies.extend(theory::studies(effort));
    studies.extend(scale::studies(effort));
    studies.extend(collaboration::studies(effort));
    studies
}
