//! Validates outlier ejection.

use std::time::Duration;

use maglor_balance as balance;
use maglor_balance::guard::Percent;
use maglor_balance::guard::outlier::{Enforcing, OutlierParams};

use super::rule::{self, DAY, HOUR, MILLISECOND};
use crate::report::At;
use crate::{EndpointAddress, cluster, raw};

/// Returns the parameters; `None` when it is disabled.
pub(super) fn outlier(
    raw: Option<&raw::OutlierEjection>,
    policy: &balance::PolicySpec,
    endpoints: &[cluster::Endpoint],
    at: &At<'_>,
) -> Option<OutlierParams> {
    let absent = raw::OutlierEjection::default();
    let raw = raw.unwrap_or(&absent);
    let params = params(raw, policy, at);
    let enabled = raw.enabled.unwrap_or(true);
    if enabled {
        warn_of_detectors(&params, at);
        if raw.max_ejection_percent.is_some() {
            warn_of_percentage(&params, endpoints, at);
        }
    }
    enabled.then_some(params)
}

fn params(raw: &raw::OutlierEjection, policy: &balance::PolicySpec, at: &At<'_>) -> OutlierParams {
    let default = OutlierParams::default();
    let streak = |value, name: &str| rule::number::<u32>(value, &at.field(name), 5, 0..=1_000_000);
    let time = |value, name: &str, default: Duration, range| {
        rule::time(value, &at.field(name), default, range)
    };
    let base = default.base_ejection_time;
    let base = time(
        raw.base_ejection_time,
        "base_ejection_time",
        base,
        MILLISECOND..=DAY,
    );
    let max = default.max_ejection_time.max(base);
    let max = time(
        raw.max_ejection_time,
        "max_ejection_time",
        max,
        MILLISECOND..=DAY,
    );
    rule::ordered(("base_ejection_time", base), ("max_ejection_time", max), at);
    let jitter = (raw.max_ejection_time_jitter, "max_ejection_time_jitter");
    let probes = (raw.probe_interval, "probe_interval");
    let probe_range = 10 * MILLISECOND..=HOUR;
    OutlierParams {
        consecutive_5xx: streak(raw.consecutive_5xx, "consecutive_5xx"),
        consecutive_gateway_failure: streak(
            raw.consecutive_gateway_failure,
            "consecutive_gateway_failure",
        ),
        consecutive_local_origin_failure: streak(
            raw.consecutive_local_origin_failure,
            "consecutive_local_origin_failure",
        ),
        enforcing: enforcing(raw, policy, at),
        interval: time(
            raw.interval,
            "interval",
            default.interval,
            100 * MILLISECOND..=HOUR,
        ),
        base_ejection_time: base,
        max_ejection_time: max,
        max_ejection_time_jitter: time(jitter.0, jitter.1, Duration::ZERO, Duration::ZERO..=DAY),
        max_ejection_percent: percent(raw.max_ejection_percent, "max_ejection_percent", 50, at),
        always_eject_one_host: raw.always_eject_one_host.unwrap_or(false),
        probe_interval: time(probes.0, probes.1, default.probe_interval, probe_range),
        ..rates(raw, at)
    }
}

/// Returns the parameters of success rates and failure percentages; all others have their defaults.
fn rates(raw: &raw::OutlierEjection, at: &At<'_>) -> OutlierParams {
    let default = OutlierParams::default();
    let count = |value, name: &str, default| {
        rule::number::<u32>(value, &at.field(name), default, 1..=1_000_000)
    };
    let threshold = |value, name: &str, default: u8| {
        let percent = rule::number(value, &at.field(name), u32::from(default), 0..=100);
        u8::try_from(percent).unwrap_or(100)
    };
    OutlierParams {
        success_rate_minimum_hosts: count(
            raw.success_rate_minimum_hosts,
            "success_rate_minimum_hosts",
            default.success_rate_minimum_hosts,
        ),
        success_rate_request_volume: count(
            raw.success_rate_request_volume,
            "success_rate_request_volume",
            default.success_rate_request_volume,
        ),
        success_rate_stdev_factor: rule::number(
            raw.success_rate_stdev_factor,
            &at.field("success_rate_stdev_factor"),
            default.success_rate_stdev_factor,
            0..=100_000,
        ),
        failure_percentage_threshold: threshold(
            raw.failure_percentage_threshold,
            "failure_percentage_threshold",
            default.failure_percentage_threshold,
        ),
        status_difference_threshold: threshold(
            raw.status_difference_threshold,
            "status_difference_threshold",
            default.status_difference_threshold,
        ),
        failure_percentage_minimum_hosts: count(
            raw.failure_percentage_minimum_hosts,
            "failure_percentage_minimum_hosts",
            default.failure_percentage_minimum_hosts,
        ),
        failure_percentage_request_volume: count(
            raw.failure_percentage_request_volume,
            "failure_percentage_request_volume",
            default.failure_percentage_request_volume,
        ),
        ..default
    }
}

