//! Algorithm 3 of the paper: a placement of the services on the nodes that stays within the capacity of the nodes and
//! cuts as little traffic as possible.
//!
//! The paper's step 5, the τ rule, is in [`crate::tau`]; the search itself is in `solve`.

use thiserror::Error;

use crate::graph::{Graph, Service};
use crate::infeasible::{self, Infeasible};
use crate::node::Nodes;
use crate::objective::{self, Objective};
use crate::placement::Placement;
use crate::placement_constraints::Bars;
use crate::placement_search::{Item, Problem, State, solve, stars};
use crate::routing::Routing;
use crate::select::{self, Selection};
use crate::tau_rule;

/// The options of a placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The seed of the search: equal seeds lead to equal placements. Default 1.
    pub seed: u64,
    /// The search effort relative to the default: above 0, at most 1000. Default 1. The effort is counted in steps, not
    /// timed, so that the result does not depend on the machine.
    pub effort: f64,
    /// The quantity to minimize. Default: traffic.
    pub objective: Objective,
    /// The routing of calls to replicas, which determines the calls that leave a node. Default: local-first.
    pub routing: Routing,
    /// The nodes to use, and how evenly. Default: all nodes, without balancing.
    pub selection: Selection,
    /// The maximum share of a service's replicas on one node, rounded up to whole replicas; above 0, at most 1. Default
    /// 1. A service's own limit applies in addition.
    pub max_share: f64,
    /// Whether all replicas of a service are placed on one node, as in the paper, regardless of the service's limit per
    /// node. Default: false.
    pub whole: bool,
    /// The cost of moving a replica, relative to the mean weight of a replica's traffic; 0 or more. It has an effect
    /// only with a present placement. Default 0.25.
    pub move_cost: f64,
    /// τ in milliseconds: if calls that leave their node take longer, the called service moves to the nodes of its
    /// callers, as far as there is capacity (Algorithm 3, step 5). `None` = no τ rule, the default.
    pub tau_ms: Option<f64>,
    /// The nodes on which replicas of a service may not be started. It has an effect only with a present placement.
    /// Default: none.
    pub bars: Bars,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            effort: 1.0,
            objective: Objective::Traffic,
            routing: Routing::LocalFirst,
            selection: Selection::default(),
            max_share: 1.0,
            whole: false,
            move_cost: 0.25,
            tau_ms: None,
            bars: Bars::default(),
        }
    }
}

/// The reason why a request is invalid.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PartitionError {
    /// An option is out of its range.
    #[error("{option} is {value}: it must be {valid}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// The value of the option.
        value: f64,
        /// The valid range.
        valid: &'static str,
    },
    /// The graph has no services.
    #[error("the graph has no services: there is nothing to place")]
    NoService,
    /// The problem is too large for the available memory.
    #[error(
        "{services} services with {replicas} replicas on {nodes} nodes are too many: at most a \
         million replicas, and 50 million services times nodes"
    )]
    TooLarge {
        /// The number of replicas of all services.
        replicas: u64,
        /// The number of services.
        services: usize,
        /// The number of nodes.
        nodes: usize,
    },
}

/// The maximum of services times nodes, at which the search takes about 1 GB of memory.
const MOST_CELLS: usize = 50_000_000;

/// The maximum number of replicas; with [`MOST`], their sums stay within 64 bits.
const MOST_REPLICAS: u64 = 1_000_000;

/// The maximum need of a replica and capacity of a node: a billion cores.
const MOST: u64 = 1_000_000_000_000;

/// The result of a placement request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// No placement fits, or none was found.
    Infeasible(Infeasible),
    /// A placement that fits.
    Placed(Plan),
}

/// A placement that fits, with its quality.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The placement.
    pub placement: Placement,
    /// The number of calls per second that leave their node.
    pub cut: f64,
    /// The minimized value: the cut weighted by the objective.
    pub cost: f64,
    /// A lower bound of the cost of any placement, not counting moves.
    pub bound: f64,
    /// Whether `cost`, including moves, is proved to be minimal.
    pub optimal: bool,
    /// The number of replicas that have to be started on another node; 0 without a present placement.
    pub moves: u64,
    /// Whether the present placement violates the options and must be changed at any cost: it uses excluded nodes, is
    /// too uneven, or exceeds a limit.
    pub mends: bool,
}

