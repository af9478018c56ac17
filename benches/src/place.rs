//! Measures the effect of placement on a real Kubernetes with delays between nodes: Fig. 6 of the
//! paper on traffic management by communication graphs, with several replicas of each service.
//!
//! The modules, in the order of a run: `options` the command line, `stage` the cluster, `bookinfo`
//! the application in it, `load` its clients, `plan` from the live graph to a placement of
//! replicas, `counters` the measured cost (read from `pods`), `degrade` local-first routing without
//! local replicas, `report`.

mod bookinfo;
mod counters;
mod degrade;
mod load;
mod options;
mod plan;
mod pods;
mod report;
mod stage;

use std::fmt;
use std::time::{Duration, Instant};

pub use options::Options;

use crate::error::Result;
use crate::mesh::load::Sample;
use crate::report::Machine;
use crate::stats::quantile;
use counters::{Counters, Rates};
use load::Clients;
use plan::{LiveGraph, Plan, Question};
use report::Report;
use stage::{Placement, Stage};

/// The duration of load before each measurement: connections are opened, and after a change of the
/// delay their windows adapt.
const WARM_UP: Duration = Duration::from_secs(5);

/// The pause after a change of routing by the graph, without measurement: twice its T, so that
/// earlier observations are forgotten.
const FORGET: Duration = Duration::from_secs(40);

/// A way to place the application.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Way {
    /// Kubernetes' scheduler, with its default plugins.
    Default,
    /// The paper's: Algorithm 3 on whole services, passed to the scheduler as preferred affinities.
    Affinity,
    /// By replicas, for calls that go to any replica.
    Placement,
    /// By replicas, for calls that go to local replicas first; and they do.
    LocalFirst,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [
        Self::Default,
        Self::Affinity,
        Self::Placement,
        Self::LocalFirst,
    ];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::Affinity => "affinity",
            Self::Placement => "placement",
            Self::LocalFirst => "local-first",
        })
    }
}

/// A measurement. Times are in milliseconds.
#[derive(Clone, Debug)]
struct Run {
    round: u32,
    way: Way,
    delay: Duration,
    requests: usize,
    failed: usize,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    /// The lag of the generator, 99th percentile.
    lag: f64,
    rates: Rates,
}

/// The transition to a way of placement, under load.
#[derive(Clone, Debug)]
struct Moved {
    round: u32,
    way: Way,
    /// Replicas that the plan moves.
    moves: u64,
    /// The share of calls that leave their node according to the plan, if there is one.
    planned: Option<f64>,
    /// The placement after the transition.
    placement: Placement,
    /// The number of requests during the transition, and of those without a 200.
    requests: usize,
    failed: usize,
    seconds: f64,
}

/// Runs the experiment; returns whether all bars were reached.
///
/// # Errors
/// A cluster cannot be started here, or the application does not run.
pub fn run(options: &Options) -> Result<bool> {
    let machine = Machine::look(&[]);
    let first = options.delays().next().unwrap_or(Duration::from_millis(1));
    let mut report = Report::new(options, &machine)?;
    let stage = Stage::start(options, first)?;
    report.node_millis = stage.node_millis;
    let outcome = rounds(options, &stage, &mut report);
    stage.cluster.stop()?;
    outcome?;
    report.finish(&machine, options)
}

fn rounds(options: &Options, stage: &Stage, report: &mut Report) -> Result<()> {
    for round in 1..=options.rounds {
        for way in Way::ALL
            .into_iter()
            .filter(|way| options.ways.contains(way))
        {
            eprintln!("round {round}: {way}");
            let place = Place {
                options,
                stage,
                round,
                way,
            };
            report.moved(place.make()?)?;
            for delay in options.delays() {
                report.run(place.measure(delay)?)?;
            }
            if way == Way::LocalFirst {
                report.degraded(degrade::run(stage, &place.clients()?, round)?)?;
            }
        }
    }
    Ok(())
}

/// A way of placement in a round.
struct Place<'a> {
    options: &'a Options,
    stage: &'a Stage,
    round: u32,
    way: Way,
}

