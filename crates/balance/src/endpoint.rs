//! An endpoint and its live statistics.
//!
//! [`Endpoint`] is configuration: its identity and its share of requests. [`EndpointStats`] is observation: the
//! outstanding requests, the latency, and whether the endpoint may be used. Statistics are shared (`Arc`) and outlive
//! every [`View`](crate::View), so counts survive a change of the set.
//!
//! Invariant: `outstanding` is exactly the number of live [`Outstanding`] guards.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::ewma::PeakEwma;
use crate::{Locality, Time, Usual};

/// The default time constant of the latency average (Linkerd's value).
pub(crate) const DEFAULT_DECAY: Duration = Duration::from_secs(10);

/// One address that requests can be sent to.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Stable identity, which Maglev and ring-hash use as the hash input, such as `10.0.0.1:8080`.
    pub key: Arc<str>,
    /// Share relative to the other endpoints of the same priority and locality.
    pub weight: NonZeroU32,
    /// The priority: 0 is the highest. A level is used when those with higher priority cannot take all traffic.
    pub priority: u8,
    /// The locality, for locality weights; `None` = none.
    pub locality: Option<Locality>,
    /// When the endpoint joined (or recovered), which is the beginning of slow start. `Time::ZERO` by default.
    pub added_at: Time,
    /// The live statistics.
    pub stats: Arc<EndpointStats>,
}

impl Endpoint {
    /// Creates an endpoint of weight 1, priority 0, without locality, with statistics of its own.
    #[must_use]
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self {
            key: key.into(),
            weight: NonZeroU32::MIN,
            priority: 0,
            locality: None,
            added_at: Time::ZERO,
            stats: Arc::new(EndpointStats::new()),
        }
    }

    /// Sets the weight.
    #[must_use]
    pub fn weight(mut self, weight: NonZeroU32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the priority; 0 is the highest.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the locality.
    #[must_use]
    pub fn locality(mut self, locality: Locality) -> Self {
        self.locality = Some(locality);
        self
    }

    /// Sets the time at which slow start begins.
    #[must_use]
    pub fn added_at(mut self, added_at: Time) -> Self {
        self.added_at = added_at;
        self
    }

    /// Shares existing statistics, so that counts survive a change of the set.
    #[must_use]
    pub fn stats(mut self, stats: Arc<EndpointStats>) -> Self {
        self.stats = stats;
        self
    }
}

/// The latency attributed to an error, in multiples of the usual latency. An average that follows peaks is about three
/// times the mean if service times are exponential; with a lower value, errors would attract requests.
const SLOW: u32 = 3;

const UNHEALTHY: u8 = 1;
const EJECTED: u8 = 2;
const DRAINING: u8 = 4;

/// The live statistics of an endpoint in this process.
///
/// They fill a cache line, so that workers that count different endpoints do not disturb each other. All accesses are
/// `Relaxed`: each atomic is complete in itself, none publishes other memory, and the queueing model assumes slightly
/// outdated counts anyway.
#[derive(Debug)]
#[repr(align(64))]
pub struct EndpointStats {
    outstanding: AtomicU32,
    /// Requests of other balancers in flight at the endpoint, as last reported.
    foreign: AtomicU32,
    flags: AtomicU8,
    latency: PeakEwma,
    decay_nanos: AtomicU64,
}

impl EndpointStats {
    /// Creates empty statistics: nothing outstanding, no latency known, healthy.
    #[must_use]
    pub fn new() -> Self {
        Self {
            outstanding: AtomicU32::new(0),
            foreign: AtomicU32::new(0),
            flags: AtomicU8::new(0),
            latency: PeakEwma::new(),
            decay_nanos: AtomicU64::new(DEFAULT_DECAY.as_nanos() as u64),
        }
    }

    /// Counts a request that was just assigned to this endpoint as outstanding until the guard is dropped.
    ///
    /// Hold the guard to the end of the response body, including queueing and connecting.
    #[must_use = "the request counts as outstanding only while the guard lives"]
    pub fn begin(self: &Arc<Self>, now: Time) -> Outstanding {
        // Relaxed: a counter; the guard's own `Arc` keeps the memory alive.
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Outstanding {
            stats: Arc::clone(self),
            began: now,
        }
    }

