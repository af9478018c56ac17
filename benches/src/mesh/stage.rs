//! One case: starts, loads, measures and stops everything.

use std::time::{Duration, Instant};

use maglor_lab::des::{Estimate, Outcome, Scenario, simulate_all, threads};
use maglor_testkit::app::{Counts, WorkModel};
use tokio::time::sleep;

use super::fleet::{Fleet, Places, Used};
use super::load::{self, Sample, Target};
use super::options::Options;
use super::plan::Plan;
use super::shape::Shape;
use crate::error::{Doing, Error, Result};
use crate::peer::Peer;
use crate::procfs::CpuTime;
use crate::stats::quantile;
use crate::sys;

/// The number of equal parts of a run whose means give the confidence interval.
const BATCHES: u32 = 10;
/// A generator that is later than this part of a service time at one request in a hundred was kept from its processor
/// by another program.
const DISTURBED: f64 = 0.1;
/// The maximum number of attempts until a case is not disturbed.
const ATTEMPTS: u32 = 3;
/// The time for connections to close before the proxies are stopped.
const CLOSING: Duration = Duration::from_millis(50);

/// The environment of all cases.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) options: Options,
    pub(super) maglor: Peer,
    /// The processors: load generator and application on one, proxies on the other.
    pub(super) places: Places,
}

/// An application, its mesh, and an open loop of load.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The name in messages and raw data.
    pub(super) name: String,
    pub(super) model: WorkModel,
    pub(super) shape: Shape,
    /// Client requests per second.
    pub(super) rate: f64,
    /// The paths of client requests, used in turn.
    pub(super) paths: Vec<String>,
    /// The number of users, each with one request at a time; `None` for an open loop.
    pub(super) users: Option<u32>,
    /// The duration of load before the measurement.
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// The results of a case. Times are in milliseconds, processor times in µs.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Mean latency, and half the width of its 95 % confidence interval, by batch means.
    pub(super) mean: Estimate,
    /// The means of the batches.
    pub(super) batches: Vec<f64>,
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// The number of measured requests, and of those without a 200.
    pub(super) requests: usize,
    pub(super) failed: usize,
    /// Requests that were due, and requests that were answered, per second.
    pub(super) offered: f64,
    pub(super) throughput: f64,
    /// The lag of the generator: mean and 99th percentile.
    pub(super) lag: (f64, f64),
    /// The part of the mean spent in the exact queues of instances.
    pub(super) exact: f64,
    /// The latency added by proxies, sockets, timers and generator, that is, all but the exact
    /// queues and waiting for a user: mean and 99th percentile.
    pub(super) added: (f64, f64),
    /// The median of the added latency.
    pub(super) added_p50: f64,
    /// The mean lag of the instances' timers per visit.
    pub(super) late: f64,
    /// Work per visit.
    pub(super) work: f64,
    /// Calls per request.
    pub(super) calls: f64,
    /// The utilization of the instances.
    pub(super) rho: f64,
    /// Processor time per request: proxies, application, generator.
    pub(super) cpu: [f64; 3],
    /// Processor time of each Proxy-Service, with its host, per request that passed it.
    pub(super) central: Vec<(String, f64)>,
    /// Processor time of all Proxy-Services per request of a client.
    pub(super) central_us: f64,
    /// The work that arrived at each instance, with its host: seconds per second.
    pub(super) pods: Vec<(String, f64)>,
    /// The utilization of the proxies' processor, and the time that they waited for it, in percent.
    pub(super) proxies_busy: f64,
    pub(super) proxies_wait: f64,
    /// The utilization of the processor of application and generator, in percent.
    pub(super) harness_busy: f64,
    /// The number of proxies, and the memory of one in MB.
    pub(super) proxies: usize,
    pub(super) memory: f64,
    /// The anonymous memory of one of them, that is, heaps and stacks, in MB.
    pub(super) anonymous: f64,
}

impl Stage {
    /// Returns the same stage with another seed, `more` above its own.
    pub(super) fn seeded(&self, more: u64) -> Self {
        let mut options = self.options.clone();
        options.seed = options.seed.wrapping_add(more);
        Self {
            options,
            maglor: self.maglor.clone(),
            places: self.places.clone(),
        }
    }

    /// Simulates the scenarios on all processors, while nothing is measured.
    pub(super) fn simulate(&self, scenarios: &[Scenario]) -> Result<Vec<Outcome>> {
        eprintln!("{} points are simulated", scenarios.len());
        let all = [&*self.places.app, &*self.places.proxies].concat();
        sys::pin_to(&all).doing("free the harness")?;
        let outcomes = simulate_all(scenarios, threads(), &|_, _| {});
        sys::pin_to(&self.places.app).doing("pin the harness")?;
        outcomes.map_err(Error::protocol)
    }

