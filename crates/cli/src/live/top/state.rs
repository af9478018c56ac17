//! The state of `maglor top`: rows, order, selection and filter. Independent of a terminal and a clock.

use std::collections::BTreeMap;
use std::time::Duration;

use super::columns::{Column, Content};
use super::rows::{Row, RowId};
use crate::live::stat::{By, Line};

/// The traffic since the last scrape.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) workloads: Vec<Line>,
    pub(super) services: Vec<Line>,
    /// Proxies that did not respond, with the errors.
    pub(super) silent: Vec<String>,
}

/// The effect of keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// Keys are commands.
    Browse,
    /// Keys edit the filter.
    Filter,
    /// Any key closes the help.
    Help,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sort {
    pub(super) column: Column,
    /// Whether the order is from the highest to the lowest value.
    pub(super) reverse: bool,
}

impl Sort {
    fn by(column: Column) -> Self {
        Self {
            column,
            reverse: column.is_highest_first(),
        }
    }
}

/// The rows of one aggregation.
#[derive(Debug)]
pub(super) struct Table {
    rows: BTreeMap<RowId, Row>,
    /// The selected row, regardless of its position; `None` for the first row.
    selected: Option<RowId>,
    /// Number of rows above the first one that is shown.
    pub(super) offset: usize,
    pub(super) sort: Sort,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            selected: None,
            offset: 0,
            sort: Sort::by(Column::Rate),
        }
    }
}

/// The state of `maglor top`.
#[derive(Debug)]
pub(super) struct State {
    by: By,
    wide: bool,
    workloads: Table,
    services: Table,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// Whether measurements are ignored, so that the screen can be read or copied.
    pub(super) paused: bool,
    /// Whether the terminal reports mouse events instead of selecting text.
    pub(super) mouse: bool,
    /// Why the last scrape failed for some or all proxies.
    pub(super) errors: Vec<String>,
    /// Time of the last measurement, since the start; `None` if there is none.
    measured: Option<Duration>,
    /// Number of rows that fit on the screen.
    height: usize,
}

impl State {
    pub(super) fn new(by: By, wide: bool) -> Self {
        Self {
            by,
            wide,
            workloads: Table::default(),
            services: Table::default(),
            filter: String::new(),
            mode: Mode::Browse,
            paused: false,
            mouse: false,
            errors: Vec::new(),
            measured: None,
            height: 1,
        }
    }

    pub(super) fn by(&self) -> By {
        self.by
    }

    /// Replaces the measurements.
    pub(super) fn update(&mut self, sample: Sample, now: Duration) {
        if self.paused {
            return;
        }
        let all_responded = sample.silent.is_empty();
        self.workloads.update(sample.workloads, all_responded);
        self.services.update(sample.services, all_responded);
        self.errors = sample.silent;
        self.measured = Some(now);
    }

    /// Keeps the last measurements, because no proxy has responded.
    pub(super) fn failed(&mut self, error: String) {
        if !self.paused {
            self.errors = vec![error];
        }
    }

