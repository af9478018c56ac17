//! Parses the files of `maglor plan placement`, in YAML or JSON: the graph, the nodes, a placement.
//!
//! Every error contains the line and the field; unknown fields are errors.

mod fields;
pub mod prometheus;
mod snapshots;
mod splits;
mod yaml;

use std::num::NonZeroU32;

use thiserror::Error;

use crate::graph::{Graph, GraphError, Service};
use crate::node::{Node, Nodes, NodesError};
use crate::placement::Placement;
use fields::Fields;

pub use snapshots::snapshots;

/// The maximum number of replicas of a service; each is placed individually.
const MAX_REPLICAS: u64 = 100_000;

/// The reason why a file cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum FileError {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// A value has the wrong type.
    #[error("{path}: expected {expected}, found {found}")]
    Expected {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
        /// The expected value.
        expected: &'static str,
        /// The value found.
        found: String,
    },
    /// The number of failures exceeds the number of calls.
    #[error("{path} is {failures}: it must be at most `rps`, {rps}")]
    Failures {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
        /// The number of failing calls per second.
        failures: f64,
        /// The number of calls per second.
        rps: f64,
    },
    /// A port is out of range.
    #[error("{path} must be a port, 1 to 65535")]
    Port {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
    },
    /// The graph is invalid.
    #[error("{path}: {error}")]
    Graph {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
        /// The error.
        error: GraphError,
    },
    /// A required field is missing.
    #[error("{path} is missing")]
    Missing {
        /// The line where the mapping begins.
        line: usize,
        /// The path of the field.
        path: String,
    },
    /// The nodes are invalid.
    #[error("{path}: {error}")]
    Nodes {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
        /// The error.
        error: NodesError,
    },
    /// A snapshot is not later than the previous one.
    #[error("{path}: snapshots must be in chronological order")]
    Order {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
    },
    /// A service has no replicas, or too many.
    #[error("{path} is {value}: it must be 1 to {MAX_REPLICAS}")]
    Replicas {
        /// The line where the value begins.
        line: usize,
        /// The path of the field.
        path: String,
        /// The value found.
        value: u64,
    },
    /// The text is not valid YAML.
    #[error("{message}")]
    Syntax {
        /// The line of the error.
        line: usize,
        /// The message of the parser.
        message: String,
    },
    /// The mapping has an unknown field.
    #[error("{path} is unknown; fields are: {known}")]
    UnknownField {
        /// The line of the field.
        line: usize,
        /// The path of the field.
        path: String,
        /// The known fields.
        known: String,
    },
}

impl FileError {
    /// Returns the line of the error, from 1; `None` if the error is about the whole file.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Empty => None,
            Self::Expected { line, .. }
            | Self::Failures { line, .. }
            | Self::Graph { line, .. }
            | Self::Missing { line, .. }
            | Self::Nodes { line, .. }
            | Self::Order { line, .. }
            | Self::Port { line, .. }
            | Self::Replicas { line, .. }
            | Self::Syntax { line, .. }
            | Self::UnknownField { line, .. } => Some(*line),
        }
    }
}

/// Parses a graph: `services: [{name, replicas, cpu_millis, memory_mib}]`, with an optional `max_per_node` and
/// `pinned`, and `edges: [{from, to, rps, latency_ms}]`, with an optional `bytes_per_second`; `latency_ms` is optional,
/// too. Several edges of the same pair are added up. Further fields of a snapshot of the live graph ([`snapshots`]) are
/// ignored.
///
/// # Errors
/// The first error, with its line and field.
pub fn graph(text: &str) -> Result<Graph, FileError> {
    let mut root = Fields::new(String::new(), yaml::read(text)?)?;
    let mut graph = Graph::default();
    for (path, item) in root.list("services")? {
        add_service(&mut graph, &path, item)?;
    }
    for (path, item) in root.list("edges")? {
        add_edge(&mut graph, &path, item)?;
    }
    root.pass_over(&["at", "delays", "nodes", "room", "splits", "window_seconds"]);
    root.finish()?;
    Ok(graph)
}

fn add_service(graph: &mut Graph, path: &str, item: yaml::Node) -> Result<(), FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let line = fields.line();
    let name = fields.name("name")?;
    let count = |field: &str, value: u64| {
        let count = u32::try_from(value).ok().filter(|_| value <= MAX_REPLICAS);
        count
            .and_then(NonZeroU32::new)
            .ok_or_else(|| FileError::Replicas {
                line,
                path: format!("{path}.{field} of `{name}`"),
                value,
            })
    };
    let replicas = count("replicas", fields.whole("replicas")?)?;
    let max_per_node = fields.optional_whole("max_per_node")?;
    let max_per_node = max_per_node
        .map(|most| count("max_per_node", most))
        .transpose()?;
    let service = Service {
        name: name.clone(),
        replicas,
        cpu_millis: fields.whole("cpu_millis")?,
        memory_mib: fields.whole("memory_mib")?,
        max_per_node,
        pinned: fields.flag("pinned")?,
    };
    fields.pass_over(&[
        "autoscaled",
        "containers",
        "cpu_limit_millis",
        "cpu_used_millis",
        "local_first",
        "memory_limit_mib",
        "memory_used_mib",
        "nodes",
        "pending",
        "rps",
    ]);
    fields.finish()?;
    let error = |error| FileError::Graph {
        line,
        path: format!("{path}.name"),
        error,
    };
    graph.add_service(service).map_err(error)
}

