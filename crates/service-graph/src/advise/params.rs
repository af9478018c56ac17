//! Parameters of the recommendations: the thresholds P of Algorithm 2, and margins.

use std::time::Duration;

use super::hold::Band;

const MINUTE: Duration = Duration::from_secs(60);

/// All parameters of [`Advisor`](super::Advisor).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// P: above these there are consequences.
    pub thresholds: Thresholds,
    /// Requests and limits of CPU and memory.
    pub resources: Resources,
    /// How many replicas.
    pub scaling: Scaling,
    /// Limits, retries and timeouts.
    pub traffic: Traffic,
    /// How requests are divided among versions.
    pub splits: Splits,
}

/// How requests are divided among versions of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Splits {
    /// After this a sample counts half. Default 2 min.
    pub half_life: Duration,
    /// Percent of the requests that a version gains or loses at once at most; one that is worse loses twice that.
    /// Default 10.
    pub step: u32,
    /// Less is not moved. Default 2.
    pub least: u32,
    /// A version that took fewer calls is not judged. Default 100.
    pub calls: f64,
    /// Response times that are longer than the best version's by more than this, relative, are worse. Default 0.5.
    pub slower: f64,
    /// And by more than this keep it from growing. Default 0.2.
    pub grows: f64,
    /// How long a version that was worse stays below that weight the first time. Default 30 min.
    pub rest: Duration,
}

impl Default for Splits {
    fn default() -> Self {
        Self {
            half_life: 2 * MINUTE,
            step: 10,
            least: 2,
            calls: 100.0,
            slower: 0.5,
            grows: 0.2,
            rest: 30 * MINUTE,
        }
    }
}

/// P of the paper's Algorithm 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// r: a mean response time above it is slow. Default 500 ms.
    pub latency: Duration,
    /// Failed calls over calls, 0–1. Default 0.01.
    pub error_rate: f64,
    /// More requests than these within `within`, a replica, may need another replica. Default 50,
    /// the paper's.
    pub requests: f64,
    /// Default 30 s, the paper's.
    pub within: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(500),
            error_rate: 0.01,
            requests: 50.0,
            within: Duration::from_secs(30),
        }
    }
}

/// How requests of CPU and memory follow from use.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// After this a sample of CPU counts half. Default 5 min.
    pub half_life: Duration,
    /// The share of the time in which a service uses no more than what is planned for, 0–1.
    /// Default 0.9, as of the Vertical Pod Autoscaler.
    pub quantile: f64,
    /// What is requested beyond it, relative. Default 0.15, the same's.
    pub margin: f64,
    /// How long a peak of memory is remembered: its half-life. Default 24 h.
    pub memory_half_life: Duration,
    /// Memory beyond the peak, relative to it: as far as the peak is above what is usual (used half of
    /// the time), this many times. Default 3.
    pub memory_swing: f64,
    /// At least and at most so much of it, relative. Default 0.1 to 0.3.
    pub memory_margin: (f64, f64),
    /// When CPU is asked for anew. Default: 20 % above, 20 % below for 2 min.
    pub band: Band,
    /// When memory is: above by less than the least margin, so that a request is never below the peak.
    /// Default: 5 % above, 30 % below for half an hour.
    pub memory_band: Band,
    /// A replica requests at least so much CPU, in thousandths of a core. Default 25.
    pub least_cpu_millis: u64,
    /// And so much memory, in MiB. Default 32.
    pub least_memory_mib: u64,
    /// And at most so much CPU; one without a limit is thought to use no more. Default 1000: a core.
    pub most_cpu_millis: u64,
    /// And so much memory. Default 65536.
    pub most_memory_mib: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            half_life: 5 * MINUTE,
            quantile: 0.9,
            margin: 0.15,
            memory_half_life: 24 * 60 * MINUTE,
            memory_swing: 3.0,
            memory_margin: (0.1, 0.3),
            band: Band {
                up: 0.2,
                down: 0.2,
                patience: 2 * MINUTE,
                settle: 10 * MINUTE,
            },
            memory_band: Band {
                up: 0.05,
                down: 0.3,
                patience: 30 * MINUTE,
                settle: 60 * MINUTE,
            },
            least_cpu_millis: 25,
            least_memory_mib: 32,
            most_cpu_millis: 1000,
            most_memory_mib: 65_536,
        }
    }
}

/// How many replicas there are to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The share of what a replica can use (its CPU limit) that it may use before another one helps,
    /// 0–1. None: the paper's rule by itself, the load alone decides. Default 0.7.
    pub utilization: Option<f64>,
    /// When CPU and load count anew. Default: 10 % above, 20 % below for 5 min.
    pub band: Band,
    /// CPU that requests do not explain calls for replicas when it has lasted for this long. Default 45 s.
    pub lasting: Duration,
    /// Nothing is taken away so soon after a change. Default 1 min.
    pub cool_down: Duration,
    /// Default 1.
    pub least: u32,
    /// Default 10.
    pub most: u32,
    /// A new replica's share of the requests grows to the full one within this. Default 30 s.
    pub slow_start: Duration,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            utilization: Some(0.7),
            band: Band {
                up: 0.1,
                down: 0.2,
                patience: 5 * MINUTE,
                settle: 10 * MINUTE,
            },
            lasting: Duration::from_secs(45),
            cool_down: MINUTE,
            least: 1,
            most: 10,
            slow_start: Duration::from_secs(30),
        }
    }
}

/// How limits, retries and timeouts follow from λ and r.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// After this a sample counts half. Default 30 min.
    pub half_life: Duration,
    /// The share of the time in which λ·r, λ and the tail of r are no more than what is planned for,
    /// 0–1. Default 0.95.
    pub quantile: f64,
    /// When values change. Default: 25 % above, 40 % below for 10 min.
    pub band: Band,
    /// Requests in progress relative to λ·r. Default 3.
    pub requests_margin: f64,
    /// Requests in progress that are allowed in any case. Default 32.
    pub least_requests: u32,
    /// A timeout relative to the 99th percentile. Default 3.
    pub timeout_margin: f64,
    /// The 99th percentile relative to the mean, where only this is known. Default 5: above that of
    /// exponential times, 4.6.
    pub tail: f64,
    /// No timeout is shorter, but for a caller's own. Default 250 ms.
    pub least_timeout: Duration,
    /// No timeout is longer. Default 1 min.
    pub most_timeout: Duration,
    /// Retries beyond the first try at most. Default 3, as in the paper's Fig. 5.
    pub most_attempts: u32,
    /// Retries in percent of requests at most. Default 25.
    pub most_budget_percent: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            half_life: 30 * MINUTE,
            quantile: 0.95,
            band: Band {
                up: 0.25,
                down: 0.4,
                patience: 10 * MINUTE,
                settle: 60 * MINUTE,
            },
            requests_margin: 3.0,
            least_requests: 32,
            timeout_margin: 3.0,
            tail: 5.0,
            least_timeout: Duration::from_millis(250),
            most_timeout: MINUTE,
            most_attempts: 3,
            most_budget_percent: 25.0,
        }
    }
}
