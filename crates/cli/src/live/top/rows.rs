//! A row of `maglor top`: the last measurement of a workload or of its calls to a service, and its recent rates.

use std::collections::VecDeque;

use crate::health::Health;
use crate::live::stat::Line;

/// The number of rates kept of each row.
const RATES: usize = 60;
/// Characters of a sparkline, by height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What a row is about, whatever its place in the table.
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

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The last measurement.
    pub(super) line: Line,
    /// Requests a second, the newest last.
    rates: VecDeque<f64>,
    /// The proxy did not respond at the last scrape: the measurement is an older one.
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

    /// Replaces the measurement, and remembers its rate.
    pub(super) fn measure(&mut self, line: Line) {
        if self.rates.len() == RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(line.rps.unwrap_or(0.0));
        self.line = line;
        self.stale = false;
    }

    /// Returns the health of its requests; `None` without any, or if it is not known now. A service with ejected
    /// endpoints is not well even if all requests succeed.
    pub(super) fn health(&self) -> Option<Health> {
        let health = Health::of(self.line.success.filter(|_| !self.stale)?);
        let calls = self.line.calls.as_ref();
        let ejected = calls.is_some_and(|calls| calls.ejected_now > 0.0);
        Some(match ejected {
            true => health.max(Health::Degraded),
            false => health,
        })
    }

    /// Returns the last rates as bars, the newest at the right end, the highest bar for the highest rate shown.
    pub(super) fn trend(&self, width: usize) -> String {
        let shown = self.rates.iter().rev().take(width);
        let most = shown.clone().copied().fold(0.0, f64::max);
        let bar = |rate: &f64| match most > 0.0 && *rate > 0.0 {
            // The index is below 8, also of the highest rate.
            true => BARS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
            false => ' ',
        };
        let bars: Vec<char> = shown.map(bar).collect();
        let bars: String = bars.into_iter().rev().collect();
        format!("{bars:>width$}")
    }
}
