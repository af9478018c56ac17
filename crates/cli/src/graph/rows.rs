//! The graph as tables.

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
        Column::number("FAILED"),
        Column::number("kB/s"),
        Column::number("IN FLIGHT"),
    ];

    fn cells(&self) -> Vec<String> {
        let failed = match self.rps > 0.0 {
            true => 100.0 * self.failures / self.rps,
            false => 0.0,
        };
        vec![
            self.from.clone(),
            self.to.clone(),
            format!("{:.1}", self.rps),
            format!("{:.2}", self.latency_ms),
            format!("{failed:.1} %"),
            format!("{:.1}", self.bytes_per_second / 1000.0),
            format!("{:.0}", self.in_flight),
        ]
    }
}

/// Services, then calls.
pub(super) fn text(snapshot: &Snapshot) -> String {
    format!(
        "{}\n{}\n{}, averages over {} s\n",
        table::text(&snapshot.services, Format::Table),
        table::text(&snapshot.edges, Format::Table),
        snapshot.at,
        snapshot.window_seconds,
    )
}
