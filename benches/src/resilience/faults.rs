//! Figs. 7 and 8: replicas with failures and delays, without and with ejection, then with retries.
//!
//! Two of five replicas answer 30 % of their requests with 500 and delay 20 % by 500 ms, so 12 % of
//! all requests fail and 8 % are late: the 95th percentile is the delay. At most 100 connections,
//! 50 pending requests; five consecutive errors eject for 10 s. Retries have each proxy's default
//! budget of 20 %.

use std::time::Duration;

use maglor_balance::Rng;
use maglor_lab::chart::Figure;

use super::arrivals::{Gaps, Phase, arrivals};
use super::options::Experiment;
use super::replica::Behaviour;
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

const RATE: f64 = 1200.0;
const REPLICAS: usize = 5;
const FAULTY: usize = 2;
const SERVICE: Duration = Duration::from_millis(10);
const DELAY: Duration = Duration::from_millis(500);
/// The bars consider the time from here on: one step of the paper's time axis.
const SETTLED: Duration = Duration::from_secs(10);
const FOREVER: Duration = Duration::MAX;

const MAGLOR_POLICY: &str = "policy: round-robin";
const MAGLOR_LIMITS: &str = "limits: {max_connections: 100, max_pending_requests: 50}";
const MAGLOR_EJECTION: &str =
    "outlier_ejection: {consecutive_5xx: 5, interval: 10s, base_ejection_time: 10s}";
const MAGLOR_RETRY: &str = "retry: {attempts: 3, per_try_timeout: 2s, retry_on: 5xx}";

const ENVOY_POLICY: &str = "lb_policy: ROUND_ROBIN";
const ENVOY_LIMITS: &str = "circuit_breakers: { thresholds: [{ max_connections: 100, \
     max_pending_requests: 50, retry_budget: { budget_percent: { value: 20 } } }] }";
const ENVOY_EJECTION: &str = "outlier_detection: { consecutive_5xx: 5, interval: 10s, \
     base_ejection_time: 10s, max_ejection_percent: 50 }";
const ENVOY_RETRY: &str = "retry_policy: { retry_on: 5xx, num_retries: 3, per_try_timeout: 2s, \
     host_selection_retry_max_attempts: 5, retry_host_predicate: [{ name: previous_hosts, \
     typed_config: { \"@type\": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate } }] }";

/// The features that a case enables.
#[derive(Debug, Clone, Copy)]
struct Measures {
    name: &'static str,
    faulty: usize,
    ejection: bool,
    retries: bool,
}

const CASES: [Measures; 4] = [
    Measures::new("healthy", 0, false, false),
    Measures::new("unprotected", FAULTY, false, false),
    Measures::new("ejection", FAULTY, true, false),
    Measures::new("ejection and retries", FAULTY, true, true),
];

impl Measures {
    const fn new(name: &'static str, faulty: usize, ejection: bool, retries: bool) -> Self {
        Self {
            name,
            faulty,
            ejection,
            retries,
        }
    }

    fn maglor(self) -> Fragment {
        let retry = if self.retries {
            MAGLOR_RETRY
        } else {
            "retry: {attempts: 0}"
        };
        let ejection = if self.ejection {
            MAGLOR_EJECTION
        } else {
            "outlier_ejection: {enabled: false}"
        };
        let cluster = [MAGLOR_POLICY, MAGLOR_LIMITS, ejection];
        Fragment::new(&["timeout: 5s", retry], &cluster)
    }

    fn envoy(self) -> Fragment {
        let mut route = vec!["timeout: 5s"];
        if self.retries {
            route.push(ENVOY_RETRY);
        }
        let mut cluster = vec![ENVOY_POLICY, ENVOY_LIMITS];
        if self.ejection {
            cluster.push(ENVOY_EJECTION);
        }
        Fragment::new(&route, &cluster)
    }

