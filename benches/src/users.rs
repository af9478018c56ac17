//! Puts users on an application that others wrote: Istio's Bookinfo behind plain Kubernetes, in a mesh of Maglor and in
//! one of Istio, as in the paper on dynamic load balancing in Kubernetes (docs/papers/dynamic-load-balancing.md).
//!
//! The modules, in the order of a run: `options` the command line, `application` the given files, `stage` the cluster,
//! `browser` the users, `usage` of processors and memory, `report`.

mod application;
mod browser;
mod options;
mod report;
mod stage;
mod usage;

use std::fmt;
use std::time::Duration;

pub use options::Options;

use crate::error::{Doing, Error, Result};
use crate::report::Machine;
use crate::stats::quantile;
use crate::sys;
use browser::{Load, Outcome, Seen};
use report::Report;
use stage::Stage;
use usage::{Meter, Usage};

/// What is between the users and the application.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Way {
    /// Kubernetes' Services, by a port of a node.
    Plain,
    /// Maglor's gateway and sidecars, with strict mutual TLS.
    Maglor,
    /// Istio's, likewise.
    Istio,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Maglor, Self::Istio];

    /// Returns the namespace of its application.
    fn namespace(self) -> &'static str {
        match self {
            Self::Plain => "bookinfo-plain",
            Self::Maglor => "bookinfo-maglor",
            Self::Istio => "bookinfo-istio",
        }
    }

    /// Returns the namespace of its control plane.
    fn control_plane(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Maglor => Some("maglor"),
            Self::Istio => Some("istio-system"),
        }
    }

    /// Returns the labels with which a namespace gets sidecars.
    fn labels(self) -> serde_json::Value {
        match self {
            Self::Plain => serde_json::json!({}),
            Self::Maglor => serde_json::json!({"maglor.dev/inject": "enabled"}),
            Self::Istio => serde_json::json!({"istio-injection": "enabled"}),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plain => "plain",
            Self::Maglor => "Maglor",
            Self::Istio => "Istio",
        })
    }
}

/// A measurement.
#[derive(Clone, Debug)]
struct Run {
    round: u32,
    way: Way,
    users: u32,
    /// Of the requests that were sent in the measured time.
    pages: Pages,
    usage: Usage,
    /// By the second in which they were sent, with the ramp.
    seconds: Vec<Pages>,
}

/// Pages that were requested in some time. Times are in milliseconds, and of all pages with status 200.
#[derive(Clone, Copy, Debug)]
struct Pages {
    requests: usize,
    /// Per second, with status 200.
    rate: f64,
    failed: usize,
    /// With status 200, but without details, reviews or ratings.
    partial: usize,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

impl Pages {
    fn of(seen: &[Seen], time: Duration) -> Self {
        let count = |wanted| seen.iter().filter(|one| one.outcome == wanted).count();
        let responses = seen.iter().filter(|one| one.outcome != Outcome::Failed);
        let mut times: Vec<_> = responses.map(|one| one.latency).collect();
        times.sort_unstable();
        let sum: Duration = times.iter().sum();
        Self {
            requests: seen.len(),
            rate: times.len() as f64 / time.as_secs_f64().max(1e-9),
            failed: count(Outcome::Failed),
            partial: count(Outcome::Partial),
            mean: sum.as_secs_f64() * 1e3 / times.len() as f64,
            p50: quantile(&times, 0.5),
            p95: quantile(&times, 0.95),
            p99: quantile(&times, 0.99),
        }
    }

    /// Returns the percentage of the requests that `count` are.
    fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.requests.max(1) as f64
    }
}

/// Runs the experiment; returns whether all bars were reached.
///
/// # Errors
/// A file of the application is missing, there can be no cluster here, or the application does not run.
pub fn run(options: &Options) -> Result<bool> {
    sys::raise_file_limit().doing("raise the limit of open files")?;
    let machine = Machine::look(&[]);
    let mut report = Report::new(options, &machine)?;
    let stage = Stage::start(options)?;
    let outcome = rounds(options, &stage, &mut report);
    stage.cluster.stop()?;
    outcome?;
    report.finish(&machine, options)
}

fn rounds(options: &Options, stage: &Stage, report: &mut Report) -> Result<()> {
    for round in 1..=options.rounds {
        for users in options.users.iter().copied() {
            // Each way is first in some rounds.
            let mut ways = options.ways();
            let first = round as usize % ways.len().max(1);
            ways.rotate_left(first);
            for way in ways {
                report.run(measure(options, stage, (round, way, users))?)?;
                stage.has_settled(way)?;
            }
        }
    }
    Ok(())
}

fn measure(options: &Options, stage: &Stage, (round, way, users): (u32, Way, u32)) -> Result<Run> {
    let load = Load {
        entry: stage.entry(way)?,
        users,
        ramp: options.ramp(),
        length: options.length(),
        think: options.think(),
    };
    let running = browser::start(&stage.cluster, load)?;
    std::thread::sleep(load.ramp);
    let meter = Meter::start(&stage.cluster, way)?;
    std::thread::sleep(load.length);
    let usage = meter.end()?;
    let ended = running.join();
    let seen = ended.unwrap_or_else(|_| Err(Error::protocol("the users panicked")))?;
    let is_measured = |one: &&Seen| one.sent >= load.ramp;
    let measured: Vec<_> = seen.iter().filter(is_measured).copied().collect();
    let run = Run {
        round,
        way,
        users,
        pages: Pages::of(&measured, load.length),
        usage,
        seconds: by_second(&seen, load.ramp + load.length),
    };
    eprintln!(
        "round {round}: {users} users, {way}: {:.0} pages/s, mean {:.0} ms, p95 {:.0} ms, {} failed, {} partial of {}",
        run.pages.rate,
        run.pages.mean,
        run.pages.p95,
        run.pages.failed,
        run.pages.partial,
        run.pages.requests,
    );
    Ok(run)
}

fn by_second(seen: &[Seen], length: Duration) -> Vec<Pages> {
    let mut seconds = vec![Vec::new(); usize::try_from(length.as_secs()).unwrap_or(0)];
    for one in seen {
        let second = usize::try_from(one.sent.as_secs()).unwrap_or(usize::MAX);
        if let Some(row) = seconds.get_mut(second) {
            row.push(*one);
        }
    }
    let rows = seconds.iter();
    rows.map(|row| Pages::of(row, Duration::from_secs(1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sent_ms: u64, latency_ms: u64, outcome: Outcome) -> Seen {
        Seen {
            sent: Duration::from_millis(sent_ms),
            latency: Duration::from_millis(latency_ms),
            outcome,
        }
    }

    #[test]
    fn failures_have_no_latency_and_partial_pages_do() {
        let all = [
            seen(100, 10, Outcome::Whole),
            seen(200, 30, Outcome::Partial),
            seen(1500, 60_000, Outcome::Failed),
        ];
        let pages = Pages::of(&all, Duration::from_secs(2));
        assert_eq!((pages.requests, pages.failed, pages.partial), (3, 1, 1));
        assert!((pages.mean - 20.0).abs() < 1e-9 && (pages.rate - 1.0).abs() < 1e-9);
        assert!((pages.percent(1) - 33.333).abs() < 0.001);
        let seconds = by_second(&all, Duration::from_secs(2));
        let failed: Vec<_> = seconds.iter().map(|row| row.failed).collect();
        assert_eq!(failed, [0, 1]);
        assert!(seconds[1].mean.is_nan(), "no page");
    }
}