    /// Returns the age of the measurements; `None` if there are none.
    pub(super) fn age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.measured?))
    }

    pub(super) fn table(&self) -> &Table {
        match self.by {
            By::Workloads => &self.workloads,
            By::Services => &self.services,
        }
    }

    fn table_mut(&mut self) -> &mut Table {
        match self.by {
            By::Workloads => &mut self.workloads,
            By::Services => &mut self.services,
        }
    }

    /// Returns the number of rows, including those that the filter hides.
    pub(super) fn count(&self) -> usize {
        self.table().rows.len()
    }

    /// Returns the rows that match the filter, in order.
    pub(super) fn rows(&self) -> Vec<(&RowId, &Row)> {
        let table = self.table();
        let wanted = self.filter.to_lowercase();
        let matches = |id: &RowId| {
            let names = [
                id.namespace.as_ref(),
                Some(&id.workload),
                id.service.as_ref(),
            ];
            let mut names = names.into_iter().flatten();
            wanted.is_empty() || names.any(|name| name.to_lowercase().contains(&wanted))
        };
        let mut rows: Vec<_> = table.rows.iter().filter(|(id, _)| matches(id)).collect();
        let Sort { column, reverse } = table.sort;
        // Rows with equal values are ordered by name, so that they do not swap positions.
        rows.sort_by(|(x, a), (y, b)| column.compare(a, b, reverse).then_with(|| x.cmp(y)));
        rows
    }

    pub(super) fn content(&self) -> Content {
        Content::of(self.table().rows.values(), self.by, self.wide)
    }

    /// Returns the position of the selected row: 0 if the row is not shown, `None` if there are no rows.
    pub(super) fn selected(&self) -> Option<usize> {
        let rows = self.rows();
        let wanted = self.table().selected.as_ref();
        let place = rows.iter().position(|(id, _)| Some(*id) == wanted);
        place.or((!rows.is_empty()).then_some(0))
    }

    /// Adapts to the number of rows that fit, so that the selected row stays on the screen.
    pub(super) fn fit(&mut self, height: usize) {
        let (count, selected) = (self.rows().len(), self.selected().unwrap_or(0));
        self.height = height.max(1);
        let last = count.saturating_sub(self.height);
        let lowest = (selected + 1).saturating_sub(self.height);
        let table = self.table_mut();
        table.offset = table.offset.clamp(lowest, selected.max(lowest)).min(last);
    }

    /// Selects the row at a position, or the last row.
    pub(super) fn select(&mut self, place: usize) {
        let rows = self.rows();
        let place = place.min(rows.len().saturating_sub(1));
        let id = rows.get(place).map(|(id, _)| (*id).clone());
        self.table_mut().selected = id;
    }

    /// Moves the selection.
    pub(super) fn step(&mut self, rows: isize) {
        if let Some(selected) = self.selected() {
            self.select(selected.saturating_add_signed(rows));
        }
    }

    /// Returns the number of rows on a page.
    pub(super) fn page(&self) -> isize {
        isize::try_from(self.height).unwrap_or(isize::MAX)
    }

    /// Sorts by a column, or reverses the order if it was already sorted by this column.
    pub(super) fn sort(&mut self, column: Column) {
        let sort = &mut self.table_mut().sort;
        *sort = match sort.column == column {
            true => Sort {
                reverse: !sort.reverse,
                ..*sort
            },
            false => Sort::by(column),
        };
    }

    /// Sorts by the next column to the right, or to the left.
    pub(super) fn sort_by_next(&mut self, right: bool) {
        let columns = self.content().sortable();
        let current = self.table().sort.column;
        let at = columns.iter().position(|column| *column == current);
        let next = match (at, right) {
            (Some(at), true) => (at + 1) % columns.len(),
            (Some(at), false) => (at + columns.len() - 1) % columns.len(),
            (None, _) => 0,
        };
        if let Some(column) = columns.get(next) {
            self.table_mut().sort = Sort::by(*column);
        }
    }

    /// Shows the other aggregation.
    pub(super) fn switch(&mut self) {
        self.by = match self.by {
            By::Workloads => By::Services,
            By::Services => By::Workloads,
        };
    }
}

impl Table {
    /// Replaces the rows. If a proxy has not responded, missing rows are kept, because they may be missing only for
    /// this reason.
    fn update(&mut self, lines: Vec<Line>, all_responded: bool) {
        for row in self.rows.values_mut() {
            row.stale = true;
        }
        for line in lines {
            let id = RowId::of(&line);
            match self.rows.get_mut(&id) {
                Some(row) => row.measure(line),
                None => drop(self.rows.insert(id, Row::new(line))),
            }
        }
        if all_responded {
            self.rows.retain(|_, row| !row.stale);
        }
    }
}
