//! A measurement of the chain of counters, and values of a point over its rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::super::load::Sample;
use crate::peer::Subject;
use crate::stats::{median, paired_ratio, quantile};

/// The columns of [`Run::csv`].
pub(super) const HEAD: &str = "mesh,services,users,requests,failed,mean_ms,p50_ms,p95_ms,p99_ms,requests_a_second,\
                               proxies_us_a_hop,application_us_a_hop,proxies_rss_mb,proxies_peak_mb,\
                               proxies_pss_mb,proxies_anonymous_mb,round";

/// A point: the length of the chain, and the number of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) services: u32,
    pub(super) users: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.services, self.users)
    }
}

/// A measurement of a point in one round.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) mesh: Subject,
    pub(super) round: u32,
    pub(super) cell: Cell,
    pub(super) requests: usize,
    /// The latencies of successful requests, shortest first.
    pub(super) latencies: Vec<Duration>,
    /// Users' requests per second.
    pub(super) throughput: f64,
    /// The processor time per hop from service to service: proxies, application; µs.
    pub(super) cpu: [f64; 2],
    /// The memory of all proxies at the end, and the maximum; MB.
    pub(super) memory: [f64; 2],
    /// The share of memory of all proxies at the end: Pss, anonymous; MB.
    pub(super) share: [f64; 2],
}

/// Returns the latencies of successful requests, shortest first.
pub(super) fn sorted(samples: &[Sample]) -> Vec<Duration> {
    let good = samples.iter().filter(|one| one.status == 200);
    let mut latencies: Vec<_> = good.map(|one| one.latency).collect();
    latencies.sort();
    latencies
}

/// Returns the statuses of failed requests and their numbers, for the eye.
pub(super) fn failures(samples: &[Sample]) -> String {
    let mut counts = BTreeMap::new();
    for one in samples.iter().filter(|one| one.status != 200) {
        *counts.entry(one.status).or_insert(0) += 1;
    }
    let counts = counts.iter().map(|(status, count)| match status {
        0 => format!(", {count} without a response"),
        status => format!(", {count} with {status}"),
    });
    counts.collect()
}

impl Run {
    pub(super) fn failed(&self) -> usize {
        self.requests - self.latencies.len()
    }

    /// Returns the mean latency, in ms.
    pub(super) fn mean(&self) -> f64 {
        let sum: Duration = self.latencies.iter().sum();
        sum.as_secs_f64() * 1e3 / self.latencies.len().max(1) as f64
    }

    /// Returns the latency that the fraction `q` of the requests does not exceed, in ms.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        quantile(&self.latencies, q)
    }

    /// Returns the values in the order of [`HEAD`].
    pub(super) fn csv(&self) -> String {
        let Cell { services, users } = self.cell;
        let (mean, failed) = (self.mean(), self.failed());
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| self.quantile(q));
        let [proxies, app] = self.cpu;
        let [memory, peak] = self.memory;
        let [pss, anonymous] = self.share;
        format!(
            "{},{services},{users},{},{failed},{mean:.3},{p50:.3},{p95:.3},{p99:.3},{:.2},{proxies:.2},{app:.2},\
             {memory:.1},{peak:.1},{pss:.1},{anonymous:.1},{}",
            self.mesh.key(),
            self.requests,
            self.throughput,
            self.round,
        )
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mean, failed) = (self.mean(), self.failed());
        let ([cpu, _], [_, peak]) = (self.cpu, self.memory);
        write!(
            f,
            "{mean:.1} ms, {:.0} requests a second, proxies {cpu:.0} us a hop, {peak:.0} MB; {failed} failed",
            self.throughput
        )
    }
}

/// A value of a run.
pub(super) type Value = fn(&Run) -> f64;

/// All runs, by point and mesh.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs<'a>(pub(super) &'a [Run]);

impl<'a> Runs<'a> {
    /// Returns the points, shortest chain first.
    pub(super) fn cells(self) -> BTreeSet<Cell> {
        self.0.iter().map(|run| run.cell).collect()
    }

