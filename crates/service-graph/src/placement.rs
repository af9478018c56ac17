//! A placement: replicas of each service by node, and the traffic across nodes.
//!
//! The cut of an edge u → v is its rate times the share of its calls that leave their node, when
//! each node's calls go to local replicas first as far as an even share allows. Let p(n) be the
//! share of u's replicas that node n runs, and q(n) the share of v's. Calls begin at the callers:
//! node n makes λ·p(n) of them. An even share of the edge's calls for v's replicas on n is λ·q(n).
//! So λ·min(p(n), q(n)) stay, and
//!
//! ```text
//! cut = λ · (1 − Σₙ min(p(n), q(n))) = λ · ½ Σₙ |p(n) − q(n)|
//! ```
//!
//! the total variation distance of the two distributions. It is 0 exactly if they are the same, λ
//! if no node runs both, and the same in both directions. With one replica a service it is the
//! classical edge cut. That is [`Routing::LocalFirst`]; with [`Routing::Even`] only λ·Σ p(n)·q(n) stay.

use std::collections::BTreeMap;

use crate::graph::Graph;
use crate::node::Nodes;
use crate::routing::Routing;

/// The number of replicas of each service on each node, in the order of a graph's services and of the nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placement {
    nodes: usize,
    counts: Vec<u32>,
}

impl Placement {
    /// Creates an empty placement.
    #[must_use]
    pub fn empty(services: usize, nodes: usize) -> Self {
        Self {
            nodes,
            counts: vec![0; services * nodes],
        }
    }

    /// Creates a placement from counts, with a row of `nodes` for each service.
    pub(crate) fn from_counts(nodes: usize, counts: Vec<u32>) -> Self {
        Self { nodes, counts }
    }

    /// Returns the number of replicas of a service on each node; empty for an unknown service.
    #[must_use]
    pub fn service(&self, service: usize) -> &[u32] {
        let from = service.saturating_mul(self.nodes);
        let to = from.saturating_add(self.nodes);
        self.counts.get(from..to).unwrap_or_default()
    }

    /// Returns the number of replicas of a service by node name, without nodes that have none.
    #[must_use]
    pub fn by_node(&self, service: usize, nodes: &Nodes) -> BTreeMap<String, u32> {
        let counts = self.service(service).iter().zip(nodes.all());
        let placed = counts.filter(|(count, _)| **count > 0);
        placed
            .map(|(count, node)| (node.name.clone(), *count))
            .collect()
    }

    /// Sets the number of replicas of a service on a node; indices out of range are ignored.
    pub fn set(&mut self, service: usize, node: usize, replicas: u32) {
        if node < self.nodes
            && let Some(count) = self.counts.get_mut(service * self.nodes + node)
        {
            *count = replicas;
        }
    }

    pub(crate) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Returns the number of replicas that have to be started on nodes where they do not run in `before`, not counting
    /// additional replicas of a service.
    #[must_use]
    pub fn moves_from(&self, before: &Self) -> u64 {
        let services = self.counts.len() / self.nodes.max(1);
        let moves = (0..services).map(|service| {
            let (now, then) = (self.service(service), before.service(service));
            let then = |node| then.get(node).copied().unwrap_or(0);
            let sum = |counts: &mut dyn Iterator<Item = u32>| counts.map(u64::from).sum::<u64>();
            let placed = sum(&mut now.iter().copied());
            let kept = sum(&mut now.iter().enumerate().map(|(n, &c)| c.min(then(n))));
            let had = sum(&mut before.service(service).iter().copied());
            placed.min(had) - kept
        });
        moves.sum()
    }

    /// Returns the number of calls per second that leave their node, with local-first routing.
    #[must_use]
    pub fn cut(&self, graph: &Graph) -> f64 {
        self.cut_by(graph, Routing::LocalFirst)
    }

    /// Returns the number of calls per second that leave their node, with the given routing.
    #[must_use]
    pub fn cut_by(&self, graph: &Graph, routing: Routing) -> f64 {
        let share = |from, to| match routing {
            Routing::Even => self.even_remote_share(from, to),
            Routing::LocalFirst => self.remote_share(from, to),
        };
        let edges = graph.edges().iter();
        // An empty sum of floating point numbers is -0.
        edges.fold(0.0, |sum, edge| sum + edge.rps * share(edge.from, edge.to))
    }

    /// Returns the share of the calls from one service to another that leave their node, 0 to 1, with local-first
    /// routing; 0 while one of the services is not placed.
    #[must_use]
    pub fn remote_share(&self, from: usize, to: usize) -> f64 {
        let (u, v) = (self.service(from), self.service(to));
        let total = |counts: &[u32]| counts.iter().map(|&c| u64::from(c)).sum::<u64>();
        let (all_u, all_v) = (total(u), total(v));
        if all_u == 0 || all_v == 0 {
            return 0.0;
        }
        // Over one denominator, so that equal distributions give exactly 0.
        let apart: u64 = u
            .iter()
            .zip(v)
            .map(|(&a, &b)| (u64::from(a) * all_v).abs_diff(u64::from(b) * all_u))
            .sum();
        0.5 * apart as f64 / (all_u as f64 * all_v as f64)
    }

    /// Returns the share of the calls that leave their node if every replica is equally likely to be called.
    fn even_remote_share(&self, from: usize, to: usize) -> f64 {
        let (u, v) = (self.service(from), self.service(to));
        let total = |counts: &[u32]| counts.iter().map(|&c| u64::from(c)).sum::<u64>();
        let all = total(u) * total(v);
        let stays = u.iter().zip(v).map(|(&a, &b)| u64::from(a) * u64::from(b));
        match all {
            0 => 0.0,
            all => (all - stays.sum::<u64>()) as f64 / all as f64,
        }
    }

    /// Returns the load of each node: thousandths of a core, MiB, number of pods.
    #[must_use]
    pub fn loads(&self, graph: &Graph) -> Vec<[u64; 3]> {
        let mut loads = vec![[0; 3]; self.nodes];
        for (index, service) in graph.services().iter().enumerate() {
            for (load, &count) in loads.iter_mut().zip(self.service(index)) {
                let count = u64::from(count);
                load[0] += service.cpu_millis * count;
                load[1] += service.memory_mib * count;
                load[2] += count;
            }
        }
        loads
    }

    /// Returns whether every replica is placed and no node is overloaded.
    #[must_use]
    pub fn is_feasible(&self, graph: &Graph, nodes: &Nodes) -> bool {
        let placed = graph.services().iter().enumerate().all(|(index, service)| {
            let counts = self.service(index);
            let limit = service
                .max_per_node
                .map_or(u32::MAX, std::num::NonZero::get);
            counts.iter().all(|&count| count <= limit)
                && counts.iter().map(|&c| u64::from(c)).sum::<u64>()
                    == u64::from(service.replicas.get())
        });
        let fits = self
            .loads(graph)
            .iter()
            .zip(nodes.all())
            .all(|(load, node)| {
                load[0] <= node.cpu_millis
                    && load[1] <= node.memory_mib
                    && node.pods.is_none_or(|pods| load[2] <= pods)
            });
        placed && fits
    }
}
