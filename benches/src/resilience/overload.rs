//! Fig. 9: 80–120 % of capacity, with at most 5, 20 or 100 requests waiting.
//!
//! One endpoint serves 20 requests at a time, 100 ms each: 200 requests a second. The proxy opens
//! that many connections; further requests wait in the proxy. The results are compared with a queue
//! of that length under the same arrivals.

use std::time::Duration;

use maglor_balance::Rng;
use maglor_lab::chart::Figure;

use super::arrivals::{Gaps, Phase, arrivals};
use super::client::Sample;
use super::model;
use super::options::Experiment;
use super::replica::Behaviour;
use super::report::Report;
use super::stage::{Case, Stage};
use super::subject::Fragment;
use super::window::Window;
use crate::bar::Bar;
use crate::chart;
use crate::error::Result;
use crate::peer::Subject;
use crate::report::{Findings, Table, number};
use crate::scenario::Protocol;
use crate::stats;
use crate::stats::quantile;

const SLOTS: usize = 20;
const SERVICE: Duration = Duration::from_millis(100);
const CAPACITY: f64 = 200.0;
const QUEUES: [usize; 3] = [5, 20, 100];
const FOREVER: Duration = Duration::MAX;

/// The result of one proxy, or of the model, under one load.
#[derive(Debug, Clone)]
struct Cell {
    /// The proxy; `None` for the model.
    subject: Option<Subject>,
    queue: usize,
    /// Offered load, in percent of capacity.
    load: u32,
    window: Window,
    /// Success in percent.
    success: f64,
    /// The duration until a refusal, 99th percentile.
    refused_p99: f64,
}

impl Cell {
    fn new(subject: Option<Subject>, queue: usize, load: u32, samples: &[Sample]) -> Self {
        let window = Window::of(samples, FOREVER);
        let refused = samples.iter().filter(|sample| !sample.is_ok());
        let mut refused: Vec<_> = refused.map(|sample| sample.latency).collect();
        refused.sort_unstable();
        Self {
            subject,
            queue,
            load,
            window,
            success: 100.0 - window.failed_percent(),
            refused_p99: quantile(&refused, 0.99),
        }
    }
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let loads: &[u32] = if stage.options.quick {
        &[80, 100, 120]
    } else {
        &[80, 90, 100, 110, 120]
    };
    let mut cells = Vec::new();
    for &load in loads {
        let phase = Phase {
            rate: CAPACITY * f64::from(load) / 100.0,
            length: stage.options.seconds(6, 15),
        };
        let seed = stage.options.seed.wrapping_add(u64::from(load));
        let due = arrivals(&[phase], Gaps::Poisson, &mut Rng::seed(seed));
        for queue in QUEUES {
            let case = case(load, queue, due.clone());
            let replica = || vec![Behaviour::bounded(SLOTS, SERVICE, usize::MAX)];
            let done = stage.run(&case, replica).await?;
            report.keep(&done, FOREVER)?;
            for run in done {
                cells.push(Cell::new(Some(run.subject), queue, load, &run.samples));
            }
            cells.push(Cell::new(None, queue, load, &modelled(&due, queue)));
        }
    }
    Ok(Findings {
        title: "Overload and the length of the queue (Fig. 9)".into(),
        text: table(&cells),
        bars: bars(&cells),
        charts: charts(&cells),
    })
}

fn case(load: u32, queue: usize, due: Vec<Duration>) -> Case {
    let maglor = format!("limits: {{max_connections: {SLOTS}, max_pending_requests: {queue}}}");
    let envoy = format!(
        "circuit_breakers: {{ thresholds: [{{ max_connections: {SLOTS}, max_pending_requests: {queue} }}] }}"
    );
    Case {
        experiment: Experiment::Overload,
        name: format!("{load} % queue {queue}"),
        protocol: Protocol::H1,
        maglor: Fragment::new(&["retry: {attempts: 0}"], &[&maglor]),
        envoy: Fragment::new(&["timeout: 15s"], &[&envoy]),
        due,
        patience: Duration::from_secs(5),
    }
}

fn modelled(due: &[Duration], queue: usize) -> Vec<Sample> {
    let latencies = model::latencies(due, SLOTS, SERVICE, queue);
    let both = due.iter().zip(latencies);
    both.map(|(&due, latency)| Sample {
        due,
        latency: latency.unwrap_or_default(),
        status: if latency.is_some() { 200 } else { 503 },
    })
    .collect()
}

