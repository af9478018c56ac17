//! Nodes and local-first routing: the nodes of servers and balancers, and each node's list of the
//! servers. The algorithm is a controller's `localFirst`, by [`LocalShares`].

use std::num::NonZeroU32;

use maglor_balance::{Endpoint, Locality};
use maglor_service_graph::LocalShares;

/// Servers and balancers on several nodes. As many calls as possible stay on their node.
///
/// Servers are assigned to the nodes in turn, and so are the servers of services that call others.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// The proportions of balancers on each node: `[4, 1, 1]` puts two thirds of the calls on the
    /// first one of three. Two nodes or more; not all zero.
    pub callers: Vec<u32>,
    /// How far a server may be above its fair share, as a part of it, 0–1. A larger value keeps
    /// more calls on their node.
    pub slack: f64,
}

/// The entry of a server in a node's list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Listed {
    /// It is used if the others are not usable.
    Behind,
    /// Its weight.
    Weight(NonZeroU32),
}

/// Every node's list of a service's servers.
#[derive(Debug)]
pub(super) struct Lists {
    /// The entries by node of the caller, then by node of the server.
    listed: Vec<Vec<Listed>>,
}

/// The weight of a server that has an even share of a node's calls.
const EVEN: f64 = 1000.0;

impl Nodes {
    /// How far above its fair share a server may be by default.
    pub const SLACK: f64 = LocalShares::SLACK_PERCENT as f64 / 100.0;

    /// Returns an equal number of callers on each of `count` nodes.
    #[must_use]
    pub fn even(count: u32) -> Self {
        Self {
            callers: vec![1; count as usize],
            slack: Self::SLACK,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.callers.len()
    }

    pub(super) fn of_server(&self, server: u32) -> usize {
        server as usize % self.count().max(1)
    }

    pub(super) fn of_balancer(&self, balancer: u32) -> usize {
        let all: u64 = self.callers.iter().map(|count| u64::from(*count)).sum();
        let mut left = u64::from(balancer) % all.max(1);
        let found = self.callers.iter().position(|count| {
            let here = left < u64::from(*count);
            left = left.saturating_sub(u64::from(*count));
            here
        });
        found.unwrap_or(0)
    }

    /// Returns the lists of a service whose callers are on these nodes.
    pub(super) fn lists(&self, callers: impl Iterator<Item = usize>, servers: u32) -> Lists {
        let count = |nodes: &mut dyn Iterator<Item = usize>| {
            let mut counts = vec![0_u32; self.count()];
            nodes.for_each(|node| counts[node] += 1);
            counts
        };
        let (mut callers, mut places) = (callers, (0..servers).map(|at| self.of_server(at)));
        let (callers, replicas) = (count(&mut callers), count(&mut places));
        let shares = LocalShares::new(&callers, &replicas, self.slack);
        let listed = |from: usize, to: usize| {
            let row = shares.as_ref().map_or(&[][..], |all| all.from_node(from));
            let share = row.get(to).copied().unwrap_or(0.0);
            let each = share / f64::from(replicas[to].max(1)) * f64::from(servers);
            let weight = NonZeroU32::new((each * EVEN).round() as u32);
            weight.map_or(Listed::Behind, Listed::Weight)
        };
        let nodes = 0..self.count();
        let row = |from| nodes.clone().map(|to| listed(from, to)).collect();
        Lists {
            listed: nodes.clone().map(row).collect(),
        }
    }
}

impl Lists {
    /// Returns the entry of servers of the node `to` in the list of the node `from`.
    pub(super) fn listed(&self, from: usize, to: usize) -> Listed {
        let row = self.listed.get(from);
        let listed = row.and_then(|row| row.get(to)).copied();
        listed.unwrap_or(Listed::Weight(NonZeroU32::MIN))
    }

    /// Returns the endpoint of a server on the node `to`, as listed by the node `from`.
    pub(super) fn describe(&self, endpoint: Endpoint, from: usize, to: usize) -> Endpoint {
        let endpoint = endpoint.locality(Locality::new("", "", format!("node-{to}")));
        match self.listed(from, to) {
            Listed::Behind => endpoint.priority(1),
            Listed::Weight(weight) => endpoint.weight(weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balancers_are_where_they_should_be_and_lists_are_those_of_local_first() {
        let nodes = Nodes {
            callers: vec![4, 1, 1],
            slack: 0.0,
        };
        let places: Vec<_> = (0..8).map(|at| nodes.of_balancer(at)).collect();
        assert_eq!(places, [0, 0, 0, 0, 1, 2, 0, 0]);
        let lists = nodes.lists((0..12).map(|at| nodes.of_balancer(at)), 12);
        let weight = |value| Listed::Weight(NonZeroU32::new(value).unwrap());
        // Half of the calls of the first node stay; the others' stay all.
        let wanted = [
            [weight(1500), weight(750), weight(750)],
            [Listed::Behind, weight(3000), Listed::Behind],
            [Listed::Behind, Listed::Behind, weight(3000)],
        ];
        for (from, row) in wanted.iter().enumerate() {
            for (to, listed) in row.iter().enumerate() {
                assert_eq!(lists.listed(from, to), *listed, "{from} {to}");
            }
        }
        assert_eq!(Nodes::even(2).lists([0, 1].into_iter(), 5).listed.len(), 2);
    }
}
