//! Fig. 5 of the paper on LOR, on real proxies: FIFO servers behind M outbound proxies, each with
//! its share of a Poisson stream, compared with the simulator with the same parameters.
//!
//! The paper's own Fig. 5 has 20 servers (`--servers 20`) and one policy; its Figs. 3 and 9 have the parameters that
//! are used here by default: N = 40, exponential service of 20 ms, ρ = 0.75.

use std::time::Duration;

use maglor_balance::PolicySpec;
use maglor_lab::chart::Figure;
use maglor_lab::des::{Network, Proxies, Scenario};
use maglor_testkit::app::{Service, WorkModel};

use super::fleet;
use super::point::{self, Point};
use super::report::Report;
use super::shape::{Central, Shape};
use super::stage::{Case, Stage};
use crate::bar::Bar;
use crate::chart;
use crate::error::{Error, Result};
use crate::report::{Findings, Table, number};

const RHO: f64 = 0.75;
const BALANCERS: [u32; 6] = [1, 2, 5, 10, 20, 40];
const BALANCERS_QUICK: [u32; 3] = [1, 10, 40];
const POLICIES: [&str; 6] = [
    "random",
    "lor(choices=2)",
    "lor(choices=all)",
    "a-lsq(choices=2,overhead=10)",
    "bounce(tries=3)",
    "ledger(group=40)",
];
/// The policy of a Proxy-Service in the paper.
const CENTRAL: &str = "lor(choices=2)";
/// The number of service times that a queue needs to forget its initial state.
const SETTLING: u32 = 250;
/// The limit of the mean latency with four balancers that use true queues, relative to one.
const MANY_AS_ONE: f64 = 1.05;
/// The number of simulated requests of each point: ten runs of this number.
const SIMULATED: u64 = 300_000;

/// A line of the figure.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    /// The name in tables and legends.
    name: String,
    policy: String,
    inbound: bool,
    collaborates: bool,
    central: bool,
}

/// A point of the figure.
#[derive(Debug, Clone)]
struct Cell {
    way: Way,
    balancers: u32,
    point: Point,
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let (ways, skipped) = ways(stage)?;
    let servers = stage.options.servers;
    let balancers: Vec<u32> = match (&*stage.options.balancers, stage.options.quick) {
        ([], true) => up_to(servers, &BALANCERS_QUICK),
        ([], false) => up_to(servers, &BALANCERS),
        (passed, _) => passed.into(),
    };
    let mut points = Vec::new();
    for way in &ways {
        points.extend(balancers.iter().map(|&balancers| (way, balancers)));
    }
    let scenarios = points
        .iter()
        .map(|(way, balancers)| scenario(stage, way, *balancers))
        .collect::<Result<Vec<_>>>()?;
    let outcomes = stage.simulate(&scenarios)?;
    let mut cells = Vec::new();
    for ((way, balancers), simulated) in points.into_iter().zip(outcomes) {
        let case = case(stage, way, balancers);
        let measured = stage.run(&case).await?;
        report.keep("balance", &format!("{} M={balancers}", way.name), &measured)?;
        cells.push(Cell {
            way: way.clone(),
            balancers,
            point: Point {
                measured,
                simulated,
            },
        });
    }
    Ok(Findings {
        title: "Fig. 5 on real proxies".into(),
        text: text(stage, &cells, &skipped),
        bars: bars(&cells),
        charts: vec![chart(&ways, &cells)],
    })
}

/// Returns the numbers of balancers that are not above the number of servers: each has at least one of its own.
fn up_to(servers: u32, balancers: &[u32]) -> Vec<u32> {
    let few = balancers.iter().copied();
    few.filter(|&balancers| balancers <= servers).collect()
}

/// Returns the lines to measure, and those that the proxy rejects, with its reason.
fn ways(stage: &Stage) -> Result<(Vec<Way>, Vec<String>)> {
    let asked = &stage.options.policies;
    let policies: Vec<&str> = if asked.is_empty() {
        POLICIES.into()
    } else {
        asked.iter().map(String::as_str).collect()
    };
    let (mut ways, mut skipped) = (Vec::new(), Vec::new());
    let way = |name: &str, policy: &str| Way {
        name: name.into(),
        policy: policy.into(),
        inbound: false,
        collaborates: false,
        central: false,
    };
    for policy in policies {
        if let Some(reason) = fleet::refusal(&stage.maglor, policy)? {
            skipped.push(format!("`{policy}`: {reason}"));
            continue;
        }
        // Collaborative policies need the inbound proxies.
        let collaborates = spec(policy)?.is_collaborative();
        ways.push(Way {
            inbound: collaborates,
            collaborates,
            ..way(policy, policy)
        });
        if policy == CENTRAL {
            ways.push(Way {
                inbound: true,
                ..way(&format!("{policy} + inbound"), policy)
            });
            ways.push(Way {
                central: true,
                ..way("Proxy-Service", policy)
            });
        }
    }
    Ok((ways, skipped))
}

fn spec(policy: &str) -> Result<PolicySpec> {
    let parsed: std::result::Result<PolicySpec, _> = policy.parse();
    parsed.map_err(|error| Error::parse(format!("the policy {policy}"), error.to_string()))
}