fn of(cells: &[Cell], subject: Option<Subject>, queue: usize) -> Vec<&Cell> {
    let same = |cell: &&Cell| cell.subject == subject && cell.queue == queue;
    cells.iter().filter(same).collect()
}

/// Returns the largest of `values`, `None` if there are none.
fn worst(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}

fn bars(cells: &[Cell]) -> Vec<Bar> {
    let own = || {
        cells
            .iter()
            .filter(|cell| cell.subject == Some(Subject::Maglor))
    };
    let beside = |cell: &Cell| {
        let mut model = of(cells, None, cell.queue).into_iter();
        model.find(|model| model.load == cell.load).cloned()
    };
    let pairs: Vec<_> = own()
        .filter_map(|cell| Some((cell.clone(), beside(cell)?)))
        .collect();
    let full = |queue, value: fn(&Cell) -> f64| {
        let mut cells = own().filter(move |cell| cell.queue == queue);
        cells.find(|cell| cell.load == 120).map(value)
    };
    let at_full = |queue, value: fn(&Cell) -> f64| {
        let mut cells = own().filter(move |cell| cell.queue == queue);
        cells.find(|cell| cell.load == 100).map(value)
    };
    let success = pairs
        .iter()
        .map(|(own, model)| (own.success - model.success).abs());
    let latency = pairs
        .iter()
        .map(|(own, model)| own.window.p95 / model.window.p95);
    let refused = own().filter(|cell| cell.refused_p99.is_finite());
    let rise =
        |from, to| Some(at_full(to, |cell| cell.success)? - at_full(from, |cell| cell.success)?);
    let slower =
        |from, to| Some(full(to, |cell| cell.window.p95)? / full(from, |cell| cell.window.p95)?);
    vec![
        Bar::at_most(
            "overload: success, percentage points off an ideal queue's, worst",
            3.0,
            worst(success),
        ),
        Bar::at_most(
            "overload: p95 / an ideal queue's, worst",
            1.25,
            worst(latency),
        ),
        Bar::at_least(
            "overload: success at 100 %, points gained with a queue of 100 instead of 5",
            1.0,
            rise(5, 100),
        ),
        Bar::at_least(
            "overload: p95 at 120 %, queue of 100 / queue of 5",
            2.0,
            slower(5, 100),
        ),
        Bar::at_most(
            "overload: 99 % of refusals within ms, median of the cells",
            20.0,
            stats::median(refused.map(|cell| cell.refused_p99)),
        ),
    ]
}

fn name(subject: Option<Subject>) -> String {
    subject.map_or_else(|| "ideal queue".into(), |subject| subject.to_string())
}

fn table(cells: &[Cell]) -> String {
    let mut table = Table::new([
        "load %",
        "queue",
        "proxy",
        "success %",
        "p50 ms",
        "p95 ms",
        "refused within ms (p99)",
    ]);
    for cell in cells {
        let refused = cell.subject.map(|_| cell.refused_p99);
        table.row(vec![
            cell.load.to_string(),
            cell.queue.to_string(),
            name(cell.subject),
            number(Some(cell.success)),
            number(Some(cell.window.p50)),
            number(Some(cell.window.p95)),
            number(refused.filter(|value| value.is_finite())),
        ]);
    }
    format!(
        "{SLOTS} requests at a time, {} ms each: {CAPACITY} a second; Poisson arrivals, the same for \
         all. Percentiles are those of successes.\n\n{}",
        SERVICE.as_millis(),
        table.markdown()
    )
}

fn charts(cells: &[Cell]) -> Vec<Figure> {
    let mut subjects: Vec<_> = vec![Some(Subject::Maglor), Some(Subject::Envoy), None];
    subjects.retain(|subject| cells.iter().any(|cell| cell.subject == *subject));
    let chart = |file: &str, title: &str, y: &str, value: fn(&Cell) -> f64| {
        let mut lines = Vec::new();
        for queue in QUEUES {
            for &subject in &subjects {
                let cells = of(cells, subject, queue).into_iter();
                let points = cells.map(|cell| (f64::from(cell.load), value(cell)));
                lines.push(chart::line(
                    format!("queue {queue}, {}", name(subject)),
                    points,
                ));
            }
        }
        chart::chart(file, title, "offered load, % of capacity", y, lines)
    };
    vec![
        chart(
            "overload-success",
            "Requests that succeed",
            "% of requests",
            |cell| cell.success,
        ),
        chart(
            "overload-p95",
            "95th percentile of latency of successes",
            "ms",
            |cell| cell.window.p95,
        ),
    ]
}
