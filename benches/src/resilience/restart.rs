//! A rolling restart: ten endpoints, one after another, under 2000 requests a second.
//!
//! Each stops listening, finishes requests under way, closes its connections, stays away, and comes
//! back on the same port. Maglor has its defaults, where retries of requests that no application
//! has seen are free of the budget. Envoy has retries at other endpoints, without a limit, and
//! ejection.

use std::cell::Cell;
use std::time::Duration;

use maglor_balance::Rng;
use maglor_lab::chart::Figure;
use tokio::time::{Instant, sleep};

use super::arrivals::{Gaps, Phase, arrivals};
use super::options::Experiment;
use super::replica::{Behaviour, Replica};
use super::report::{Report, line_name};
use super::stage::{Case, Run, Stage};
use super::subject::Fragment;
use super::window::{Window, due_in, second};
use crate::bar::Bar;
use crate::chart;
use crate::error::Result;
use crate::peer::Subject;
use crate::report::{Findings, Table, number};
use crate::scenario::Protocol;

const RATE: f64 = 2000.0;
const REPLICAS: u32 = 10;
const SERVICE: Duration = Duration::from_millis(5);
/// The time before the first restart.
const LEAD: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::MAX;
const ENVOY_RETRY: &str = "retry_policy: { retry_on: \"connect-failure,refused-stream,reset\", \
     num_retries: 2, host_selection_retry_max_attempts: 5, retry_host_predicate: [{ name: previous_hosts, \
     typed_config: { \"@type\": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate } }] }";
const ENVOY_CLUSTER: [&str; 3] = [
    "lb_policy: LEAST_REQUEST",
    "circuit_breakers: { thresholds: [{ max_retries: 1000 }] }",
    "outlier_detection: { max_ejection_percent: 50 }",
];

/// A run, and the number of endpoints that were restarted before its load ended.
#[derive(Debug)]
struct Restarted {
    run: Run,
    restarts: u32,
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let step = Duration::from_millis(if stage.options.quick { 700 } else { 2000 });
    let length = LEAD + step * REPLICAS + LEAD;
    let mut runs = Vec::new();
    for protocol in [Protocol::H1, Protocol::H2c] {
        let case = case(protocol, length, stage.options.seed);
        for peer in &stage.peers {
            let replicas = (0..REPLICAS).map(|_| Behaviour::healthy(SERVICE)).collect();
            let restarts = Cell::new(0);
            let meanwhile =
                async |replicas: &[Replica]| restart_all(replicas, step, &restarts).await;
            let run = stage.run_one(&case, peer, replicas, meanwhile).await?;
            report.keep(std::slice::from_ref(&run), FOREVER)?;
            let restarts = restarts.get();
            runs.push(Restarted { run, restarts });
        }
    }
    Ok(Findings {
        title: "A rolling restart".into(),
        text: table(&runs),
        bars: bars(&runs),
        charts: vec![chart(&runs)],
    })
}

fn case(protocol: Protocol, length: Duration, seed: u64) -> Case {
    let phase = Phase { rate: RATE, length };
    Case {
        experiment: Experiment::Restart,
        name: protocol.to_string(),
        protocol,
        maglor: Fragment::default(),
        envoy: Fragment::new(&["timeout: 15s", ENVOY_RETRY], &ENVOY_CLUSTER),
        due: arrivals(&[phase], Gaps::Even, &mut Rng::seed(seed)),
        patience: Duration::from_secs(16),
    }
}

/// Restarts one endpoint after the other, one per `step`; each is stopped for half of a step.
async fn restart_all(replicas: &[Replica], step: Duration, restarts: &Cell<u32>) {
    sleep(LEAD).await;
    for replica in replicas {
        let began = Instant::now();
        replica.leave().await;
        sleep(step / 2).await;
        if let Err(error) = replica.start() {
            eprintln!("{error}");
            return;
        }
        tokio::time::sleep_until(began + step).await;
        restarts.set(restarts.get() + 1);
    }
}

fn bars(runs: &[Restarted]) -> Vec<Bar> {
    let own = runs.iter().filter(|one| one.run.subject == Subject::Maglor);
    own.flat_map(|one| {
        let case = &one.run.case;
        let failed = Window::of(&one.run.samples, FOREVER).failed();
        [
            Bar::at_most(
                format!("restart, {case}: failed requests"),
                0.0,
                Some(failed as f64),
            ),
            Bar::at_least(
                format!("restart, {case}: endpoints restarted"),
                f64::from(REPLICAS),
                Some(f64::from(one.restarts)),
            ),
        ]
    })
    .collect()
}

fn table(runs: &[Restarted]) -> String {
    let mut table = Table::new([
        "protocol",
        "proxy",
        "requests",
        "failed",
        "p50 ms",
        "p99 ms",
        "attempts / request",
    ]);
    for Restarted { run, .. } in runs {
        let window = Window::of(&run.samples, FOREVER);
        table.row(vec![
            run.case.clone(),
            run.subject.to_string(),
            window.requests.to_string(),
            window.failed().to_string(),
            number(Some(window.p50)),
            number(Some(window.p99)),
            number(Some(run.attempts_a_request())),
        ]);
    }
    format!(
        "{REPLICAS} endpoints of {} ms, {RATE} requests a second. The protocol is that of client and \
         endpoints; Maglor has its defaults; Envoy has retries without a budget, and ejection.\n\n{}",
        SERVICE.as_millis(),
        table.markdown()
    )
}

fn chart(runs: &[Restarted]) -> Figure {
    let line = |one: &Restarted| {
        let run = &one.run;
        let p99 = |at: u64| Window::of(due_in(&run.samples, second(at)), FOREVER).p99;
        let points = (0..run.seconds()).map(|at| (at as f64, p99(at)));
        chart::line(line_name(run), points)
    };
    let lines = runs.iter().map(line).collect();
    chart::chart(
        "restart-p99",
        "99th percentile of latency in a rolling restart",
        "seconds",
        "ms",
        lines,
    )
}
