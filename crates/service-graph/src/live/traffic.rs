//! The traffic of an edge: counters, and averages over a window.

use crate::response_times::Times;

/// The counts of a proxy for the calls between two services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// The number of finished calls.
    pub requests: u64,
    /// The number of failed calls, included in `requests`.
    pub failures: u64,
    /// The sum of the response times in milliseconds.
    pub latency_ms: f64,
    /// The distribution of the response times, as far as it is known.
    pub times: Times,
    /// The number of bytes in both directions.
    pub bytes: u64,
    /// The number of opened connections.
    pub opened: u64,
    /// The present number of unfinished calls, which is not a counter.
    pub in_flight: u64,
}

impl Counters {
    pub(super) fn since(&self, before: &Self) -> Self {
        let restarted = self.requests < before.requests
            || self.failures < before.failures
            || self.bytes < before.bytes
            || self.opened < before.opened;
        if restarted {
            return self.clone();
        }
        Self {
            requests: self.requests - before.requests,
            failures: self.failures - before.failures,
            latency_ms: (self.latency_ms - before.latency_ms).max(0.0),
            times: self.times.since(&before.times),
            bytes: self.bytes - before.bytes,
            opened: self.opened - before.opened,
            in_flight: self.in_flight,
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.failures = self.failures.saturating_add(more.failures);
        self.latency_ms += more.latency_ms;
        self.times.add(&more.times, 1.0);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.opened = self.opened.saturating_add(more.opened);
        self.in_flight = self.in_flight.saturating_add(more.in_flight);
    }

    pub(super) fn is_idle(&self) -> bool {
        [self.requests, self.in_flight, self.bytes, self.opened] == [0; 4]
    }
}

/// The averages of an edge over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// λ: the number of calls per second.
    pub rps: f64,
    /// r: the mean response time in milliseconds; 0 without calls.
    pub latency_ms: f64,
    /// The number of failed calls per second.
    pub failures: f64,
    /// The number of bytes per second, in both directions.
    pub bytes_per_second: f64,
    /// The number of opened connections per second.
    pub connections: f64,
    /// The number of calls in flight, and of connections that are not HTTP, at the last report.
    pub in_flight: f64,
}

impl Traffic {
    /// Returns whether there is any traffic.
    #[must_use]
    pub fn is_some(&self) -> bool {
        let all = [
            self.rps,
            self.bytes_per_second,
            self.connections,
            self.in_flight,
        ];
        all.into_iter().any(|one| one > 0.0)
    }

    /// Returns the sum of both; r becomes the mean over all calls.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let rps = self.rps + other.rps;
        let latency = self.latency_ms * self.rps + other.latency_ms * other.rps;
        Self {
            rps,
            latency_ms: if rps > 0.0 { latency / rps } else { 0.0 },
            failures: self.failures + other.failures,
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            connections: self.connections + other.connections,
            in_flight: self.in_flight + other.in_flight,
        }
    }
}
