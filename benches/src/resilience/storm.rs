//! Fig. 10: a spike of 5 s, and retries every 2 s or 5 s, with a retry budget and without.
//!
//! The endpoint serves 10 requests at a time, 50 ms each, and queues 20; beyond that it answers
//! with 503 at once, which is retried up to 10 times. An answer within a second counts as *good*.

use std::time::Duration;

use maglor_balance::Rng;
use maglor_lab::chart::Figure;

use super::arrivals::{Gaps, Phase, arrivals};
use super::options::Experiment;
use super::replica::Behaviour;
use super::report::{Report, line_name};
use super::stage::{Case, Run, Stage};
use super::subject::Fragment;
use super::window::{Window, count_in, due_in, second};
use crate::bar::Bar;
use crate::chart;
use crate::error::Result;
use crate::peer::Subject;
use crate::report::{Findings, Table, number};
use crate::scenario::Protocol;

const SLOTS: usize = 10;
const QUEUE: usize = 20;
const SERVICE: Duration = Duration::from_millis(50);
const CAPACITY: f64 = 200.0;
/// The load before and after the spike, as a fraction of capacity.
const BASE: f64 = 1.0;
/// The load in the spike, as a fraction of capacity.
const SPIKE: f64 = 3.0;
const SPIKE_LENGTH: Duration = Duration::from_secs(5);
/// The fraction of the goodput before the spike that counts as recovered.
const RECOVERED: f64 = 0.9;
/// Goodput has recovered when it stays recovered for this long.
const STEADY: Duration = Duration::from_secs(5);
const INTERVALS: [u64; 2] = [2, 5];
const GOOD: Duration = Duration::from_secs(1);

/// The start and the end of the spike, and the end of the load.
#[derive(Debug, Clone, Copy)]
struct Times {
    spike: Duration,
    calm: Duration,
    end: Duration,
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let spike = stage.options.seconds(5, 10);
    let calm = spike + SPIKE_LENGTH;
    let end = calm + stage.options.seconds(12, 30);
    let times = Times { spike, calm, end };
    let phase = |rate: f64, length| Phase {
        rate: rate * CAPACITY,
        length,
    };
    let phases = [
        phase(BASE, spike),
        phase(SPIKE, SPIKE_LENGTH),
        phase(BASE, end - calm),
    ];
    let due = arrivals(&phases, Gaps::Poisson, &mut Rng::seed(stage.options.seed));
    let mut runs = Vec::new();
    for interval in INTERVALS {
        for budget in [true, false] {
            let case = case(interval, budget, due.clone());
            let replica = || vec![Behaviour::bounded(SLOTS, SERVICE, QUEUE)];
            let done = stage.run(&case, replica).await?;
            report.keep(&done, GOOD)?;
            runs.extend(done);
        }
    }
    Ok(Findings {
        title: "A spike and its retries (Fig. 10)".into(),
        text: table(&runs, times),
        bars: bars(&runs, times),
        charts: charts(&runs),
    })
}

fn name(interval: u64, budget: bool) -> String {
    let with = if budget { "with" } else { "without" };
    format!("every {interval} s {with} budget")
}

fn case(interval: u64, budget: bool, due: Vec<Duration>) -> Case {
    let retry = format!(
        "retry: {{attempts: 10, retry_on: 5xx, back_off: {{base_interval: {interval}s, max_interval: {interval}s}}}}"
    );
    let mut cluster = vec!["outlier_ejection: {enabled: false}"];
    if !budget {
        cluster.push("retry_budget: {percent: 100, min_concurrency: 10000, min_per_second: 10000}");
    }
    let policy = format!(
        "retry_policy: {{ retry_on: 5xx, num_retries: 10, retry_back_off: {{ base_interval: {interval}s, max_interval: {interval}s }} }}"
    );
    let retries = if budget {
        "retry_budget: { budget_percent: { value: 20 }, min_retry_concurrency: 3 }"
    } else {
        "max_retries: 100000"
    };
    let limits = format!(
        "circuit_breakers: {{ thresholds: [{{ max_connections: 100000, max_pending_requests: 100000, \
         max_requests: 100000, {retries} }}] }}"
    );
    Case {
        experiment: Experiment::Storm,
        name: name(interval, budget),
        protocol: Protocol::H1,
        maglor: Fragment::new(&["timeout: 60s", &retry], &cluster),
        envoy: Fragment::new(&["timeout: 60s", &policy], &[&limits]),
        due,
        patience: Duration::from_secs(61),
    }
}

/// Returns the good answers per second among the requests due in a period.
fn goodput(run: &Run, from: Duration, to: Duration) -> f64 {
    let window = Window::of(due_in(&run.samples, from..to), GOOD);
    window.good as f64 / (to - from).as_secs_f64()
}

