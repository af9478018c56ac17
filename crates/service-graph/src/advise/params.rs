//! The parameters of the recommendations: the thresholds P of Algorithm 2, and margins.

use std::time::Duration;

use super::hold::Band;

const MINUTE: Duration = Duration::from_secs(60);

/// All parameters of [`Advisor`](super::Advisor).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// P: the thresholds for changes.
    pub thresholds: Thresholds,
    /// The parameters of CPU and memory requests and limits.
    pub resources: Resources,
    /// The parameters of the number of replicas.
    pub scaling: Scaling,
    /// The parameters of limits, retries and timeouts.
    pub traffic: Traffic,
    /// The parameters of traffic splits among versions.
    pub splits: Splits,
}

/// The parameters of traffic splits among versions of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Splits {
    /// The half-life of a sample. Default 2 min.
    pub half_life: Duration,
    /// The maximum change of a version's weight in one step, in percent; a worse version loses twice that. Default 10.
    pub step: u32,
    /// The minimum change of a weight, in percent. Default 2.
    pub least: u32,
    /// The minimum number of calls for the evaluation of a version. Default 100.
    pub calls: f64,
    /// The relative difference of response times to those of the best version above which a version is worse. Default
    /// 0.5.
    pub slower: f64,
    /// The relative difference of response times to those of the best version above which a version does not gain
    /// weight. Default 0.2.
    pub grows: f64,
    /// The time for which a worse version stays below its last weight, when this happens for the first time. Default 30
    /// min.
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

/// P, the thresholds of the paper's Algorithm 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// The mean response time r above which a service is slow. Default 500 ms.
    pub latency: Duration,
    /// The share of failed calls above which a service is unreliable, 0–1. Default 0.01.
    pub error_rate: f64,
    /// The number of requests per replica, within the interval `within`, above which another replica may be needed.
    /// Default 50, as in the paper.
    pub requests: f64,
    /// The interval in which `requests` are counted. Default 30 s, as in the paper.
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

/// The parameters for deriving CPU and memory requests from usage.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// The half-life of a CPU sample. Default 5 min.
    pub half_life: Duration,
    /// The share of the time for which a service uses no more CPU than planned, 0–1. Default 0.9, as in the Vertical
    /// Pod Autoscaler.
    pub quantile: f64,
    /// The relative margin of a request above the planned usage. Default 0.15, as in the Vertical Pod Autoscaler.
    pub margin: f64,
    /// The half-life of a memory peak. Default 24 h.
    pub memory_half_life: Duration,
    /// The margin of a memory request above the peak usage, as a multiple of the difference between peak and median.
    /// Default 3.
    pub memory_swing: f64,
    /// The minimum and maximum margin of a memory request, relative to the peak. Default 0.1 and 0.3.
    pub memory_margin: (f64, f64),
    /// The band outside of which the CPU request changes. Default: 20 % above; 20 % below for 2 min.
    pub band: Band,
    /// The band outside of which the memory request changes. Its upper width is less than the minimum margin, so that a
    /// request is never below the peak. Default: 5 % above; 30 % below for half an hour.
    pub memory_band: Band,
    /// The minimum CPU request of a replica, in thousandths of a core. Default 25.
    pub least_cpu_millis: u64,
    /// The minimum memory request of a replica, in MiB. Default 32.
    pub least_memory_mib: u64,
    /// The maximum CPU request of a replica, in thousandths of a core, which is also the assumed limit of a replica
    /// without one. Default 1000, which is one core.
    pub most_cpu_millis: u64,
    /// The maximum memory request of a replica, in MiB. Default 65536.
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

/// The parameters for deciding on the number of replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The share of a replica's CPU limit that may be used before a replica is added, 0–1; `None` = only the load
    /// decides, as in the paper. Default 0.7.
    pub utilization: Option<f64>,
    /// The band outside of which CPU and load are re-evaluated. Default: 10 % above; 20 % below for 5 min.
    pub band: Band,
    /// The time after which CPU usage that requests do not explain leads to more replicas. Default 45 s.
    pub lasting: Duration,
    /// The time after a change for which no replica is removed. Default 1 min.
    pub cool_down: Duration,
    /// The minimum number of replicas. Default 1.
    pub least: u32,
    /// The maximum number of replicas. Default 10.
    pub most: u32,
    /// The time in which the share of a new replica grows to its full value. Default 30 s.
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

/// The parameters for deriving limits, retries and timeouts from λ and r.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The half-life of a sample. Default 30 min.
    pub half_life: Duration,
    /// The share of the time for which λ·r, λ and the tail of r are no more than planned, 0–1. Default 0.95.
    pub quantile: f64,
    /// The band outside of which values change. Default: 25 % above; 40 % below for 10 min.
    pub band: Band,
    /// The ratio of the limit of requests in progress to λ·r. Default 3.
    pub requests_margin: f64,
    /// The minimum limit of requests in progress. Default 32.
    pub least_requests: u32,
    /// The ratio of a timeout to the 99th percentile. Default 3.
    pub timeout_margin: f64,
    /// The assumed ratio of the 99th percentile to the mean where only the mean is known. Default 5, which is above
    /// that of exponential times, 4.6.
    pub tail: f64,
    /// The minimum timeout, unless a caller's own timeout is shorter. Default 250 ms.
    pub least_timeout: Duration,
    /// The maximum timeout. Default 1 min.
    pub most_timeout: Duration,
    /// The maximum number of attempts after the first one. Default 3, as in the paper's Fig. 5.
    pub most_attempts: u32,
    /// The maximum retry budget, in percent of requests. Default 25.
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
