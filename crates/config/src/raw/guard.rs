//! What protects a cluster: limits, retry budget, circuit breaker, adaptive concurrency, outlier
//! ejection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NotationError, Shorthand, TimeSpan};

/// How much at once. Above a limit requests wait in a bounded queue; what finds it full, or waits too
/// long, is answered with 503 at once.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Connections to all endpoints together, idle ones included, 1-10000000. Absent: no limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections: Option<u32>,
    /// Requests in progress, up to the end of their responses, 1-10000000. Absent: no limit.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_requests: Option<u32>,
    /// Requests that wait because of a limit, 0-1000000.
    #[schemars(range(max = 1_000_000), extend("default" = 1024))]
    pub max_pending_requests: Option<u32>,
    /// How long a request waits at most, 1ms-1h.
    #[schemars(extend("default" = "1s"))]
    pub queue_timeout: Option<TimeSpan>,
    /// Retries in progress, 0-1000000, beside what `retry_budget` says. Absent: no limit.
    #[schemars(range(max = 1_000_000))]
    pub max_retries: Option<u32>,
    /// Limits of each endpoint; a request goes to another one, or waits.
    pub endpoint: Option<EndpointLimits>,
}

/// How much at once at one endpoint.
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

/// How much of a cluster's traffic may be retries and hedged tries. Both bounds hold: on those in
/// progress, and on those within `interval`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetryBudget {
    /// Retries in percent of requests, 0-100: of those within `interval`, and of those in progress.
    /// Pauses count up to 250 ms: with a retry that waits 25 ms, requests of 25 ms are compared.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 20.0))]
    pub percent: Option<f64>,
    /// Retries in progress that are allowed however few requests there are, 0-10000.
    #[schemars(range(max = 10_000), extend("default" = 3))]
    pub min_concurrency: Option<u32>,
    /// Retries a second that are allowed however few requests there are, 0-10000.
    #[schemars(range(max = 10_000), extend("default" = 3))]
    pub min_per_second: Option<u32>,
    /// The time over which retries and requests are compared, 1s-10m.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<TimeSpan>,
}

/// Fails requests at once while a cluster as a whole fails. The open interval adapts to how long
/// recovery takes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Failures in a row that open it, 0-1000000; 0: none do.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_failures: Option<u32>,
    /// Failures in percent of the requests of an `interval` that open it, 0-100; 0: none do.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 50.0))]
    pub failure_percent: Option<f64>,
    /// Fewer requests in an `interval` say nothing about a percentage, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 20))]
    pub minimum_requests: Option<u32>,
    /// Stretch over which requests are counted, 100ms-1h.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<TimeSpan>,
    /// Shortest open interval, 1ms-1h.
    #[schemars(extend("default" = "1s"))]
    pub base_open_time: Option<TimeSpan>,
    /// Longest open interval, `base_open_time`-1h.
    #[schemars(extend("default" = "30s"))]
    pub max_open_time: Option<TimeSpan>,
    /// Requests at once that probe it when the interval is over, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub half_open_requests: Option<u32>,
    /// Probes in a row that must succeed to close it, 1-1000.
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub success_threshold: Option<u32>,
}

/// A limit on the requests in progress that adapts itself: as many as are answered about as fast as
/// without load. What is above it waits as at `limits`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyLimit {
    /// The limit is never less, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 3))]
    pub min_limit: Option<u32>,
    /// The limit at first, `min_limit`-`max_limit`.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 20))]
    pub initial_limit: Option<u32>,
    /// The limit is never more, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    pub max_limit: Option<u32>,
    /// How often it adapts, 10ms-1m.
    #[schemars(extend("default" = "100ms"))]
    pub sample_window: Option<TimeSpan>,
    /// Requests that a window has at least, 1-100000.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 10))]
    pub minimum_samples: Option<u32>,
    /// How much slower than without load is all right, in percent, 0-100.
    #[schemars(range(min = 0.0, max = 100.0), extend("default" = 25.0))]
    pub buffer_percent: Option<f64>,
    /// How often the latency without load is measured, by halving the limit for a moment, 1s-24h.
    #[schemars(extend("default" = "1m"))]
    pub min_rtt_interval: Option<TimeSpan>,
}

