//! Decodes limits, outlier ejection and health checks.

use maglor_config::raw::{self, OneOrMany, Short};

use super::{Fault, non_empty, time};
use crate::encode::outlier as encode_outlier;
use crate::proto::envoy::config::cluster::v3::{CircuitBreakers, OutlierDetection};
use crate::proto::envoy::config::core::v3::{
    HealthCheck,
    health_check::{HealthChecker, Payload, payload},
};
use crate::proto::envoy::r#type::v3::Int64Range;

/// Decodes the thresholds of the default priority.
pub(super) fn circuit_breakers(message: Option<&CircuitBreakers>, raw: &mut raw::Cluster) {
    let Some(message) = message else { return };
    let default = message.thresholds.iter().find(|all| all.priority == 0);
    let default = default.copied().unwrap_or_default();
    let each = message
        .per_host_thresholds
        .iter()
        .find(|each| each.priority == 0);
    let each = each.and_then(|each| each.max_connections);
    let limits = raw::Limits {
        max_connections: default.max_connections,
        max_requests: default.max_requests,
        max_pending_requests: default.max_pending_requests,
        queue_timeout: None,
        max_retries: default.max_retries,
        endpoint: each.map(|connections| raw::EndpointLimits {
            max_connections: Some(connections),
            max_requests: None,
        }),
    };
    let limited = limits.max_connections.is_some()
        || limits.max_requests.is_some()
        || limits.max_pending_requests.is_some()
        || limits.max_retries.is_some()
        || limits.endpoint.is_some();
    raw.limits = limited.then_some(limits);
    raw.retry_budget = default.retry_budget.map(|budget| raw::RetryBudget {
        percent: budget.budget_percent.map(|percent| percent.value),
        min_concurrency: budget.min_retry_concurrency,
        ..raw::RetryBudget::default()
    });
}

/// Rejects outlier detection that distinguishes failures without a response from server errors.
pub(super) fn refuse(message: Option<&OutlierDetection>) -> Result<(), Fault> {
    let distinguishes = |message: &OutlierDetection| {
        message.split_external_local_origin_errors && !is_default(message)
    };
    match message.is_some_and(distinguishes) {
        false => Ok(()),
        true => Err(Fault::new(
            "outlier_detection.split_external_local_origin_errors",
            "not supported: a failure without a response is also a server error; \
             remove the field, or set outlier_ejection in the maglor.dev metadata",
        )),
    }
}

/// Returns whether the message is our default. Servers of earlier versions set `split_external_local_origin_errors` in
/// it.
fn is_default(message: &OutlierDetection) -> bool {
    let message = OutlierDetection {
        split_external_local_origin_errors: false,
        ..*message
    };
    encode_outlier(None) == Some(message)
}

/// Decodes outlier ejection, which is disabled if it is absent. Envoy's defaults are written out where ours are
/// different.
pub(super) fn outlier(
    message: Option<&OutlierDetection>,
) -> Result<Option<raw::OutlierEjection>, Fault> {
    let Some(message) = message else {
        return Ok(Some(raw::OutlierEjection {
            enabled: Some(false),
            ..raw::OutlierEjection::default()
        }));
    };
    if is_default(message) {
        return Ok(None);
    }
    let time = |name: &str, duration| time(&format!("outlier_detection.{name}"), duration);
    Ok(Some(raw::OutlierEjection {
        enabled: None,
        consecutive_5xx: message.consecutive_5xx,
        consecutive_gateway_failure: message.consecutive_gateway_failure,
        // In Envoy, failures without a response are only server errors, unless they are distinguished.
        consecutive_local_origin_failure: Some(0),
        interval: time("interval", message.interval.as_ref())?,
        base_ejection_time: time("base_ejection_time", message.base_ejection_time.as_ref())?,
        max_ejection_time: time("max_ejection_time", message.max_ejection_time.as_ref())?,
        max_ejection_time_jitter: time(
            "max_ejection_time_jitter",
            message.max_ejection_time_jitter.as_ref(),
        )?,
        max_ejection_percent: message.max_ejection_percent.or(Some(10)),
        always_eject_one_host: message.always_eject_one_host,
        success_rate_minimum_hosts: message.success_rate_minimum_hosts,
        success_rate_request_volume: message.success_rate_request_volume,
        success_rate_stdev_factor: message.success_rate_stdev_factor,
        failure_percentage_threshold: message.failure_percentage_threshold,
        failure_percentage_minimum_hosts: message.failure_percentage_minimum_hosts,
        failure_percentage_request_volume: message.failure_percentage_request_volume,
        enforcing_consecutive_5xx: message.enforcing_consecutive_5xx,
        enforcing_consecutive_gateway_failure: message
            .enforcing_consecutive_gateway_failure
            .or(Some(0)),
        enforcing_consecutive_local_origin_failure: message
            .enforcing_consecutive_local_origin_failure,
        enforcing_success_rate: message.enforcing_success_rate,
        enforcing_failure_percentage: message.enforcing_failure_percentage,
        status_difference_threshold: None,
        enforcing_status_difference: None,
        probe_interval: None,
    }))
}