/// Places the services of a graph on the nodes. With a present placement, replicas move only if the gain exceeds the
/// cost of the moves.
///
/// # Errors
/// The graph is empty, or an option is out of range.
pub fn partition(
    graph: &Graph,
    nodes: &Nodes,
    present: Option<&Placement>,
    options: &Options,
) -> Result<Outcome, PartitionError> {
    check(options)?;
    if graph.services().is_empty() {
        return Err(PartitionError::NoService);
    }
    let (services, count) = (graph.services().len(), nodes.all().len());
    let replicas = graph.replicas();
    if services.saturating_mul(count) > MOST_CELLS || replicas > MOST_REPLICAS {
        return Err(PartitionError::TooLarge {
            replicas,
            services,
            nodes: count,
        });
    }
    let problem = problem(graph, nodes, present, options);
    if let Some(infeasible) = infeasible::obvious(graph, nodes, &problem) {
        return Ok(Outcome::Infeasible(infeasible));
    }
    let mut selection = options.selection;
    let mut widened = 0;
    loop {
        let narrowed = select::narrow(&problem, &selection, options.seed);
        let outcome = place(
            (graph, nodes, present),
            &problem,
            &narrowed.problem,
            options,
        );
        let attempted = (&selection, &narrowed);
        let wider = match &outcome {
            Outcome::Placed(_) => None,
            Outcome::Infeasible(_) => select::wider(&options.selection, attempted, widened),
        };
        match wider {
            None => return Ok(outcome),
            Some(wider) => (selection, widened) = (wider, widened + 1),
        }
    }
}

/// Places the services within the remaining capacities.
fn place(
    (graph, nodes, present): (&Graph, &Nodes, Option<&Placement>),
    problem: &Problem,
    narrowed: &Problem,
    options: &Options,
) -> Outcome {
    let (start, mends) = match present {
        Some(_) => {
            let (start, mends) = resume(problem, narrowed);
            (Some(start), mends)
        }
        None => (None, false),
    };
    let mut solution = solve(narrowed, start, options.seed, options.effort);
    if !solution.state.is_feasible() {
        let proved = solution.proved;
        return Outcome::Infeasible(infeasible::searched(
            nodes,
            narrowed,
            &solution.state,
            proved,
        ));
    }
    if let Some(barred) = infeasible::barred(graph, nodes, narrowed, &solution.state) {
        return Outcome::Infeasible(barred);
    }
    if let Some(tau_ms) = options.tau_ms {
        let late = tau_rule::LateEdges::new(graph, tau_ms);
        solution.proved &= !late.pull(narrowed, &mut solution.state);
    }
    // The best placement with its moves may cost more than one without them.
    let moves_cost = present.is_some() && (options.move_cost > 0.0 || !narrowed.bars.is_empty());
    let mut bare = narrowed.clone();
    bare.present = Vec::new();
    let bound = match moves_cost {
        true => stars(&bare),
        false => solution.bound,
    };
    let count = nodes.all().len();
    let mut counts = solution.state.counts().to_vec();
    let cost = State::from_counts(&bare, &counts).cost();
    if options.whole {
        for (row, service) in counts.chunks_mut(count).zip(graph.services()) {
            row.iter_mut()
                .for_each(|units| *units *= service.replicas.get());
        }
    }
    let placement = Placement::from_counts(count, counts);
    Outcome::Placed(Plan {
        cut: placement.cut_by(graph, options.routing),
        cost,
        bound: bound.min(cost),
        optimal: solution.proved,
        moves: present.map_or(0, |present| placement.moves_from(present)),
        placement,
        mends,
    })
}

/// Returns the present placement, as far as it is allowed, and whether this differs from the running placement or does
/// not fit if only parts of the nodes may be used.
fn resume(problem: &Problem, narrowed: &Problem) -> (State, bool) {
    let start = State::resume(problem);
    // A placement that fits on the nodes need not fit into the usable parts.
    let within = State::from_counts(narrowed, start.counts());
    let kept = start.counts() == problem.present;
    let mends = !kept || (start.is_feasible() && !within.is_feasible());
    (within, mends)
}

/// Returns the cost of a placement by an objective, without moves, for comparison with [`Plan::cost`], and the weight
/// of all edges together.
#[must_use]
pub fn cost(graph: &Graph, nodes: &Nodes, placement: &Placement, options: &Options) -> (f64, f64) {
    let (problem, state) = rated(graph, nodes, placement, options);
    (state.cost(), problem.traffic())
}

/// Converts a placement for the solver. Returns its cost by the objective alone, and the cost that moves would change.
pub(crate) fn rated(
    graph: &Graph,
    nodes: &Nodes,
    placement: &Placement,
    options: &Options,
) -> (Problem, State) {
    let mut problem = problem(graph, nodes, Some(placement), options);
    problem.limit.fill(u32::MAX);
    let counts = State::resume(&problem).counts().to_vec();
    problem.present = Vec::new();
    let state = State::from_counts(&problem, &counts);
    (problem, state)
}

