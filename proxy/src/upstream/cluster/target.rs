//! An endpoint of a cluster at run time. It outlives snapshots of the cluster's endpoints and is kept by reloads that
//! do not change its address, so that statistics and pooled connections survive.

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

/// Time for which an endpoint without the queue protocol is balanced by plain `lor`, in nanoseconds. It is short at
/// first, because the endpoint's proxy may only be waiting for the control plane. It doubles up to the maximum,
/// because the endpoint may be upgraded later.
const ASK_AGAIN_AT_FIRST: u64 = 1_000_000_000;
const ASK_AGAIN_AT_MOST: u64 = 60_000_000_000;

const UNKNOWN: u32 = u32::MAX;

static NEXT_TARGET: AtomicU64 = AtomicU64::new(0);

/// An endpoint at run time.
#[derive(Debug)]
pub(crate) struct Target {
    /// Id that is unique in the process; the key of the endpoint's pools.
    pub(crate) id: u64,
    pub(crate) address: Address,
    /// DNS name that was resolved to this address; `None` for an endpoint given by its address.
    pub(crate) host: Option<Arc<str>>,
    pub(crate) stats: Arc<EndpointStats>,
    /// Slots for the endpoint's requests, if their number is limited. The limit belongs to the cluster, whose
    /// configuration an endpoint may outlive.
    requests: Arc<Slots>,
    /// Slots for the endpoint's connections, if their number is limited.
    pub(in crate::upstream) connections: Arc<Slots>,
    /// Statistics of the endpoint's responses for outlier ejection.
    pub(crate) monitor: Arc<Monitor>,
    /// Time at which the endpoint was added or returned to service; slow start begins then.
    joined: AtomicU64,
    /// Time until which the queue protocol is not used with the endpoint, in nanoseconds; see
    /// [`crate::mesh::load_feedback::queue_protocol`].
    lacking_until: AtomicU64,
    /// Duration of the current pause of the queue protocol, in nanoseconds; 0 if there is none.
    lacking_for: AtomicU64,
    /// Shortest round-trip time since the last report, in microseconds; [`UNKNOWN`] if there is none.
    round_trip: AtomicU32,
    /// Metric handles, whose time series exist as long as the endpoint.
    pub(crate) metrics: Option<EndpointMetrics>,
}

/// Slot of a request at an endpoint.
#[derive(Debug)]
pub(crate) struct Seat {
    of: Arc<Slots>,
    /// Requests that wait for a slot at any endpoint.
    line: Arc<Queue>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.of.release();
        self.line.wake_one();
    }
}

impl Target {
    /// Returns the number of slots in use by requests and connections, where these are limited.
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

    /// Returns a target for the same host at another port. It has its own health and shares no state.
    pub(crate) fn at_port(&self, port: u16) -> Arc<Self> {
        let mut address = self.address.clone();
        if let Address::Ip(address) = &mut address {
            address.set_port(port);
        }
        Arc::new(Self {
            // Ids of endpoints never have this bit, so that no pool is shared by mistake.
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
        // Relaxed: only the control thread reads and writes the value.
        Time::from_nanos(self.joined.load(Ordering::Relaxed))
    }

    /// Assigns a request to the endpoint and counts it as outstanding; `None` if the endpoint is full.
    pub(crate) fn take(self: &Arc<Self>, guard: &Guard, now: Time) -> Option<Picked> {
        let seat = self.seat(guard)?;
        Some(Picked {
            target: Arc::clone(self),
            outstanding: self.stats.begin(now),
            seat,
        })
    }

    /// Returns whether the endpoint has recently shown that it lacks the protocol of
    /// [`crate::mesh::load_feedback::queue_protocol`].
    pub(crate) fn lacks_queue_protocol(&self, now: Time) -> bool {
        // Relaxed: the value is independent of other data and need not be exact.
        now.as_nanos() < self.lacking_until.load(Ordering::Relaxed)
    }

    /// Records whether the endpoint lacks the queue protocol.
    pub(crate) fn set_lacks_queue_protocol(&self, lacking: bool, now: Time) {
        // Relaxed: simultaneous updates by two workers change the time only slightly.
        let last = self.lacking_for.load(Ordering::Relaxed);
        if !lacking {
            if last != 0 {
                self.lacking_for.store(0, Ordering::Relaxed);
                self.lacking_until.store(0, Ordering::Relaxed);
            }
            return;
        }
        // Responses to earlier messages, received during the pause, are no new evidence.
        if !self.lacks_queue_protocol(now) {
            let time = (2 * last).clamp(ASK_AGAIN_AT_FIRST, ASK_AGAIN_AT_MOST);
            self.lacking_for.store(time, Ordering::Relaxed);
            self.lacking_until
                .store(now.as_nanos().saturating_add(time), Ordering::Relaxed);
        }
    }

    /// Takes a slot for a request; `None` if the endpoint is full.
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

    /// Returns the default value of `host`. For a Unix socket this is `localhost`, because RFC 9110 §7.2 requires a
    /// name or an IP address.
    pub(crate) fn authority(&self) -> String {
        match (&self.host, &self.address) {
            (Some(host), Address::Ip(address)) => format!("{host}:{}", address.port()),
            (None, Address::Ip(address)) => address.to_string(),
            (_, Address::Unix(_)) => "localhost".to_owned(),
        }
    }

    /// Returns whether the endpoint has at least this many connections; always false if their number is not limited.
    pub(in crate::upstream) fn has_connections(&self, most: u32) -> bool {
        self.connections.active() >= most
    }

    /// Records the round-trip time of a new connection.
    pub(in crate::upstream) fn measured(&self, micros: u32) {
        // Relaxed: the value is independent of other data.
        self.round_trip.fetch_min(micros, Ordering::Relaxed);
    }

    /// Returns the shortest round-trip time since the last call; `None` if there was no new connection.
    pub(crate) fn take_round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip.swap(UNKNOWN, Ordering::Relaxed);
        (micros != UNKNOWN).then(|| Duration::from_micros(micros.into()))
    }

    /// Records that the endpoint has returned to service.
    pub(crate) fn rejoin(&self, now: Time) {
        self.joined.store(now.as_nanos(), Ordering::Relaxed);
    }
}