fn add_edge(graph: &mut Graph, path: &str, item: yaml::Node) -> Result<(), FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let line = fields.line();
    let (from, to) = (fields.name("from")?, fields.name("to")?);
    let rps = fields.number("rps")?;
    let latency_ms = fields.optional_number("latency_ms")?;
    let bytes = fields.optional_number("bytes_per_second")?;
    fields.pass_over(&[
        "connections_per_second",
        "deadline_ms",
        "failures",
        "in_flight",
        "p50_ms",
        "p99_ms",
    ]);
    fields.finish()?;
    let path = format!("{path} (`{from}` to `{to}`)");
    let error = |error| FileError::Graph { line, path, error };
    graph
        .add_calls(&from, &to, rps, latency_ms, bytes)
        .map_err(error)
}

/// Parses nodes: `nodes: [{name, cpu_millis, memory_mib}]`, with an optional `pods`, and optional one-way
/// `delays: [{from, to, ms}]` between them.
///
/// # Errors
/// The first error, with its line and field.
pub fn nodes(text: &str) -> Result<Nodes, FileError> {
    let mut root = Fields::new(String::new(), yaml::read(text)?)?;
    let top = root.line();
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for (path, item) in root.list("nodes")? {
        let mut fields = Fields::new(path, item)?;
        lines.push(fields.line());
        all.push(Node {
            name: fields.name("name")?,
            cpu_millis: fields.whole("cpu_millis")?,
            memory_mib: fields.whole("memory_mib")?,
            pods: fields.optional_whole("pods")?,
        });
        fields.finish()?;
    }
    let names = Vec::from_iter(all.iter().map(|node| node.name.clone()));
    let mut nodes = Nodes::new(all).map_err(|error| {
        // The error is at the later one of two, or at the one without a name.
        let wrong = |name: &String| match &error {
            NodesError::Duplicate(twice) => name == twice,
            _ => name.is_empty(),
        };
        let at = names.iter().rposition(wrong);
        let path = at.map_or_else(|| "nodes".to_owned(), |at| format!("nodes[{at}].name"));
        let line = at.and_then(|at| lines.get(at).copied()).unwrap_or(top);
        FileError::Nodes { line, path, error }
    })?;
    for (path, item) in root.list("delays")? {
        let mut fields = Fields::new(path.clone(), item)?;
        let line = fields.line();
        let (from, to, ms) = (
            fields.name("from")?,
            fields.name("to")?,
            fields.number("ms")?,
        );
        fields.finish()?;
        let error = |error| FileError::Nodes { line, path, error };
        nodes.set_delay(&from, &to, ms).map_err(error)?;
    }
    root.finish()?;
    Ok(nodes)
}

/// A placement as written in a file: the number of replicas by the names of service and node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    rows: Vec<(usize, String, String, u32)>,
}

/// Parses a placement, `placement: {service: {node: replicas}}`, as printed by `maglor plan placement`; the rest of
/// that output is ignored.
///
/// # Errors
/// The first error, with its line and field.
pub fn placement(text: &str) -> Result<Present, FileError> {
    let mut root = Fields::new(String::new(), yaml::read(text)?)?;
    let node = root.required("placement")?;
    let mut rows = Vec::new();
    for (path, service, node) in fields::entries("placement", node)? {
        for (path, on, count) in fields::entries(&path, node)? {
            let line = count.line;
            let value = fields::whole(path.clone(), &count)?;
            let replicas = u32::try_from(value).ok().filter(|_| value <= MAX_REPLICAS);
            let replicas = replicas.ok_or(FileError::Replicas { line, path, value })?;
            rows.push((line, service.clone(), on, replicas));
        }
    }
    Ok(Present { rows })
}

impl Present {
    /// Returns the nodes with replicas that are not among `nodes`, because they no longer exist.
    #[must_use]
    pub fn gone(&self, nodes: &Nodes) -> Vec<String> {
        let mut gone: Vec<String> = Vec::new();
        for (_, _, node, _) in &self.rows {
            if nodes.node(node).is_none() && !gone.contains(node) {
                gone.push(node.clone());
            }
        }
        gone
    }

    /// Returns the placement of a graph's services, without replicas on nonexistent nodes.
    ///
    /// # Errors
    /// A service of the placement is not in the graph.
    pub fn of(&self, graph: &Graph, nodes: &Nodes) -> Result<Placement, FileError> {
        let mut placement = Placement::empty(graph.services().len(), nodes.all().len());
        for (line, service, node, replicas) in &self.rows {
            let Some(index) = graph.service(service) else {
                let path = format!("placement.{service}");
                let error = GraphError::Unknown(service.clone());
                return Err(FileError::Graph {
                    line: *line,
                    path,
                    error,
                });
            };
            if let Some(node) = nodes.node(node) {
                placement.set(index, node, *replicas);
            }
        }
        Ok(placement)
    }
}
