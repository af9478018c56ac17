//! The microservice communication graph: which service calls which, and where their replicas should
//! run. Pure: no I/O, no clock; time and chance are arguments.
//!
//! * A [`Graph`] of services and calls, and [`Nodes`] with what they hold.
//! * [`partition`] places the one on the others (Algorithm 3 of the paper in docs/placement.md); a
//!   [`Placement`] says what of the traffic leaves its node, its cut.
//! * [`LiveEdges`] turns counters of proxies into edges (Algorithm 1); [`LocalShares`] says where a
//!   node's calls should go. [`prometheus`] has the edges of a mesh that a Prometheus watches.
//! * [`advise`] generates configuration from what is observed (Algorithm 2).
//! * [`relocate`] says which replicas move now, and which go back.
//! * [`tune`] says which of what is advised is set now, and what is rolled back.
//! * [`rule`] says which way of balancing is fastest for a service, and when to change it.
//! * [`file`](mod@file) reads all three from text, and names the line of the error.
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
mod bars;
pub mod file;
mod graph;
mod infeasible;
mod live;
mod local;
mod node;
mod objective;
mod partition;
mod placement;
mod planner;
pub mod prometheus;
pub mod relocate;
mod routing;
pub mod rule;
mod select;
mod solve;
mod spread;
mod tau;
mod times;
pub mod tune;

pub use bars::Bars;
pub use graph::{Edge, Graph, GraphError, Service};
pub use infeasible::{Infeasible, Resource, Shortage};
pub use live::{Averaging, Counters, LiveEdge, LiveEdges, Part, Traffic};
pub use local::LocalShares;
pub use node::{Node, Nodes, NodesError};
pub use objective::Objective;
pub use partition::{Options, Outcome, PartitionError, Plan, cost, partition};
pub use placement::Placement;
pub use planner::{Planner, PlannerParams, Round};
pub use routing::Routing;
pub use select::{Selection, Use};
pub use spread::Spread;
pub use times::Times;