fn percent(value: Option<u32>, name: &str, default: u32, at: &At<'_>) -> Percent {
    let percent = rule::number(value, &at.field(name), default, 0..=100);
    Percent::whole(u8::try_from(percent).unwrap_or(100))
}

fn enforcing(raw: &raw::OutlierEjection, policy: &balance::PolicySpec, at: &At<'_>) -> Enforcing {
    let streak = "enforcing_consecutive_5xx";
    let gateway = "enforcing_consecutive_gateway_failure";
    let local = "enforcing_consecutive_local_origin_failure";
    let failures = "enforcing_failure_percentage";
    let successes = "enforcing_success_rate";
    let difference = "enforcing_status_difference";
    // If a client's requests go to one endpoint, it alone could make that endpoint differ, and then
    // the next.
    let sticky = if policy.uses_hash() { 0 } else { 100 };
    Enforcing {
        consecutive_5xx: percent(raw.enforcing_consecutive_5xx, streak, 100, at),
        consecutive_gateway_failure: percent(
            raw.enforcing_consecutive_gateway_failure,
            gateway,
            100,
            at,
        ),
        consecutive_local_origin_failure: percent(
            raw.enforcing_consecutive_local_origin_failure,
            local,
            100,
            at,
        ),
        failure_percentage: percent(raw.enforcing_failure_percentage, failures, 0, at),
        success_rate: percent(raw.enforcing_success_rate, successes, 100, at),
        status_difference: percent(raw.enforcing_status_difference, difference, sticky, at),
    }
}

fn warn_of_detectors(params: &OutlierParams, at: &At<'_>) {
    let enforcing = &params.enforcing;
    let streaks = [
        (params.consecutive_5xx, enforcing.consecutive_5xx),
        (
            params.consecutive_gateway_failure,
            enforcing.consecutive_gateway_failure,
        ),
        (
            params.consecutive_local_origin_failure,
            enforcing.consecutive_local_origin_failure,
        ),
        (
            params.failure_percentage_threshold.into(),
            enforcing.failure_percentage,
        ),
        (1, enforcing.success_rate),
        (
            params.status_difference_threshold.into(),
            enforcing.status_difference,
        ),
    ];
    if streaks
        .iter()
        .all(|(threshold, enforced)| *threshold == 0 || *enforced == Percent::NONE)
    {
        at.warning("all detectors are disabled: no endpoint would be ejected")
            .when_readable()
            .help("write `outlier_ejection: {enabled: false}` to disable ejection");
    }
}

/// Warns about an explicit percentage that amounts to less than one endpoint, which is probably an error.
fn warn_of_percentage(params: &OutlierParams, endpoints: &[cluster::Endpoint], at: &At<'_>) {
    let counted = |e: &cluster::Endpoint| {
        matches!(
            e.address,
            EndpointAddress::Socket(_) | EndpointAddress::Unix(_)
        )
    };
    let (n, percent) = (endpoints.len(), params.max_ejection_percent);
    if n > 1 && endpoints.iter().all(counted) && params.max_ejections(n) == 0 {
        at.field("max_ejection_percent")
            .warning(format!(
                "{percent} % of {n} endpoints is less than one: no endpoint would be ejected"
            ))
            .help("increase `max_ejection_percent`, or write `always_eject_one_host: true`");
    }
}
