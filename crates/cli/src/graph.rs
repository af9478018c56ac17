//! `maglor graph`: prints the calls between services with rates and latencies; from the controller,
//! a Prometheus or a file.

mod dot;
mod form;
mod labels;
mod prometheus;
mod rows;
mod svg;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use maglor_controller::graph::delays::Delay;
use maglor_controller::graph::parts::Part;
use maglor_controller::graph::{Node, Service, Snapshot};
use maglor_telemetry::command_line::output;
use serde::Deserialize;

use self::form::{Form, Kind};
use self::prometheus::{Mesh, Url};
use crate::input::read_text;
use crate::live::access::Where;
use crate::live::table::{Format, serialized};
use crate::live::{self, LiveError};

const EXAMPLES: &str = "\
Examples:
  Show the graph of the mesh of the current kubeconfig:
    maglor graph
  Draw it:
    maglor graph -o svg > graph.svg
    maglor graph -o dot | dot -Tpdf > graph.pdf
  Compute a placement for the current traffic:
    maglor graph -o graph > graph.json; maglor graph -o nodes > nodes.json
    maglor graph -o placement > now.json
    maglor plan placement --graph graph.json --nodes nodes.json --current now.json
  List calls for a spreadsheet, the services as YAML:
    maglor graph -o csv > calls.csv
    maglor graph --only services -o yaml
  Show it at noon, and every minute since then:
    maglor graph --at 2026-11-21T12:00:00Z
    maglor graph --since 2026-11-21T12:00:00Z -o json > snapshots.json
  Show the graph of another mesh, such as Istio, from Prometheus metrics of the last five minutes:
    maglor graph --prometheus http://127.0.0.1:9090 --mesh istio --window 5m
  Without Kubernetes:
    maglor graph --controller 127.0.0.1:15011

λ is calls per second, r the mean response time at the callers' proxies, p50 and p99 its quantiles, all over a moving
window; kB/s is the sum of both directions. Delays between nodes are one-way, from connection times: docs/graph.md.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Only services of this namespace and calls among them; node capacity is shown without the requests of other
    /// namespaces.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// Latest snapshot at or before this time (RFC 3339); the controller keeps one day.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,

    /// All snapshots since this time (RFC 3339), as JSON.
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    since: Option<String>,

    /// Read a snapshot from a file, as printed by `-o json`, or the last of several; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["at", "since", "prometheus"])]
    file: Option<PathBuf>,

    /// Read metrics from this Prometheus instead of the controller, as http://HOST:PORT.
    #[arg(long, value_name = "URL", conflicts_with = "since")]
    prometheus: Option<Url>,

    /// Service mesh that exports the metrics in Prometheus.
    #[arg(
        long,
        value_name = "MESH",
        value_enum,
        default_value_t,
        requires = "prometheus"
    )]
    mesh: Mesh,

    /// Averaging window for Prometheus metrics; the window of the controller is set by its --graph-window.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "60s",
        requires = "prometheus"
    )]
    window: humantime::Duration,

    /// Output format [default: table, or JSON with --since].
    #[arg(short, long, value_enum)]
    output: Option<Form>,

    /// Print only these rows [default: all; for CSV: calls].
    #[arg(long, value_enum, value_name = "ROWS", conflicts_with = "since")]
    only: Option<Kind>,

    #[command(flatten)]
    place: Where,
}

/// The output of `--since`, which is also the format of the controller's response.
#[derive(Debug, Deserialize, serde::Serialize)]
struct History {
    snapshots: Vec<Snapshot>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    live::run(async {
        if let Some(since) = &options.since {
            let format = format_of_history(options.output)?;
            let since = time("--since", since)?;
            let mut history = history(&options.place).await?;
            history
                .snapshots
                .retain(|one| one.at.parse().is_ok_and(|at: Time| at >= since));
            let snapshots = history.snapshots.into_iter();
            let snapshots = snapshots.map(|one| of_namespace(one, options)).collect();
            output::print(&serialized(&History { snapshots }, format));
            return Ok(());
        }
        let form = options.output.unwrap_or(Form::Rows(Format::Table));
        if options.only.is_some() && !matches!(form, Form::Rows(_)) {
            return Err(LiveError::Value {
                what: "--only",
                value: name(&options.only),
                expected: "this output has no rows: use -o table, wide, json, yaml or csv",
            });
        }
        let snapshot = of_namespace(snapshot(options).await?, options);
        output::print(&match form {
            Form::Rows(format) => rows::text(&snapshot, format, options.only),
            Form::Dot => dot::text(&snapshot),
            Form::Graph => snapshot.graph_file(),
            Form::Nodes => snapshot.nodes_file(),
            Form::Placement => snapshot.placement_file(),
            Form::Svg => svg::text(&snapshot),
        });
        Ok(())
    })
}

/// Several snapshots cannot be shown as a table or picture.
fn format_of_history(form: Option<Form>) -> Result<Format, LiveError> {
    match form {
        None | Some(Form::Rows(Format::Json)) => Ok(Format::Json),
        Some(Form::Rows(Format::Yaml)) => Ok(Format::Yaml),
        form => Err(LiveError::Value {
            what: "--output",
            value: name(&form),
            expected: "--since prints several snapshots, as json or yaml; --at TIME shows one snapshot in any format",
        }),
    }
}

