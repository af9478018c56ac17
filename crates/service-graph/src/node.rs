//! The nodes that replicas are placed on, with the free capacity of each and the delays between them.
//!
//! Invariant: there is at least one node, names are unique and not empty, and delays are finite and not negative.

use std::collections::HashMap;

use thiserror::Error;

/// The maximum number of nodes with delays between them. The delays are stored for each pair, which takes 128 MiB.
const MOST_WITH_DELAYS: usize = 4096;
/// The maximum delay in milliseconds. It exceeds any real delay, and keeps sums over all traffic finite.
const MOST_DELAY_MS: f64 = 1e9;

/// A node with its capacity for the replicas of the graph: the allocatable resources, minus the requests of daemons and
/// unmanaged pods.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// The name, unique among the nodes.
    pub name: String,
    /// The CPU capacity in thousandths of a core.
    pub cpu_millis: u64,
    /// The memory capacity in MiB.
    pub memory_mib: u64,
    /// The maximum number of replicas on the node; `None` = unlimited.
    pub pods: Option<u64>,
}

/// The nodes of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    nodes: Vec<Node>,
    names: HashMap<String, usize>,
    /// The delays in milliseconds, row by row; empty if all nodes are equally far apart.
    delays_ms: Vec<f64>,
}

/// The reason why nodes are invalid.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NodesError {
    /// A delay is negative, too large, or not a number.
    #[error("the delay between `{from}` and `{to}` is {ms} ms: it must be a number from 0 to 10^9")]
    Delay {
        /// The name of the first node.
        from: String,
        /// The name of the second node.
        to: String,
        /// The delay in milliseconds.
        ms: f64,
    },
    /// Two nodes have the same name.
    #[error("the node `{0}` is defined twice")]
    Duplicate(String),
    /// A node has no name.
    #[error("a node needs a name")]
    Nameless,
    /// There are too many nodes to store delays between them.
    #[error("{0} nodes: delays are supported between at most {MOST_WITH_DELAYS}")]
    ManyDelays(usize),
    /// The list of nodes is empty.
    #[error("no nodes: nothing can be placed")]
    None,
    /// A delay refers to an unknown node.
    #[error("`{0}` is not a node")]
    Unknown(String),
}

impl Nodes {
    /// Creates a set of nodes that are equally far apart.
    ///
    /// # Errors
    /// There is no node, or a name is empty or occurs twice.
    pub fn new(nodes: Vec<Node>) -> Result<Self, NodesError> {
        if nodes.is_empty() {
            return Err(NodesError::None);
        }
        let mut names = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            if node.name.is_empty() {
                return Err(NodesError::Nameless);
            }
            if names.insert(node.name.clone(), index).is_some() {
                return Err(NodesError::Duplicate(node.name.clone()));
            }
        }
        let delays_ms = Vec::new();
        Ok(Self {
            nodes,
            names,
            delays_ms,
        })
    }

    /// Returns the nodes in the order in which they were given.
    #[must_use]
    pub fn all(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the index of a node; `None` if there is no node with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Sets the one-way delay of a message between two nodes, in milliseconds. After the first delay is set, pairs
    /// without a delay have delay 0.
    ///
    /// # Errors
    /// A node is unknown, the delay is not between 0 and 10^9, or there are more than 4096 nodes.
    pub fn set_delay(&mut self, from: &str, to: &str, ms: f64) -> Result<(), NodesError> {
        let index = |name: &str| {
            let known = self.node(name);
            known.ok_or_else(|| NodesError::Unknown(name.to_owned()))
        };
        let (a, b) = (index(from)?, index(to)?);
        if !(0.0..=MOST_DELAY_MS).contains(&ms) {
            let (from, to) = (from.to_owned(), to.to_owned());
            return Err(NodesError::Delay { from, to, ms });
        }
        let count = self.nodes.len();
        if count > MOST_WITH_DELAYS {
            return Err(NodesError::ManyDelays(count));
        }
        self.delays_ms.resize(count * count, 0.0);
        for at in [a * count + b, b * count + a] {
            if let Some(delay) = self.delays_ms.get_mut(at).filter(|_| a != b) {
                *delay = ms;
            }
        }
        Ok(())
    }

    /// Adds nodes that no longer exist, with no capacity, so that replicas on them can be counted. Names of existing
    /// nodes are skipped.
    pub fn add_gone(&mut self, names: &[String]) {
        let before = self.nodes.len();
        for name in names {
            if self.names.contains_key(name) {
                continue;
            }
            self.names.insert(name.clone(), self.nodes.len());
            self.nodes.push(Node {
                name: name.clone(),
                cpu_millis: 0,
                memory_mib: 0,
                pods: Some(0),
            });
        }
        let count = self.nodes.len();
        if !self.delays_ms.is_empty() && count > before {
            let mut delays = vec![0.0; count * count];
            for (row, old) in delays.chunks_mut(count).zip(self.delays_ms.chunks(before)) {
                for (delay, old) in row.iter_mut().zip(old) {
                    *delay = *old;
                }
            }
            self.delays_ms = delays;
        }
    }

    /// Returns the delays in milliseconds, row by row; empty if none was set.
    #[must_use]
    pub fn delays_ms(&self) -> &[f64] {
        &self.delays_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            cpu_millis: 1000,
            memory_mib: 1024,
            pods: None,
        }
    }

    #[test]
    fn delays_hold_both_ways_and_a_node_is_at_itself() {
        let mut nodes = Nodes::new(vec![node("a"), node("b"), node("c")]).unwrap();
        assert!(nodes.delays_ms().is_empty());
        nodes.set_delay("a", "c", 5.0).unwrap();
        nodes.set_delay("b", "b", 5.0).unwrap();
        assert_eq!(
            nodes.delays_ms(),
            [0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0]
        );
        assert_eq!(
            nodes.set_delay("a", "d", 5.0),
            Err(NodesError::Unknown("d".into()))
        );
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(nodes.set_delay("a", "b", bad).is_err(), "{bad}");
        }
        let names: Vec<String> = (0..5000).map(|at| at.to_string()).collect();
        let mut many = Nodes::new(names.iter().map(|name| node(name)).collect()).unwrap();
        assert_eq!(
            many.set_delay("1", "2", 1.0),
            Err(NodesError::ManyDelays(5000))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(Nodes::new(Vec::new()), Err(NodesError::None));
        assert_eq!(
            Nodes::new(vec![node("a"), node("a")]),
            Err(NodesError::Duplicate("a".into()))
        );
        assert_eq!(Nodes::new(vec![node("")]), Err(NodesError::Nameless));
    }
}
