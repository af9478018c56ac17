//! The objective of a placement (Algorithm 3, step 2): the weight of an edge.

use crate::graph::Graph;

/// The quantity that is the weight of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Objective {
    /// The number of bytes per second.
    Bytes,
    /// λ times the delay between the nodes: milliseconds of network time per second. If no delays are known, it is
    /// equivalent to `Traffic`.
    Latency,
    /// A combination of λ and r, each relative to its sum over all edges.
    Mix {
        /// The share of r, the response time, from 0 (only traffic) to 1 (only response time).
        response: f64,
    },
    /// λ: the number of calls per second.
    #[default]
    Traffic,
}

impl Objective {
    /// Returns whether the objective depends on the delays between nodes.
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
