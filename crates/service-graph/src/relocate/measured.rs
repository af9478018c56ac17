//! Measurements of a service's calls.

/// The measurements of a service's calls, made and received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// λ: the number of calls per second.
    pub rps: f64,
    /// r: the mean response time in milliseconds.
    pub latency_ms: f64,
    /// The share of failed calls, 0–1.
    pub failures: f64,
    /// The share of calls that leave their node with the present placement, 0–1.
    pub remote: f64,
}

impl Measured {
    /// Returns the measurements of both together, weighted by the number of calls.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let rps = self.rps + other.rps;
        let mean = |one: f64, two: f64| match rps > 0.0 {
            true => (one * self.rps + two * other.rps) / rps,
            false => 0.0,
        };
        Self {
            rps,
            latency_ms: mean(self.latency_ms, other.latency_ms),
            failures: mean(self.failures, other.failures),
            remote: mean(self.remote, other.remote),
        }
    }
}
