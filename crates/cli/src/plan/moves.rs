//! `maglor plan moves`: computes a placement with its predicted gain, also for hypothetical failures of nodes and
//! growth of services.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use maglor_controller::graph::Snapshot;
use maglor_controller::graph::plan::{Moved, PlanError, plan};
use maglor_service_graph::{Objective, Routing};
use maglor_telemetry::command_line::output;
use serde::Serialize;

use super::placement::{Way, objective};
use crate::graph;
use crate::live::access::Where;
use crate::live::table::{self, Column, Format, Row};
use crate::live::{self, LiveError};

const EXAMPLES: &str = "\
Examples:
  Show the moves for the current traffic:
    maglor plan moves
  Simulate the failure of edge-2:
    maglor plan moves --without edge-2
  Simulate three times the load of cart, with four replicas:
    maglor plan moves --load shop/cart=3 --replicas shop/cart=4
  Minimize bytes, or calls times the measured delays between nodes:
    maglor plan moves --objective bytes
    maglor plan moves --objective latency
  Plan for local-first routing:
    maglor plan moves --routing local-first
  Plan from a snapshot of `maglor graph -o json`:
    maglor plan moves --file snapshot.json

The exit code is 1 if not everything fits. A plan is worth it if it saves at least a fifth of the calls across nodes (or of
their bytes or delay, by --objective), and a hundredth of all calls. Algorithm: docs/placement.md.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Options {
    /// Plan with this node failed; may be repeated.
    #[arg(long, value_name = "NODE")]
    without: Vec<String>,

    /// Plan with the calls to and from this service multiplied by FACTOR; may be repeated.
    #[arg(long, value_name = "SERVICE=FACTOR")]
    load: Vec<Assigned<f64>>,

    /// Plan with N replicas of this service; may be repeated.
    #[arg(long, value_name = "SERVICE=N")]
    replicas: Vec<Assigned<u32>>,

    /// Read a snapshot from a file, as printed by `maglor graph -o json`, instead of from the controller; `-` is
    /// standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Objective to minimize: traffic (calls per second), bytes, latency (calls times the delay between nodes), or
    /// mix:PART (PART of response time, the rest traffic).
    #[arg(long, value_name = "WHAT", default_value = "traffic", value_parser = objective)]
    objective: Objective,

    /// How calls are routed to replicas [default: local-first if `localFirst` applies to more than half of the calls,
    /// else even].
    #[arg(long, value_name = "WAY", value_enum)]
    routing: Option<Way>,

    /// Cost of a move, relative to the mean traffic of a replica.
    #[arg(long, value_name = "COST", default_value_t = 0.25)]
    move_cost: f64,

    /// Search seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    place: Where,
}

/// Maximum accepted factor or count.
const MOST: f64 = 1e6;

/// An option of the form `SERVICE=VALUE`.
#[derive(Clone, Debug)]
struct Assigned<T> {
    service: String,
    value: T,
}

impl<T: FromStr> FromStr for Assigned<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected SERVICE=NUMBER, such as shop/cart=2".to_owned();
        let (service, value) = text.split_once('=').ok_or_else(wrong)?;
        let number: f64 = value.parse().map_err(|_| wrong())?;
        let value: T = value.parse().map_err(|_| wrong())?;
        match number > 0.0 && number <= MOST {
            true => Ok(Self {
                service: service.to_owned(),
                value,
            }),
            false => Err(format!("the number must be above 0 and at most {MOST}")),
        }
    }
}

/// Replicas of a service that should be moved to another node.
#[derive(Debug, PartialEq, Serialize)]
struct Move {
    service: String,
    node: String,
    before: u32,
    after: u32,
}

impl Row for Move {
    const COLUMNS: &'static [Column] = &[
        Column::text("SERVICE").of("service"),
        Column::text("NODE").of("node"),
        Column::number("REPLICAS NOW").of("before"),
        Column::number("PLANNED").of("after"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.service.clone(),
            self.node.clone(),
            self.before.to_string(),
            self.after.to_string(),
        ]
    }
}

/// A plan and its expected effect.
#[derive(Debug, Serialize)]
struct Report {
    feasible: bool,
    /// Reason against the plan, with numbers; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The assumed routing of calls.
    routing: &'static str,
    /// Calls per second, in total.
    total: f64,
    /// Current calls per second across nodes, between replicas on nodes that still exist.
    cut_now: f64,
    /// Calls per second across nodes according to the plan; `None` without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_planned: Option<f64>,
    /// Whether the controller would carry out the plan.
    worth_it: bool,
    moves: Vec<Move>,
}

/// Prints the plan. The exit code is 1 if not all replicas fit.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut fits = true;
    let code = live::run(async {
        let mut snapshot = match &options.file {
            Some(path) => graph::read(path)?,
            None => graph::now(&options.place).await?,
        }
        .placed();
        suppose(&mut snapshot, options)?;
        let report = report(&snapshot, options).map_err(|error| {
            let file = options.file.as_ref();
            let place = file.map(|file| format!("{}: ", file.display()));
            LiveError::Plan(format!("{}{error}", place.unwrap_or_default()))
        })?;
        fits = report.feasible;
        show(&report, options.output);
        Ok(())
    });
    match fits {
        true => code,
        false => ExitCode::FAILURE,
    }
}