    /// Returns the number of requests of this process between the pick and the end of the response body.
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> u32 {
        // Relaxed: see the type.
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Updates the number of requests in flight from all balancers, as reported by the endpoint's
    /// own proxy.
    pub fn report(&self, in_flight: u32) {
        let foreign = in_flight.saturating_sub(self.outstanding());
        // Relaxed: see the type. A request that began in between is off by one until the next report.
        self.foreign.store(foreign, Ordering::Relaxed);
    }

    /// Returns the estimated number of requests in flight at the endpoint from all balancers: those of this process,
    /// and those of others as of the last [`report`](Self::report).
    #[must_use]
    #[inline]
    pub fn estimated_load(&self) -> u32 {
        // Relaxed: see the type.
        self.outstanding()
            .saturating_add(self.foreign.load(Ordering::Relaxed))
    }

    /// Returns the latency average as of `now`; `None` before the first sample.
    #[must_use]
    pub fn latency(&self, now: Time) -> Option<Duration> {
        let nanos = self.latency_nanos(now)?;
        Some(Duration::from_nanos(nanos as u64))
    }

    /// Returns [`latency`](Self::latency) in nanoseconds, without rounding to whole ones.
    #[inline]
    pub(crate) fn latency_nanos(&self, now: Time) -> Option<f32> {
        self.latency.read(self.decay(), now)
    }

    /// Adds a latency sample that was measured without a guard (by a health check, say) to the
    /// average.
    pub fn observe(&self, latency: Duration, now: Time) {
        self.latency.observe(latency, self.decay(), now);
    }

    /// Sets the time constant of the latency average, 10 s by default. The `peak-ewma` policy sets it to its `decay`
    /// when it is built.
    pub fn set_latency_decay(&self, decay: Duration) {
        let nanos = u64::try_from(decay.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a setting; old and new value are both usable.
        self.decay_nanos.store(nanos, Ordering::Relaxed);
    }

    fn decay(&self) -> Duration {
        // Relaxed: see `set_latency_decay`.
        Duration::from_nanos(self.decay_nanos.load(Ordering::Relaxed))
    }

    /// Records the result of active health checks. Returns whether it has changed; then the caller rebuilds its views.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.set(UNHEALTHY, !healthy)
    }

    /// Records whether outlier detection has ejected the endpoint. Returns whether this has changed.
    pub fn set_ejected(&self, ejected: bool) -> bool {
        self.set(EJECTED, ejected)
    }

    /// Records whether the endpoint is draining and accepts no new requests. Returns whether this has changed.
    pub fn set_draining(&self, draining: bool) -> bool {
        self.set(DRAINING, draining)
    }

    /// Returns whether the last active health check succeeded, or none has run.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.flags() & UNHEALTHY == 0
    }

    /// Returns whether outlier detection has ejected the endpoint.
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        self.flags() & EJECTED != 0
    }

    /// Returns whether the endpoint is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.flags() & DRAINING != 0
    }

    /// Returns whether the endpoint is healthy, not ejected, and not draining.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.flags() == 0
    }

    fn flags(&self) -> u8 {
        // Relaxed: a change of a flag is reported to the view's owner by a channel, which orders it.
        self.flags.load(Ordering::Relaxed)
    }

    fn set(&self, flag: u8, on: bool) -> bool {
        // Relaxed: as `flags`. Read-modify-write, so that two flags set at once both stay.
        let before = if on {
            self.flags.fetch_or(flag, Ordering::Relaxed)
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed)
        };
        (before & flag != 0) != on
    }
}

impl Default for EndpointStats {
    fn default() -> Self {
        Self::new()
    }
}

/// A request in progress, which counts as outstanding at its endpoint until this guard is dropped.
///
/// A drop without [`finish`](Self::finish) records no latency: a request that was cancelled, or that failed before a
/// response, contains no information about speed.
#[derive(Debug)]
pub struct Outstanding {
    stats: Arc<EndpointStats>,
    began: Time,
}