    /// Runs a case; a run that another program has disturbed is repeated, and the least disturbed
    /// run counts.
    pub(super) async fn run(&self, case: &Case) -> Result<Measured> {
        eprintln!("{}", case.name);
        let mut best = self.once(case).await?;
        for _ in 1..ATTEMPTS {
            if !best.is_disturbed(&self.options) {
                break;
            }
            eprintln!("  the machine was not quiet: once more");
            let next = self.once(case).await?;
            if next.lag.1 < best.lag.1 {
                best = next;
            }
        }
        Ok(best)
    }

    async fn once(&self, case: &Case) -> Result<Measured> {
        let seed = self.options.seed;
        let plan = Plan::new(&case.model, &case.shape)?;
        let target = Target {
            addresses: plan.targets.clone(),
            host: plan.host.clone(),
            paths: case.paths.clone(),
            users: case.users,
        };
        let fleet = Fleet::start(plan, &case.model, &self.maglor, &self.places, seed).await?;
        let length = case.warm_up + case.measured;
        let mut begin = None;
        let samples = {
            let begin = &mut begin;
            let warm = async || {
                fleet.reset_counts().await?;
                *begin = Some((fleet.used()?, fleet.central()?, Instant::now()));
                Ok(())
            };
            // Differs from the application's seed in many bits.
            let seed = seed.rotate_left(17);
            load::open(&target, case.rate, length, seed, (case.warm_up, warm)).await?
        };
        let counts = fleet.counts().await?;
        let Some((before, central, began)) = begin else {
            return Err(Error::protocol("the load ended before the warm-up"));
        };
        let used = fleet.used()?.since(before);
        let memory = fleet.memory()?;
        let share = fleet.share()?;
        let proxies = fleet.proxies();
        let elapsed = began.elapsed();
        let central: Vec<_> = fleet
            .central()?
            .into_iter()
            .zip(central)
            .map(|((host, now), (_, before))| (host, now.since(before)))
            .collect();
        let mut result = Measured::of(&samples, case, &counts);
        result.account(&used, elapsed);
        let passed: Duration = central.iter().map(|(_, used)| used.run).sum();
        result.central_us = passed.as_nanos() as f64 / 1000.0 / result.requests.max(1) as f64;
        result.central = per_visit(central.into_iter(), &counts);
        result.proxies = proxies;
        let of_one = |kb: u64| kb as f64 / 1000.0 / proxies.max(1) as f64;
        result.memory = of_one(memory.rss_kb);
        result.anonymous = of_one(share.anonymous_kb);
        drop(fleet);
        sleep(CLOSING).await;
        result.say();
        Ok(result)
    }
}

const fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

impl Measured {
    fn of(all: &[Sample], case: &Case, counts: &[Counts]) -> Self {
        let first = all.partition_point(|one| one.due < case.warm_up);
        let samples = all.get(first..).unwrap_or_default();
        let good: Vec<_> = samples.iter().filter(|one| one.status == 200).collect();
        let batches = batch_means(&good, case);
        let mut latencies: Vec<_> = good.iter().map(|one| one.latency).collect();
        latencies.sort_unstable();
        let mut lags: Vec<_> = samples.iter().map(|one| one.lag).collect();
        lags.sort_unstable();
        let requests = samples.len();
        let per = |value: f64| value / requests.max(1) as f64;
        let sum = |value: fn(&Counts) -> u64| counts.iter().map(value).sum::<u64>() as f64;
        let calls = sum(|one| one.arrived);
        let per_visit = |value: f64| value / calls.max(1.0) / 1000.0;
        let work = sum(|one| one.work_us);
        let capacity = case.measured.as_micros() as f64 * counts.len().max(1) as f64;
        let mut added: Vec<_> = good
            .iter()
            .map(|one| one.latency.saturating_sub(one.exact + one.waited))
            .collect();
        added.sort_unstable();
        let mean = |times: &[Duration]| {
            times.iter().copied().map(ms).sum::<f64>() / times.len().max(1) as f64
        };
        let exact: Vec<_> = good.iter().map(|one| one.exact).collect();
        let mean_lag = per(lags.iter().copied().map(ms).sum());
        Self {
            mean: Estimate::of(batches.iter().copied()),
            batches,
            p50: quantile(&latencies, 0.5),
            p99: quantile(&latencies, 0.99),
            requests,
            failed: requests - good.len(),
            offered: samples.len() as f64 / case.measured.as_secs_f64(),
            throughput: answered(all, case) as f64 / case.measured.as_secs_f64(),
            lag: (mean_lag, quantile(&lags, 0.99)),
            exact: mean(&exact),
            added: (mean(&added), quantile(&added, 0.99)),
            added_p50: quantile(&added, 0.5),
            late: per_visit(sum(|one| one.late_us)),
            work: per_visit(work),
            calls: per(calls),
            rho: work / capacity,
            cpu: [0.0; 3],
            central: Vec::new(),
            central_us: 0.0,
            pods: counts.iter().map(|one| pod(one, case)).collect(),
            proxies_busy: 0.0,
            proxies_wait: 0.0,
            harness_busy: 0.0,
            proxies: 0,
            memory: 0.0,
            anonymous: 0.0,
        }
    }

