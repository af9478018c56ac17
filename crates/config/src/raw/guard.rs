//! Protection of a cluster: limits, retry budget, circuit breaker, adaptive concurrency, outlier
//! ejection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{NotationError, Shorthand, TimeSpan};

/// Concurrency limits. Above a limit, requests wait in a bounded queue; if the queue is full, or after `queue_timeout`,
/// they get 503.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Connections to all endpoints together, idle ones included, 1-10000000. Absent: no limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections: Option<u32>,
    /// Requests in progress, up to the end of their responses, 1-10000000. Absent: no limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_requests: Option<u32>,
    /// Maximum number of queued requests, 0-1000000.
    #[schemars(range(max = 1_000_000), extend("default" = 1024))]
    pub max_pending_requests: Option<u32>,
    /// Maximum time in the queue, 1ms-1h.
    #[schemars(extend("default" = "1s"))]
    pub queue_timeout: Option<TimeSpan>,
    /// Maximum number of retries in progress, 0-1000000, in addition to `retry_budget`. Absent: no limit.
    #[schemars(range(max = 1_000_000))]
    pub max_retries: Option<u32>,
    /// Limits of each endpoint; above them a request goes to another endpoint, or waits.
    pub endpoint: Option<EndpointLimits>,
}

/// Concurrency limits of an endpoint.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointLimits {
    /// Connections, idle ones included, 1-10000000. Absent: no limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections: Option<u32>,
    /// Requests in progress, 1-10000000. Absent: no limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_requests: Option<u32>,
}

/// Share of a cluster's traffic that may be retries and hedged attempts. The budget bounds both the retries in progress
/// and the retries within `interval`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetryBudget {
    /// Maximum retries in percent of requests, 0-100. It applies to the requests within `interval`, and to the requests
    /// in progress. For the latter, a backoff counts as part of a retry, up to 250 ms: a retry with a backoff of 25 ms
    /// counts like a request that takes 25 ms.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 20.0))]
    pub percent: Option<f64>,
    /// Number of retries in progress that is always allowed, 0-10000.
    #[schemars(range(max = 10_000), extend("default" = 3))]
    pub min_concurrency: Option<u32>,
    /// Number of retries per second that is always allowed, 0-10000.
    #[schemars(range(max = 10_000), extend("default" = 3))]
    pub min_per_second: Option<u32>,
    /// Period over which retries and requests are compared, 1s-10m.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<TimeSpan>,
}

/// Fails requests immediately while a cluster as a whole fails. The open interval adapts to the recovery time.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Consecutive failures that open the circuit breaker, 0-1000000; 0: disabled.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_failures: Option<u32>,
    /// Failure percentage of the requests within an `interval` that opens the circuit breaker, 0-100; 0: disabled.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 50.0))]
    pub failure_percent: Option<f64>,
    /// Minimum number of requests within an `interval` for the evaluation of `failure_percent`, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 20))]
    pub minimum_requests: Option<u32>,
    /// Interval over which requests are counted, 100ms-1h.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<TimeSpan>,
    /// Minimum open interval, 1ms-1h.
    #[schemars(extend("default" = "1s"))]
    pub base_open_time: Option<TimeSpan>,
    /// Maximum open interval, `base_open_time`-1h.
    #[schemars(extend("default" = "30s"))]
    pub max_open_time: Option<TimeSpan>,
    /// Maximum concurrent probe requests after the open interval, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub half_open_requests: Option<u32>,
    /// Consecutive successful probes that close the circuit breaker, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub success_threshold: Option<u32>,
}

/// An adaptive limit on the requests in progress, up to which latency stays close to the latency without load. Excess
/// requests wait in the queue of `limits`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyLimit {
    /// Minimum limit, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 3))]
    pub min_limit: Option<u32>,
    /// Initial limit, `min_limit`-`max_limit`.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 20))]
    pub initial_limit: Option<u32>,
    /// Maximum limit, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    pub max_limit: Option<u32>,
    /// Interval between updates of the limit, 10ms-1m.
    #[schemars(extend("default" = "100ms"))]
    pub sample_window: Option<TimeSpan>,
    /// Minimum number of requests in a `sample_window` for an update of the limit, 1-100000.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 10))]
    pub minimum_samples: Option<u32>,
    /// Tolerated latency increase over no load, in percent, 0-100.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 25.0))]
    pub buffer_percent: Option<f64>,
    /// Interval between measurements of the latency without load, for which the limit is briefly halved, 1s-24h.
    #[schemars(extend("default" = "1m"))]
    pub min_rtt_interval: Option<TimeSpan>,
}

