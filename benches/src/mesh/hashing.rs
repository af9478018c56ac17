//! The central claim of the paper on Maglev hashing, that the policy lowers processor time and memory: `maglev` beside
//! `ring-hash`, `lor` and `round-robin` in the same proxy, at the paper's 20, 200 and 2000 requests a second.
//!
//! One proxy is before 40 servers, which answer after a constant time, so that nothing but the policy differs. The key of
//! a request is the address of one of 200 clients. What a hash policy does change is computed from the balancer itself
//! ([`keys`]): the balance of keys, and how many keep their server when one leaves.

mod keys;

use std::time::Duration;

use maglor_lab::des::Estimate;
use maglor_testkit::app::{Service, WorkModel};

use super::calibrate::without_queue;
use super::report::Report;
use super::shape::Shape;
use super::stage::{Case, Measured, Stage};
use crate::bar::Bar;
use crate::error::Result;
use crate::report::{Findings, Table, interval, number};

const POLICIES: [&str; 4] = ["round-robin", "lor(choices=2)", "ring-hash", MAGLEV];
const MAGLEV: &str = "maglev";
/// The policy that ratios are relative to.
const PLAIN: &str = "round-robin";
/// As in the paper.
const RATES: [u32; 3] = [20, 200, 2000];
const SERVERS: u32 = 40;
const SERVICE: Duration = Duration::from_millis(1);
const CLIENTS: u32 = 200;
const ROUNDS: u32 = 5;
const WARM_UP: Duration = Duration::from_secs(2);
/// The tolerated difference of `maglev` from the other policies in processor time and memory: the experiment expects none.
const TOLERANCE: f64 = 0.05;

/// A policy at a rate, in all rounds.
#[derive(Debug, Clone)]
struct Cell {
    policy: &'static str,
    rate: u32,
    runs: Vec<Measured>,
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let rounds = stage.options.rounds(ROUNDS);
    let cell = |rate| {
        move |policy| Cell {
            policy,
            rate,
            runs: Vec::new(),
        }
    };
    let mut cells: Vec<_> = RATES
        .iter()
        .flat_map(|&rate| POLICIES.map(cell(rate)))
        .collect();
    for round in 0..rounds {
        let stage = stage.seeded(u64::from(round));
        for cell in &mut cells {
            let case = case(&stage, cell);
            let measured = stage.run(&case).await?;
            let name = format!("{}, round {round}", case.name);
            report.keep("hashing", &name, &measured)?;
            cell.runs.push(measured);
        }
    }
    let keys = keys::all(&POLICIES, stage.options.quick)?;
    report.folder.write("keys.csv", &keys::csv(&keys))?;
    let text = format!(
        "One proxy before {SERVERS} servers that answer after {} ms, {CLIENTS} clients whose addresses are the keys; {rounds} \
         runs, intervals of 95 % over runs. Ratios are those within a round, to `{PLAIN}`.\n\n{}\n{}",
        SERVICE.as_millis(),
        table(&cells),
        keys::text(&keys),
    );
    Ok(Findings {
        title: "Maglev hashing beside other policies".into(),
        text,
        bars: bars(&cells),
        charts: Vec::new(),
    })
}

fn case(stage: &Stage, cell: &Cell) -> Case {
    let server = Service::exponential(SERVERS, SERVICE.as_secs_f64());
    Case {
        name: format!("{}, {} requests a second", cell.policy, cell.rate),
        model: WorkModel::new([("s".to_owned(), without_queue(server))]),
        shape: Shape {
            entry: "s".into(),
            entrances: 1,
            policy: cell.policy.into(),
            outbound: false,
            inbound: false,
            collaborates: false,
            proxy_service: None,
            processes: 1,
        },
        rate: f64::from(cell.rate),
        paths: vec!["/api/v1".into()],
        users: Some(CLIENTS),
        warm_up: WARM_UP,
        measured: stage.options.measured(4, 12),
    }
}

impl Cell {
    fn over(&self, value: impl Fn(&Measured) -> f64) -> Estimate {
        Measured::over(&self.runs, value)
    }

    /// Returns the ratio of a value to that of another cell in the same round.
    fn ratio(&self, to: &Self, value: fn(&Measured) -> f64) -> Estimate {
        let pairs = self.runs.iter().zip(&to.runs);
        let values: Vec<_> = pairs
            .map(|(one, other)| value(one) / value(other))
            .collect();
        Estimate::of(values.iter().copied())
    }
}

fn cpu(run: &Measured) -> f64 {
    run.cpu[0]
}

/// Returns the requests of the busiest server over the mean of all.
fn busiest(run: &Measured) -> f64 {
    let work = run.pods.iter().map(|(_, work)| *work);
    let mean = work.clone().sum::<f64>() / run.pods.len().max(1) as f64;
    work.fold(0.0, f64::max) / mean
}

fn of<'a>(cells: &'a [Cell], policy: &str, rate: u32) -> Option<&'a Cell> {
    let mut all = cells.iter();
    all.find(|cell| cell.policy == policy && cell.rate == rate)
}

fn table(cells: &[Cell]) -> String {
    let mut table = Table::new([
        "policy",
        "requests a second",
        "**CPU, µs a request**",
        "ratio",
        "resident MB",
        "**anonymous MB**",
        "ratio",
        "added p50 µs",
        "busiest server / mean",
        "failed",
    ]);
    for cell in cells {
        let ratio = |value| {
            let plain = of(cells, PLAIN, cell.rate);
            plain.map_or_else(|| "–".into(), |plain| interval(cell.ratio(plain, value), 3))
        };
        let failed: usize = cell.runs.iter().map(|run| run.failed).sum();
        table.row(vec![
            cell.policy.into(),
            cell.rate.to_string(),
            interval(cell.over(cpu), 1),
            ratio(cpu),
            interval(cell.over(|run| run.memory), 2),
            interval(cell.over(|run| run.anonymous), 2),
            ratio(|run| run.anonymous),
            number(Some(cell.over(|run| 1000.0 * run.added_p50).value)),
            number(Some(cell.over(busiest).value)),
            failed.to_string(),
        ]);
    }
    format!("### CPU and memory of the proxy\n\n{}", table.markdown())
}

fn bars(cells: &[Cell]) -> Vec<Bar> {
    let failed: usize = cells
        .iter()
        .flat_map(|cell| &cell.runs)
        .map(|run| run.failed)
        .sum();
    let mut bars = vec![Bar::at_most(
        "hashing: failed requests",
        0.0,
        Some(failed as f64),
    )];
    for rate in RATES {
        let pair = of(cells, MAGLEV, rate).zip(of(cells, PLAIN, rate));
        let value = pair.map(|(maglev, plain)| maglev.ratio(plain, cpu).value);
        let what = format!("hashing: CPU of {MAGLEV} / {PLAIN}, {rate} requests a second");
        bars.push(Bar::at_most(what, 1.0 + TOLERANCE, value));
    }
    bars
}
