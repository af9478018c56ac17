//! The objective of a placement (Algorithm 3, step 2): the weight of an edge.

use crate::graph::Graph;

/// The weight of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Objective {
    /// Its bytes a second.
    Bytes,
    /// λ times the delay between the nodes: milliseconds of network time per second. The same as
    /// traffic if no delays between nodes are known.
    Latency,
    /// A combination of λ and r, each relative to its sum over all edges.
    Mix {
        /// The share of r, the response time, from 0 (only traffic) to 1 (only response time).
        response: f64,
    },
    /// λ: calls a second.
    #[default]
    Traffic,
}

impl Objective {
    /// Returns whether it depends on the distances of nodes.
    #[must_use]
    pub fn is_by_distance(&self) -> bool {
        matches!(self, Self::Latency)
    }
}

/// Returns the weight of each edge.
pub(crate) fn weights(graph: &Graph, objective: &Objective) -> Vec<f64> {
    let edges = graph.edges();
    let all_rps: f64 = edges.iter().map(|edge| edge.rps).sum();
    let all_ms: f64 = edges.iter().map(|edge| edge.latency_ms).sum();
    let part = |value: f64, all: f64| if all > 0.0 { value / all } else { 0.0 };
    let weight = |edge: &crate::graph::Edge| match objective {
        Objective::Bytes => edge.bytes_per_second,
        Objective::Latency | Objective::Traffic => edge.rps,
        Objective::Mix { response } => {
            let traffic = (1.0 - response) * part(edge.rps, all_rps);
            // In calls per second, so that a mixture of traffic alone is the traffic.
            (traffic + response * part(edge.latency_ms, all_ms)) * all_rps
        }
    };
    edges.iter().map(weight).collect()
}