/// Ejection of failing endpoints. An ejected endpoint returns, with slow start, when a probe succeeds. Endpoints are
/// never all ejected: `max_ejection_percent` is rounded down.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutlierEjection {
    /// Whether failing endpoints are ejected.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Consecutive server errors (5xx, no response, equivalent gRPC statuses) that eject an endpoint, 0-1000000; 0:
    /// disabled.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_5xx: Option<u32>,
    /// Consecutive gateway errors (502, 503, 504, no response, equivalent gRPC statuses) that eject an endpoint,
    /// 0-1000000; 0: disabled.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_gateway_failure: Option<u32>,
    /// Consecutive failures without a complete response (no connection, reset, timeout, truncated response) that eject
    /// an endpoint, 0-1000000; 0: disabled.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_local_origin_failure: Option<u32>,
    /// Interval at which success rates and failure percentages are evaluated, 100ms-1h.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<TimeSpan>,
    /// Ejection time, which is multiplied by the number of recent ejections of the endpoint, 1ms-24h.
    #[schemars(extend("default" = "30s"))]
    pub base_ejection_time: Option<TimeSpan>,
    /// Maximum ejection time, `base_ejection_time`-24h. Default: 5m, or `base_ejection_time` if that is longer.
    pub max_ejection_time: Option<TimeSpan>,
    /// Maximum random addition to the ejection time, 0s-24h.
    #[schemars(extend("default" = "0s"))]
    pub max_ejection_time_jitter: Option<TimeSpan>,
    /// Maximum percentage of ejected endpoints, 0-100. It is rounded down, and one endpoint always remains.
    #[schemars(range(max = 100), extend("default" = 50))]
    pub max_ejection_percent: Option<u32>,
    /// Whether one ejection is allowed even if `max_ejection_percent` amounts to less than one endpoint.
    #[schemars(extend("default" = false))]
    pub always_eject_one_host: Option<bool>,
    /// Minimum number of endpoints with `success_rate_request_volume` for the comparison of success rates, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 5))]
    pub success_rate_minimum_hosts: Option<u32>,
    /// Minimum number of requests to an endpoint within an `interval` for the evaluation of its success rate,
    /// 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 100))]
    pub success_rate_request_volume: Option<u32>,
    /// An endpoint is an outlier if its success rate is below mean − factor / 1000 · standard deviation, 0-100000.
    #[schemars(range(max = 100_000), extend("default" = 1900))]
    pub success_rate_stdev_factor: Option<u32>,
    /// Failure percentage that makes an endpoint an outlier, 0-100; 0: disabled.
    #[schemars(range(max = 100), extend("default" = 85))]
    pub failure_percentage_threshold: Option<u32>,
    /// Minimum number of endpoints with `failure_percentage_request_volume` for the evaluation of failure percentages,
    /// 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 5))]
    pub failure_percentage_minimum_hosts: Option<u32>,
    /// Minimum number of requests to an endpoint within an `interval` for the evaluation of its failure percentage,
    /// 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 50))]
    pub failure_percentage_request_volume: Option<u32>,
    /// Percentage of the endpoints detected by `consecutive_5xx` that are ejected, 0-100.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_consecutive_5xx: Option<u32>,
    /// Percentage of the endpoints detected by `consecutive_gateway_failure` that are ejected, 0-100.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_consecutive_gateway_failure: Option<u32>,
    /// Percentage of the endpoints detected by `consecutive_local_origin_failure` that are ejected, 0-100.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_consecutive_local_origin_failure: Option<u32>,
    /// Percentage of the endpoints detected by their success rate that are ejected, 0-100; 0: disabled.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_success_rate: Option<u32>,
    /// Percentage of the endpoints detected by their failure percentage that are ejected, 0-100; 0: disabled.
    #[schemars(range(max = 100), extend("default" = 0))]
    pub enforcing_failure_percentage: Option<u32>,
    /// Percentage of error responses (4xx, 5xx, gRPC statuses other than OK, no response) to requests that other
    /// endpoints answer successfully, above which an endpoint differs from its peers, 0-100; 0: disabled.
    #[schemars(range(max = 100), extend("default" = 30))]
    pub status_difference_threshold: Option<u32>,
    /// Percentage of the endpoints above `status_difference_threshold` that are ejected, 0-100. Default: 100; 0 with
    /// the policies `maglev` and `ring-hash`, where a single client could make its endpoint differ from its peers; such
    /// endpoints are then only reported in the log and metrics.
    #[schemars(range(max = 100))]
    pub enforcing_status_difference: Option<u32>,
    /// Interval between probes of an ejected endpoint, 10ms-1h. Probes begin when the ejection time is over, or earlier
    /// if no other endpoint responds successfully.
    #[schemars(extend("default" = "500ms"))]
    pub probe_interval: Option<TimeSpan>,
}

/// A delay of every request to a cluster, to emulate network distance.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// Round-trip delay, 0s-10m.
    #[schemars(extend("default" = "0s"))]
    pub fixed: Option<TimeSpan>,
    /// Maximum random addition, 0s-10m.
    #[schemars(extend("default" = "0s"))]
    pub jitter: Option<TimeSpan>,
}

impl Shorthand for Delay {
    const TEXT: &'static str = "a time such as `20ms`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        Ok(Self {
            fixed: Some(text.parse()?),
            ..Self::default()
        })
    }
}
