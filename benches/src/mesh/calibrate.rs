//! Measures the harness's own error first: the overhead of timers, sockets, generator and proxy
//! without a queue, and whether queues without any proxy agree with theory.

use std::time::Duration;

use maglor_testkit::app::{Service, WorkModel};

use super::report::Report;
use super::shape::Shape;
use super::stage::{Case, Measured, Stage};
use crate::bar::Bar;
use crate::error::Result;
use crate::report::{Findings, Table, number};

const SERVERS: u32 = 40;
const RHO: f64 = 0.75;
const WARM_UP: Duration = Duration::from_secs(2);
/// The number of service times for a queue at ρ = 0.75 to settle: several times its relaxation, (1
/// − √ρ)⁻² services.
const SETTLING: u32 = 250;

fn shape(entrances: u32, inbound: bool) -> Shape {
    Shape {
        entry: "s".into(),
        entrances,
        policy: "round-robin".into(),
        outbound: false,
        inbound,
        collaborates: false,
        proxy_service: None,
        processes: 1,
    }
}

/// The paths through the mesh, with the number of outbound proxies, and whether there are inbound
/// ones.
const WAYS: [(&str, u32, bool); 4] = [
    ("no queue, direct", 0, false),
    ("no queue, one outbound proxy", 1, false),
    ("no queue, 40 outbound proxies", 40, false),
    ("no queue, 40 outbound and 40 inbound", 40, true),
];

/// Runs the calibration.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let service = stage.options.service();
    let ms = 1000.0 * service.as_secs_f64();
    let mut table = Table::new([
        "way",
        "mean ms",
        "expected",
        "added µs",
        "added, p99, µs",
        "p99 ms",
        "timer late µs",
        "generator late µs",
        "proxies, µs a request",
    ]);
    let constant = without_queue(Service::exponential(SERVERS, service.as_secs_f64()));
    let mut harness = None;
    for (name, entrances, inbound) in WAYS {
        let shape = shape(entrances, inbound);
        let measured = stage.options.measured(3, 10);
        let case = case(stage, name, constant.clone(), shape, WARM_UP, measured);
        let run = stage.run(&case).await?;
        report.keep("calibration", name, &run)?;
        table.row(row(name, &run, ms));
        harness.get_or_insert(run.added.0);
    }
    let name = "40 × M/M/1, direct";
    let server = Service::exponential(SERVERS, service.as_secs_f64());
    let measured = stage.options.measured(15, 120);
    let case = case(
        stage,
        name,
        server,
        shape(0, false),
        service * SETTLING,
        measured,
    );
    let run = stage.run(&case).await?;
    report.keep("calibration", name, &run)?;
    let theory = ms / (1.0 - RHO);
    table.row(row(name, &run, theory));
    // The interval is that of chance; a difference beyond it is an error of the harness.
    let off = ((run.mean.value - theory).abs() - run.mean.half_width).max(0.0);
    let text = format!(
        "{:.0} requests a second to {SERVERS} servers of {ms:.0} ms. *Added* is what is not in the servers' exact \
         queues: sockets, proxies, timers, generator. The last line is theory's Ts / (1 − ρ), p99 {:.0} ms.\n\n{}",
        case.rate,
        theory * 100.0_f64.ln(),
        table.markdown()
    );
    Ok(Findings {
        title: "The harness's own error".into(),
        text,
        bars: vec![
            Bar::at_most("harness: added without a proxy, ms", 0.5, harness),
            Bar::at_most(
                "harness: M/M/1 off theory beyond its interval, %",
                2.0,
                Some(100.0 * off / theory),
            ),
        ],
        charts: Vec::new(),
    })
}

/// Returns the same service with a constant time, regardless of the number of requests.
pub(super) fn without_queue(mut service: Service) -> Service {
    if let Some(queue) = service.internal_service.queue.as_mut() {
        "deterministic".clone_into(&mut queue.distribution);
        queue.workers = 10_000;
    }
    service
}

fn case(
    stage: &Stage,
    name: &str,
    server: Service,
    shape: Shape,
    warm_up: Duration,
    measured: Duration,
) -> Case {
    Case {
        name: format!("calibration: {name}"),
        model: WorkModel::new([("s".to_owned(), server)]),
        shape,
        rate: f64::from(SERVERS) * RHO / stage.options.service().as_secs_f64(),
        paths: vec!["/api/v1".into()],
        users: None,
        warm_up,
        measured,
    }
}

fn row(name: &str, run: &Measured, expected: f64) -> Vec<String> {
    let micros = |ms: f64| number(Some(1000.0 * ms));
    vec![
        name.into(),
        format!("{:.3} ± {:.3}", run.mean.value, run.mean.half_width),
        format!("{expected:.1}"),
        micros(run.added.0),
        micros(run.added.1),
        number(Some(run.p99)),
        micros(run.late),
        micros(run.lag.0),
        number(Some(run.cpu[0])),
    ]
}
