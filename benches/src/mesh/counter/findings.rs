//! The table, the bars and the charts of the chain of counters.

use std::time::Duration;

use maglor_lab::chart::{Figure, Point, Series};

use super::INSTANCES;
use super::cell::{Cell, Run, Runs, Value};
use crate::bar::{Bar, beside_linkerd};
use crate::chart;
use crate::peer::Subject;
use crate::report::{Findings, Table, number};
use crate::stats::quantile;

/// The quantiles of a box: whiskers, quartiles, and the median in the middle.
const BOX: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

pub(super) fn findings(runs: &[Run], each: u32, mtls: bool, note: &str) -> Findings {
    let runs = Runs(runs);
    Findings {
        title: "The chain of counters".into(),
        text: note.to_owned() + &introduction(runs, each, mtls) + &table(runs),
        bars: bars(runs),
        charts: charts(runs),
    }
}

fn introduction(runs: Runs<'_>, each: u32, mtls: bool) -> String {
    let rounds = runs.0.iter().map(|run| run.round).max().unwrap_or_default();
    let between = match mtls {
        true => "mutual TLS between sidecars",
        false => "plain text",
    };
    format!(
        "Two deployments of {INSTANCES} instances, {each} requests a user, all users at once; {between}. A hop is a \
         call from service to service, with an outbound and an inbound pass of a sidecar; the client's is one. Memory is \
         the peak of all {} sidecars together (pages of the executable count in each); Pss and anonymous memory are \
         those at the end of the load. Rounds: {rounds}; values are medians over them, and the latencies of a box are \
         those of all. A bar compares every point, and its name has the worst one.\n\n",
        2 * INSTANCES + 1,
    )
}

fn table(runs: Runs<'_>) -> String {
    let mut table = Table::new([
        "services",
        "users",
        "sidecars",
        "mean ms",
        "p50",
        "p95",
        "p99",
        "requests a second",
        "sidecars, µs a hop",
        "application, µs a hop",
        "sidecars' memory, MB",
        "Pss / anonymous, MB",
        "failed",
    ]);
    for cell in runs.cells() {
        for mesh in runs.meshes() {
            table.row(row(runs, cell, mesh));
        }
    }
    table.markdown()
}

fn row(runs: Runs<'_>, cell: Cell, mesh: Subject) -> Vec<String> {
    let of = |value: Value| number(runs.median(mesh, cell, value));
    let of_sidecars = |value: Value| match mesh {
        Subject::Direct => number(None),
        _ => of(value),
    };
    let failed: usize = runs.at(mesh, cell).map(Run::failed).sum();
    vec![
        cell.services.to_string(),
        cell.users.to_string(),
        mesh_name(mesh),
        of(Run::mean),
        of(|run| run.quantile(0.5)),
        of(|run| run.quantile(0.95)),
        of(|run| run.quantile(0.99)),
        of(|run| run.throughput),
        of_sidecars(|run| run.cpu[0]),
        of(|run| run.cpu[1]),
        of_sidecars(|run| run.memory[1]),
        format!(
            "{} / {}",
            of_sidecars(|run| run.share[0]),
            of_sidecars(|run| run.share[1])
        ),
        failed.to_string(),
    ]
}

fn mesh_name(mesh: Subject) -> String {
    match mesh {
        Subject::Direct => "none".into(),
        other => other.to_string(),
    }
}

/// Names a bar and its worst point.
fn worst(what: &str, most: f64, found: Option<(Cell, f64)>) -> Bar {
    let name = match found {
        Some((cell, _)) => format!("counter: {what}, worst point ({cell})"),
        None => format!("counter: {what}, worst point"),
    };
    Bar::at_most(name, most, found.map(|(_, value)| value))
}

fn bars(runs: Runs<'_>) -> Vec<Bar> {
    let failed: usize = runs.0.iter().map(Run::failed).sum();
    let mut bars = vec![
        Bar::at_most("counter: failed requests", 0.0, Some(failed as f64)),
        worst(
            "CPU of sidecars a hop over that at the first point",
            1.25,
            runs.worst_growth(|run| run.cpu[0]),
        ),
        worst(
            "memory of sidecars, MB",
            500.0,
            runs.highest(|run| run.memory[1]),
        ),
    ];
    let meshes = runs.meshes();
    for (mesh, limits) in [
        (Subject::Envoy, BESIDE_ENVOY),
        (Subject::Linkerd, BESIDE_LINKERD),
    ] {
        if meshes.contains(&mesh) {
            bars.extend(beside(runs, mesh, limits));
        }
    }
    bars
}

