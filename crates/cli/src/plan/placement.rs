//! `maglor plan placement`: computes the placement of services on nodes, from files, as JSON or as
//! affinities of pods.

mod affinity;

use std::ops::RangeBounds;
use std::path::PathBuf;
use std::process::ExitCode;

use maglor_service_graph::file;
use maglor_service_graph::{
    Graph, Infeasible, Node, Nodes, Objective, Outcome, PartitionError, Placement, Plan, Routing,
    Selection, Use, partition,
};
use maglor_telemetry::command_line::output;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::input::{InputError, read};

const EXAMPLES: &str = "\
The graph file lists services and calls; replicas of a service are equal:
    services:
    - {name: web,  replicas: 2, cpu_millis: 250, memory_mib: 128}   # per replica
    - {name: cart, replicas: 3, cpu_millis: 100, memory_mib: 64, max_per_node: 2}
    edges:                                       # repeated pairs add up
    - {from: web, to: cart, rps: 120, latency_ms: 3.5}
  optional for a service: pinned: true (not moved from --current); for an edge: bytes_per_second.
The nodes file lists the capacity for these services:
    nodes:
    - {name: edge-1, cpu_millis: 1000, memory_mib: 1024}
    - {name: edge-2, cpu_millis: 500,  memory_mib: 512, pods: 20}
    delays: [{from: edge-1, to: edge-2, ms: 5}]  # for --objective latency; optional; for a mesh,
                                                 # `maglor graph -o nodes` prints measured ones

Result, as JSON:
  feasible   whether everything fits; otherwise reason explains it, and the exit code is 1
  cut        calls per second across nodes, with local replicas preferred within an even share
             (--routing even: any replica); total: all calls per second
  placement  {service: {node: replicas}}
  moves      replicas to move, relative to --current
  cost       value of --objective
  bound      lower bound of the cost; optimal: the placement is proved optimal, with --current
             including the cost of moves
An invalid file is reported with its line; the exit code is 2.

Examples:
  Compute a placement:
    maglor plan placement --graph graph.yaml --nodes nodes.yaml > plan.json
  Compute the moves that pay off after a change of traffic:
    maglor plan placement --graph today.yaml --nodes nodes.yaml --current plan.json
  Simulate the failure of edge-2: remove it from the nodes file, and keep --current.
  Limit nodes to 10 % above their share, and a service to half of its replicas on a node:
    maglor plan placement --graph graph.yaml --nodes nodes.yaml --balance 0.1 --max-share 0.5
  Use as few nodes as possible, as the paper recommends:
    maglor plan placement --graph graph.yaml --nodes nodes.yaml --use fewest
  For a mesh without local-first routing:
    maglor plan placement --graph graph.yaml --nodes nodes.yaml --routing even
  As in the paper: place whole services, and patch affinities into the Deployments, which are
  named after their services and whose pods have the label app:
    maglor plan placement --graph graph.yaml --nodes nodes.yaml --whole-services --emit affinity \
      | kubectl apply --server-side --field-manager placement -f -

Equal inputs and seeds produce equal placements. Algorithm: docs/placement.md.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Options {
    /// Services and calls (YAML or JSON); `-` is standard input, for one of the files.
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,

    /// Nodes and their capacity (YAML or JSON).
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,

    /// Current placement, as printed by this command; only moves that pay off are made.
    #[arg(long, value_name = "FILE")]
    current: Option<PathBuf>,

    /// Search seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Search effort relative to the default, which is about 1 ms per replica.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = effort)]
    effort: f64,

    /// Objective to minimize: traffic (calls per second), bytes, latency (calls times the delay between nodes), or
    /// mix:PART (PART of response time, the rest traffic).
    #[arg(long, value_name = "WHAT", default_value = "traffic", value_parser = objective)]
    objective: Objective,

    /// How calls are routed to replicas.
    #[arg(long, value_name = "WAY", value_enum, default_value_t)]
    routing: Way,

    /// Place services as a whole, as the paper in docs/placement.md does: all replicas of a service on one node.
    #[arg(long)]
    whole_services: bool,

    /// What to print.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    emit: Emit,

    /// With --emit affinity: the pod label whose value is the service's name without the namespace.
    #[arg(long, value_name = "KEY", default_value = "app")]
    label: String,

    /// Nodes to use: all, fewest, or a number; nodes with the most free capacity first.
    #[arg(long = "use", value_name = "NODES", default_value = "all", value_parser = usage)]
    usage: Use,

    /// Maximum excess over a node's proportional share of each resource, such as 0.1.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    balance: Option<f64>,

    /// Maximum share of a service's replicas on one node, rounded up.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = max_share)]
    max_share: f64,

    /// Cost of a move, relative to the mean traffic of a replica.
    #[arg(long, value_name = "COST", default_value_t = 0.25, value_parser = amount)]
    move_cost: f64,

    /// Latency of calls across nodes, in milliseconds, above which the called service is moved to the nodes of its
    /// callers, if those have enough free capacity.
    #[arg(long, value_name = "MS", value_parser = amount)]
    tau: Option<f64>,
}

/// How calls are routed to replicas.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum Way {
    /// Any replica, on any node.
    Even,
    /// Replicas on the caller's node first, within an even share.
    #[default]
    LocalFirst,
}

impl From<Way> for Routing {
    fn from(way: Way) -> Self {
        match way {
            Way::Even => Self::Even,
            Way::LocalFirst => Self::LocalFirst,
        }
    }
}

