//! The microservice communication graph: which service calls which, and where their replicas should
//! run. Pure: no I/O, no clock; time and randomness are arguments.
//!
//! * A [`Graph`] of services and calls, and [`Nodes`] with their capacity.
//! * [`partition`] assigns replicas to nodes (Algorithm 3 of the paper in docs/placement.md); a
//!   [`Placement`] computes the traffic between nodes, its cut.
//! * [`LiveEdges`] turns counters of proxies into edges (Algorithm 1); [`LocalShares`] computes
//!   where a node's calls should go. [`prometheus`] gets the edges of a mesh from Prometheus.
//! * [`advise`] generates configuration from observations (Algorithm 2).
//! * [`relocate`] decides which replicas move now, and which move back.
//! * [`tune`] decides which recommendations are applied now, and which are rolled back.
//! * [`policy_choice`] decides which balancing policy is fastest for a service, and when to change it.
//! * [`layout`] places the graph's boxes and lines for a picture.
//! * [`file`](mod@file) parses graphs, nodes and placements from text, with the line of an error.
//!
//! ```
//! use maglor_service_graph::{Options, Outcome, file, partition};
//!
//! let graph = file::graph(
//!     "{services: [{name: web, replicas: 2, cpu_millis: 100, memory_mib: 64},
//!                  {name: cart, replicas: 1, cpu_millis: 200, memory_mib: 64}],
//!       edges: [{from: web, to: cart, rps: 50, latency_ms: 4}]}",
//! )?;
//! let nodes = file::nodes("nodes: [{name: a, cpu_millis: 1000, memory_mib: 512}]")?;
//! let Outcome::Placed(plan) = partition(&graph, &nodes, None, &Options::default())? else {
//!     return Err("it fits".into());
//! };
//! assert_eq!((plan.cut, plan.optimal), (0.0, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advise;
pub mod file;
mod graph;
mod infeasible;
pub mod layout;
mod live;
mod local;
mod node;
mod objective;
mod partition;
mod placement;
mod placement_constraints;
mod placement_search;
mod planner;
pub mod policy_choice;
pub mod prometheus;
pub mod relocate;
mod response_times;
mod routing;
mod select;
mod spread;
mod tau_rule;
pub mod tune;

pub use graph::{Edge, Graph, GraphError, Service};
pub use infeasible::{Infeasible, Resource, Shortage};
pub use live::{Averaging, Counters, LiveEdge, LiveEdges, Part, Traffic};
pub use local::LocalShares;
pub use node::{Node, Nodes, NodesError};
pub use objective::Objective;
pub use partition::{Options, Outcome, PartitionError, Plan, cost, partition};
pub use placement::Placement;
pub use placement_constraints::Bars;
pub use planner::{Planner, PlannerParams, Round};
pub use response_times::Times;
pub use routing::Routing;
pub use select::{Selection, Use};
pub use spread::Spread;
