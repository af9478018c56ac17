//! The results of a simulation: values with 95 % confidence intervals over independent runs.

use super::recorder::{Histogram, Steady};

/// A value with its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The mean over runs.
    pub value: f64,
    /// Half the width of its 95 % confidence interval, by Student's t.
    pub half_width: f64,
}

/// The results of a scenario. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The mean latency of a user's request.
    pub mean_ms: Estimate,
    /// The mean latency of good responses only; 0 in a run without any.
    pub good_mean_ms: Estimate,
    /// The median latency.
    pub p50_ms: Estimate,
    /// The 99th percentile of the latency.
    pub p99_ms: Estimate,
    /// The number of messages sent by the policy, for each request to a service.
    pub messages_per_request: Estimate,
    /// The share of the requests to a service that were decided by the policy's fallback.
    pub fallback_share: Estimate,
    /// The share of the requests to a service that went to a busy server while another one was
    /// idle.
    pub busy_while_idle: Estimate,
    /// The mean in the last third of a run over that in the third before: about 1, if the system is
    /// stable.
    pub drift: Estimate,
    /// The number of counted users' requests, in all runs.
    pub requests: u64,
    /// The number of users' requests of the warm-up, which were not counted, in all runs.
    pub discarded: u64,
    /// The number of attempts beyond the first, for each request to a service.
    pub retries_per_request: Estimate,
    /// The number of ejections by balancers, in all runs.
    pub ejections: u64,
    /// The number of users' requests that found no server or got an error response, in all runs,
    /// including the warm-up. Latencies include responses of any status, not requests without
    /// response.
    pub failed: u64,
    /// Each server's share of the attempts at its service, in the second half of each run; one service
    /// after the other.
    pub shares: Vec<f64>,
    /// The same of each run, which averages over runs hide.
    pub shares_by_run: Vec<Vec<f64>>,
    /// The attempts at the first service in the second half of each run, by the node of the
    /// balancer, then by that of the server; empty without [`Scenario::nodes`](super::Scenario).
    pub attempts_by_node: Vec<Vec<u64>>,
    /// The mean latency in milliseconds of the requests that ended within each interval of
    /// [`Scenario::timeline`](super::Scenario), over all runs; NaN where none did.
    pub timeline_ms: Vec<f64>,
    /// The number of all simulated requests, to any service, including the warm-up.
    pub simulated: u64,
}

/// The results of one run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) steady: Steady,
    /// The number of requests to any service.
    pub(super) placed: u64,
    pub(super) messages: u64,
    pub(super) fallbacks: u64,
    pub(super) busy_while_idle: u64,
    pub(super) retries: u64,
    pub(super) ejections: u64,
    pub(super) failed: u64,
    /// Attempts by server, in the second half.
    pub(super) attempts: Vec<u64>,
    /// The attempts at the first service by nodes, from and to.
    pub(super) by_node: Vec<Vec<u64>>,
    /// The sum of latencies in nanoseconds and their number, by interval.
    pub(super) timeline: Vec<(f64, u64)>,
}

const NANOS: f64 = 1e6;

/// The relative rise of latency from the middle of a run to its end that is always tolerated,
/// beyond what chance explains.
const LEAST_RISE: f64 = 0.02;

/// The maximum share of the requests that a warm-up may have. The search for its end covers half of
/// a run: a result near there is no end (White, Cobb, Spratt).
const MOST_WARM_UP: f64 = 0.4;

impl Outcome {
    /// Returns whether the runs, as far as they show it, were long enough to lose the influence of
    /// the empty start. If not, the mean is too low, and its interval, which comes from runs with
    /// the same start, does not show it.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        let rises = self.drift.value - self.drift.half_width > 1.0 + LEAST_RISE;
        let all = (self.requests + self.discarded).max(1) as f64;
        !rises && self.discarded as f64 <= MOST_WARM_UP * all
    }

    /// Combines runs of one scenario, each service of which has `servers` servers.
    pub(super) fn of(runs: &[Run], servers: u32) -> Self {
        let over_runs = |value: &dyn Fn(&Run) -> f64| Estimate::of(runs.iter().map(value));
        let per_request =
            |count: fn(&Run) -> u64| over_runs(&|run| count(run) as f64 / run.placed.max(1) as f64);
        let quantile = |q: f64| over_runs(&|run| run.steady.histogram.quantile(q) / NANOS);
        let sum = |count: &dyn Fn(&Run) -> u64| runs.iter().map(count).sum();
        Self {
            mean_ms: over_runs(&|run| run.steady.mean / NANOS),
            good_mean_ms: over_runs(&|run| run.steady.good_mean / NANOS),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            messages_per_request: per_request(|run| run.messages),
            fallback_share: per_request(|run| run.fallbacks),
            busy_while_idle: per_request(|run| run.busy_while_idle),
            drift: over_runs(&|run| run.steady.drift),
            requests: sum(&|run| Histogram::total(&run.steady.histogram)),
            discarded: sum(&|run| run.steady.discarded),
            retries_per_request: per_request(|run| run.retries),
            ejections: sum(&|run| run.ejections),
            failed: sum(&|run| run.failed),
            shares: shares(runs, servers as usize),
            shares_by_run: runs
                .chunks(1)
                .map(|run| shares(run, servers as usize))
                .collect(),
            attempts_by_node: by_node(runs),
            timeline_ms: timeline(runs),
            simulated: sum(&|run| run.placed),
        }
    }
}