pub(super) fn health(message: &HealthCheck) -> Result<raw::HealthCheck, Fault> {
    let span = |name: &str, duration| time(&format!("health_checks[0].{name}"), duration);
    let mut raw = raw::HealthCheck {
        interval: span("interval", message.interval.as_ref())?,
        unhealthy_interval: span("unhealthy_interval", message.unhealthy_interval.as_ref())?,
        timeout: span("timeout", message.timeout.as_ref())?,
        unhealthy_threshold: message.unhealthy_threshold,
        healthy_threshold: message.healthy_threshold,
        interval_jitter_percent: Some(message.interval_jitter_percent),
        ..raw::HealthCheck::default()
    };
    match &message.health_checker {
        Some(HealthChecker::HttpHealthCheck(http)) => {
            raw.http = Some(Short(raw::HttpCheck {
                path: non_empty(&http.path),
                host: non_empty(&http.host),
                expected_statuses: statuses(&http.expected_statuses),
            }));
        }
        Some(HealthChecker::GrpcHealthCheck(grpc)) => {
            raw.grpc = Some(raw::GrpcCheck {
                service: non_empty(&grpc.service_name),
                authority: non_empty(&grpc.authority),
            });
        }
        Some(HealthChecker::TcpHealthCheck(tcp)) => {
            let several = tcp.receive.len() > 1;
            if several {
                return Err(Fault::unsupported(
                    "health_checks[0].tcp_health_check.receive",
                ));
            }
            raw.tcp = Some(raw::TcpCheck {
                send: tcp.send.as_ref().map(payload).transpose()?,
                receive: tcp.receive.first().map(payload).transpose()?,
            });
        }
        None => return Err(Fault::unsupported("health_checks[0].health_checker")),
    }
    Ok(raw)
}

fn payload(message: &Payload) -> Result<String, Fault> {
    let fault = || {
        Fault::new(
            "health_checks[0].tcp_health_check",
            "only payloads that are UTF-8 text are supported",
        )
    };
    let bytes = match &message.payload {
        Some(payload::Payload::Binary(bytes)) => bytes.clone(),
        Some(payload::Payload::Text(digits)) => hexadecimal(digits).ok_or_else(fault)?,
        None => Vec::new(),
    };
    String::from_utf8(bytes).map_err(|_| fault())
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<char> = digits.chars().collect();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => {
            let byte = high.to_digit(16)? * 16 + low.to_digit(16)?;
            u8::try_from(byte).ok()
        }
        _ => None,
    });
    pairs.collect()
}

fn statuses(ranges: &[Int64Range]) -> Option<OneOrMany> {
    let text = |range: &Int64Range| {
        let last = range.end.saturating_sub(1);
        match range.start == last {
            true => last.to_string(),
            false => format!("{}-{last}", range.start),
        }
    };
    let texts: Vec<_> = ranges.iter().map(text).collect();
    (!texts.is_empty()).then_some(OneOrMany(texts))
}