impl Outstanding {
    /// Ends the request and records the time since [`EndpointStats::begin`] as its latency.
    pub fn finish(self, now: Time) {
        self.stats.observe(now.saturating_since(self.began), now);
    }

    /// Ends a request with an error response or without a response, which is no measurement of speed. If its latency
    /// was less than three times the usual latency, which is that of a slow good response, it is recorded as that.
    ///
    /// # Errors
    ///
    /// The guard, with the time at which a good response would have arrived. Drop the guard then, so that an endpoint
    /// that fails fast looks as busy as the others.
    pub fn fail(self, usual: &Usual, now: Time) -> Result<(), (Self, Time)> {
        let took = now.saturating_since(self.began);
        let slow = usual.latency().map_or(took, |usual| usual * SLOW);
        self.stats.observe(took.max(slow), now);
        match usual.hold(took, now) {
            Some(until) => Err((self, until)),
            None => Ok(()),
        }
    }

    /// Records a latency, such as that of the first byte, while the request continues.
    pub fn observe(&self, latency: Duration) {
        self.stats.observe(latency, self.began + latency);
    }

    /// Returns when the request was assigned to the endpoint.
    #[must_use]
    pub fn began(&self) -> Time {
        self.began
    }

    /// Returns the endpoint's statistics.
    #[must_use]
    pub fn stats(&self) -> &Arc<EndpointStats> {
        &self.stats
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        // Relaxed: a counter; the `Arc` releases the memory.
        self.stats.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_counts_until_dropped() {
        let stats = Arc::new(EndpointStats::new());
        let a = stats.begin(Time::ZERO);
        let b = stats.begin(Time::ZERO);
        assert_eq!(stats.outstanding(), 2);
        a.finish(Time::from_nanos(5_000_000));
        assert_eq!(stats.outstanding(), 1);
        assert_eq!(
            stats.latency(Time::from_nanos(5_000_000)),
            Some(Duration::from_millis(5))
        );
        drop(b);
        assert_eq!(stats.outstanding(), 0);
    }

    #[test]
    fn an_error_is_slow_and_keeps_its_place() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let (stats, usual) = (Arc::new(EndpointStats::new()), Usual::new());
        assert!(stats.begin(at(0)).fail(&usual, at(1)).is_ok());
        usual.observe(Duration::from_millis(20));
        let (held, until) = stats.begin(at(0)).fail(&usual, at(1)).unwrap_err();
        assert_eq!((until, stats.outstanding()), (at(20), 1));
        assert_eq!(stats.latency(at(1)), Some(Duration::from_millis(60)));
        drop(held);
        assert!(stats.begin(at(0)).fail(&usual, at(25)).is_ok());
        assert_eq!(stats.outstanding(), 0);
    }

    #[test]
    fn a_report_adds_what_others_have_there() {
        let stats = Arc::new(EndpointStats::new());
        let own = stats.begin(Time::ZERO);
        assert_eq!(stats.estimated_load(), 1);
        stats.report(4);
        assert_eq!((stats.outstanding(), stats.estimated_load()), (1, 4));
        drop(own);
        assert_eq!(
            stats.estimated_load(),
            3,
            "as LSQ: one less with each response"
        );
        stats.report(0);
        assert_eq!(stats.estimated_load(), 0);
    }

    #[test]
    fn flags_are_independent_and_report_change() {
        let stats = EndpointStats::new();
        assert!(stats.is_available());
        assert!(stats.set_healthy(false) && !stats.set_healthy(false));
        assert!(stats.set_ejected(true) && stats.set_draining(true));
        assert!(stats.set_healthy(true) && stats.is_healthy());
        assert!(stats.is_ejected() && stats.is_draining() && !stats.is_available());
    }

    #[test]
    fn statistics_fill_one_cache_line() {
        assert_eq!(size_of::<EndpointStats>(), 64);
        assert_eq!(align_of::<EndpointStats>(), 64);
    }
}
