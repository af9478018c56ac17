//! The communication graph G = (V, E) of services and their calls, with the weights of the paper's §3.2: a vertex has a
//! number of replicas and the resources that each replica needs, an edge has ⟨λ, r⟩.
//!
//! Invariant: names are unique and not empty, every service has at least one replica, every weight is finite and not
//! negative, every edge connects services of the graph, and a pair of services has at most one edge.

use std::collections::HashMap;
use std::num::NonZeroU32;

use thiserror::Error;

/// A vertex: a service with identical replicas.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// The name, unique in the graph.
    pub name: String,
    /// The number of replicas.
    pub replicas: NonZeroU32,
    /// The CPU that one replica needs, in thousandths of a core.
    pub cpu_millis: u64,
    /// The memory that one replica needs, in MiB.
    pub memory_mib: u64,
    /// Anti-affinity: the maximum number of replicas on a node; `None` = all replicas may share a node.
    pub max_per_node: Option<NonZeroU32>,
    /// Whether the replicas stay where the present placement has them. It has no effect without a present placement.
    pub pinned: bool,
}

/// An edge: the calls from one service to another, with its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// The caller's index in [`Graph::services`].
    pub from: usize,
    /// The called service's index in [`Graph::services`].
    pub to: usize,
    /// λ: the number of calls per second, of all replicas together.
    pub rps: f64,
    /// r: the mean response time in milliseconds, measured by the caller.
    pub latency_ms: f64,
    /// The number of bytes per second, in both directions.
    pub bytes_per_second: f64,
}

/// A graph of services and their calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    services: Vec<Service>,
    edges: Vec<Edge>,
    names: HashMap<String, usize>,
    pairs: HashMap<(usize, usize), usize>,
}

/// The reason why an element of a graph is invalid.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum GraphError {
    /// Two services have the same name.
    #[error("the service `{0}` is defined twice")]
    Duplicate(String),
    /// A service has no name.
    #[error("a service needs a name")]
    Nameless,
    /// An edge refers to an unknown service.
    #[error("`{0}` is not a service of the graph")]
    Unknown(String),
    /// A weight is negative, too large, or not a number.
    #[error("{field} is {}: it must be a number from 0 to 10^15", short(*value))]
    Weight {
        /// The name of the weight in a graph file.
        field: &'static str,
        /// The value of the weight.
        value: f64,
    },
}

impl Graph {
    /// Returns the services, in the order in which they were added.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// Returns the edges, in the order in which their pairs first appeared.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Returns the index of a service; `None` if it is not in the graph.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Returns the number of replicas of all services together.
    #[must_use]
    pub fn replicas(&self) -> u64 {
        let replicas = self.services.iter().map(|s| u64::from(s.replicas.get()));
        replicas.sum()
    }

    /// Returns Σλ over all edges: the number of calls per second.
    #[must_use]
    pub fn rps(&self) -> f64 {
        // An empty sum of floating point numbers is -0.
        self.edges.iter().fold(0.0, |sum, edge| sum + edge.rps)
    }

    /// Adds a service.
    ///
    /// # Errors
    /// The name is empty, or another service has it.
    pub fn add_service(&mut self, service: Service) -> Result<(), GraphError> {
        if service.name.is_empty() {
            return Err(GraphError::Nameless);
        }
        if self.names.contains_key(&service.name) {
            return Err(GraphError::Duplicate(service.name));
        }
        self.names.insert(service.name.clone(), self.services.len());
        self.services.push(service);
        Ok(())
    }

    /// Adds calls. If the pair of services already has an edge, the calls are merged: rates are added, and the response
    /// time is the mean over all calls.
    ///
    /// # Errors
    /// The caller or the called service is not in the graph, or a weight is negative or not finite.
    pub fn add_calls(
        &mut self,
        from: &str,
        to: &str,
        rps: f64,
        latency_ms: f64,
        bytes_per_second: f64,
    ) -> Result<(), GraphError> {
        let index = |name: &str| {
            let known = self.names.get(name).copied();
            known.ok_or_else(|| GraphError::Unknown(name.to_owned()))
        };
        let (from, to) = (index(from)?, index(to)?);
        let rps = weight("rps", rps)?;
        let latency_ms = weight("latency_ms", latency_ms)?;
        let bytes_per_second = weight("bytes_per_second", bytes_per_second)?;
        let next = self.edges.len();
        let at = *self.pairs.entry((from, to)).or_insert(next);
        if let Some(edge) = self.edges.get_mut(at) {
            let calls = edge.rps + rps;
            if calls > 0.0 {
                edge.latency_ms = (edge.latency_ms * edge.rps + latency_ms * rps) / calls;
            }
            edge.rps = calls;
            edge.bytes_per_second += bytes_per_second;
        } else {
            self.edges.push(Edge {
                from,
                to,
                rps,
                latency_ms,
                bytes_per_second,
            });
        }
        Ok(())
    }
}

/// Formats a number; large numbers are in exponential notation.
fn short(value: f64) -> String {
    match value.abs() < 1e18 {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

fn weight(field: &'static str, value: f64) -> Result<f64, GraphError> {
    // Far above any traffic, and sums of many stay finite.
    if (0.0..=1e15).contains(&value) {
        // Also normalizes -0.
        Ok(value.abs())
    } else {
        Err(GraphError::Weight { field, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Service {
        Service {
            name: name.to_owned(),
            replicas: NonZeroU32::MIN,
            cpu_millis: 100,
            memory_mib: 64,
            max_per_node: None,
            pinned: false,
        }
    }

    #[test]
    fn repeated_pairs_add_up() {
        let mut graph = Graph::default();
        graph.add_service(service("a")).unwrap();
        graph.add_service(service("b")).unwrap();
        graph.add_calls("a", "b", 10.0, 2.0, 100.0).unwrap();
        graph.add_calls("b", "a", 1.0, 1.0, 0.0).unwrap();
        graph.add_calls("a", "b", 30.0, 4.0, 50.0).unwrap();
        assert_eq!(graph.edges().len(), 2);
        let edge = graph.edges()[0];
        assert_eq!((edge.rps, edge.latency_ms), (40.0, 3.5));
        assert_eq!(edge.bytes_per_second, 150.0);
        assert_eq!(graph.rps(), 41.0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut graph = Graph::default();
        graph.add_service(service("a")).unwrap();
        assert_eq!(
            graph.add_service(service("a")),
            Err(GraphError::Duplicate("a".into()))
        );
        assert_eq!(graph.add_service(service("")), Err(GraphError::Nameless));
        assert_eq!(
            graph.add_calls("a", "b", 1.0, 1.0, 0.0),
            Err(GraphError::Unknown("b".into()))
        );
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let error = graph.add_calls("a", "a", bad, 1.0, 0.0).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("rps is ") && error.len() < 80, "{error}");
        }
        assert!(graph.edges().is_empty());
        assert!(graph.rps().is_sign_positive());
    }
}
