//! What is remembered of a vertex and of an edge.

use maglor_balance::Time;

use super::Advised;
use super::histogram::{Histogram, Share};
use super::hold::Hold;
use super::observed::{EdgeUse, ServiceUse, Snapshot};
use super::params::Params;

/// A vertex over time.
#[derive(Clone, Debug)]
pub(super) struct ServiceTrack {
    pub(super) seen: Time,
    /// When it was seen first.
    pub(super) began: Option<Time>,
    /// As it is now.
    pub(super) now: ServiceUse,
    /// CPU of all replicas together, lately.
    cpu: Histogram,
    /// Its quantile, held for requests and for replicas.
    pub(super) cpu_planned: Hold,
    pub(super) cpu_scaled: Hold,
    memory: Histogram,
    pub(super) memory_planned: Hold,
    /// Requests a second.
    rps: Histogram,
    pub(super) rps_scaled: Hold,
    /// Failures of its own, not those of who it calls, among the calls that it takes.
    own: Share,
    pub(super) own_failures: Hold,
    /// When there was another number of replicas the last time.
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
            cpu_planned: Hold::default(),
            cpu_scaled: Hold::default(),
            memory: Histogram::new(resources.memory_half_life),
            memory_planned: Hold::default(),
            rps: Histogram::new(resources.half_life),
            rps_scaled: Hold::default(),
            own: Share::default(),
            own_failures: Hold::default(),
            scaled: None,
            replicas: None,
        }
    }

    pub(super) fn observe(
        &mut self,
        now: Time,
        service: &ServiceUse,
        snapshot: &Snapshot,
        params: &Params,
    ) {
        if service.replicas != self.now.replicas {
            self.scaled = Some(now);
        }
        self.began.get_or_insert(now);
        (self.seen, self.now) = (now, service.clone());
        let resources = &params.resources;
        if let Some(used) = service.cpu_used_millis {
            self.cpu.add(now, used * f64::from(service.replicas.max(1)));
            let used = self.cpu.quantile(resources.quantile);
            self.cpu_planned.follow(now, used, resources.band);
            self.cpu_scaled.follow(now, used, params.scaling.band);
        }
        if let Some(used) = service.memory_used_mib {
            self.memory.add(now, used);
            let peak = self.memory.quantile(1.0);
            self.memory_planned.follow(now, peak, resources.memory_band);
        }
        let rps = snapshot.rps(service);
        self.rps.add(now, rps);
        let rps = self.rps.quantile(resources.quantile);
        self.rps_scaled.follow(now, rps, params.scaling.band);

        let into = snapshot.edges.iter().filter(|edge| edge.to == service.name);
        let (calls, failed) = into.fold((0.0, 0.0), |(calls, failed), edge| {
            (calls + edge.rps, failed + edge.failures)
        });
        let out = snapshot
            .edges
            .iter()
            .filter(|edge| edge.from == service.name);
        let below = out.filter(|edge| edge.to != service.name);
        let own = (failed - below.map(|edge| edge.failures).sum::<f64>()).max(0.0);
        self.own.add(now, params.traffic.half_life, calls, own);
        self.own_failures
            .follow(now, self.own.get(), params.traffic.band);
    }

    /// How many replicas there are to be: as advised, or as there are.
    pub(super) fn planned(&self) -> u32 {
        let advised = self.replicas.as_ref().map(|advised| advised.value);
        advised.unwrap_or(self.now.replicas).max(1)
    }
}

/// An edge over time. All but the latency is of one replica of the caller: limits are each proxy's.
#[derive(Clone, Debug)]
pub(super) struct EdgeTrack {
    pub(super) seen: Time,
    concurrency: Histogram,
    rps: Histogram,
    tail: Histogram,
    mean: Histogram,
    /// λ·r, with r cut at the threshold: a queue does not earn itself a larger limit.
    pub(super) requests: Hold,
    pub(super) calls: Hold,
    /// The 99th percentile of r in milliseconds, or what stands for it.
    pub(super) tail_ms: Hold,
    /// r in milliseconds.
    pub(super) latency: Hold,
    /// The tail is the mean's multiple.
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
            requests: Hold::default(),
            calls: Hold::default(),
            tail_ms: Hold::default(),
            latency: Hold::default(),
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
        if edge.rps > 0.0 {
            // Without a call nothing is known of the time that one takes.
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
        ] {
            hold.follow(now, histogram.quantile(traffic.quantile), traffic.band);
        }
    }
}