/// Leaves out endpoints whose answers are bad. They return when a probe succeeds, with slow start.
/// Never all of them: `max_ejection_percent` is rounded down.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutlierEjection {
    /// `false`: nobody is ejected.
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    /// Server errors in a row (5xx, no answer, their gRPC kin) that eject, 0-1000000; 0: off.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_5xx: Option<u32>,
    /// Gateway errors in a row (502, 503, 504, no answer, their gRPC kin), 0-1000000; 0: off.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_gateway_failure: Option<u32>,
    /// Failures without a whole answer in a row (no connection, reset, timeout, cut off), 0-1000000; 0: off.
    #[schemars(range(max = 1_000_000), extend("default" = 5))]
    pub consecutive_local_origin_failure: Option<u32>,
    /// How often rates are compared, 100ms-1h.
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<TimeSpan>,
    /// An endpoint is out for this, times the number of its recent ejections, 1ms-24h.
    #[schemars(extend("default" = "30s"))]
    pub base_ejection_time: Option<TimeSpan>,
    /// But not longer than this, `base_ejection_time`-24h. Default: 5m, or `base_ejection_time` where
    /// that is more.
    pub max_ejection_time: Option<TimeSpan>,
    /// A random extra up to this, 0s-24h.
    #[schemars(extend("default" = "0s"))]
    pub max_ejection_time_jitter: Option<TimeSpan>,
    /// At most this share of the endpoints is out, rounded down, and never all, 0-100.
    #[schemars(range(max = 100), extend("default" = 50))]
    pub max_ejection_percent: Option<u32>,
    /// One may be out even where the share comes to less than one.
    #[schemars(extend("default" = false))]
    pub always_eject_one_host: Option<bool>,
    /// Endpoints with enough requests that a comparison of success rates needs, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 5))]
    pub success_rate_minimum_hosts: Option<u32>,
    /// Requests in an `interval` that make a success rate, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 100))]
    pub success_rate_request_volume: Option<u32>,
    /// An endpoint is an outlier below mean − factor / 1000 · standard deviation, 0-100000.
    #[schemars(range(max = 100_000), extend("default" = 1900))]
    pub success_rate_stdev_factor: Option<u32>,
    /// Failures in percent of its requests that make an endpoint an outlier, 0-100; 0: off.
    #[schemars(range(max = 100), extend("default" = 85))]
    pub failure_percentage_threshold: Option<u32>,
    /// Endpoints with enough requests that failure percentages need, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 5))]
    pub failure_percentage_minimum_hosts: Option<u32>,
    /// Requests in an `interval` that make a failure percentage, 1-1000000.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 50))]
    pub failure_percentage_request_volume: Option<u32>,
    /// Percentage of those found by `consecutive_5xx` that are ejected, 0-100.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_consecutive_5xx: Option<u32>,
    /// The same for `consecutive_gateway_failure`.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_consecutive_gateway_failure: Option<u32>,
    /// The same for `consecutive_local_origin_failure`.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_consecutive_local_origin_failure: Option<u32>,
    /// The same for success rates; 0: off.
    #[schemars(range(max = 100), extend("default" = 100))]
    pub enforcing_success_rate: Option<u32>,
    /// The same for failure percentages; 0: off.
    #[schemars(range(max = 100), extend("default" = 0))]
    pub enforcing_failure_percentage: Option<u32>,
    /// An endpoint differs from its peers that answers so many percent of those requests with errors (4xx, 5xx,
    /// other gRPC statuses than OK, no answer) that its peers answer well, 0-100; 0: off.
    #[schemars(range(max = 100), extend("default" = 30))]
    pub status_difference_threshold: Option<u32>,
    /// Percentage of those that differ from their peers that are ejected, 0-100. Default: 100; 0 where the policy
    /// is `maglev` or `ring-hash`, for a client could make its endpoint differ there: they are only named, in
    /// the log and in metrics.
    #[schemars(range(max = 100))]
    pub enforcing_status_difference: Option<u32>,
    /// Between two probes of an endpoint that may return, 10ms-1h.
    #[schemars(extend("default" = "500ms"))]
    pub probe_interval: Option<TimeSpan>,
}

/// A delay of every request to a cluster, to emulate a distance.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// The delay, there and back together, 0s-10m.
    #[schemars(extend("default" = "0s"))]
    pub fixed: Option<TimeSpan>,
    /// A random extra up to this, 0s-10m.
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

    fn as_text(&self) -> Option<&str> {
        None
    }
}