/// The part of a placement to print.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum Emit {
    /// Preferred affinities of Deployments for the scheduler: YAML for `kubectl apply --server-side`.
    Affinity,
    /// The whole placement, as JSON.
    #[default]
    Plan,
}

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// Prints the placement. The exit code is 1 if there is none, and 2 if the input is invalid.
pub(crate) fn run(options: &Options) -> ExitCode {
    match options.partition() {
        Ok((text, None)) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Ok((text, Some(infeasible))) => {
            output::print(&text);
            eprintln!("maglor plan placement: {infeasible}");
            ExitCode::from(1)
        }
        Err(failure) => {
            eprintln!("maglor plan placement: {failure}");
            ExitCode::from(2)
        }
    }
}

impl Options {
    /// Returns the output, and the reason if there is no placement.
    fn partition(&self) -> Result<(String, Option<Infeasible>), Failure> {
        let graph = read(&self.graph, file::graph)?;
        let mut nodes = read(&self.nodes, file::nodes)?;
        let known = nodes.all().len();
        let current = match &self.current {
            Some(path) => {
                let current = read(path, file::placement)?;
                let gone = current.gone(&nodes);
                nodes.add_gone(&gone);
                let placement = current.of(&graph, &nodes);
                Some(placement.map_err(|error| InputError::of(path, error))?)
            }
            None => None,
        };
        let options = maglor_service_graph::Options {
            seed: self.seed,
            effort: self.effort,
            objective: self.objective,
            routing: self.routing.into(),
            selection: Selection {
                nodes: self.usage,
                balance: self.balance,
            },
            max_share: self.max_share,
            whole: self.whole_services,
            move_cost: self.move_cost,
            tau_ms: self.tau,
            bars: maglor_service_graph::Bars::default(),
        };
        let outcome = partition(&graph, &nodes, current.as_ref(), &options)?;
        Ok(match (outcome, self.emit) {
            (Outcome::Infeasible(infeasible), Emit::Affinity) => (String::new(), Some(infeasible)),
            (Outcome::Infeasible(infeasible), Emit::Plan) => {
                let refusal = refusal(&graph, &infeasible);
                (format!("{refusal:#}\n"), Some(infeasible))
            }
            (Outcome::Placed(plan), Emit::Affinity) => {
                let text = affinity::documents(&graph, &nodes, &plan.placement, &self.label);
                (text, None)
            }
            (Outcome::Placed(plan), Emit::Plan) => {
                let result = result(&graph, &nodes, known, &plan);
                (format!("{result:#}\n"), None)
            }
        })
    }
}

fn result(graph: &Graph, nodes: &Nodes, known: usize, plan: &Plan) -> Value {
    json!({
        "feasible": true,
        "cut": plan.cut,
        "total": graph.rps(),
        "cost": plan.cost,
        "bound": plan.bound,
        "optimal": plan.optimal,
        "moves": plan.moves,
        "placement": placement(graph, nodes, &plan.placement),
        "nodes": loads(graph, nodes, known, &plan.placement),
    })
}

fn placement(graph: &Graph, nodes: &Nodes, placement: &Placement) -> Map<String, Value> {
    let services = graph.services().iter().enumerate();
    let row = |(index, service): (usize, &maglor_service_graph::Service)| {
        let row = json!(placement.by_node(index, nodes));
        (service.name.clone(), row)
    };
    services.map(row).collect()
}

/// Returns the resource requests on each node.
fn loads(graph: &Graph, nodes: &Nodes, known: usize, placement: &Placement) -> Map<String, Value> {
    let loads = placement.loads(graph);
    let loads = nodes.all().iter().zip(loads).take(known);
    let load = |(node, [cpu, memory, pods]): (&Node, [u64; 3])| {
        let load = json!({"cpu_millis": cpu, "memory_mib": memory, "pods": pods});
        (node.name.clone(), load)
    };
    loads.map(load).collect()
}

fn refusal(graph: &Graph, infeasible: &Infeasible) -> Value {
    json!({
        "feasible": false,
        "reason": infeasible.to_string(),
        "cut": null,
        "total": graph.rps(),
        "placement": {},
        "moves": 0,
    })
}

pub(crate) fn objective(text: &str) -> Result<Objective, String> {
    match text
        .split_once(':')
        .map_or((text, None), |(name, part)| (name, Some(part)))
    {
        ("bytes", None) => Ok(Objective::Bytes),
        ("latency", None) => Ok(Objective::Latency),
        ("traffic", None) => Ok(Objective::Traffic),
        ("mix", Some(part)) => {
            let response = part.parse().ok().filter(|part| (0.0..=1.0).contains(part));
            let response = response.ok_or("mix:PART needs a number from 0 to 1")?;
            Ok(Objective::Mix { response })
        }
        _ => Err("expected traffic, bytes, latency or mix:PART".to_owned()),
    }
}

fn usage(text: &str) -> Result<Use, String> {
    match text {
        "all" => Ok(Use::All),
        "fewest" => Ok(Use::Fewest),
        count => {
            let count = count.parse().ok().filter(|count| *count > 0);
            count
                .map(Use::Top)
                .ok_or("expected all, fewest, or a number above 0".to_owned())
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0..1000.0, "must be a number from 0")
}

fn effort(text: &str) -> Result<f64, String> {
    let valid = "must be a number above 0 and at most 1000";
    number(text, 1e-6..=1000.0, valid)
}

fn max_share(text: &str) -> Result<f64, String> {
    let valid = "must be a number above 0 and at most 1";
    number(text, 1e-9..=1.0, valid)
}

fn amount(text: &str) -> Result<f64, String> {
    number(text, 0.0..=f64::MAX, "must be a number from 0")
}

fn number(text: &str, range: impl RangeBounds<f64>, valid: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| valid.to_owned())
}
