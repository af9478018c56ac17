//! Prints the graph as tables.

use maglor_controller::graph::delays::Delay;
use maglor_controller::graph::{Edge, Service, Snapshot};

use super::form::Kind;
use crate::live::table::{self, Column, Format, Row, or_dash};

impl Row for Service {
    const COLUMNS: &'static [Column] = &[
        Column::text("SERVICE").of("name"),
        Column::number("REPLICAS").of("replicas"),
        Column::number("λ/s").of("rps"),
        Column::number("IN FLIGHT").of("pending"),
        Column::number("CPU m").of("cpu_millis"),
        Column::number("USED").of("cpu_used_millis"),
        Column::number("MEMORY MiB").of("memory_mib"),
        Column::number("USED").of("memory_used_mib"),
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
        Column::text("FROM").of("from"),
        Column::text("TO").of("to"),
        Column::number("λ/s").of("rps"),
        Column::number("r ms").of("latency_ms"),
        Column::number("p50").of("p50_ms"),
        Column::number("p99").of("p99_ms"),
        Column::number("FAILED").of("failures"),
        Column::number("kB/s").of("bytes_per_second"),
        Column::number("CONN/s").of("connections_per_second"),
        Column::number("IN FLIGHT").of("in_flight"),
    ];

    fn cells(&self) -> Vec<String> {
        // TCP connections have no response times, and their failures are unknown.
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
        Column::text("NODE").of("from"),
        Column::text("NODE").of("to"),
        Column::number("DELAY ms").of("ms"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.from.clone(),
            self.to.clone(),
            format!("{:.3}", self.ms),
        ]
    }
}

/// Formats services, calls and delays between nodes, or only one of these. CSV has a single header, so it contains
/// only one of them.
pub(super) fn text(snapshot: &Snapshot, format: Format, only: Option<Kind>) -> String {
    match (only, format) {
        (Some(Kind::Services), _) => table::formatted(&snapshot.services, format),
        (Some(Kind::Calls), _) | (None, Format::Csv) => table::formatted(&snapshot.edges, format),
        (Some(Kind::Delays), _) => table::formatted(&snapshot.delays, format),
        (None, Format::Json | Format::Yaml) => table::serialized(snapshot, format),
        (None, Format::Table | Format::Wide) => tables(snapshot, format),
    }
}

fn tables(snapshot: &Snapshot, format: Format) -> String {
    let delays = match snapshot.delays.is_empty() {
        true => String::new(),
        false => table::text(&snapshot.delays, format) + "\n",
    };
    format!(
        "{}\n{}\n{delays}{}, averages over {} s\n",
        table::text(&snapshot.services, format),
        table::text(&snapshot.edges, format),
        snapshot.at,
        snapshot.window_seconds,
    )
}
