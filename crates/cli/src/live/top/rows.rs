//! A row of `maglor top`: the last measurement of a workload or of its calls to a service, and its recent rates.

use std::collections::VecDeque;

use crate::health::Health;
use crate::live::stat::Line;

/// Number of rates that are kept for each row.
const RATES: usize = 60;
/// Characters of a sparkline, by height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The identity of a row, which does not depend on its position in the table.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct RowId {
    pub(super) namespace: Option<String>,
    pub(super) workload: String,
    pub(super) service: Option<String>,
}

impl RowId {
    pub(super) fn of(line: &Line) -> Self {
        Self {
            namespace: line.namespace.clone(),
            workload: line.workload.clone(),
            service: line.service.clone(),
        }
    }
}

/// The last measurement of a row and its recent rates.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The last measurement.
    pub(super) line: Line,
    /// Requests per second, the newest last.
    rates: VecDeque<f64>,
    /// Whether the proxy did not respond at the last scrape, so that the measurement is an older one.
    pub(super) stale: bool,
}

impl Row {
    pub(super) fn new(line: Line) -> Self {
        let mut row = Self {
            rates: VecDeque::with_capacity(RATES),
            stale: false,
            line: line.clone(),
        };
        row.measure(line);
        row
    }

    /// Replaces the measurement and adds its rate.
    pub(super) fn measure(&mut self, line: Line) {
        if self.rates.len() == RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(line.rps.unwrap_or(0.0));
        self.line = line;
        self.stale = false;
    }

    /// Returns the health of the row's requests; `None` if there are none or if it is unknown. A service with ejected
    /// endpoints is not healthy even if all requests succeed.
    pub(super) fn health(&self) -> Option<Health> {
        let health = Health::of(self.line.success.filter(|_| !self.stale)?);
        let calls = self.line.calls.as_ref();
        let ejected = calls.is_some_and(|calls| calls.ejected_now > 0.0);
        Some(match ejected {
            true => health.max(Health::Degraded),
            false => health,
        })
    }

    /// Returns the recent rates as bars, with the newest at the right end. The highest bar stands for the highest
    /// shown rate.
    pub(super) fn trend(&self, width: usize) -> String {
        let shown = self.rates.iter().rev().take(width);
        let most = shown.clone().copied().fold(0.0, f64::max);
        let bar = |rate: &f64| match most > 0.0 && *rate > 0.0 {
            // The index is below 8, even for the highest rate.
            true => BARS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
            false => ' ',
        };
        let bars: Vec<char> = shown.map(bar).collect();
        let bars: String = bars.into_iter().rev().collect();
        format!("{bars:>width$}")
    }
}
