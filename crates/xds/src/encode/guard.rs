//! Encodes limits, outlier ejection and health checks.

use maglor_config::raw;

use crate::proto::envoy::config::cluster::v3::{
    CircuitBreakers, OutlierDetection,
    circuit_breakers::{Thresholds, thresholds::RetryBudget},
};
use crate::proto::envoy::config::core::v3::{
    HealthCheck,
    health_check::{
        GrpcHealthCheck, HealthChecker, HttpHealthCheck, Payload, TcpHealthCheck, payload,
    },
};
use crate::proto::envoy::r#type::v3::{Int64Range, Percent};
use crate::time;

/// Encodes the limits; `None` if there are none.
pub(super) fn circuit_breakers(raw: &raw::Cluster) -> Option<CircuitBreakers> {
    let limits = raw.limits.clone().unwrap_or_default();
    let budget = raw.retry_budget.as_ref();
    let all = Thresholds {
        max_connections: limits.max_connections,
        max_pending_requests: limits.max_pending_requests,
        max_requests: limits.max_requests,
        max_retries: limits.max_retries,
        retry_budget: budget.map(|budget| RetryBudget {
            budget_percent: budget.percent.map(|value| Percent { value }),
            min_retry_concurrency: budget.min_concurrency,
        }),
        ..Thresholds::default()
    };
    let each = limits.endpoint.and_then(|limits| limits.max_connections);
    let message = CircuitBreakers {
        thresholds: (all != Thresholds::default())
            .then_some(all)
            .into_iter()
            .collect(),
        per_host_thresholds: each
            .map(|connections| Thresholds {
                max_connections: Some(connections),
                ..Thresholds::default()
            })
            .into_iter()
            .collect(),
    };
    (message != CircuitBreakers::default()).then_some(message)
}

/// Encodes outlier ejection. The defaults of absent fields are ours, not Envoy's; they are written out where they
/// differ.
pub(crate) fn outlier(raw: Option<&raw::OutlierEjection>) -> Option<OutlierDetection> {
    let raw = raw.cloned().unwrap_or_default();
    if raw.enabled == Some(false) {
        return None;
    }
    Some(OutlierDetection {
        consecutive_5xx: raw.consecutive_5xx,
        interval: raw.interval.map(time::encode),
        base_ejection_time: raw.base_ejection_time.map(time::encode),
        max_ejection_percent: raw.max_ejection_percent.or(Some(50)),
        enforcing_consecutive_5xx: raw.enforcing_consecutive_5xx,
        enforcing_success_rate: raw.enforcing_success_rate,
        success_rate_minimum_hosts: raw.success_rate_minimum_hosts,
        success_rate_request_volume: raw.success_rate_request_volume,
        success_rate_stdev_factor: raw.success_rate_stdev_factor,
        consecutive_gateway_failure: raw.consecutive_gateway_failure,
        enforcing_consecutive_gateway_failure: raw
            .enforcing_consecutive_gateway_failure
            .or(Some(100)),
        // Failures without a response are also server errors here, which in Envoy excludes a threshold of their own.
        split_external_local_origin_errors: false,
        consecutive_local_origin_failure: raw.consecutive_local_origin_failure,
        enforcing_consecutive_local_origin_failure: raw.enforcing_consecutive_local_origin_failure,
        failure_percentage_threshold: raw.failure_percentage_threshold,
        enforcing_failure_percentage: raw.enforcing_failure_percentage,
        failure_percentage_minimum_hosts: raw.failure_percentage_minimum_hosts,
        failure_percentage_request_volume: raw.failure_percentage_request_volume,
        max_ejection_time: raw.max_ejection_time.map(time::encode),
        max_ejection_time_jitter: raw.max_ejection_time_jitter.map(time::encode),
        always_eject_one_host: raw.always_eject_one_host,
    })
}

/// Encodes a health check. The four fields that Envoy requires have our defaults.
pub(super) fn health(raw: &raw::HealthCheck) -> Option<HealthCheck> {
    let second = |span: Option<raw::TimeSpan>, seconds| {
        let default = raw::TimeSpan(std::time::Duration::from_secs(seconds));
        Some(time::encode(span.unwrap_or(default)))
    };
    let checker = match (&raw.http, &raw.grpc, &raw.tcp) {
        (Some(raw::Short(http)), None, None) => HealthChecker::HttpHealthCheck(HttpHealthCheck {
            host: http.host.clone().unwrap_or_default(),
            path: http.path.clone().unwrap_or_default(),
            expected_statuses: statuses(http.expected_statuses.as_ref()),
        }),
        (None, Some(grpc), None) => HealthChecker::GrpcHealthCheck(GrpcHealthCheck {
            service_name: grpc.service.clone().unwrap_or_default(),
            authority: grpc.authority.clone().unwrap_or_default(),
        }),
        (None, None, Some(tcp)) => HealthChecker::TcpHealthCheck(TcpHealthCheck {
            send: tcp.send.as_deref().map(payload),
            receive: tcp.receive.as_deref().map(payload).into_iter().collect(),
        }),
        _ => return None,
    };
    Some(HealthCheck {
        timeout: second(raw.timeout, 1),
        interval: second(raw.interval, 5),
        unhealthy_threshold: raw.unhealthy_threshold.or(Some(3)),
        healthy_threshold: raw.healthy_threshold.or(Some(2)),
        unhealthy_interval: raw.unhealthy_interval.map(time::encode),
        interval_jitter_percent: raw.interval_jitter_percent.unwrap_or(0),
        health_checker: Some(checker),
    })
}

fn payload(text: &str) -> Payload {
    Payload {
        payload: Some(payload::Payload::Binary(text.as_bytes().to_vec())),
    }
}

/// Encodes statuses such as `200` or `200-299`; in Envoy, `end` is not part of a range.
fn statuses(raw: Option<&raw::OneOrMany>) -> Vec<Int64Range> {
    let texts = raw.iter().flat_map(|list| &list.0);
    texts
        .filter_map(|text| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (start, last) = (first.trim().parse().ok()?, last.trim().parse::<i64>().ok()?);
            Some(Int64Range {
                start,
                end: last.checked_add(1)?,
            })
        })
        .collect()
}
