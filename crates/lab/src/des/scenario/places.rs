//! Assigns the servers and balancers of a scenario to nodes, and computes each node's list.

use super::Scenario;
use crate::des::nodes::Lists;

impl Scenario {
    /// Returns the lists of each node, for a service that is called by balancers or by another
    /// service's servers.
    pub(in crate::des) fn lists(&self, service: u16) -> Option<Lists> {
        let nodes = self.nodes.as_ref()?;
        let (balancers, servers) = (self.balancers, self.servers);
        Some(if service == 0 {
            nodes.lists((0..balancers).map(|at| nodes.of_balancer(at)), servers)
        } else {
            nodes.lists((0..servers).map(|at| nodes.of_server(at)), servers)
        })
    }

    /// Returns the node of a caller of a service.
    pub(in crate::des) fn node_of_caller(&self, service: u16, caller: u32) -> usize {
        self.nodes.as_ref().map_or(0, |nodes| match service {
            0 => nodes.of_balancer(caller),
            _ => nodes.of_server(caller),
        })
    }

    /// Returns the node of a server.
    pub(in crate::des) fn node_of(&self, server: u32) -> usize {
        let nodes = self.nodes.as_ref();
        nodes.map_or(0, |nodes| nodes.of_server(server))
    }
}
