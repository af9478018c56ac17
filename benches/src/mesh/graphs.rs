//! Fig. 7 of the paper on LOR: applications of four services, hub-and-spoke and chain, with R replicas of
//! each, compared with the simulator.
//!
//! The paper chose the throughput so that random balancing needs about 240 ms whatever R is; queues at a
//! fixed load do that by themselves: with four services of 20 ms in a row ρ = 2/3 yields
//! 4 · 20 / (1 − ρ) = 240 ms. Clients come through one proxy, as through the paper's ingress gateway; each
//! instance that calls has an outbound sidecar, and so R balancers stand before each further service.

use std::time::Duration;

use maglor_balance::PolicySpec;
use maglor_lab::chart::Figure;
use maglor_lab::des::{Graph, Proxies, Scenario};
use maglor_testkit::app::{Service, WorkModel};

use super::point::{self, Point};
use super::report::Report;
use super::shape::{Central, Shape};
use super::stage::{Case, Stage};
use crate::chart;
use crate::error::{Error, Result};
use crate::report::{Findings, Table, number};

const SERVICES: u16 = 4;
const RHO: f64 = 2.0 / 3.0;
const REPLICAS: [u32; 5] = [1, 2, 5, 10, 20];
const REPLICAS_QUICK: [u32; 2] = [2, 10];
/// The number of service times that queues in a row need to forget their initial state.
const SETTLING: u32 = 200;
const SIMULATED: u64 = 100_000;

/// The call graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Chain,
    Hub,
}

/// How calls are balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bounce,
    Ledger,
    Lor,
    ProxyService,
    Random,
}

#[derive(Debug, Clone)]
struct Cell {
    form: Form,
    way: Way,
    replicas: u32,
    point: Point,
}

impl Form {
    const ALL: [Self; 2] = [Self::Hub, Self::Chain];

    fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Hub => "hub-and-spoke",
        }
    }

    fn simulated(self) -> Graph {
        let services = SERVICES;
        match self {
            Self::Chain => Graph::Chain { services },
            Self::Hub => Graph::Hub { services },
        }
    }

    fn model(self, replicas: u32, service: Duration) -> WorkModel {
        let name = |index: u16| format!("s{index}");
        let one = |index: u16| {
            let callees: Vec<_> = match self {
                Self::Chain => (index + 1..SERVICES).take(1).map(name).collect(),
                Self::Hub if index == 0 => (1..SERVICES).map(name).collect(),
                Self::Hub => Vec::new(),
            };
            let service = Service::exponential(replicas, service.as_secs_f64());
            let service = if callees.is_empty() {
                service
            } else {
                service.calling(callees.iter().map(String::as_str))
            };
            (name(index), service)
        };
        WorkModel::new((0..SERVICES).map(one))
    }
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Random,
        Self::Lor,
        Self::ProxyService,
        Self::Bounce,
        Self::Ledger,
    ];
    const QUICK: [Self; 3] = [Self::Random, Self::Lor, Self::ProxyService];

    fn name(self) -> &'static str {
        match self {
            Self::Lor => "lor(choices=2)",
            Self::ProxyService => "Proxy-Service",
            Self::Bounce | Self::Ledger | Self::Random => self.policy(),
        }
    }

    fn collaborates(self) -> bool {
        matches!(self, Self::Bounce | Self::Ledger)
    }

    fn policy(self) -> &'static str {
        match self {
            Self::Bounce => "bounce(tries=3)",
            Self::Ledger => "ledger(group=40)",
            Self::Lor | Self::ProxyService => "lor(choices=2)",
            Self::Random => "random",
        }
    }
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let replicas: &[u32] = if stage.options.quick {
        &REPLICAS_QUICK
    } else {
        &REPLICAS
    };
    let mut points = Vec::new();
    let ways: &[Way] = if stage.options.quick {
        &Way::QUICK
    } else {
        &Way::ALL
    };
    for form in Form::ALL {
        for &way in ways {
            points.extend(replicas.iter().map(|&replicas| (form, way, replicas)));
        }
    }
    let scenarios = points
        .iter()
        .map(|&(form, way, replicas)| scenario(stage, form, way, replicas))
        .collect::<Result<Vec<_>>>()?;
    let outcomes = stage.simulate(&scenarios)?;
    let mut cells = Vec::new();
    for ((form, way, replicas), simulated) in points.into_iter().zip(outcomes) {
        let case = case(stage, form, way, replicas);
        let measured = stage.run(&case).await?;
        report.keep("graphs", &case.name, &measured)?;
        cells.push(Cell {
            form,
            way,
            replicas,
            point: Point {
                measured,
                simulated,
            },
        });
    }
    Ok(Findings {
        title: "Fig. 7 on real proxies: hub-and-spoke and chain".into(),
        text: text(stage, &cells),
        bars: point::bars("graphs", cells.iter().map(|cell| &cell.point)),
        charts: Form::ALL.map(|form| chart(form, &cells)).into(),
    })
}

