//! One endpoint of a cluster at run time. It outlives snapshots of its cluster's endpoints, and reloads
//! that keep its address, so that statistics and pooled connections survive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use maglor_balance::guard::limits::{Admission, Slots};
use maglor_balance::guard::outlier::Monitor;
use maglor_balance::{EndpointStats, Time};
use maglor_config::{Address, cluster as config};

use super::guard::Queue;
use crate::telemetry::metrics::{EndpointMetrics, Metrics};
use crate::upstream::{Guard, Picked};

/// How long an endpoint that does not speak our protocol is treated by plain `lor` before it is tried
/// again: at first, since it may only have to hear of it from the control plane, and at most, since it
/// may be upgraded. Between them the time doubles.
const ASK_AGAIN_AT_FIRST: u64 = 1_000_000_000;
const ASK_AGAIN_AT_MOST: u64 = 60_000_000_000;

const UNKNOWN: u32 = u32::MAX;

static NEXT_TARGET: AtomicU64 = AtomicU64::new(0);

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Target {
    /// Unique in the process; the key of its pools.
    pub(crate) id: u64,
    pub(crate) address: Address,
    /// The DNS name that led here.
    pub(crate) host: Option<Arc<str>>,
    pub(crate) stats: Arc<EndpointStats>,
    /// How many requests it has, where their number is limited. How many it may have is for the cluster
    /// to say, whose configuration an endpoint may outlive.
    requests: Arc<Slots>,
    /// The same of connections.
    pub(in crate::upstream) connections: Arc<Slots>,
    /// What its answers are like.
    pub(crate) monitor: Arc<Monitor>,
    /// When it joined, or returned to service: slow start ramps from here.
    joined: AtomicU64,
    /// Until when it is not asked how busy it is, in nanoseconds; see [`crate::mesh::load_feedback::queue_protocol`].
    lacking_until: AtomicU64,
    /// For how long it is not asked, in nanoseconds; 0 while it is none.
    lacking_for: AtomicU64,
    /// The shortest way there and back that was measured and not told, in microseconds; [`UNKNOWN`] = none.
    round_trip: AtomicU32,
    /// Lives as long as the endpoint, and so does its series.
    pub(crate) metrics: Option<EndpointMetrics>,
}

/// A request's place at an endpoint.
#[derive(Debug)]
pub(crate) struct Seat {
    of: Arc<Slots>,
    /// Those who wait for a place at any endpoint.
    line: Arc<Queue>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.of.release();
        self.line.wake_one();
    }
}

impl Target {
    /// Places for requests and connections that are taken, where their number is limited.
    pub(crate) fn places_taken(&self) -> u32 {
        self.requests.active() + self.connections.active()
    }

