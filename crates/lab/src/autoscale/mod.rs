//! Compares the resources requested over a day by Algorithm 2 (`maglor_service_graph::advise`) and
//! by a HorizontalPodAutoscaler, with the same users' requests (docs/generated.md).
//!
//! Services are replicas that are FIFO servers of at most one core; a request is processed by a
//! service and then, concurrently, by those that it calls. Every 15 s the scaler receives the usage
//! and decides; a new replica accepts requests 15 s later, and is paid for at once.

mod advised;
mod application;
mod fleet;
mod hpa;

pub use advised::Advised;
pub use application::{Application, Day};
pub use hpa::Hpa;

use fleet::Fleet;
use maglor_balance::Rng;

use crate::des::Histogram;

/// The time between two decisions: the default of the autoscaler of Kubernetes, in seconds.
pub const PERIOD: f64 = 15.0;

/// The requests of a replica, and its CPU limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The CPU request in thousandths of a core.
    pub cpu_millis: f64,
    /// The memory request in MiB.
    pub memory_mib: f64,
    /// The CPU limit in thousandths of a core; a replica processes one request at a time, so more
    /// than 1000 is 1000.
    pub cpu_limit_millis: f64,
}

/// The measurements of a service at the end of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The number of replicas, including those in startup.
    pub replicas: u32,
    /// The CPU usage of all replicas together, in thousandths of a core.
    pub cpu_used_millis: f64,
    /// The memory usage of the replica that uses most, in MiB.
    pub memory_used_mib: f64,
    /// Requests a second.
    pub rps: f64,
    /// The mean response time in milliseconds, without that of called services.
    pub latency_ms: f64,
}

/// A scaling algorithm.
pub trait Scaler {
    /// Sets the number of replicas of each service, and the size of one, from now on.
    fn decide(&mut self, second: f64, seen: &[Seen], now: &mut [(u32, Size)]);
}

/// The results of a day.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The number of users' requests.
    pub requests: u64,
    /// The requested CPU, averaged over the day, in thousandths of a core.
    pub cpu_millis: f64,
    /// The used CPU, averaged over the day, in thousandths of a core.
    pub cpu_used_millis: f64,
    /// The requested memory, averaged over the day, in MiB.
    pub memory_mib: f64,
    /// The number of replicas, averaged over the day.
    pub replicas: f64,
    /// The mean response time of a user's request in milliseconds.
    pub mean_ms: f64,
    /// The 95th percentile of the response time in milliseconds.
    pub p95_ms: f64,
    /// The 99th percentile of the response time in milliseconds.
    pub p99_ms: f64,
    /// The share of the time in which a service used more CPU than it requested, 0–1.
    pub above_request: f64,
    /// The share of the time in which a replica used more memory than it requested, 0–1.
    pub above_memory: f64,
    /// The number of changes of replicas or requests, per service and day.
    pub changes: f64,
}

impl Outcome {
    /// Adds a period of a service.
    fn add(&mut self, seen: &Seen, replicas: u32, size: &Size) {
        let replicas = f64::from(replicas);
        let requested = replicas * size.cpu_millis;
        self.cpu_millis += requested;
        self.cpu_used_millis += seen.cpu_used_millis;
        self.memory_mib += replicas * size.memory_mib;
        self.replicas += replicas;
        self.above_request += f64::from(u8::from(seen.cpu_used_millis > requested));
        self.above_memory += f64::from(u8::from(seen.memory_used_mib > size.memory_mib));
    }

    /// Converts sums to means, and to shares of the time.
    fn divide(&mut self, periods: f64, services: f64) {
        let means = [
            &mut self.cpu_millis,
            &mut self.cpu_used_millis,
            &mut self.memory_mib,
            &mut self.replicas,
            &mut self.above_request,
            &mut self.above_memory,
        ];
        for sum in means {
            *sum /= periods;
        }
        self.above_request /= services;
        self.above_memory /= services;
    }
}

/// Simulates a day. The same seed results in the same requests, whichever scaler decides.
#[must_use]
pub fn run(
    application: &Application,
    day: &Day,
    size: impl Fn(usize) -> Size,
    scaler: &mut dyn Scaler,
    seed: u64,
) -> Outcome {
    let services = application.services.len();
    let mut now: Vec<(u32, Size)> = (0..services).map(|at| (1, size(at))).collect();
    let mut fleets: Vec<Fleet> = (0..services).map(|_| Fleet::default()).collect();
    let mut rng = Rng::seed(seed);
    // Separate, so that the requests do not depend on the number of replicas.
    let mut memory = Rng::seed(!seed);
    let mut latency = Histogram::default();
    let mut outcome = Outcome::default();
    let mut sum = 0.0;
    let (mut second, mut periods) = (0.0, 0.0f64);
    while second < day.seconds {
        for (fleet, (replicas, size)) in fleets.iter_mut().zip(&now) {
            fleet.scale(
                *replicas,
                second,
                size.cpu_limit_millis.min(1000.0) / 1000.0,
            );
        }
        let arrivals = day.arrivals(second, PERIOD, &mut rng);
        let finished = application.run(&arrivals, &mut fleets, &mut rng);
        for (arrival, finish) in arrivals.iter().zip(finished) {
            let nanos = (finish - arrival) * 1e9;
            latency.add(nanos as u64);
            sum += nanos;
        }
        outcome.requests += arrivals.len() as u64;
        second += PERIOD;
        periods += 1.0;
        let seen: Vec<Seen> = fleets
            .iter_mut()
            .zip(&application.services)
            .zip(&now)
            .map(|((fleet, service), (replicas, _))| {
                let memory = application.memory(service, *replicas, &mut memory);
                fleet.seen(second, memory, *replicas)
            })
            .collect();
        for (seen, (replicas, size)) in seen.iter().zip(&now) {
            outcome.add(seen, *replicas, size);
        }
        let before = now.clone();
        scaler.decide(second, &seen, &mut now);
        outcome.changes += before.iter().zip(&now).filter(|(a, b)| a != b).count() as f64;
    }
    outcome.divide(periods.max(1.0), services as f64);
    outcome.changes *= 86_400.0 / day.seconds / services as f64;
    outcome.mean_ms = sum / outcome.requests.max(1) as f64 / 1e6;
    outcome.p95_ms = latency.quantile(0.95) / 1e6;
    outcome.p99_ms = latency.quantile(0.99) / 1e6;
    outcome
}