impl Place<'_> {
    /// Brings the application to this placement.
    fn make(&self) -> Result<Moved> {
        let (options, stage) = (self.options, self.stage);
        // At the median of the delays: plans do not depend on it.
        let middle = options.delays().nth(options.delays_ms.len() / 2);
        stage.cluster.set_delay(middle.unwrap_or_default())?;
        // Each way starts from the scheduler's placement.
        stage.set_mesh(false)?;
        stage.deploy_anew()?;
        let clients = self.clients()?.go_on(&stage.cluster)?;
        let live = LiveGraph::wait(stage, options.rate, options.seed)?;
        let begun = Instant::now();
        let plan = self.carry_out(&live)?;
        let seconds = begun.elapsed().as_secs_f64();
        // Moved replicas serve for a while before failures are counted.
        std::thread::sleep(match self.way {
            Way::LocalFirst => FORGET,
            Way::Default | Way::Affinity | Way::Placement => WARM_UP,
        });
        let samples = clients.stop()?;
        Ok(Moved {
            round: self.round,
            way: self.way,
            moves: plan.as_ref().map_or(0, |plan| plan.moves),
            planned: plan.map(|plan| plan.cut / plan.total.max(1e-9)),
            placement: stage.placement()?,
            requests: samples.len(),
            failed: failed(&samples),
            seconds,
        })
    }

    fn carry_out(&self, live: &LiveGraph<'_>) -> Result<Option<Plan>> {
        let question = match self.way {
            Way::Default => return Ok(None),
            Way::Affinity => {
                plan::apply_partly(self.stage, &live.affinities(Question::Whole)?)?;
                return live.plan(Question::Whole).map(Some);
            }
            Way::Placement => Question::Even,
            Way::LocalFirst => {
                self.stage.set_mesh(true)?;
                Question::LocalFirst
            }
        };
        let plan = live.plan(question)?;
        plan::apply(self.stage, &plan)?;
        Ok(Some(plan))
    }

    fn clients(&self) -> Result<Clients> {
        Ok(Clients {
            entry: self.stage.entry()?,
            rate: self.options.rate,
            // All ways have the same arrivals in a round.
            seed: self.options.seed.wrapping_add(u64::from(self.round) << 32),
        })
    }

    fn measure(&self, delay: Duration) -> Result<Run> {
        let stage = self.stage;
        stage.cluster.set_delay(delay)?;
        let length = Duration::from_secs(self.options.seconds);
        let called = stage.called()?;
        let clients = self.clients()?.send(&stage.cluster, WARM_UP + length)?;
        std::thread::sleep(WARM_UP);
        let before = Counters::look(&stage.cluster, called.clone())?;
        std::thread::sleep(length);
        let rates = Counters::look(&stage.cluster, called)?.since(&before);
        let mut samples = clients.finish()?;
        // Failures count at any time of the run, also before the measurement.
        let failed = failed(&samples);
        samples.retain(|sample| sample.due >= WARM_UP);
        let times = |time: fn(&Sample) -> Duration| {
            let mut times: Vec<_> = samples.iter().map(time).collect();
            times.sort_unstable();
            times
        };
        let latency = times(|sample| sample.latency);
        let sum: f64 = samples
            .iter()
            .map(|sample| sample.latency.as_secs_f64())
            .sum();
        let run = Run {
            round: self.round,
            way: self.way,
            delay,
            requests: samples.len(),
            failed,
            mean: sum / samples.len().max(1) as f64 * 1e3,
            p50: quantile(&latency, 0.5),
            p95: quantile(&latency, 0.95),
            p99: quantile(&latency, 0.99),
            lag: quantile(&times(|sample| sample.lag), 0.99),
            rates,
        };
        eprintln!(
            "  {delay:?}: mean {:.2} ms, p95 {:.2} ms, {:.1} % of calls leave their node, {failed} failed",
            run.mean,
            run.p95,
            100.0 * rates.away / rates.calls.max(1e-9),
        );
        Ok(run)
    }
}

fn failed(samples: &[Sample]) -> usize {
    samples.iter().filter(|sample| sample.status != 200).count()
}
