//! How calls are routed to the replicas of a service, which determines the traffic across nodes.

use crate::graph::Graph;

/// The routing of calls. p(n) and q(n) are the shares of the caller's and the called service's replicas on node n; each
/// variant states the share of an edge's calls that leave their node. Calls of a service to itself are never local by
/// design, so the search does not weigh them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Routing {
    /// Every replica is equally likely to be called from any node: 1 − Σ p(n)·q(n). This is the default of most meshes.
    Even,
    /// Local replicas are called first, as far as an even share permits: 1 − Σ min(p(n), q(n)), the total variation
    /// distance.
    #[default]
    LocalFirst,
}

impl Routing {
    /// Returns the routing of most calls: local-first if the services with local-first routing, by name, receive more
    /// than half of all calls.
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