fn check(options: &Options) -> Result<(), PartitionError> {
    let ranges = [
        (
            "effort",
            options.effort,
            1e-6,
            1000.0,
            "above 0 and at most 1000",
        ),
        (
            "max_share",
            options.max_share,
            1e-9,
            1.0,
            "above 0 and at most 1",
        ),
        ("move_cost", options.move_cost, 0.0, f64::MAX, "0 or more"),
        (
            "tau_ms",
            options.tau_ms.unwrap_or(0.0),
            0.0,
            f64::MAX,
            "0 or more",
        ),
    ];
    for (option, value, least, most, valid) in ranges {
        if !(least..=most).contains(&value) {
            return Err(PartitionError::Option {
                option,
                value,
                valid,
            });
        }
    }
    Ok(())
}

/// Returns the forbidden pairs of services and nodes: those of the options, and those of pinned services.
fn bars(graph: &Graph, nodes: &Nodes, options: &Options) -> Bars {
    let services = graph.services();
    let pinned = services.iter().enumerate().filter(|(_, one)| one.pinned);
    let mut bars = options.bars.clone();
    for (index, _) in pinned {
        if bars.cells().is_empty() {
            bars = Bars::new(services.len(), nodes.all().len());
        }
        bars.hold(index);
    }
    bars
}

/// Returns the number of replicas of a service that may share a node.
fn limit(service: &Service, max_share: f64) -> u32 {
    // 0.55 × 100 is a little above 55 in binary, and 55 replicas are meant.
    let share = (f64::from(service.replicas.get()) * max_share - 1e-9).ceil();
    let own = service
        .max_per_node
        .map_or(u32::MAX, std::num::NonZero::get);
    own.min(share.max(1.0) as u32)
}

/// Converts the graph and the nodes for the solver.
fn problem(
    graph: &Graph,
    nodes: &Nodes,
    present: Option<&Placement>,
    options: &Options,
) -> Problem {
    let weights = objective::weights(graph, &options.objective);
    let total: f64 = weights.iter().sum();
    let mean = 2.0 * total / graph.replicas().max(1) as f64;
    let bars = bars(graph, nodes, options);
    let items: Vec<Item> = graph
        .services()
        .iter()
        .enumerate()
        .map(|(index, service)| {
            let replicas = service.replicas.get();
            let limit = limit(service, options.max_share);
            // A unit is a replica, or all replicas of a service together.
            let (units, each) = if options.whole {
                (1, u64::from(replicas))
            } else {
                (replicas, 1)
            };
            Item {
                replicas: units,
                demand: [
                    service.cpu_millis.min(MOST) * each,
                    service.memory_mib.min(MOST) * each,
                    each,
                ],
                limit: match (present.filter(|_| bars.is_held(index)), options.whole) {
                    (_, true) => 1,
                    // Replicas that stay may exceed the limit.
                    (Some(present), false) => {
                        let most = present.service(index).iter().max();
                        limit.max(most.copied().unwrap_or(0))
                    }
                    (None, false) => limit,
                },
                move_cost: options.move_cost * mean,
            }
        })
        .collect();
    let capacity = nodes.all().iter().map(|node| {
        let pods = node.pods.unwrap_or_else(|| graph.replicas());
        [
            node.cpu_millis.min(MOST),
            node.memory_mib.min(MOST),
            pods.min(MOST),
        ]
    });
    let edges: Vec<(u32, u32, f64)> = graph
        .edges()
        .iter()
        .zip(weights)
        .map(|(edge, weight)| (edge.from as u32, edge.to as u32, weight))
        .collect();
    let mut problem = Problem::new(capacity.collect(), &items, &edges);
    if options.objective.is_by_distance() {
        problem.distance = nodes.delays_ms().to_vec();
    }
    problem.even = options.routing == Routing::Even;
    if let Some(present) = present {
        problem.present = present.counts().to_vec();
        if options.whole {
            problem.present = whole_of(present, graph.services().len());
        }
        // More than everything else can cost together, wherever replicas are started.
        let far = problem.distance.iter().copied().fold(1.0, f64::max);
        let bar = 1.0 + 4.0 * (far * total + options.move_cost * mean * graph.replicas() as f64);
        let cells = bars.cells().iter();
        problem.bars = cells
            .map(|&barred| if barred { bar } else { 0.0 })
            .collect();
    }
    problem
}

/// Returns, for each service, the node with most of its replicas, which becomes the node of the whole service.
fn whole_of(present: &Placement, services: usize) -> Vec<u32> {
    let mut whole = Vec::new();
    for service in 0..services {
        let row = present.service(service);
        // The first of equals.
        let most = row.iter().max().copied().filter(|most| *most > 0);
        let home = most.and_then(|most| row.iter().position(|count| *count == most));
        whole.extend((0..row.len()).map(|node| u32::from(Some(node) == home)));
    }
    whole
}
