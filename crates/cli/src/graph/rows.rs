//! Prints the graph as tables.

use maglor_controller::graph::delays::Delay;
use maglor_controller::graph::{Edge, Service, Snapshot};

use crate::live::table::{self, Column, Format, Row, or_dash};

impl Row for Service {
    const COLUMNS: &'static [Column] = &[
        Column::text("SERVICE"),
        Column::number("REPLICAS"),
        Column::number("λ/s"),
        Column::number("IN FLIGHT"),
        Column::number("CPU m"),
        Column::number("USED"),
        Column::number("MEMORY MiB"),
        Column::number("USED"),
    ];

    fn cells(&self) -> Vec<String> {
        let used = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.0}")));
        let requested = |value: u64| or_dash((value > 0).then(|| value.to_string()));
        vec![
            self.name.clone(),
            self.replicas.to_string(),
            format!("{:.1}", self.rps),
            format!("{:.0}", self.pending),
            requested(self.cpu_millis),
            used(self.cpu_used_millis),
            requested(self.memory_mib),
            used(self.memory_used_mib),
        ]
    }
}

impl Row for Edge {
    const COLUMNS: &'static [Column] = &[
        Column::text("FROM"),
        Column::text("TO"),
        Column::number("λ/s"),
        Column::number("r ms"),
        Column::number("p50"),
        Column::number("p99"),
        Column::number("FAILED"),
        Column::number("kB/s"),
        Column::number("CONN/s"),
        Column::number("IN FLIGHT"),
    ];

    fn cells(&self) -> Vec<String> {
        // TCP connections have no response times and no known failures.
        let called = (self.rps > 0.0).then_some(self.rps);
        let time = |time: Option<f64>| or_dash(time.map(|time| format!("{time:.2}")));
        let failed = called.map(|rps| format!("{:.1} %", 100.0 * self.failures / rps));
        vec![
            self.from.clone(),
            self.to.clone(),
            format!("{:.1}", self.rps),
            time(called.map(|_| self.latency_ms)),
            time(self.p50_ms),
            time(self.p99_ms),
            or_dash(failed),
            format!("{:.1}", self.bytes_per_second / 1000.0),
            format!("{:.1}", self.connections_per_second),
            format!("{:.0}", self.in_flight),
        ]
    }
}

impl Row for Delay {
    const COLUMNS: &'static [Column] = &[
        Column::text("NODE"),
        Column::text("NODE"),
        Column::number("DELAY ms"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.from.clone(),
            self.to.clone(),
            format!("{:.3}", self.ms),
        ]
    }
}

/// Prints services, then calls, then delays between nodes.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let delays = match snapshot.delays.is_empty() {
        true => String::new(),
        false => table::text(&snapshot.delays, Format::Table) + "\n",
    };
    format!(
        "{}\n{}\n{delays}{}, averages over {} s\n",
        table::text(&snapshot.services, Format::Table),
        table::text(&snapshot.edges, Format::Table),
        snapshot.at,
        snapshot.window_seconds,
    )
}
