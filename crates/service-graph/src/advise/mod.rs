//! Algorithm 2: configuration generated from observations.
//!
//! [`Advisor`] processes snapshots of the graph over time and recommends, for each service, its CPU and memory
//! requests, its number of replicas, and how its callers should treat it: limits, timeouts, retries, breakers. Every
//! value is an [`Advised`] value, which contains the reason in numbers.
//!
//! Three rules keep the recommendations stable. Each relevant series is reduced to a quantile of a decaying histogram
//! (`histogram.rs`). Each quantile has hysteresis (`hold.rs`): it increases immediately, and decreases slowly. The
//! recommendations are a function of these values, so noise within the bands changes nothing. [`Trial`] evaluates an
//! applied recommendation, and decides whether to roll it back.

mod chain;
mod containers;
mod endless;
mod histogram;
mod hold;
mod memory;
mod number_format;
mod observed;
mod own;
mod params;
mod resource_request;
mod resources;
mod scale;
mod split;
mod track;
mod traffic;
mod trial;

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

/// A recommended value with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised<T> {
    /// The recommended value.
    pub value: T,
    /// The reason, as a message with numbers.
    pub reason: String,
}

impl<T> Advised<T> {
    fn new(value: T, reason: String) -> Self {
        Self { value, reason }
    }
}

/// The recommendations for a service. Settings that are `None` should not be changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// The name of the service.
    pub service: String,
    /// The recommended CPU request of a replica, in thousandths of a core.
    pub cpu_millis: Option<Advised<u64>>,
    /// The recommended memory request of a replica, in MiB.
    pub memory_mib: Option<Advised<u64>>,
    /// The recommended memory limit of a replica, in MiB; `None` if there is no limit, or it is not too low.
    pub memory_limit_mib: Option<Advised<u64>>,
    /// The recommended requests of each container of a replica whose usage is known, including injected containers.
    pub containers: Vec<ContainerAdvice>,
    /// The recommended number of replicas.
    pub replicas: Option<Advised<u32>>,
    /// The recommended settings of the callers; `None` if there are no callers in the graph, or if the duration of
    /// calls is unknown or unbounded (streams).
    pub traffic: Option<TrafficAdvice>,
    /// The recommended percentages of the versions; `None` if requests to the service are not split.
    pub split: Option<SplitAdvice>,
}

/// The recommendations for a container. Settings that are `None` should not be changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerAdvice {
    /// The name of the container.
    pub name: String,
    /// The recommended CPU request, in thousandths of a core.
    pub cpu_millis: Option<Advised<u64>>,
    /// The recommended memory request, in MiB.
    pub memory_mib: Option<Advised<u64>>,
}

/// The settings for a service in each proxy of a caller.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficAdvice {
    /// The maximum number of requests in progress.
    pub max_requests: Advised<u32>,
    /// The maximum number of pending requests.
    pub max_pending_requests: Advised<u32>,
    /// The maximum time for which a request is pending.
    pub queue_timeout: Advised<Duration>,
    /// The maximum number of connections, including idle ones.
    pub max_connections: Advised<u32>,
    /// The maximum number of idle connections for each worker and endpoint.
    pub max_idle_connections: Advised<u32>,
    /// The timeout from the end of the request to the end of the response, over all attempts.
    pub timeout: Advised<Duration>,
    /// The time in which the share of a new replica grows to its full value.
    pub slow_start: Advised<Duration>,
    /// The retries; `None` = no recommendation.
    pub retry: Option<Advised<RetryAdvice>>,
    /// The circuit breaking; `None` = no recommendation.
    pub breaker: Option<Advised<BreakerAdvice>>,
}

/// The settings of retries. The conditions are those of the paper's Fig. 5: gateway errors, connection failures,
/// refused streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryAdvice {
    /// The maximum number of attempts after the first one, 1–20.
    pub attempts: u32,
    /// The timeout of each attempt.
    pub per_try_timeout: Duration,
    /// The maximum share of retries, in percent of requests, 0–100.
    pub budget_percent: f64,
}

/// The settings of circuit breaking, for the service as a whole and for single endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerAdvice {
    /// The number of consecutive failures that open the breaker, or eject an endpoint.
    pub consecutive_failures: u32,
    /// The percentage of failures among the requests of an interval that opens the breaker.
    pub failure_percent: f64,
    /// The minimum number of requests in an interval for evaluating the percentage.
    pub minimum_requests: u32,
    /// The interval in which requests are counted.
    pub interval: Duration,
    /// The duration of the first ejection of an endpoint.
    pub ejection_time: Duration,
}

/// The recommender: Algorithm 2, over time.
#[derive(Clone, Debug, Default)]
pub struct Advisor {
    params: Params,
    services: BTreeMap<String, ServiceTrack>,
    edges: BTreeMap<(String, String), EdgeTrack>,
    splits: BTreeMap<String, SplitTrack>,
}

impl Advisor {
    /// Creates a recommender that has no observations yet.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self {
            params,
            ..Self::default()
        }
    }

    /// Replaces the parameters; observations are kept.
    pub fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// Adds a snapshot. Snapshots must be in chronological order, ideally 15 to 60 s apart. Services and edges that
    /// have not been observed for an hour are removed.
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

    /// Decides on the number of replicas of each service, in the order of their names, within the free capacity.
    fn scale(&mut self, now: Time, room: Option<Room>) {
        let mut room = room;
        for track in self.services.values_mut() {
            track.scale(now, &mut room, &self.params);
        }
    }

    /// Returns the recommendations, in the order of the services' names.
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
