//! Algorithm 2: configuration from what is observed.
//!
//! [`Advisor`] takes snapshots of the graph over time and recommends, for each service, what CPU and
//! memory to request, how many replicas to run, and how its callers should treat it: limits,
//! timeouts, retries, breakers. Every value is an [`Advised`] one: it comes with the reason, in numbers.
//!
//! Three rules keep it calm. Each series that matters is a quantile of a histogram that forgets
//! (`histogram.rs`). Each such quantile is held (`hold.rs`): it moves at once where more is
//! needed, and slowly where less would do. And what is advised is a function of what is held, so noise
//! within the bands changes nothing. [`Trial`] watches what became of an advice that was followed, and
//! says when to take it back.

mod chain;
mod containers;
mod histogram;
mod hold;
mod memory;
mod observed;
mod own;
mod params;
mod resources;
mod scale;
mod split;
mod track;
mod traffic;
mod trial;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use maglor_balance::Time;

pub use hold::Band;
pub use observed::{ContainerUse, EdgeUse, Room, ServiceUse, Snapshot, SplitUse, VersionUse};
pub use params::{Params, Resources, Scaling, Splits, Thresholds, Traffic};
pub use split::{SplitAdvice, VersionAdvice};
pub use trial::{Health, Trial, TrialParams, Verdict};

use chain::Calls;
use observed::Around;
use split::SplitTrack;
use track::{EdgeTrack, ServiceTrack};

/// A value, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised<T> {
    /// What to set.
    pub value: T,
    /// One message with the numbers.
    pub reason: String,
}

impl<T> Advised<T> {
    fn new(value: T, reason: String) -> Self {
        Self { value, reason }
    }
}

/// What to set for a service. What is absent is to stay as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// Which service.
    pub service: String,
    /// CPU that a replica requests, in thousandths of a core.
    pub cpu_millis: Option<Advised<u64>>,
    /// Memory that a replica requests, in MiB.
    pub memory_mib: Option<Advised<u64>>,
    /// A replica's memory limit in MiB, if there is one and it is too low.
    pub memory_limit_mib: Option<Advised<u64>>,
    /// What each container of a replica requests, if known what it uses; injected ones are among them.
    pub containers: Vec<ContainerAdvice>,
    /// How many replicas.
    pub replicas: Option<Advised<u32>>,
    /// Settings of its callers; None without callers in the graph, or how long calls take is not known, or has no
    /// bound (streams).
    pub traffic: Option<TrafficAdvice>,
    /// How its requests are to be divided among its versions; None where they are not divided.
    pub split: Option<SplitAdvice>,
}

/// What to set for a container. What is absent is to stay as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerAdvice {
    /// Its name.
    pub name: String,
    /// CPU that it requests, in thousandths of a core.
    pub cpu_millis: Option<Advised<u64>>,
    /// Memory that it requests, in MiB.
    pub memory_mib: Option<Advised<u64>>,
}

/// How each proxy of a caller treats a service.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficAdvice {
    /// Requests in progress.
    pub max_requests: Advised<u32>,
    /// Requests that wait.
    pub max_pending_requests: Advised<u32>,
    /// How long one waits at most.
    pub queue_timeout: Advised<Duration>,
    /// Connections, idle ones included.
    pub max_connections: Advised<u32>,
    /// Idle connections for each worker and endpoint.
    pub max_idle_connections: Advised<u32>,
    /// From the end of the request to the end of the response, over all attempts.
    pub timeout: Advised<Duration>,
    /// How new replicas come to their share.
    pub slow_start: Advised<Duration>,
    /// Further attempts.
    pub retry: Option<Advised<RetryAdvice>>,
    /// What happens while it fails.
    pub breaker: Option<Advised<BreakerAdvice>>,
}

/// Retries. The conditions are those of the paper's Fig. 5: a gateway's errors, no connection, a stream
/// that was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryAdvice {
    /// Beyond the first try, 1–20.
    pub attempts: u32,
    /// Time for each try.
    pub per_try_timeout: Duration,
    /// Retries in percent of requests at most, 0–100.
    pub budget_percent: f64,
}

/// Circuit breaking: of the service as a whole, and of single endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerAdvice {
    /// Failures in a row that open the breaker, or eject an endpoint.
    pub consecutive_failures: u32,
    /// Failures in percent of the requests of an interval that open the breaker.
    pub failure_percent: f64,
    /// Fewer requests in an interval say nothing.
    pub minimum_requests: u32,
    /// Over which requests are counted.
    pub interval: Duration,
    /// How long an endpoint is left out at first.
    pub ejection_time: Duration,
}

/// Algorithm 2, over time.
#[derive(Clone, Debug, Default)]
pub struct Advisor {
    params: Params,
    services: BTreeMap<String, ServiceTrack>,
    edges: BTreeMap<(String, String), EdgeTrack>,
    splits: BTreeMap<String, SplitTrack>,
}

impl Advisor {
    /// Nothing observed yet.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self {
            params,
            ..Self::default()
        }
    }

    /// Goes on with others; what was observed holds.
    pub fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// Takes what is observed now. Snapshots come in the order of time, best every 15 to 60 s. What has
    /// not been seen for an hour is forgotten.
    pub fn observe(&mut self, now: Time, snapshot: &Snapshot) {
        const FORGET: Duration = Duration::from_secs(3600);
        let around = Around::of(snapshot);
        for edge in &snapshot.edges {
            let key = (edge.from.clone(), edge.to.clone());
            let track = self.edges.entry(key);
            let track = track.or_insert_with(|| EdgeTrack::new(&self.params));
            track.observe(now, edge, around.callers(&edge.from), &self.params);
        }
        for service in &snapshot.services {
            let track = self.services.entry(service.name.clone());
            let track = track.or_insert_with(|| ServiceTrack::new(&self.params));
            track.observe(now, service, &around, &self.params);
        }
        for split in &snapshot.splits {
            let track = self.splits.entry(split.service.clone()).or_default();
            track.observe(now, split, &self.params);
        }
        self.scale(now, snapshot.room);
        let fresh = |seen: Time| now.saturating_since(seen) < FORGET;
        self.services.retain(|_, track| fresh(track.seen));
        self.edges.retain(|_, track| fresh(track.seen));
        self.splits.retain(|_, track| track.seen.is_some_and(fresh));
    }

    /// How many replicas each service is to have; they share what room there is, by name.
    fn scale(&mut self, now: Time, room: Option<Room>) {
        let mut room = room;
        for track in self.services.values_mut() {
            track.scale(now, &mut room, &self.params);
        }
    }

    /// What to set, by the services' names.
    #[must_use]
    pub fn advise(&self) -> Vec<Advice> {
        let calls = Calls::new(&self.services, &self.edges, &self.params);
        let services = self.services.iter().enumerate();
        let advise = |(index, (name, track)): (usize, (&String, &ServiceTrack))| {
            let replicas = track.planned();
            Advice {
                service: name.clone(),
                cpu_millis: resources::cpu(track, replicas, &self.params),
                memory_mib: resources::memory(track, &self.params),
                memory_limit_mib: resources::memory_limit(track, &self.params),
                containers: {
                    let containers = &track.containers;
                    containers.advise(replicas, track.now.autoscaled, &self.params)
                },
                replicas: track.replicas.clone(),
                traffic: traffic::advise(index, &calls, &self.params),
                split: self.splits.get(name).and_then(|one| one.decided.clone()),
            }
        };
        services.map(advise).collect()
    }
}