/// Returns the name of a value on the command line.
fn name(value: &Option<impl ValueEnum>) -> String {
    let value = value.as_ref().and_then(ValueEnum::to_possible_value);
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

type Time = k8s_openapi::jiff::Timestamp;

fn time(what: &'static str, text: &str) -> Result<Time, LiveError> {
    text.parse().map_err(|_| LiveError::Value {
        what,
        value: text.to_owned(),
        expected: "a time such as 2026-11-21T12:00:00Z",
    })
}

async fn snapshot(options: &Options) -> Result<Snapshot, LiveError> {
    if let Some(path) = &options.file {
        return read(path);
    }
    let at = options
        .at
        .as_deref()
        .map(|at| time("--at", at))
        .transpose()?;
    if let Some(url) = &options.prometheus {
        return prometheus::snapshot(url, options.mesh, options.window.into(), at).await;
    }
    let Some(at) = at else {
        return now(&options.place).await;
    };
    let history = history(&options.place).await?;
    let until = history.snapshots.into_iter().rev();
    let mut until = until.filter(|one| one.at.parse().is_ok_and(|made: Time| made <= at));
    until.next().ok_or(LiveError::Value {
        what: "--at",
        value: at.to_string(),
        expected: "no snapshot at or before this time: the controller keeps the snapshots of one day, since its start",
    })
}

/// Reads a snapshot from a file; if the file contains a list, the last snapshot.
pub(crate) fn read(path: &std::path::Path) -> Result<Snapshot, LiveError> {
    let text = read_text(path).map_err(|source| LiveError::File {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).or_else(|source| {
        let several = serde_json::from_str(&text).ok();
        let last = several.and_then(|mut several: History| several.snapshots.pop());
        last.ok_or(LiveError::Snapshot {
            path: path.to_owned(),
            source,
        })
    })
}

/// Returns the merged graph of all controller replicas.
pub(crate) async fn now(place: &Where) -> Result<Snapshot, LiveError> {
    let replicas = place.controllers().await?;
    let [first, ..] = &replicas[..] else {
        return Ok(Snapshot::default());
    };
    let snapshot: Snapshot = first.admin.json("/graph").await?;
    if replicas.len() == 1 {
        return Ok(snapshot);
    }
    let mut parts: Vec<Vec<Part>> = Vec::new();
    let mut delays: Vec<Vec<Delay>> = Vec::new();
    for replica in &replicas {
        parts.push(replica.admin.json("/graph?parts").await?);
        delays.push(replica.admin.json("/graph?delays").await?);
    }
    Ok(snapshot.with_parts(&parts).with_delays(delays))
}

/// Returns the stored snapshots of all replicas. Replicas take snapshots at different times, so those of the same
/// minute are merged.
async fn history(place: &Where) -> Result<History, LiveError> {
    let mut all: Vec<Vec<Snapshot>> = Vec::new();
    for replica in place.controllers().await? {
        let history: History = replica.admin.json("/graph?history").await?;
        all.push(history.snapshots);
    }
    let mut all = all.into_iter();
    let mut snapshots = all.next().unwrap_or_default();
    for other in all {
        for snapshot in &mut snapshots {
            let at = snapshot.at.clone();
            let near = other.iter().min_by_key(|one| seconds_between(&one.at, &at));
            if let Some(near) = near.filter(|one| seconds_between(&one.at, &at) <= 60) {
                snapshot.add(near);
            }
        }
    }
    Ok(History { snapshots })
}

fn seconds_between(one: &str, other: &str) -> u64 {
    let second = |text: &str| text.parse().map_or(0, |time: Time| time.as_second());
    second(one).abs_diff(second(other))
}

fn of_namespace(mut snapshot: Snapshot, options: &Options) -> Snapshot {
    let Some(namespace) = &options.namespace else {
        return snapshot;
    };
    let is_in = |name: &str| name.split_once('/').is_some_and(|(of, _)| of == namespace);
    let (kept, others) = snapshot
        .services
        .into_iter()
        .partition(|one| is_in(&one.name));
    snapshot.services = kept;
    snapshot
        .edges
        .retain(|edge| is_in(&edge.from) && is_in(&edge.to));
    snapshot.splits.retain(|split| is_in(&split.service));
    take_room(&mut snapshot.nodes, &others);
    snapshot
}

/// Subtracts the requests of services that are not shown from the capacity of nodes.
fn take_room(nodes: &mut [Node], others: &[Service]) {
    for node in nodes {
        for other in others {
            let Some(&replicas) = other.nodes.get(&node.name) else {
                continue;
            };
            let replicas = u64::from(replicas);
            let take = |all: u64, each: u64| all.saturating_sub(each.saturating_mul(replicas));
            node.cpu_millis = take(node.cpu_millis, other.cpu_millis);
            node.memory_mib = take(node.memory_mib, other.memory_mib);
            node.pods = node.pods.map(|pods| take(pods, 1));
        }
    }
}