fn scenario(stage: &Stage, way: &Way, balancers: u32) -> Result<Scenario> {
    let base = Scenario::of(spec(&way.policy)?.into());
    Ok(Scenario {
        balancers,
        servers: stage.options.servers,
        rho: RHO,
        service_time: stage.options.service(),
        network: Network {
            // A loopback's; the calibration shows the cost of a hop through a proxy.
            delay: Duration::from_micros(250),
            loss: 0.0,
            report_loss: 0.0,
        },
        proxies: way.central.then_some(Proxies {
            instances: 1,
            penalty: Duration::ZERO,
        }),
        requests: SIMULATED,
        seed: stage.options.seed,
        ..base
    })
}

fn case(stage: &Stage, way: &Way, balancers: u32) -> Case {
    let service = stage.options.service();
    let server = Service::exponential(stage.options.servers, service.as_secs_f64());
    Case {
        name: format!("balance: {}, M = {balancers}", way.name),
        model: WorkModel::new([("s1".to_owned(), server)]),
        shape: Shape {
            entry: "s1".into(),
            entrances: balancers,
            policy: way.policy.clone(),
            outbound: false,
            inbound: way.inbound,
            collaborates: way.collaborates,
            proxy_service: way.central.then(|| Central::everywhere(CENTRAL)),
            processes: 1,
        },
        rate: f64::from(stage.options.servers) * RHO / service.as_secs_f64(),
        paths: vec!["/api/v1".into()],
        users: None,
        warm_up: service * SETTLING,
        measured: stage.options.measured(8, 30),
    }
}

fn text(stage: &Stage, cells: &[Cell], skipped: &[String]) -> String {
    let before = ["policy", "inbound", "M"];
    let after = ["proxies, µs a request", "proxies busy %", "failed"];
    let columns = before.iter().chain(&Point::COLUMNS).chain(&after);
    let mut table = Table::new(columns.copied());
    for cell in cells {
        let run = &cell.point.measured;
        let mut row = vec![
            cell.way.name.clone(),
            if cell.way.inbound { "yes" } else { "no" }.into(),
            cell.balancers.to_string(),
        ];
        row.extend(cell.point.cells(2));
        row.push(number(Some(run.cpu[0])));
        row.push(number(Some(run.proxies_busy)));
        row.push(run.failed.to_string());
        table.row(row);
    }
    let mut text = format!(
        "{} FIFO servers, exponential service of {} ms, ρ = {RHO}; M outbound proxies, each with its share of \
         Poisson arrivals. Intervals are 95 %, by ten batch means, of the simulator by ten runs. *Added* is what is not in \
         the servers' exact queues.\n\n{}",
        stage.options.servers,
        stage.options.service_ms,
        table.markdown()
    );
    if !skipped.is_empty() {
        text.push_str("\nNot measured:\n\n");
        for line in skipped {
            text.push_str(&format!("- {line}\n"));
        }
    }
    text
}

fn bars(cells: &[Cell]) -> Vec<Bar> {
    let at_40 = |policy: &str| {
        let mut own = cells.iter().filter(|cell| cell.balancers == 40);
        own.find(|cell| cell.way.policy == policy && !cell.way.central)
            .map(|cell| cell.point.measured.mean.value)
    };
    let mut bars = point::bars("balance", cells.iter().map(|cell| &cell.point));
    if let Some((ledger, lor)) = at_40("ledger(group=40)").zip(at_40("lor(choices=2)")) {
        bars.push(Bar::at_most(
            "balance: ledger / lor(2) at M = 40",
            0.4,
            Some(ledger / lor),
        ));
    }
    bars.extend(many_as_one(cells));
    bars
}

/// Returns the bar for several balancers that use true queues against one: the cost of more than
/// one proxy of a `ProxyService` (`--balancers 1,4`).
fn many_as_one(cells: &[Cell]) -> Vec<Bar> {
    let mean = |way: &Way, balancers: u32| {
        let mut own = cells.iter().filter(|cell| cell.way == *way);
        let found = own.find(|cell| cell.balancers == balancers);
        found.map(|cell| cell.point.measured.mean.value)
    };
    let alone = cells.iter().filter(|cell| cell.balancers == 1);
    let ways = alone
        .map(|cell| &cell.way)
        .filter(|way| way.collaborates && !way.policy.starts_with("a-lsq"));
    let bar = |way: &Way| {
        let ratio = mean(way, 4)? / mean(way, 1)?;
        let name = format!("balance: {}, four balancers / one", way.name);
        Some(Bar::at_most(name, MANY_AS_ONE, Some(ratio)))
    };
    ways.filter_map(bar).collect()
}

fn chart(ways: &[Way], cells: &[Cell]) -> Figure {
    let mut lines = Vec::new();
    for way in ways {
        let own = cells.iter().filter(|cell| cell.way == *way);
        let points = own.map(|cell| (f64::from(cell.balancers), &cell.point));
        lines.extend(point::lines(&way.name, points));
    }
    chart::chart(
        "balance",
        "Mean latency behind M outbound proxies",
        "outbound proxies M",
        "ms",
        lines,
    )
}
