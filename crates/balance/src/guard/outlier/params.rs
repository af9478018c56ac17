//! The parameters of outlier ejection. Names are Envoy's (`OutlierDetection`).

use std::time::Duration;

use crate::guard::Percent;

/// The parameters of outlier ejection: when an endpoint is ejected because of its responses, and for how long.
///
/// A detector with a threshold of 0, or an enforcement of 0 %, ejects no endpoint. A detector with an enforcement
/// between 0 and 100 % ejects that share of the endpoints it finds.
///
/// # Defaults
///
/// Envoy's, with these exceptions: `max_ejection_percent` is 50 (Envoy: 10, which allows no ejection at all in a set of
/// nine endpoints if it is strictly enforced), and `enforcing_consecutive_gateway_failure` is 100 (Envoy: 0).
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierParams {
    /// The number of consecutive server errors (500–599, the corresponding gRPC statuses, and failures without
    /// response) that eject an endpoint. Default 5.
    pub consecutive_5xx: u32,
    /// The number of consecutive gateway errors (502, 503, 504, the corresponding gRPC statuses, and failures without
    /// response) that eject an endpoint. Default 5.
    pub consecutive_gateway_failure: u32,
    /// The number of consecutive failures without response (no connection, reset, timeout) that eject an endpoint.
    /// Default 5.
    pub consecutive_local_origin_failure: u32,
    /// The enforcement of each detector.
    pub enforcing: Enforcing,
    /// The interval at which success rates and failure percentages are compared. Default 10 s.
    pub interval: Duration,
    /// The ejection time, which is multiplied by the number of recent ejections. Default 30 s.
    pub base_ejection_time: Duration,
    /// The maximum ejection time. Default 300 s.
    pub max_ejection_time: Duration,
    /// The maximum of the uniform random addition to the ejection time. Default 0 s.
    pub max_ejection_time_jitter: Duration,
    /// The maximum share of all endpoints that is ejected at a time, rounded down; never all of them. Default 50 %.
    pub max_ejection_percent: Percent,
    /// Whether one endpoint may be ejected even if `max_ejection_percent` amounts to less than one. Default false.
    pub always_eject_one_host: bool,
    /// The minimum number of endpoints with `success_rate_request_volume` for comparing success rates. Default 5.
    pub success_rate_minimum_hosts: u32,
    /// The minimum number of requests to an endpoint within the interval for evaluating its success rate. Default 100.
    pub success_rate_request_volume: u32,
    /// The factor of the threshold: endpoints with a success rate below mean − factor/1000 · standard deviation are
    /// outliers. Default 1900.
    pub success_rate_stdev_factor: u32,
    /// The failure percentage that makes an endpoint an outlier. Default 85.
    pub failure_percentage_threshold: u8,
    /// The minimum number of endpoints with `failure_percentage_request_volume` for evaluating failure percentages.
    /// Default 5.
    pub failure_percentage_minimum_hosts: u32,
    /// The minimum number of requests to an endpoint within the interval for evaluating its failure percentage. Default
    /// 50.
    pub failure_percentage_request_volume: u32,
    /// The percentage of error responses, including client errors (4xx), to requests to which other endpoints respond
    /// successfully, from which on an endpoint differs from its peers; 0: disabled. Default 30. (Not in Envoy.)
    pub status_difference_threshold: u8,
    /// The time between two probes of an ejected endpoint. Default 500 ms. (Not in Envoy.)
    pub probe_interval: Duration,
}

/// The share of its findings that each detector enforces.
///
/// # Defaults
///
/// 100 % for all detectors but `failure_percentage`, which has 0 %.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Enforcing {
    /// The enforcement of `consecutive_5xx`.
    pub consecutive_5xx: Percent,
    /// The enforcement of `consecutive_gateway_failure`.
    pub consecutive_gateway_failure: Percent,
    /// The enforcement of `consecutive_local_origin_failure`.
    pub consecutive_local_origin_failure: Percent,
    /// The enforcement of failure percentages.
    pub failure_percentage: Percent,
    /// The enforcement of success rates.
    pub success_rate: Percent,
    /// The enforcement of differences from peers. Set it to 0 % for a policy that sends a client's requests to the same
    /// endpoint again and again (`maglev`, `ring-hash`): a client could make one endpoint after the other differ.
    pub status_difference: Percent,
}

impl Default for Enforcing {
    fn default() -> Self {
        Self {
            consecutive_5xx: Percent::ALL,
            consecutive_gateway_failure: Percent::ALL,
            consecutive_local_origin_failure: Percent::ALL,
            failure_percentage: Percent::NONE,
            success_rate: Percent::ALL,
            status_difference: Percent::ALL,
        }
    }
}

impl Default for OutlierParams {
    fn default() -> Self {
        Self {
            consecutive_5xx: 5,
            consecutive_gateway_failure: 5,
            consecutive_local_origin_failure: 5,
            enforcing: Enforcing::default(),
            interval: Duration::from_secs(10),
            base_ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_ejection_time_jitter: Duration::ZERO,
            max_ejection_percent: Percent::whole(50),
            always_eject_one_host: false,
            success_rate_minimum_hosts: 5,
            success_rate_request_volume: 100,
            success_rate_stdev_factor: 1900,
            failure_percentage_threshold: 85,
            failure_percentage_minimum_hosts: 5,
            failure_percentage_request_volume: 50,
            status_difference_threshold: 30,
            probe_interval: Duration::from_millis(500),
        }
    }
}

impl OutlierParams {
    /// Returns how many of `endpoints` may be ejected at a time: `max_ejection_percent` of them, rounded down; at least
    /// one with `always_eject_one_host`; at most all but one. So a single endpoint is never ejected.
    #[must_use]
    pub fn max_ejections(&self, endpoints: usize) -> usize {
        let share = self.max_ejection_percent.of(endpoints as u64) as usize;
        let least = usize::from(self.always_eject_one_host);
        share.max(least).min(endpoints.saturating_sub(1))
    }

    /// Returns the ejection time of the `count`-th ejection, from 1.
    #[must_use]
    pub fn ejection_time(&self, count: u32) -> Duration {
        let longest = self.max_ejection_time.max(self.base_ejection_time);
        self.base_ejection_time
            .saturating_mul(count.max(1))
            .min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_rounds_down_and_leaves_one() {
        let allowed = |percent, one, n| {
            let params = OutlierParams {
                max_ejection_percent: Percent::whole(percent),
                always_eject_one_host: one,
                ..OutlierParams::default()
            };
            params.max_ejections(n)
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 10].map(|n| allowed(50, false, n)),
            [0, 1, 1, 2, 2, 5]
        );
        assert_eq!(
            [1, 2, 9, 10, 19, 20].map(|n| allowed(10, false, n)),
            [0, 0, 0, 1, 1, 2]
        );
        assert_eq!(
            [0, 1, 2, 9, 20].map(|n| allowed(10, true, n)),
            [0, 0, 1, 1, 2]
        );
        assert_eq!([1, 2, 10].map(|n| allowed(100, false, n)), [0, 1, 9]);
        assert_eq!(allowed(0, false, 100), 0);
    }

    #[test]
    fn ejection_times_grow_to_their_maximum() {
        let params = OutlierParams::default();
        let seconds = [1, 2, 3, 10, 11, 99].map(|n| params.ejection_time(n).as_secs());
        assert_eq!(seconds, [30, 60, 90, 300, 300, 300]);
        let short = OutlierParams {
            max_ejection_time: Duration::from_secs(1),
            ..params
        };
        assert_eq!(short.ejection_time(5).as_secs(), 30, "the base counts");
    }
}
