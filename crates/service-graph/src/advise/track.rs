//! The history of a service and of an edge.

use std::collections::VecDeque;
use std::time::Duration;

use maglor_balance::Time;

use super::Advised;
use super::containers::Containers;
use super::endless::endless;
use super::histogram::Histogram;
use super::hold::Hold;
use super::memory::Memory;
use super::observed::{Around, EdgeUse, ServiceUse};
use super::own::Own;
use super::params::{Params, Resources};

/// The share of their limit at which replicas count as fully used: sampling and the periods of a quota do not coincide
/// exactly.
const BUSY: f64 = 0.9;

/// The time after which an unchanged value counts as a new measurement.
const SAME: Duration = Duration::from_secs(60);

/// The factor above which λ counts as grown, which is more than noise of ±20 %. Averages over seconds are noisy, and
/// replicas persist for minutes, so the maximum of many samples would count.
const NOISE: f64 = 1.2;

/// The maximum ratio of the CPU demand derived from λ to the usage; the number of replicas does not grow faster,
/// either.
const MOST: f64 = 2.0;

/// The history of a vertex.
#[derive(Clone, Debug)]
pub(super) struct ServiceTrack {
    pub(super) seen: Time,
    /// When the service was first observed.
    pub(super) began: Option<Time>,
    /// The present state of the service.
    pub(super) now: ServiceUse,
    /// The recent CPU usage of all replicas together.
    cpu: Histogram,
    /// The CPU cost of a request, in thousandths of a core for one request per second. Samples of fully used replicas
    /// are excluded, since they show the limit of the replicas and not the cost of a request.
    cost: Histogram,
    /// The time and value of the last CPU measurement, and the requests per second at that time.
    measured: (Time, f64, f64),
    /// The recent samples of CPU usage, with their times.
    recent: VecDeque<(Time, f64)>,
    /// The quantile of the CPU usage, with hysteresis, for requests.
    pub(super) cpu_planned: Hold,
    /// The present CPU demand, with hysteresis, for the number of replicas: they start within seconds, and their
    /// requests do not change with it.
    pub(super) cpu_scaled: Hold,
    pub(super) memory: Memory,
    /// The usage of each container.
    pub(super) containers: Containers,
    /// The requests per second.
    rps: Histogram,
    pub(super) rps_scaled: Hold,
    pub(super) own: Own,
    /// When the number of replicas last changed.
    pub(super) scaled: Option<Time>,
    pub(super) replicas: Option<Advised<u32>>,
}

impl ServiceTrack {
    pub(super) fn new(params: &Params) -> Self {
        let resources = &params.resources;
        Self {
            seen: Time::ZERO,
            began: None,
            now: ServiceUse::default(),
            cpu: Histogram::new(resources.half_life),
            cost: Histogram::new(resources.half_life),
            measured: (Time::ZERO, 0.0, 0.0),
            recent: VecDeque::new(),
            cpu_planned: Hold::default(),
            cpu_scaled: Hold::default(),
            memory: Memory::new(resources),
            containers: Containers::default(),
            rps: Histogram::new(resources.half_life),
            rps_scaled: Hold::default(),
            own: Own::new(&params.traffic),
            scaled: None,
            replicas: None,
        }
    }

    pub(super) fn observe(
        &mut self,
        now: Time,
        service: &ServiceUse,
        around: &Around<'_>,
        params: &Params,
    ) {
        if service.replicas != self.now.replicas {
            self.scaled = Some(now);
        }
        self.began.get_or_insert(now);
        (self.seen, self.now) = (now, service.clone());
        let resources = &params.resources;
        let rps = around.rps(service);
        if let Some(used) = service.cpu_used_millis {
            let used = used * f64::from(service.replicas.max(1));
            self.cpu.add(now, used);
            let lately = self.cpu.quantile(resources.quantile);
            self.cpu_planned.follow(now, lately, resources.band);
            let lasts = self.lasts(now, used, params.scaling.lasting);
            let needed = self.explained(now, used, rps, resources);
            // The median prevents noise from counting as a decrease.
            let needed = needed.max(lasts).max(self.cpu.quantile(0.5));
            self.cpu_scaled.follow(now, needed, params.scaling.band);
        }
        if let Some(used) = service.memory_used_mib {
            self.memory.add(now, used, resources);
        }
        self.containers.observe(now, service, params);
        self.rps.add(now, rps);
        // The present requests have to be served, whatever the quantile.
        let rps = rps.max(self.rps.quantile(resources.quantile));
        self.rps_scaled.follow(now, rps, params.scaling.band);

        self.own.observe(now, &service.name, around, params);
    }