fn shares(runs: &[Run], servers: usize) -> Vec<f64> {
    let places = runs.iter().map(|run| run.attempts.len()).max();
    let mut sums = vec![0_u64; places.unwrap_or(0)];
    for run in runs {
        for (sum, attempts) in sums.iter_mut().zip(&run.attempts) {
            *sum += attempts;
        }
    }
    let services = sums.chunks(servers.max(1));
    let share = |service: &[u64]| {
        let all = service.iter().sum::<u64>().max(1) as f64;
        let shares: Vec<f64> = service.iter().map(|own| *own as f64 / all).collect();
        shares
    };
    services.flat_map(share).collect()
}

fn by_node(runs: &[Run]) -> Vec<Vec<u64>> {
    let mut sums: Vec<Vec<u64>> = Vec::new();
    for run in runs {
        if sums.is_empty() {
            sums.clone_from(&run.by_node);
            continue;
        }
        for (sums, counts) in sums.iter_mut().zip(&run.by_node) {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
    }
    sums
}

fn timeline(runs: &[Run]) -> Vec<f64> {
    // Runs do not end at the same time; intervals that only the longest have are noise.
    let intervals = runs.iter().map(|run| run.timeline.len()).min().unwrap_or(0);
    let mean = |at: usize| {
        let sum: f64 = runs.iter().map(|run| run.timeline[at].0).sum();
        let count: u64 = runs.iter().map(|run| run.timeline[at].1).sum();
        sum / count as f64 / NANOS
    };
    (0..intervals).map(mean).collect()
}

impl Estimate {
    /// Estimates from independent values; with less than two, the width is unknown and infinite.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n.max(1.0);
        let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
        let half_width = if n < 2.0 {
            f64::INFINITY
        } else {
            student(n as u32 - 1) * (squares / (n - 1.0) / n).sqrt()
        };
        Self {
            value: mean,
            half_width,
        }
    }

    /// Returns whether `other` is within this interval widened by `share` of the value.
    #[must_use]
    pub fn agrees_with(self, other: f64, share: f64) -> bool {
        (self.value - other).abs() <= self.half_width + share * other.abs()
    }
}

/// Returns the 97.5 % quantile of Student's t distribution.
fn student(freedom: u32) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    match TABLE.get(freedom as usize - 1) {
        Some(t) => *t,
        None => {
            // Cornish and Fisher's expansion in 1/ν, accurate to 0.001 from ν = 10 on.
            let (z, n) = (1.959_964_f64, f64::from(freedom));
            let first = (z.powi(3) + z) / 4.0;
            let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
            let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
            z + first / n + second / n.powi(2) + third / n.powi(3)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_is_that_of_the_tables() {
        for (freedom, exact) in [
            (1, 12.706),
            (9, 2.262),
            (11, 2.201),
            (30, 2.042),
            (120, 1.980),
        ] {
            assert!((student(freedom) - exact).abs() < 0.001, "{freedom}");
        }
    }

    #[test]
    fn an_interval_of_known_values() {
        let estimate = Estimate::of([1.0, 2.0, 3.0].into_iter());
        assert!((estimate.value - 2.0).abs() < 1e-12);
        assert!((estimate.half_width - 4.303 / 3.0_f64.sqrt()).abs() < 1e-3);
        assert!(estimate.agrees_with(4.0, 0.0) && !estimate.agrees_with(5.0, 0.0));
        assert!(Estimate::of([1.0].into_iter()).half_width.is_infinite());
    }
}
