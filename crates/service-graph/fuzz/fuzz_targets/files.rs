//! Any text is a graph, nodes or a placement, or is refused with a message that can be shown; what
//! is parsed can be placed, and a placement fits.
//!
//! From crates/service-graph:
//!
//! ```text
//! cargo +nightly fuzz run files -- -max_total_time=60
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_service_graph::prometheus::{self, Mesh, Quantity};
use maglor_service_graph::{Options, Outcome, file, partition};

fuzz_target!(|text: &str| {
    // Two files in one, so that both grow together.
    let (first, second) = text.split_once("\n---\n").unwrap_or((text, text));
    let (graph, nodes) = (file::graph(first), file::nodes(second));
    let errors = [graph.as_ref().err(), nodes.as_ref().err()];
    for error in errors.into_iter().flatten() {
        assert!(!error.to_string().is_empty());
        assert!(error.line() != Some(0));
    }
    if let Err(error) = file::placement(first) {
        assert!(!error.to_string().is_empty());
    }
    prometheus_answer(first);
    let (Ok(graph), Ok(nodes)) = (graph, nodes) else {
        return;
    };
    if graph.replicas() > 20 || nodes.all().len() > 5 {
        return;
    }
    let options = Options {
        effort: 0.001,
        ..Options::default()
    };
    if let Ok(Outcome::Placed(plan)) = partition(&graph, &nodes, None, &options) {
        assert!(plan.placement.is_feasible(&graph, &nodes));
    }
});

/// Any Prometheus response is parsed or rejected, and parsed traffic is a valid graph.
fn prometheus_answer(text: &str) {
    match file::prometheus::answer(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(samples) => {
            for mesh in [Mesh::Istio, Mesh::Linkerd, Mesh::Maglor] {
                let answers = [
                    (Quantity::Requests, samples.clone()),
                    (Quantity::Times, samples.clone()),
                ];
                for seen in prometheus::edges(mesh, &answers).values() {
                    let traffic = seen.traffic;
                    assert!(traffic.rps.is_finite() && traffic.latency_ms.is_finite());
                }
            }
        }
    }
}
