//! The τ rule, step 5 of Algorithm 3: if calls leave their node and take longer than τ, the called service moves to the
//! node of its caller, as far as there is capacity.
//!
//! In the paper, each edge is treated independently of the others, so two callers could move a service back and forth.
//! Here a move has to lower the traffic of all such edges together; so the rule terminates.

use crate::graph::Graph;
use crate::placement_search::{Problem, State};

/// The edges whose response time exceeds τ, beginning with the slowest.
pub(crate) struct LateEdges {
    edges: Vec<(usize, usize, f64)>,
}

impl LateEdges {
    pub(crate) fn new(graph: &Graph, tau_ms: f64) -> Self {
        let edges = graph.edges().iter();
        let mut late: Vec<_> = edges
            .filter(|edge| edge.latency_ms > tau_ms && edge.from != edge.to)
            .collect();
        late.sort_by(|a, b| {
            b.latency_ms
                .total_cmp(&a.latency_ms)
                .then(b.rps.total_cmp(&a.rps))
        });
        let edges = late.iter().map(|edge| (edge.from, edge.to, edge.rps));
        Self {
            edges: edges.collect(),
        }
    }

    /// Moves called services to their callers; returns whether any replica has moved.
    pub(crate) fn pull(&self, problem: &Problem, state: &mut State) -> bool {
        let mut moved = false;
        for &(caller, called, _) in &self.edges {
            while self.pull_one(problem, state, caller, called) {
                moved = true;
            }
        }
        state.recount(problem);
        moved
    }

    /// Moves one replica of `called` to a node where `caller` has too few of them; returns whether one has moved.
    fn pull_one(&self, problem: &Problem, state: &mut State, caller: usize, called: usize) -> bool {
        let gap = |node: usize| state.share(caller, node) - state.share(called, node);
        let nodes = 0..problem.nodes;
        let short = nodes
            .clone()
            .filter(|&n| gap(n) > 0.0 && state.takes(problem, called, n))
            .filter(|&n| !problem.is_barred(called, n));
        let Some(to) = short.max_by(|&a, &b| gap(a).total_cmp(&gap(b))) else {
            return false;
        };
        let runs = nodes.filter(|&n| state.count(called, n) > 0 && gap(n) < 0.0);
        let Some(from) = runs.min_by(|&a, &b| gap(a).total_cmp(&gap(b))) else {
            return false;
        };
        // A gain below rounding errors does not count: the same move could be made and undone in an endless loop.
        if self.change(problem, state, called, from, to) >= -1e-9 * self.weight(called) {
            return false;
        }
        let Some(unit) = state.unit_on(problem, called, from) else {
            return false;
        };
        let delta = state.delta(problem, called, from, to);
        state.apply(problem, unit, to, delta);
        true
    }

    /// Returns the weight of all late edges of a service.
    fn weight(&self, s: usize) -> f64 {
        let own = self.edges.iter().filter(|(u, v, _)| *u == s || *v == s);
        own.map(|(_, _, rps)| rps).sum()
    }

    /// Returns by how much a move changes the traffic of late edges that leaves its node.
    fn change(&self, problem: &Problem, state: &State, s: usize, from: usize, to: usize) -> f64 {
        let step = problem.step[s];
        let (p, q) = (state.share(s, from), state.share(s, to));
        let change = |other: usize| {
            let (a, b) = (state.share(other, from), state.share(other, to));
            if problem.even {
                return 2.0 * step * (a - b);
            }
            (p - step - a).abs() - (p - a).abs() + (q + step - b).abs() - (q - b).abs()
        };
        let own = self.edges.iter().filter(|(u, v, _)| *u == s || *v == s);
        let changes = own.map(|&(u, v, rps)| rps * change(if u == s { v } else { u }));
        0.5 * changes.sum::<f64>()
    }
}