    /// Returns the meshes, in the order of a round.
    pub(super) fn meshes(self) -> Vec<Subject> {
        let mut meshes = Vec::new();
        for run in self.0 {
            if !meshes.contains(&run.mesh) {
                meshes.push(run.mesh);
            }
        }
        meshes
    }

    /// Returns the runs of a mesh at a point, one for each round.
    pub(super) fn at(self, mesh: Subject, cell: Cell) -> impl Iterator<Item = &'a Run> {
        self.0
            .iter()
            .filter(move |run| run.mesh == mesh && run.cell == cell)
    }

    /// Returns the median over the rounds.
    pub(super) fn median(self, mesh: Subject, cell: Cell, value: Value) -> Option<f64> {
        median(self.at(mesh, cell).map(value))
    }

    /// Returns the point at which Maglor's value over that of another mesh is highest, and this ratio, the median of
    /// those within rounds.
    pub(super) fn worst_beside(self, mesh: Subject, value: Value) -> Option<(Cell, f64)> {
        let ratio = |cell| {
            let own = self.by_round(Subject::Maglor, cell, value);
            paired_ratio(&own, &self.by_round(mesh, cell, value))
        };
        self.worst(ratio)
    }

    /// Returns the point at which Maglor's value is highest over that of the first point in the same round, and this
    /// ratio.
    pub(super) fn worst_growth(self, value: Value) -> Option<(Cell, f64)> {
        let first = *self.cells().first()?;
        let least = self.by_round(Subject::Maglor, first, value);
        self.worst(|cell| paired_ratio(&self.by_round(Subject::Maglor, cell, value), &least))
    }

    /// Returns the point at which Maglor's value is highest.
    pub(super) fn highest(self, value: Value) -> Option<(Cell, f64)> {
        self.worst(|cell| self.median(Subject::Maglor, cell, value))
    }

    fn worst(self, at: impl Fn(Cell) -> Option<f64>) -> Option<(Cell, f64)> {
        let cells = self.cells().into_iter();
        cells
            .filter_map(|cell| Some((cell, at(cell)?)))
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    fn by_round(self, mesh: Subject, cell: Cell, value: Value) -> Vec<(u32, f64)> {
        self.at(mesh, cell)
            .map(|run| (run.round, value(run)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mesh: Subject, round: u32, services: u32, ms: u64) -> Run {
        Run {
            mesh,
            round,
            cell: Cell {
                services,
                users: 100,
            },
            requests: 2,
            latencies: vec![Duration::from_millis(ms)],
            throughput: 1.0,
            cpu: [ms as f64, 1.0],
            memory: [1.0, 2.0],
            share: [1.0, 1.0],
        }
    }

    #[test]
    fn the_worst_point_counts_and_ratios_are_within_rounds() {
        let mut runs = Vec::new();
        // The machine is ten times slower in the second round.
        for (round, slow) in [(1, 1), (2, 10)] {
            for (services, own, other) in [(10, 4, 8), (80, 6, 5)] {
                runs.push(run(Subject::Maglor, round, services, own * slow));
                runs.push(run(Subject::Envoy, round, services, other * slow));
            }
        }
        let runs = Runs(&runs);
        let far = Cell {
            services: 80,
            users: 100,
        };
        assert_eq!(runs.meshes(), [Subject::Maglor, Subject::Envoy]);
        assert_eq!(
            runs.worst_beside(Subject::Envoy, Run::mean),
            Some((far, 1.2))
        );
        assert_eq!(runs.worst_growth(|run| run.cpu[0]), Some((far, 1.5)));
        assert_eq!(runs.highest(|run| run.cpu[0]), Some((far, 33.0)));
        assert_eq!(runs.worst_beside(Subject::Linkerd, Run::mean), None);
    }

    #[test]
    fn the_columns_have_a_name_each() {
        let run = run(Subject::Maglor, 1, 10, 4);
        assert_eq!(run.failed(), 1);
        assert_eq!(HEAD.split(',').count(), run.csv().split(',').count());
    }
}