    fn replicas(self) -> Vec<Behaviour> {
        let faulty = |_| Behaviour::faulty(SERVICE, 0.3, 0.2, DELAY);
        let healthy = |_| Behaviour::healthy(SERVICE);
        let bad = (0..self.faulty).map(faulty);
        bad.chain((self.faulty..REPLICAS).map(healthy)).collect()
    }
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let length = stage.options.seconds(30, 60);
    let mut runs = Vec::new();
    for measures in CASES {
        let phase = Phase { rate: RATE, length };
        let mut rng = Rng::seed(stage.options.seed);
        let case = Case {
            experiment: Experiment::Faults,
            name: measures.name.into(),
            protocol: Protocol::H1,
            maglor: measures.maglor(),
            envoy: measures.envoy(),
            due: arrivals(&[phase], Gaps::Even, &mut rng),
            patience: Duration::from_secs(6),
        };
        let done = stage.run(&case, || measures.replicas()).await?;
        report.keep(&done, SERVICE + DELAY)?;
        runs.extend(done);
    }
    Ok(Findings {
        title: "Failing and slow replicas (Figs. 7 and 8)".into(),
        text: table(&runs),
        bars: bars(&runs),
        charts: charts(&runs),
    })
}

fn settled(run: &Run) -> Window {
    Window::of(due_in(&run.samples, SETTLED..FOREVER), FOREVER)
}

fn find<'a>(runs: &'a [Run], case: &str) -> Option<&'a Run> {
    let mut own = runs.iter().filter(|run| run.subject == Subject::Maglor);
    own.find(|run| run.case == case)
}

fn bars(runs: &[Run]) -> Vec<Bar> {
    let p95 = |case| find(runs, case).map(|run| settled(run).p95);
    let over_healthy = |case| Some(p95(case)? / p95("healthy")?);
    let failed = |run: &Run| run.samples.iter().filter(|sample| !sample.is_ok()).count() as f64;
    let retried = find(runs, "ejection and retries");
    vec![
        Bar::at_least(
            "faults: p95 without ejection, ms",
            DELAY.as_millis() as f64,
            p95("unprotected"),
        ),
        Bar::at_most(
            "faults: p95 with ejection / healthy p95",
            1.5,
            over_healthy("ejection"),
        ),
        Bar::at_most(
            "faults: p95 with ejection and retries / healthy p95",
            1.5,
            over_healthy("ejection and retries"),
        ),
        Bar::at_most(
            "faults: failed requests once retries are on",
            0.0,
            retried.map(failed),
        ),
    ]
}

fn table(runs: &[Run]) -> String {
    let mut table = Table::new([
        "case",
        "proxy",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "failed %",
        "failed, whole run",
        "attempts / request",
    ]);
    for run in runs {
        let (late, whole) = (settled(run), Window::of(&run.samples, FOREVER));
        table.row(vec![
            run.case.clone(),
            run.subject.to_string(),
            number(Some(late.p50)),
            number(Some(late.p95)),
            number(Some(late.p99)),
            number(Some(late.failed_percent())),
            whole.failed().to_string(),
            number(Some(run.attempts_a_request())),
        ]);
    }
    format!(
        "{REPLICAS} replicas of {} ms, {FAULTY} of them faulty; {RATE} requests a second. Percentiles and \
         failures from {} s on, when the first ejections have been made.\n\n{}",
        SERVICE.as_millis(),
        SETTLED.as_secs(),
        table.markdown()
    )
}

fn charts(runs: &[Run]) -> Vec<Figure> {
    let line = |run: &Run, value: fn(&Window) -> f64| {
        let point = |at: u64| {
            let window = Window::of(due_in(&run.samples, second(at)), FOREVER);
            (at as f64, value(&window))
        };
        chart::line(line_name(run), (0..run.seconds()).map(point))
    };
    let chart = |file: &str, title: &str, y: &str, value: fn(&Window) -> f64| {
        let lines = runs.iter().map(|run| line(run, value)).collect();
        chart::chart(file, title, "seconds", y, lines)
    };
    vec![
        Figure {
            y_log: true,
            ..chart(
                "faults-p95",
                "95th percentile of latency, second by second",
                "ms",
                |window| window.p95,
            )
        },
        chart(
            "faults-failed",
            "Failed requests, second by second",
            "% of requests",
            Window::failed_percent,
        ),
    ]
}