fn scenario(stage: &Stage, form: Form, way: Way, replicas: u32) -> Result<Scenario> {
    let spec: std::result::Result<PolicySpec, _> = way.policy().parse();
    let spec = spec.map_err(|error| Error::parse("a policy", error.to_string()))?;
    Ok(Scenario {
        balancers: 1,
        servers: replicas,
        rho: RHO,
        service_time: stage.options.service(),
        graph: form.simulated(),
        proxies: (way == Way::ProxyService).then_some(Proxies {
            instances: 1,
            penalty: Duration::ZERO,
        }),
        requests: SIMULATED,
        seed: stage.options.seed,
        ..Scenario::of(spec.into())
    })
}

fn case(stage: &Stage, form: Form, way: Way, replicas: u32) -> Case {
    let service = stage.options.service();
    Case {
        name: format!("graphs: {}, {}, R = {replicas}", form.name(), way.name()),
        model: form.model(replicas, service),
        shape: Shape {
            entry: "s0".into(),
            entrances: 1,
            policy: way.policy().into(),
            outbound: true,
            inbound: way.collaborates(),
            collaborates: way.collaborates(),
            proxy_service: (way == Way::ProxyService).then(|| Central::everywhere(way.policy())),
            processes: 1,
        },
        rate: f64::from(replicas) * RHO / service.as_secs_f64(),
        paths: vec!["/api/v1".into()],
        users: None,
        warm_up: service * SETTLING,
        // The lower the rate, the longer it takes to estimate the mean.
        measured: if replicas < 5 {
            stage.options.measured(8, 40)
        } else {
            stage.options.measured(6, 20)
        },
    }
}

fn text(stage: &Stage, cells: &[Cell]) -> String {
    let before = ["graph", "policy", "R"];
    let after = ["proxies", "their CPU, µs a request", "failed"];
    let columns = before.iter().chain(&Point::COLUMNS).chain(&after);
    let mut table = Table::new(columns.copied());
    for cell in cells {
        let run = &cell.point.measured;
        let mut row = vec![
            cell.form.name().into(),
            cell.way.name().into(),
            cell.replicas.to_string(),
        ];
        row.extend(cell.point.cells(1));
        row.push(run.proxies.to_string());
        row.push(number(Some(run.cpu[0])));
        row.push(run.failed.to_string());
        table.row(row);
    }
    format!(
        "{SERVICES} services of {} ms (exponential), ρ = {RHO:.2}, R replicas of each; one ingress proxy, an outbound \
         sidecar beside each instance that calls, and with a Proxy-Service one more proxy before each service.\n\n{}",
        stage.options.service_ms,
        table.markdown()
    )
}

fn chart(form: Form, cells: &[Cell]) -> Figure {
    let mut lines = Vec::new();
    for way in Way::ALL {
        let same = |cell: &&Cell| cell.form == form && cell.way == way;
        let own = cells.iter().filter(same);
        let points = own.map(|cell| (f64::from(cell.replicas), &cell.point));
        lines.extend(point::lines(way.name(), points));
    }
    let (file, title) = match form {
        Form::Chain => ("graphs-chain", "Chain of four services"),
        Form::Hub => ("graphs-hub", "Hub-and-spoke of four services"),
    };
    chart::chart(
        file,
        title,
        "replicas R of each service",
        "mean latency, ms",
        lines,
    )
}
