//! A placement of the services of a snapshot with its predicted gain, as `maglor plan moves` prints it and the dashboard
//! proposes it.

use std::collections::BTreeMap;

use maglor_service_graph::file::{self, FileError};
use maglor_service_graph::{
    Graph, Nodes, Options, Outcome, PartitionError, Placement, PlannerParams, Routing, cost,
    partition,
};

use super::Snapshot;

/// Reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A service, an edge or a node of the snapshot is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// The search cannot begin.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// A plan and its expected effect.
#[derive(Debug)]
pub struct Plan {
    /// Reason against the plan, with numbers: not everything fits. `None` if there is none.
    pub reason: Option<String>,
    /// The assumed routing of calls.
    pub routing: Routing,
    /// Calls per second, in total.
    pub total: f64,
    /// Current calls per second across nodes, between replicas on nodes that still exist.
    pub cut_now: f64,
    /// Calls per second across nodes according to the plan; `None` without a plan.
    pub cut_planned: Option<f64>,
    /// Whether the controller would carry out the plan.
    pub worth_it: bool,
    /// The services of which replicas would move.
    pub services: Vec<Moved>,
}

/// Replicas of a service by node, now and according to the plan.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Moved {
    /// The service.
    pub name: String,
    /// Replicas by node, without nodes that have none.
    pub now: BTreeMap<String, u32>,
    /// Replicas by node according to the plan, without nodes that have none.
    pub planned: BTreeMap<String, u32>,
}

/// Computes a placement of a snapshot ([`Snapshot::placed`]). `options` has the seed, the objective and the cost of a
/// move; `routing` is that of the most frequent calls if it is `None`.
///
/// # Errors
/// If the snapshot is invalid.
pub fn plan(
    snapshot: &Snapshot,
    options: Options,
    routing: Option<Routing>,
) -> Result<Plan, PlanError> {
    let graph = file::graph(&snapshot.graph_file())?;
    let mut nodes = file::nodes(&snapshot.nodes_file())?;
    let present = file::placement(&snapshot.placement_file())?;
    let gone = present.gone(&nodes);
    nodes.add_gone(&gone);
    let present = present.of(&graph, &nodes)?;
    let routing = routing.unwrap_or_else(|| snapshot.routing(&graph));
    let params = PlannerParams {
        options: Options { routing, ..options },
        ..PlannerParams::default()
    };
    let (now, all) = cost(&graph, &nodes, &present, &params.options);
    let mut plan = Plan {
        reason: None,
        routing,
        total: graph.rps(),
        cut_now: present.cut_by(&graph, routing),
        cut_planned: None,
        worth_it: false,
        services: Vec::new(),
    };
    match partition(&graph, &nodes, Some(&present), &params.options)? {
        Outcome::Infeasible(infeasible) => plan.reason = Some(infeasible.to_string()),
        Outcome::Placed(placed) => {
            let won = now - placed.cost;
            let pays = won > params.margin * now && won > params.floor * all;
            plan.cut_planned = Some(placed.cut);
            plan.services = moved(&graph, &nodes, &present, &placed.placement);
            // Replicas that do not fit on their nodes have to move, regardless of the gain.
            plan.worth_it = pays || !present.is_feasible(&graph, &nodes);
        }
    }
    Ok(plan)
}

fn moved(graph: &Graph, nodes: &Nodes, before: &Placement, after: &Placement) -> Vec<Moved> {
    let services = graph.services().iter().enumerate();
    let services = services.map(|(index, service)| Moved {
        name: service.name.clone(),
        now: before.by_node(index, nodes),
        planned: after.by_node(index, nodes),
    });
    services.filter(|one| one.now != one.planned).collect()
}