    pub(in crate::upstream) fn new(
        config: &config::Cluster,
        address: Address,
        host: Option<Arc<str>>,
        metrics: &Metrics,
        now: Time,
    ) -> Self {
        let stats = Arc::new(EndpointStats::new());
        let metrics = metrics.endpoint(&config.name, &address, &stats);
        // Relaxed: only uniqueness matters.
        let id = NEXT_TARGET.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            address,
            host,
            stats,
            requests: Arc::new(Slots::new(None, 0)),
            connections: Arc::new(Slots::new(None, 0)),
            monitor: Arc::new(Monitor::new()),
            joined: AtomicU64::new(now.as_nanos()),
            lacking_until: AtomicU64::new(0),
            lacking_for: AtomicU64::new(0),
            round_trip: AtomicU32::new(UNKNOWN),
            metrics: Some(metrics),
        }
    }

    /// The same host at another port, which has its own health and nothing else.
    pub(crate) fn at_port(&self, port: u16) -> Arc<Self> {
        let mut address = self.address.clone();
        if let Address::Ip(address) = &mut address {
            address.set_port(port);
        }
        Arc::new(Self {
            // Ids of endpoints stay far below: no pool is shared by mistake.
            id: self.id | 1 << 63,
            address,
            host: self.host.clone(),
            stats: Arc::default(),
            requests: Arc::new(Slots::new(None, 0)),
            connections: Arc::new(Slots::new(None, 0)),
            monitor: Arc::new(Monitor::new()),
            joined: AtomicU64::new(0),
            lacking_until: AtomicU64::new(0),
            lacking_for: AtomicU64::new(0),
            round_trip: AtomicU32::new(UNKNOWN),
            metrics: None,
        })
    }

    pub(in crate::upstream) fn joined(&self) -> Time {
        // Relaxed: written and read by the control thread alone.
        Time::from_nanos(self.joined.load(Ordering::Relaxed))
    }

    /// Gives it a request, which counts as outstanding from now on; `None` if it has as many as it may
    /// have.
    pub(crate) fn take(self: &Arc<Self>, guard: &Guard, now: Time) -> Option<Picked> {
        let seat = self.seat(guard)?;
        Some(Picked {
            target: Arc::clone(self),
            outstanding: self.stats.begin(now),
            seat,
        })
    }

    /// Whether it has lately shown that it does not know the protocol of [`crate::mesh::load_feedback::queue_protocol`].
    pub(crate) fn lacks_queue_protocol(&self, now: Time) -> bool {
        // Relaxed: advice, complete in itself.
        now.as_nanos() < self.lacking_until.load(Ordering::Relaxed)
    }

    /// It has answered as one who does not know the protocol, or (`false`) as one who does.
    pub(crate) fn set_lacks_queue_protocol(&self, lacking: bool, now: Time) {
        // Relaxed: two workers that say it at once make the time a little longer or shorter.
        let last = self.lacking_for.load(Ordering::Relaxed);
        if !lacking {
            if last != 0 {
                self.lacking_for.store(0, Ordering::Relaxed);
                self.lacking_until.store(0, Ordering::Relaxed);
            }
            return;
        }
        // What was sent before it was known says nothing new.
        if !self.lacks_queue_protocol(now) {
            let time = (2 * last).clamp(ASK_AGAIN_AT_FIRST, ASK_AGAIN_AT_MOST);
            self.lacking_for.store(time, Ordering::Relaxed);
            self.lacking_until
                .store(now.as_nanos().saturating_add(time), Ordering::Relaxed);
        }
    }

    /// A place for a request, or `None` if it has as many as it may have.
    fn seat(&self, guard: &Guard) -> Option<Option<Seat>> {
        let Some((limit, line)) = guard.seats() else {
            return Some(None);
        };
        let admitted = self.requests.admit(limit) == Admission::Admitted;
        admitted.then(|| {
            Some(Seat {
                of: Arc::clone(&self.requests),
                line: Arc::clone(line),
            })
        })
    }

    /// What to call it in `host` where nobody has named it otherwise. A Unix socket is on this host (RFC 9110 §7.2 wants a
    /// name or an IP address).
    pub(crate) fn authority(&self) -> String {
        match (&self.host, &self.address) {
            (Some(host), Address::Ip(address)) => format!("{host}:{}", address.port()),
            (None, Address::Ip(address)) => address.to_string(),
            (_, Address::Unix(_)) => "localhost".to_owned(),
        }
    }

    /// Whether it has so many connections, where their number is limited.
    pub(in crate::upstream) fn has_connections(&self, most: u32) -> bool {
        self.connections.active() >= most
    }

    /// A new connection has taken so long to there and back.
    pub(in crate::upstream) fn measured(&self, micros: u32) {
        // Relaxed: a number of its own.
        self.round_trip.fetch_min(micros, Ordering::Relaxed);
    }

    /// The shortest way there and back since the last call, where there was a new connection.
    pub(crate) fn take_round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip.swap(UNKNOWN, Ordering::Relaxed);
        (micros != UNKNOWN).then(|| Duration::from_micros(micros.into()))
    }

    /// It has returned to service.
    pub(crate) fn rejoin(&self, now: Time) {
        self.joined.store(now.as_nanos(), Ordering::Relaxed);
    }
}