/// The required ratios of Maglor's values to those of another mesh.
#[derive(Debug, Clone, Copy)]
struct Limits {
    latency: f64,
    cpu: f64,
    memory: f64,
}

const BESIDE_ENVOY: Limits = Limits {
    latency: 1.0,
    cpu: 0.5,
    memory: 0.33,
};

const BESIDE_LINKERD: Limits = Limits {
    latency: 1.0,
    cpu: 1.0,
    memory: beside_linkerd::MEMORY,
};

fn beside(runs: Runs<'_>, mesh: Subject, limits: Limits) -> impl Iterator<Item = Bar> {
    let Limits {
        latency,
        cpu,
        memory,
    } = limits;
    let values: [(&str, f64, Value); 7] = [
        ("mean latency", latency, Run::mean),
        ("p95", latency, |run| run.quantile(0.95)),
        ("p99", latency, |run| run.quantile(0.99)),
        ("CPU of sidecars a hop", cpu, |run| run.cpu[0]),
        ("memory of sidecars", memory, |run| run.memory[1]),
        ("Pss of sidecars", memory, |run| run.share[0]),
        ("anonymous memory of sidecars", memory, |run| run.share[1]),
    ];
    values.into_iter().map(move |(what, most, value)| {
        let what = format!("{what}, Maglor / {}", mesh_name(mesh));
        worst(&what, most, runs.worst_beside(mesh, value))
    })
}

fn charts(runs: Runs<'_>) -> Vec<Figure> {
    let mut services: Vec<_> = runs.cells().iter().map(|cell| cell.services).collect();
    services.dedup();
    let latency = services.iter().map(|&services| boxes(runs, services));
    let most = services.last().copied().unwrap_or_default();
    latency.chain([memory(runs, most)]).collect()
}

/// Draws the latencies of a length of the chain, as the paper does: a box for each number of users and mesh.
fn boxes(runs: Runs<'_>, services: u32) -> Figure {
    let series = runs.meshes().into_iter().map(|mesh| {
        let cells = runs.cells().into_iter();
        let cells = cells.filter(|cell| cell.services == services);
        Series {
            points: cells.map(|cell| of_all(runs, mesh, cell)).collect(),
            ..Series::new(mesh_name(mesh))
        }
    });
    let whiskers = "boxes: quartiles and median; whiskers: 5th and 95th percentile; all rounds";
    Figure {
        x_log: true,
        y_log: true,
        caption: vec![whiskers.into()],
        ..chart::chart(
            &format!("counter-latency-{services}"),
            &format!("Chain of {services} counters: latency"),
            "users",
            "latency, ms",
            series.collect(),
        )
    }
}

fn of_all(runs: Runs<'_>, mesh: Subject, cell: Cell) -> Point {
    let mut all: Vec<Duration> = runs
        .at(mesh, cell)
        .flat_map(|run| run.latencies.iter().copied())
        .collect();
    all.sort();
    Point::boxed(f64::from(cell.users), BOX.map(|q| quantile(&all, q)))
}

fn memory(runs: Runs<'_>, services: u32) -> Figure {
    let meshes = runs.meshes().into_iter();
    let series = meshes.filter(|mesh| *mesh != Subject::Direct).map(|mesh| {
        let cells = runs.cells().into_iter();
        let cells = cells.filter(|cell| cell.services == services);
        let points = cells.filter_map(|cell| {
            let memory = runs.median(mesh, cell, |run| run.memory[1])?;
            Some((f64::from(cell.users), memory))
        });
        chart::line(format!("{services} services, {}", mesh_name(mesh)), points)
    });
    chart::chart(
        "counter-memory",
        "Chain of counters: memory of the sidecars",
        "users",
        "MB",
        series.collect(),
    )
}
