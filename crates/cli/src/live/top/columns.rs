//! The columns of `maglor top`: their cells and order, and which of them fit into a terminal.

use std::cmp::Ordering;

use super::rows::Row;
use crate::live::served::short;
use crate::live::stat::{By, Line};

/// Maximum width of a name.
const LONGEST_NAME: usize = 40;
/// Maximum width of a name while other columns do not fit.
const USUAL_NAME: usize = 24;
/// Maximum width of a sparkline.
const LONGEST_TREND: usize = 60;

/// A column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Column {
    /// Symbol of the row's health.
    Health,
    Namespace,
    Workload,
    /// The called service.
    Calls,
    Trend,
    Rate,
    Success,
    P50,
    P95,
    P99,
    Mtls,
    Retries,
    Ejected,
    Ejections,
    Proxies,
}

use Column::{
    Calls, Ejected, Ejections, Health, Mtls, Namespace, P50, P95, P99, Proxies, Rate, Retries,
    Success, Trend, Workload,
};

/// All columns from left to right.
const ORDER: [Column; 15] = [
    Health, Namespace, Workload, Calls, Rate, Trend, Success, P50, P95, P99, Mtls, Retries,
    Ejected, Ejections, Proxies,
];

/// Columns of workloads, the most important first: a narrow terminal shows as many of them as fit.
const OF_WORKLOADS: [Column; 11] = [
    Workload, Health, Rate, Success, P99, Trend, Namespace, P50, P95, Mtls, Proxies,
];
/// Columns of calls, the most important first.
const OF_SERVICES: [Column; 14] = [
    Calls, Workload, Health, Rate, Success, P99, Trend, Ejected, Namespace, P50, Retries, P95,
    Mtls, Proxies,
];

/// A column and its width.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fitted {
    pub(super) column: Column,
    pub(super) width: usize,
}

/// The content that determines the widths of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) by: By,
    /// Whether to include the columns of `-o wide`.
    pub(super) wide: bool,
    /// Lengths of the longest namespace, workload and service. Outside of Kubernetes, there is no namespace.
    pub(super) namespace: usize,
    pub(super) workload: usize,
    pub(super) calls: usize,
}

impl Content {
    /// Measures rows.
    pub(super) fn of<'a>(rows: impl Iterator<Item = &'a Row>, by: By, wide: bool) -> Self {
        let mut content = Self {
            by,
            wide,
            namespace: 0,
            workload: 0,
            calls: 0,
        };
        for row in rows {
            let longer = |than: usize, column: Column| {
                let length = column.cell(row, 0).chars().count();
                than.max(length.min(LONGEST_NAME))
            };
            if row.line.namespace.is_some() {
                content.namespace = longer(content.namespace, Namespace);
            }
            content.workload = longer(content.workload, Workload);
            content.calls = longer(content.calls, Calls);
        }
        content
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = match self.by {
            By::Workloads => OF_WORKLOADS.to_vec(),
            By::Services => OF_SERVICES.to_vec(),
        };
        if self.wide && self.by == By::Services {
            columns.push(Ejections);
        }
        let absent = |column: &Column| match column {
            Namespace => self.namespace == 0,
            Proxies => !self.wide,
            _ => false,
        };
        columns.retain(|column| !absent(column));
        columns
    }

    /// Returns the columns by which rows can be sorted, from left to right.
    pub(super) fn sortable(&self) -> Vec<Column> {
        let columns = self.columns();
        let wanted =
            |column: &Column| columns.contains(column) && !matches!(column, Health | Trend);
        ORDER.into_iter().filter(wanted).collect()
    }

    /// Returns the columns that fit into a width, from left to right, each followed by a space. Names get their full
    /// widths before there are more than the essential columns.
    pub(super) fn fit(&self, width: usize) -> Vec<Fitted> {
        let columns = self.columns();
        let essential = columns.iter().position(|column| *column == P99);
        let essential = &columns[..essential.map_or(columns.len(), |at| at + 1)];
        let names = |column: Column| match column {
            Workload => self.workload.clamp(column.least(self.by), USUAL_NAME),
            Calls => self.calls.clamp(column.least(self.by), USUAL_NAME),
            _ => column.least(self.by),
        };
        let full: usize = essential.iter().map(|column| names(*column) + 1).sum();
        let (mut fitted, mut left) = match full <= width + 1 {
            true => take(&columns, width, names),
            false => take(essential, width, |column| column.least(self.by)),
        };
        for (column, most) in [
            (Workload, self.workload),
            (Calls, self.calls),
            (Namespace, self.namespace),
            (Trend, LONGEST_TREND),
        ] {
            if let Some(one) = fitted.iter_mut().find(|one| one.column == column) {
                let more = most.saturating_sub(one.width).min(left);
                one.width += more;
                left -= more;
            }
        }
        let place = |one: &Fitted| ORDER.iter().position(|column| *column == one.column);
        fitted.sort_by_key(place);
        fitted
    }
}

