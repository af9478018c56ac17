//! How calls are routed to the replicas of a service, which determines the traffic across nodes.

use crate::graph::Graph;

/// See the module's documentation. p(n) and q(n) are the parts of the caller's and of the called service's
/// replicas on node n; each way has its share of an edge's calls that leave their node. Calls of a service
/// to itself are never local by design; the search does not weigh them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Routing {
    /// Every replica is as likely as any other, wherever the call comes from: 1 − Σ p(n)·q(n). What a
    /// default of the mesh.
    Even,
    /// Local replicas first, as far as an even share allows: 1 − Σ min(p(n), q(n)), the total variation
    /// distance.
    #[default]
    LocalFirst,
}

impl Routing {
    /// The way of most calls: local replicas first where that holds for services, by name, that take more than
    /// half of all.
    #[must_use]
    pub fn of_most(graph: &Graph, is_local_first: impl Fn(&str) -> bool) -> Self {
        let services = graph.services();
        let local = graph.edges().iter().filter(|edge| {
            let called = services.get(edge.to);
            called.is_some_and(|service| is_local_first(&service.name))
        });
        match local.map(|edge| edge.rps).sum::<f64>() * 2.0 > graph.rps() {
            true => Self::LocalFirst,
            false => Self::Even,
        }
    }
}
