//! On which node each server and balancer of a scenario is, and what each node's list says.

use super::Scenario;
use crate::des::nodes::Lists;

impl Scenario {
    /// The lists of each node, for a service that is called from balancers or from another service's servers.
    pub(in crate::des) fn lists(&self, service: u16) -> Option<Lists> {
        let nodes = self.nodes.as_ref()?;
        let (balancers, servers) = (self.balancers, self.servers);
        Some(if service == 0 {
            nodes.lists((0..balancers).map(|at| nodes.of_balancer(at)), servers)
        } else {
            nodes.lists((0..servers).map(|at| nodes.of_server(at)), servers)
        })
    }

    /// The node of a caller of a service.
    pub(in crate::des) fn node_of_caller(&self, service: u16, caller: u32) -> usize {
        self.nodes.as_ref().map_or(0, |nodes| match service {
            0 => nodes.of_balancer(caller),
            _ => nodes.of_server(caller),
        })
    }

    /// The node of a server.
    pub(in crate::des) fn node_of(&self, server: u32) -> usize {
        let nodes = self.nodes.as_ref();
        nodes.map_or(0, |nodes| nodes.of_server(server))
    }
}