/// Takes columns as long as they fit; returns them and the remaining width.
fn take(columns: &[Column], width: usize, of: impl Fn(Column) -> usize) -> (Vec<Fitted>, usize) {
    let mut left = width;
    let mut fitted = Vec::new();
    for column in columns {
        let (width, space) = (of(*column), usize::from(!fitted.is_empty()));
        if width + space > left {
            break;
        }
        left -= width + space;
        fitted.push(Fitted {
            column: *column,
            width,
        });
    }
    (fitted, left)
}

impl Column {
    /// Returns the minimum useful width, including an arrow after the title.
    fn least(self, by: By) -> usize {
        match self {
            Health => 1,
            Workload if by == By::Services => 8,
            Namespace | Calls => 11,
            Workload => 12,
            P50 | P95 | P99 => 7,
            Mtls => 5,
            Trend | Ejections => 10,
            Rate | Success | Retries | Ejected | Proxies => 8,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Health => "",
            Namespace => "NAMESPACE",
            Workload => "WORKLOAD",
            Calls => "CALLS",
            Trend => "TREND",
            Rate => "REQ/S",
            Success => "SUCCESS",
            P50 => "P50 ms",
            P95 => "P95 ms",
            P99 => "P99 ms",
            Mtls => "MTLS",
            Retries => "RETRIES",
            Ejected => "EJECTED",
            Ejections => "EJECTIONS",
            Proxies => "PROXIES",
        }
    }

    /// Returns whether the column is right-aligned, like numbers.
    pub(super) fn is_number(self) -> bool {
        !matches!(self, Health | Namespace | Workload | Calls | Trend)
    }

    /// Returns whether sorting by the column starts with the highest values.
    pub(super) fn is_highest_first(self) -> bool {
        self.is_number() && !matches!(self, Success | Mtls)
    }

    /// Formats the cell of a row; only sparklines depend on the width.
    pub(super) fn cell(self, row: &Row, width: usize) -> String {
        let line = &row.line;
        let text = |value: Option<&String>| value.map_or_else(|| "-".to_owned(), Clone::clone);
        match self {
            Health => match row.health() {
                Some(health) => health.sign().to_owned(),
                None => "·".to_owned(),
            },
            Namespace => text(line.namespace.as_ref()),
            Workload => line.workload.clone(),
            Calls => text(line.service.as_deref().map(short).as_ref()),
            Trend => row.trend(width),
            Success => text(
                line.success
                    .map(|share| format!("{:.2} %", share * 100.0))
                    .as_ref(),
            ),
            Mtls => text(
                line.mtls
                    .map(|share| format!("{:.0} %", share * 100.0))
                    .as_ref(),
            ),
            Rate | P50 | P95 | P99 => {
                text(self.value(line).map(|value| format!("{value:.1}")).as_ref())
            }
            Retries | Ejected | Ejections | Proxies => {
                text(self.value(line).map(|value| format!("{value:.0}")).as_ref())
            }
        }
    }

    fn value(self, line: &Line) -> Option<f64> {
        let calls = line.calls.as_ref();
        match self {
            Rate => line.rps,
            Success => line.success,
            P50 => line.p50_ms,
            P95 => line.p95_ms,
            P99 => line.p99_ms,
            Mtls => line.mtls,
            Retries => calls.map(|calls| calls.retries),
            Ejected => calls.map(|calls| calls.ejected_now),
            Ejections => calls.map(|calls| calls.ejections),
            Proxies => Some(line.proxies as f64),
            Health | Namespace | Workload | Calls | Trend => None,
        }
    }

    /// Compares two rows, for the order from the lowest to the highest value. Absent values are last in either
    /// direction.
    pub(super) fn compare(self, a: &Row, b: &Row, reverse: bool) -> Ordering {
        let directed = |order: Ordering| match reverse {
            true => order.reverse(),
            false => order,
        };
        let (x, y) = (&a.line, &b.line);
        match self {
            Namespace => directed(x.namespace.cmp(&y.namespace)),
            Workload | Health | Trend => directed(x.workload.cmp(&y.workload)),
            Calls => directed(x.service.cmp(&y.service)),
            _ => match (self.value(x), self.value(y)) {
                (Some(x), Some(y)) => directed(x.total_cmp(&y)),
                (x, y) => y.is_some().cmp(&x.is_some()),
            },
        }
    }
}