fn unknown(what: &'static str, value: &str, expected: &'static str) -> LiveError {
    LiveError::Value {
        what,
        value: value.to_owned(),
        expected,
    }
}

/// Applies the assumptions of the options.
fn suppose(snapshot: &mut Snapshot, options: &Options) -> Result<(), LiveError> {
    if snapshot.nodes.is_empty() {
        return Err(LiveError::Plan(match &options.file {
            Some(file) => format!(
                "{}: the snapshot has no nodes; `maglor graph -o json` includes them if the controller watches nodes",
                file.display()
            ),
            None => {
                "the controller has no nodes; it reads the Nodes of Kubernetes, or of its --folder"
                    .to_owned()
            }
        }));
    }
    for node in &options.without {
        let before = snapshot.nodes.len();
        snapshot.nodes.retain(|one| one.name != *node);
        if snapshot.nodes.len() == before {
            return Err(unknown(
                "--without",
                node,
                "unknown node; `maglor graph -o nodes` lists the nodes",
            ));
        }
    }
    const NO_SERVICE: &str = "unknown service; `maglor graph` lists the services";
    for Assigned { service, value } in &options.load {
        if !snapshot.services.iter().any(|one| one.name == *service) {
            return Err(unknown("--load", service, NO_SERVICE));
        }
        for edge in &mut snapshot.edges {
            if edge.from == *service || edge.to == *service {
                edge.rps *= value;
                edge.bytes_per_second *= value;
            }
        }
    }
    for Assigned { service, value } in &options.replicas {
        let found = snapshot
            .services
            .iter_mut()
            .find(|one| one.name == *service);
        let found = found.ok_or_else(|| unknown("--replicas", service, NO_SERVICE))?;
        found.replicas = *value;
    }
    Ok(())
}

fn report(snapshot: &Snapshot, options: &Options) -> Result<Report, PlanError> {
    let search = maglor_service_graph::Options {
        seed: options.seed,
        objective: options.objective,
        move_cost: options.move_cost,
        ..maglor_service_graph::Options::default()
    };
    let planned = plan(snapshot, search, options.routing.map(Routing::from))?;
    Ok(Report {
        feasible: planned.reason.is_none(),
        routing: match planned.routing {
            Routing::Even => "even",
            Routing::LocalFirst => "local-first",
        },
        total: planned.total,
        cut_now: planned.cut_now,
        cut_planned: planned.cut_planned,
        worth_it: planned.worth_it,
        moves: planned.services.iter().flat_map(moves).collect(),
        reason: planned.reason,
    })
}

/// Returns the nodes where a service would have another number of replicas.
fn moves(service: &Moved) -> impl Iterator<Item = Move> {
    let nodes: BTreeSet<&String> = service.now.keys().chain(service.planned.keys()).collect();
    let moves = nodes.into_iter().map(|node| {
        let replicas = |counts: &BTreeMap<String, u32>| counts.get(node).copied().unwrap_or(0);
        Move {
            service: service.name.clone(),
            node: node.clone(),
            before: replicas(&service.now),
            after: replicas(&service.planned),
        }
    });
    moves.filter(|one| one.before != one.after)
}

fn show(report: &Report, format: Format) {
    match format {
        Format::Json | Format::Yaml => return output::print(&table::serialized(report, format)),
        // Only the moves: the reason why there is no plan is not one of their records.
        Format::Csv => {
            if let Some(reason) = &report.reason {
                eprintln!("not everything fits: {reason}");
            }
            return output::print(&table::csv(&report.moves));
        }
        Format::Table | Format::Wide => {}
    }
    if let Some(reason) = &report.reason {
        output::print(&format!("not everything fits: {reason}\n"));
        return;
    }
    let share = |cut: f64| match report.total > 0.0 {
        true => 100.0 * cut / report.total,
        false => 0.0,
    };
    let planned = report.cut_planned.unwrap_or(report.cut_now);
    let mut text = String::new();
    if !report.moves.is_empty() {
        text = table::text(&report.moves, format) + "\n";
    }
    text += &format!(
        "calls across nodes: {:.1}/s now ({:.0} %), {planned:.1}/s by the plan ({:.0} %), of {:.1}/s; \
         routing: {}\n",
        report.cut_now,
        share(report.cut_now),
        share(planned),
        report.total,
        report.routing,
    );
    text += match (report.moves.is_empty(), report.worth_it) {
        (true, _) => "no moves needed\n",
        (false, true) => "the plan is worth it\n",
        (false, false) => "the plan is not worth it: the controller would move nothing\n",
    };
    output::print(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_above_zero() {
        let load: Assigned<f64> = "shop/cart=2.5".parse().unwrap();
        assert_eq!((&*load.service, load.value), ("shop/cart", 2.5));
        for bad in [
            "cart",
            "cart=",
            "cart=0",
            "cart=-1",
            "cart=nan",
            "cart=inf",
            "cart=1e300",
        ] {
            assert!(bad.parse::<Assigned<f64>>().is_err(), "{bad}");
        }
        assert!("cart=1.5".parse::<Assigned<u32>>().is_err());
    }
}