/// Returns the seconds after the spike until goodput has recovered for [`STEADY`]; infinite if it
/// does not before the end.
fn recovery(run: &Run, times: Times) -> f64 {
    let enough = RECOVERED * goodput(run, Duration::from_secs(1), times.spike);
    let step = Duration::from_millis(250);
    let mut at = times.calm;
    while at + STEADY <= times.end {
        let first = goodput(run, at, at + Duration::from_secs(1));
        if first >= enough && goodput(run, at, at + STEADY) >= enough {
            return (at - times.calm).as_secs_f64();
        }
        at += step;
    }
    f64::INFINITY
}

fn bars(runs: &[Run], times: Times) -> Vec<Bar> {
    let find = |interval, budget| {
        let case = name(interval, budget);
        let mut own = runs.iter().filter(|run| run.subject == Subject::Maglor);
        own.find(|run| run.case == case)
    };
    let mut bars = Vec::new();
    for interval in INTERVALS {
        let (with, without) = (find(interval, true), find(interval, false));
        let bar = |what: &str| format!("storm, retries every {interval} s: {what}");
        bars.push(Bar::at_most(
            bar("attempts / request with the budget"),
            1.25,
            with.map(Run::attempts_a_request),
        ));
        bars.push(Bar::at_most(
            bar("seconds to recover with the budget"),
            2.0,
            with.map(|run| recovery(run, times)),
        ));
        bars.push(Bar::at_least(
            bar("attempts / request without budget"),
            2.0,
            without.map(Run::attempts_a_request),
        ));
        bars.push(Bar::at_least(
            bar("seconds to recover without budget"),
            2.0,
            without.map(|run| recovery(run, times)),
        ));
    }
    bars
}

fn table(runs: &[Run], times: Times) -> String {
    let mut table = Table::new([
        "case",
        "proxy",
        "attempts / request",
        "most attempts in a second",
        "blocked / request",
        "most blocked in a second",
        "success %",
        "good/s before",
        "good/s, 5 s after",
        "recovered after s",
    ]);
    for run in runs {
        let most = |times: &[Duration]| {
            let seconds = (0..run.seconds()).map(|at| count_in(times, second(at)));
            seconds.max().unwrap_or_default().to_string()
        };
        let blocked = run.blocked.len() as f64 / run.samples.len().max(1) as f64;
        let whole = Window::of(&run.samples, GOOD);
        let recovered = recovery(run, times);
        let before = goodput(run, Duration::from_secs(1), times.spike);
        let after = goodput(run, times.calm, times.calm + STEADY);
        table.row(vec![
            run.case.clone(),
            run.subject.to_string(),
            number(Some(run.attempts_a_request())),
            most(&run.attempts),
            number(Some(blocked)),
            most(&run.blocked),
            number(Some(100.0 - whole.failed_percent())),
            number(Some(before)),
            number(Some(after)),
            if recovered.is_finite() {
                number(Some(recovered))
            } else {
                format!("not in {} s", (times.end - times.calm).as_secs())
            },
        ]);
    }
    format!(
        "{CAPACITY} requests a second can be served; {} % of that are offered, {} % for {} s. Good: \
         answered within {} s. Blocked: rejected by the full queue. Recovered: {} % of the good answers before, for {} s.\n\n{}",
        BASE * 100.0,
        SPIKE * 100.0,
        SPIKE_LENGTH.as_secs(),
        GOOD.as_secs(),
        RECOVERED * 100.0,
        STEADY.as_secs(),
        table.markdown()
    )
}

fn charts(runs: &[Run]) -> Vec<Figure> {
    let mut charts = Vec::new();
    for interval in INTERVALS {
        let cases = [name(interval, true), name(interval, false)];
        let chart = |file: &str, title: &str, value: fn(&Run, u64) -> f64| {
            let these = runs.iter().filter(|run| cases.contains(&run.case));
            let line = |run: &Run| {
                let points = (0..run.seconds()).map(|at| (at as f64, value(run, at)));
                chart::line(line_name(run), points)
            };
            let lines = these.map(line).collect();
            let title = format!("{title}, retries every {interval} s");
            chart::chart(
                &format!("storm-{interval}s-{file}"),
                &title,
                "seconds",
                "a second",
                lines,
            )
        };
        charts.push(chart(
            "tries",
            "Attempts that reach the endpoint",
            |run, at| count_in(&run.attempts, second(at)) as f64,
        ));
        charts.push(chart(
            "blocked",
            "Attempts that the full queue rejects",
            |run, at| count_in(&run.blocked, second(at)) as f64,
        ));
        charts.push(chart(
            "goodput",
            "Requests answered well within a second",
            |run, at| Window::of(due_in(&run.samples, second(at)), GOOD).good as f64,
        ));
    }
    charts
}
