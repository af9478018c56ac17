//! Validates active health checks.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use http::HeaderValue;
use maglor_balance::guard::Percent;
use maglor_balance::guard::health::HealthParams;

use super::rule::{self, DAY, MILLISECOND, SECOND};
use super::{headers, host};
use crate::health::{HealthCheck, HealthCheckKind};
use crate::report::At;
use crate::{UpstreamProtocol, raw, yaml};

/// The maximum length in bytes of a text that is sent or expected.
const MAX_PAYLOAD: usize = 4096;

pub(super) fn check(
    raw: &raw::HealthCheck,
    protocol: UpstreamProtocol,
    at: &At<'_>,
) -> Option<HealthCheck> {
    let params = params(raw, at);
    let port = raw
        .port
        .map(|port| rule::number(Some(port), &at.field("port"), 1, 1..=65_535));
    let port = port.and_then(|port| NonZeroU16::new(u16::try_from(port).ok()?));
    let set = [
        ("http", raw.http.is_some()),
        ("grpc", raw.grpc.is_some()),
        ("tcp", raw.tcp.is_some()),
    ];
    let kind = match (rule::exactly_one(&set, at)?, &raw.http, &raw.grpc, &raw.tcp) {
        ("http", Some(raw::Short(raw)), _, _) => http(raw, &at.field("http"))?,
        ("grpc", _, Some(raw), _) => grpc(raw, protocol, &at.field("grpc"))?,
        (_, _, _, tcp) => tcp_check(tcp.as_ref()?, &at.field("tcp")),
    };
    Some(HealthCheck { kind, params, port })
}

fn params(raw: &raw::HealthCheck, at: &At<'_>) -> HealthParams {
    let default = HealthParams::default();
    let number = |value, name: &str, default, range| {
        rule::number::<u32>(value, &at.field(name), default, range)
    };
    let range = || 10 * MILLISECOND..=DAY;
    let interval = rule::time(
        raw.interval,
        &at.field("interval"),
        default.interval,
        range(),
    );
    let unhealthy = &at.field("unhealthy_interval");
    let timeout = &at.field("timeout");
    let timeout = rule::time(
        raw.timeout,
        timeout,
        SECOND.min(interval),
        MILLISECOND..=DAY,
    );
    if timeout > interval {
        let (shown, interval) = (raw::TimeSpan(timeout), raw::TimeSpan(interval));
        at.field("timeout")
            .error(format!("{shown} is above the `interval` ({interval})"))
            .help("a health check must end before the next one starts");
    }
    let jitter = number(
        raw.interval_jitter_percent,
        "interval_jitter_percent",
        10,
        0..=100,
    );
    HealthParams {
        interval,
        unhealthy_interval: rule::time(raw.unhealthy_interval, unhealthy, interval, range()),
        interval_jitter: Percent::whole(u8::try_from(jitter).unwrap_or(100)),
        timeout,
        unhealthy_threshold: number(
            raw.unhealthy_threshold,
            "unhealthy_threshold",
            default.unhealthy_threshold,
            1..=1000,
        ),
        healthy_threshold: number(
            raw.healthy_threshold,
            "healthy_threshold",
            default.healthy_threshold,
            1..=1000,
        ),
    }
}

fn http(raw: &raw::HttpCheck, at: &At<'_>) -> Option<HealthCheckKind> {
    let host = raw.host.as_deref();
    let host = host.and_then(|text| authority(text, &at.field("host")));
    let expected = raw.expected_statuses.as_ref();
    let expected = expected.map(|list| statuses(list, &at.field("expected_statuses")));
    let Some(path) = &raw.path else {
        at.missing(
            "path",
            "write `path: /healthz`, or `health_check: /healthz`",
        );
        return None;
    };
    let good = |c: char| c.is_ascii_graphic() && c != '#';
    if !path.starts_with('/') || !path.chars().all(good) {
        at.field("path")
            .error(format!("`{}` is not a path", yaml::short(path)))
            .help("a path starts with `/` and has no spaces and no fragment");
    }
    Some(HealthCheckKind::Http {
        path: path.clone(),
        host,
        expected: expected.unwrap_or_else(|| vec![200..=399]),
    })
}

fn authority(text: &str, at: &At<'_>) -> Option<HeaderValue> {
    match host::exact(text) {
        Ok(_) => headers::value(text, at),
        Err(help) => {
            at.error(format!("`{}` is not a host", yaml::short(text)))
                .help(help);
            None
        }
    }
}

/// Parses statuses such as `200` and ranges such as `200-299`.
fn statuses(raw::OneOrMany(list): &raw::OneOrMany, at: &At<'_>) -> Vec<RangeInclusive<u16>> {
    let mut ranges = Vec::new();
    for (i, text) in list.iter().enumerate() {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| text.trim().parse::<u16>().ok();
        match (status(first), status(last)) {
            (Some(first), Some(last)) if 200 <= first && first <= last && last <= 599 => {
                ranges.push(first..=last);
            }
            _ => {
                at.index(i)
                    .error(format!(
                        "`{}` is not a status or range of statuses",
                        yaml::short(text)
                    ))
                    .help("write `200` or `200-299`, within 200 to 599");
            }
        }
    }
    if list.is_empty() {
        at.error("no status counts as healthy").when_readable();
    }
    ranges
}

fn grpc(raw: &raw::GrpcCheck, protocol: UpstreamProtocol, at: &At<'_>) -> Option<HealthCheckKind> {
    if protocol == UpstreamProtocol::Http1 {
        at.error("gRPC needs HTTP/2, but the cluster uses HTTP/1.1")
            .on_key()
            .help("set `protocol: http2` on the cluster");
    }
    let authority = raw.authority.as_deref();
    let service = raw.service.clone().unwrap_or_default();
    if service.len() > 253 || service.chars().any(|c| !c.is_ascii_graphic()) {
        at.field("service").error(format!(
            "`{}` is not the name of a service",
            yaml::short(&service)
        ));
        return None;
    }
    Some(HealthCheckKind::Grpc {
        service,
        authority: authority.and_then(|text| self::authority(text, &at.field("authority"))),
    })
}

fn tcp_check(raw: &raw::TcpCheck, at: &At<'_>) -> HealthCheckKind {
    let payload = |text: &Option<String>, name: &str| {
        let bytes = text.clone().unwrap_or_default().into_bytes();
        if bytes.len() > MAX_PAYLOAD {
            at.field(name).error(format!(
                "the payload has {} bytes; maximum {MAX_PAYLOAD}",
                bytes.len()
            ));
        }
        bytes
    };
    HealthCheckKind::Tcp {
        send: payload(&raw.send, "send"),
        receive: payload(&raw.receive, "receive"),
    }
}