    fn account(&mut self, used: &Used, elapsed: Duration) {
        let requests = self.requests.max(1) as f64;
        let per_request = |time: Duration| time.as_nanos() as f64 / 1000.0 / requests;
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / elapsed.as_secs_f64();
        self.cpu = [used.proxies.run, used.app.run, used.harness.run].map(per_request);
        self.proxies_busy = percent(used.proxies.run);
        self.proxies_wait = percent(used.proxies.wait);
        self.harness_busy = percent(used.app.run + used.harness.run);
    }

    /// Estimates a value over runs.
    pub(super) fn over(runs: &[Self], value: impl Fn(&Self) -> f64) -> Estimate {
        let values: Vec<_> = runs.iter().map(value).collect();
        Estimate::of(values.iter().copied())
    }

    /// Returns whether another program kept the generator from its processor.
    pub(super) fn is_disturbed(&self, options: &Options) -> bool {
        self.lag.1 > DISTURBED * ms(options.service())
    }

    fn say(&self) {
        let Estimate { value, half_width } = self.mean;
        eprintln!(
            "  {value:.2} ± {half_width:.2} ms, p99 {:.1}; {} requests, {} failed; rho {:.3}; proxies {:.0} us a \
             request, {:.0} % of a processor",
            self.p99, self.requests, self.failed, self.rho, self.cpu[0], self.proxies_busy
        );
    }
}

/// Returns the work that arrived at an instance during the measurement.
fn pod(counts: &Counts, case: &Case) -> (String, f64) {
    let work = counts.work_us as f64 / 1e6;
    (counts.host.clone(), work / case.measured.as_secs_f64())
}

/// Returns the number of requests that were answered during the measurement, whenever they were
/// due.
fn answered(all: &[Sample], case: &Case) -> usize {
    let end = case.warm_up + case.measured;
    let during = |one: &&Sample| {
        let at = one.due + one.latency;
        one.status == 200 && at >= case.warm_up && at < end
    };
    all.iter().filter(during).count()
}

/// Returns the processor time of the proxies of each host, in µs per request to the host.
fn per_visit(
    used: impl Iterator<Item = (String, CpuTime)>,
    counts: &[Counts],
) -> Vec<(String, f64)> {
    let share = |(host, used): (String, CpuTime)| {
        let own = counts.iter().filter(|one| one.host == host);
        let arrived = own.map(|one| one.arrived).sum::<u64>().max(1) as f64;
        (host, used.run.as_nanos() as f64 / 1000.0 / arrived)
    };
    used.map(share).collect()
}

/// Returns the mean of each tenth of the run.
fn batch_means(good: &[&Sample], case: &Case) -> Vec<f64> {
    let part = case.measured / BATCHES;
    let mean = |batch: u32| {
        let begin = case.warm_up + part * batch;
        let first = good.partition_point(|one| one.due < begin);
        let end = good.partition_point(|one| one.due < begin + part);
        let own = good.get(first..end).unwrap_or_default();
        let sum: f64 = own.iter().map(|one| ms(one.latency)).sum();
        (!own.is_empty()).then(|| sum / own.len() as f64)
    };
    (0..BATCHES).filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_later_is_not_throughput() {
        let sample = |due, latency, status| Sample {
            due: Duration::from_millis(due),
            lag: Duration::ZERO,
            waited: Duration::ZERO,
            latency: Duration::from_millis(latency),
            exact: Duration::ZERO,
            status,
        };
        let case = Case {
            name: String::new(),
            model: WorkModel::new([]),
            shape: Shape {
                entry: String::new(),
                entrances: 0,
                policy: String::new(),
                outbound: false,
                inbound: false,
                collaborates: false,
                proxy_service: None,
                processes: 1,
            },
            rate: 1.0,
            paths: Vec::new(),
            users: None,
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(2),
        };
        let samples = [
            sample(100, 100, 200),
            sample(900, 200, 200),
            sample(1500, 100, 200),
            sample(1600, 100, 503),
            sample(2900, 200, 200),
        ];
        let run = Measured::of(&samples, &case, &[]);
        assert!((run.offered - 1.5).abs() < 1e-9, "{run:?}");
        assert!((run.throughput - 1.0).abs() < 1e-9, "{run:?}");
        assert_eq!((run.requests, run.failed), (3, 1));
    }
}