    /// Returns the CPU that the present requests need: λ times the usual CPU cost of a request. So a burst is detected
    /// immediately, and CPU that λ does not explain (code compilation, garbage collection) does not count.
    ///
    /// The result is limited to the usage, since a service does not use CPU only for requests. But λ is known earlier
    /// than the usage, so the usage is scaled by the growth of λ since its measurement; and if the usage is at its
    /// limit, twice as much is allowed.
    fn explained(&mut self, now: Time, used: f64, rps: f64, params: &Resources) -> f64 {
        let limit = self.now.cpu_limit_millis.unwrap_or(params.most_cpu_millis);
        let share = used / (limit.max(1) as f64 * f64::from(self.now.replicas.max(1)));
        // Above this range there must be another limit than the known one.
        let busy = (BUSY..2.0 - BUSY).contains(&share);
        let (at, before, mut then) = self.measured;
        let differs = (used - before).abs() > f64::EPSILON * used;
        if differs || now.saturating_since(at) >= SAME {
            self.measured = (now, used, rps);
            then = rps;
            if rps > 0.0 && !busy {
                self.cost.add(now, used / rps);
            }
        }
        let grown = if then > 0.0 { rps / then } else { 1.0 };
        let most = match busy {
            true => MOST,
            false if grown > NOISE => grown.min(MOST),
            false => 1.0,
        };
        (rps * self.cost.quantile(0.5)).min(most * used)
    }

    /// Returns the minimum CPU usage over the time `lasting`; 0 until usage has been measured for that long.
    fn lasts(&mut self, now: Time, used: f64, lasting: Duration) -> f64 {
        let old = |(at, _): &(Time, f64)| now.saturating_since(*at) >= lasting;
        self.recent.push_back((now, used));
        while self.recent.get(1).is_some_and(old) {
            self.recent.pop_front();
        }
        if !self.recent.front().is_some_and(old) {
            return 0.0;
        }
        let used = self.recent.iter().map(|(_, used)| *used);
        used.fold(f64::INFINITY, f64::min)
    }

    /// Returns the recommended number of replicas; the present number if there is no recommendation.
    pub(super) fn planned(&self) -> u32 {
        let advised = self.replicas.as_ref().map(|advised| advised.value);
        advised.unwrap_or(self.now.replicas).max(1)
    }
}

/// The history of an edge. All values but the latency are per replica of the caller, since limits apply to each proxy.
#[derive(Clone, Debug)]
pub(super) struct EdgeTrack {
    pub(super) seen: Time,
    concurrency: Histogram,
    rps: Histogram,
    tail: Histogram,
    mean: Histogram,
    open: Histogram,
    endless: Histogram,
    /// Whether the duration of calls is known.
    pub(super) timed: bool,
    /// Whether some calls are streams, for which no timeout is long enough.
    pub(super) streams: bool,
    /// λ·r, with r limited to the threshold: a queue must not raise its own limit.
    pub(super) requests: Hold,
    pub(super) calls: Hold,
    /// The 99th percentile of r, or its estimate, in milliseconds.
    pub(super) tail_ms: Hold,
    /// r in milliseconds.
    pub(super) latency: Hold,
    /// The number of TCP connections, which are not calls.
    pub(super) connections: Hold,
    /// Whether the 99th percentile is estimated from the mean.
    pub(super) from_mean: bool,
    pub(super) deadline_ms: Option<f64>,
}

impl EdgeTrack {
    pub(super) fn new(params: &Params) -> Self {
        let histogram = || Histogram::new(params.traffic.half_life);
        Self {
            seen: Time::ZERO,
            concurrency: histogram(),
            rps: histogram(),
            tail: histogram(),
            mean: histogram(),
            open: histogram(),
            endless: histogram(),
            timed: false,
            streams: false,
            requests: Hold::default(),
            calls: Hold::default(),
            tail_ms: Hold::default(),
            latency: Hold::default(),
            connections: Hold::default(),
            from_mean: true,
            deadline_ms: None,
        }
    }

    pub(super) fn observe(&mut self, now: Time, edge: &EdgeUse, callers: u32, params: &Params) {
        let traffic = &params.traffic;
        let rps = edge.rps / f64::from(callers.max(1));
        let slow = params.thresholds.latency.as_secs_f64() * 1e3;
        self.seen = now;
        self.deadline_ms = edge.deadline_ms.filter(|deadline| *deadline > 0.0);
        self.rps.add(now, rps);
        let connections = match edge.rps > 0.0 {
            true => 0.0,
            false => edge.in_flight / f64::from(callers.max(1)),
        };
        self.open.add(now, connections);
        self.endless.add(now, endless(edge, params));
        self.streams = self.endless.quantile(0.5) > 0.0;
        // Without calls or measurements, the duration of a call is unknown.
        if edge.rps > 0.0 && (edge.latency_ms > 0.0 || edge.p99_ms.is_some()) {
            self.timed = true;
            self.concurrency
                .add(now, rps * edge.latency_ms.min(slow) / 1e3);
            self.from_mean = edge.p99_ms.is_none();
            let tail = edge.p99_ms.unwrap_or(edge.latency_ms * traffic.tail);
            self.tail.add(now, tail);
            self.mean.add(now, edge.latency_ms);
        }
        for (hold, histogram) in [
            (&mut self.requests, &self.concurrency),
            (&mut self.calls, &self.rps),
            (&mut self.tail_ms, &self.tail),
            (&mut self.latency, &self.mean),
            (&mut self.connections, &self.open),
        ] {
            hold.follow(now, histogram.quantile(traffic.quantile), traffic.band);
        }
    }
}
