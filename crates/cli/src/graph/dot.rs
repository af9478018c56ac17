//! Writes the graph in the format of Graphviz.

use std::fmt::Write as _;

use maglor_controller::graph::Snapshot;

/// Writes the graph. Edges are labelled with λ and r, services with replicas, and with CPU and memory if these are
/// known.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut text = "digraph mesh {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n".to_owned();
    for service in &snapshot.services {
        let label = super::labels::lines(service).join("\n");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {} [label={}];",
            quoted(&service.name),
            quoted(&label)
        );
    }
    let width = super::svg::widths(snapshot);
    for edge in &snapshot.edges {
        let label = super::labels::traffic(edge);
        let width = width(edge);
        let _ = writeln!(
            text,
            "  {} -> {} [label={}, penwidth={width:.2}];",
            quoted(&edge.from),
            quoted(&edge.to),
            quoted(&label),
        );
    }
    text + "}\n"
}

fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use maglor_controller::graph::{Edge, Service};

    use super::*;

    #[test]
    fn names_are_quoted() {
        let snapshot = Snapshot {
            services: vec![Service {
                name: "a\"b\\".to_owned(),
                replicas: 2,
                ..Service::default()
            }],
            edges: vec![Edge {
                from: "a\"b\\".to_owned(),
                to: "c".to_owned(),
                rps: 12.0,
                latency_ms: 3.25,
                ..Edge::default()
            }],
            ..Snapshot::default()
        };
        let text = text(&snapshot);
        assert!(
            text.contains(r#""a\"b\\" -> "c" [label="12/s · 3.25 ms", penwidth=4.50];"#),
            "{text}"
        );
    }
}
