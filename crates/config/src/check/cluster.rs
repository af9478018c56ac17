//! Validates clusters.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance as balance;

use super::rule::{self, DAY, MILLISECOND, MINUTE, SECOND, Unique};
use super::{Scope, endpoint, guard, health, outlier, tls};
use crate::cluster::{DestinationAddress, DnsRefresh, EndpointAddress, ProxyProtocolOut, locality};
use crate::report::{At, Report};
use crate::{Cluster, Endpoint, Origination, UpstreamProtocol, raw};

pub(super) fn all(raw: &[raw::Cluster], at: &At<'_>, scope: &Scope<'_>) -> Vec<Arc<Cluster>> {
    let mut names = Unique::default();
    raw.iter()
        .enumerate()
        .filter_map(|(i, raw)| one(raw, &at.index(i), &mut names, scope).map(Arc::new))
        .collect()
}

pub(super) fn one(
    raw: &raw::Cluster,
    at: &At<'_>,
    names: &mut Unique,
    scope: &Scope<'_>,
) -> Option<Cluster> {
    let name = rule::name(
        raw.name.as_ref(),
        at,
        "routes refer to a cluster by its name",
    );
    if let Some(name) = &name {
        names.check(name, &at.field("name"), "the cluster");
    }
    let (time, number) = (rule::time, rule::number::<u32>);
    let requests = raw.max_requests_per_connection.map(|n| {
        number(
            Some(n),
            &at.field("max_requests_per_connection"),
            1,
            1..=u32::MAX,
        )
    });
    let idle = number(
        raw.max_idle_connections,
        &at.field("max_idle_connections"),
        1024,
        0..=65_536,
    );
    let streams = &at.field("max_concurrent_streams");
    let endpoints = endpoint::all(&raw.endpoints, &at.field("endpoints"));
    let view = view(raw, at);
    let protocol = protocol(raw);
    let health_check = health_check(raw, protocol, at);
    let ejection = raw.outlier_ejection.as_ref();
    let policy = raw.policy.clone().unwrap_or_default();
    let outlier = outlier::outlier(ejection, &policy, &endpoints, &at.field("outlier_ejection"));
    let delay = raw.delay.as_ref();
    let original_destination = original_destination(raw, at);
    let first_address_only = first_address_only(raw, &endpoints, at);
    let cluster = Cluster {
        name: name.unwrap_or_default(),
        policy,
        view,
        original_destination,
        endpoints,
        protocol,
        grpc_by_http2: matches!(raw.protocol, None | Some(raw::UpstreamProtocol::Auto)),
        tls: raw
            .tls
            .as_ref()
            .map(|raw| tls::origination(&raw.0, &at.field("tls"), scope)),
        proxy_protocol: proxy_protocol(raw.proxy_protocol),
        connect_timeout: time(
            raw.connect_timeout,
            &at.field("connect_timeout"),
            5 * SECOND,
            MILLISECOND..=10 * MINUTE,
        ),
        idle_timeout: time(
            raw.idle_timeout,
            &at.field("idle_timeout"),
            MINUTE,
            MILLISECOND..=DAY,
        ),
        max_requests_per_connection: requests.and_then(NonZeroU32::new),
        max_idle_connections: idle as usize,
        max_concurrent_streams: number(raw.max_concurrent_streams, streams, 100, 1..=65_536),
        dns_refresh: dns_refresh(raw.dns_refresh.as_ref(), &at.field("dns_refresh")),
        first_address_only,
        health_check,
        // There is no other endpoint to use.
        outlier: outlier.filter(|_| original_destination.is_none()),
        limits: guard::limits(raw.limits.as_ref(), &at.field("limits")),
        retry_budget: guard::budget(raw, at),
        circuit_breaker: raw
            .circuit_breaker
            .as_ref()
            .map(|raw| guard::breaker(raw, &at.field("circuit_breaker"))),
        concurrency_limit: raw
            .concurrency_limit
            .as_ref()
            .map(|raw| guard::concurrency(raw, &at.field("concurrency_limit"))),
        delay: delay.and_then(|raw| guard::delay(&raw.0, &at.field("delay"))),
    };
    warnings(raw, &cluster, at);
    raw.name.is_some().then_some(cluster)
}

/// Rejects settings that do not apply to an endpoint on a Unix socket.
fn unix_endpoints(cluster: &Cluster, at: &At<'_>) {
    let is_unix = |one: &Endpoint| matches!(one.address, EndpointAddress::Unix(_));
    if !cluster.endpoints.iter().any(is_unix) {
        return;
    }
    let port = cluster.health_check.as_ref().and_then(|check| check.port);
    if port.is_some() {
        at.field("health_check")
            .field("port")
            .error("an endpoint on a Unix socket has no ports")
            .on_key()
            .help("remove `port`; health checks connect to the socket itself");
    }
    if let Some(Origination::Names(tls)) = &cluster.tls
        && tls.server_name.is_none()
    {
        at.field("tls")
            .error("an endpoint on a Unix socket has no name against which its certificate could be verified")
            .help("write `tls: {server_name: NAME}`");
    }
}

/// Validates the clusters of listeners' short forms. They are generated and cannot have errors.
pub(super) fn made(raw: &[raw::Cluster], scope: &Scope<'_>) -> Vec<Arc<Cluster>> {
    let report = Report::default();
    all(raw, &report.root(), scope)
}

/// Returns the endpoint address for a connection's original destination; `None` = the cluster has a list of endpoints.
fn original_destination(raw: &raw::Cluster, at: &At<'_>) -> Option<DestinationAddress> {
    let by_destination = matches!(raw.r#type, Some(raw::ClusterType::OriginalDestination));
    if !by_destination {
        if raw.address.is_some() {
            at.field("address")
                .error("`address` applies only to `type: original-destination`")
                .on_key()
                .help("write servers in `endpoints: [IP:PORT]`");
        }
        return None;
    }
    let useless = [
        ("endpoints", !raw.endpoints.is_empty()),
        ("policy", raw.policy.is_some()),
        ("health_check", raw.health_check.is_some()),
        ("outlier_ejection", raw.outlier_ejection.is_some()),
        ("locality_weights", raw.locality_weights.is_some()),
    ];
    for (name, _) in useless.iter().filter(|(_, there)| *there) {
        at.field(name)
            .error(format!(
                "`{name}` has no effect with `type: original-destination`: there are no endpoints to choose from"
            ))
            .on_key()
            .help(format!("remove `{name}`"));
    }
    Some(match raw.address.as_deref() {
        None => DestinationAddress::AsIs,
        Some("loopback") => DestinationAddress::Loopback,
        Some(text) => match text.parse::<IpAddr>() {
            Ok(ip) => DestinationAddress::Ip(ip.to_canonical()),
            Err(_) => {
                at.field("address")
                    .error(format!(
                        "`{}` is not an IP address",
                        crate::yaml::short(text)
                    ))
                    .help("write `loopback`, or an address without port such as `127.0.0.1`");
                DestinationAddress::AsIs
            }
        },
    })
}

fn warnings(raw: &raw::Cluster, cluster: &Cluster, at: &At<'_>) {
    unix_endpoints(cluster, at);
    guard::warn_of_queue(raw, at);
    if raw.endpoints.is_empty() && cluster.original_destination.is_none() {
        at.warning("the cluster has no endpoints; its requests are answered with 503")
            .when_readable();
    }
    let endpoints = cluster.endpoints.len();
    if let Some(uneven) = cluster.policy.uneven_shares(endpoints) {
        let (parameter, value, wanted) = (uneven.parameter, uneven.value, uneven.wanted);
        at.field("policy")
            .warning(format!(
                "{parameter}={value} is small for {endpoints} endpoints: their shares differ by more than 1 %, \
                 and some may get no requests"
            ))
            .help(format!("write `{parameter}={wanted}` or more"));
    }
    let weighted = cluster
        .endpoints
        .windows(2)
        .any(|pair| pair[0].weight != pair[1].weight);
    if weighted && !cluster.policy.keeps_weights() {
        let name = cluster.policy.name();
        at.field("policy")
            .warning(format!(
                "weights determine how often endpoints are candidates; {name} chooses among the candidates by other criteria, so shares of requests differ from the weights"
            ))
            .help("lor, round-robin, bounce and ledger keep shares in proportion to weights");
    }
    let listed = cluster.view.locality_weights.as_ref();
    if let Some(weights) = listed {
        let used = |e: &Endpoint| {
            let place = e.locality.as_deref().map(locality);
            weights.weight(place.as_ref()) > 0
        };
        if !cluster.endpoints.is_empty() && !cluster.endpoints.iter().any(used) {
            at.field("locality_weights")
                .warning("no endpoint is in a locality with a weight above 0")
                .help("set `locality` of the endpoints to one of this list");
        }
    }
}

fn protocol(raw: &raw::Cluster) -> UpstreamProtocol {
    match raw.spoken() {
        raw::UpstreamProtocol::Auto => UpstreamProtocol::Auto,
        raw::UpstreamProtocol::Downstream => UpstreamProtocol::Downstream,
        raw::UpstreamProtocol::Http1 => UpstreamProtocol::Http1,
        raw::UpstreamProtocol::Http2 => UpstreamProtocol::Http2,
    }
}

fn health_check(
    raw: &raw::Cluster,
    protocol: UpstreamProtocol,
    at: &At<'_>,
) -> Option<crate::HealthCheck> {
    // Without TLS there is no ALPN to choose by.
    let protocol = match protocol {
        UpstreamProtocol::Auto if raw.tls.is_none() => UpstreamProtocol::Http1,
        protocol => protocol,
    };
    let check = raw.health_check.as_ref()?;
    health::check(&check.0, protocol, &at.field("health_check"))
}

fn proxy_protocol(raw: Option<raw::ProxyProtocolOut>) -> Option<ProxyProtocolOut> {
    match raw {
        None | Some(raw::ProxyProtocolOut::Off) => None,
        Some(raw::ProxyProtocolOut::V1) => Some(ProxyProtocolOut::V1),
        Some(raw::ProxyProtocolOut::V2) => Some(ProxyProtocolOut::V2),
    }
}

fn view(raw: &raw::Cluster, at: &At<'_>) -> balance::ViewParams {
    let panic = rule::number(
        raw.panic_threshold,
        &at.field("panic_threshold"),
        50,
        0..=100,
    );
    let factor = &at.field("overprovisioning_factor");
    let weights = raw.locality_weights.as_ref();
    balance::ViewParams {
        panic_threshold_percent: u8::try_from(panic).unwrap_or(100),
        overprovisioning_factor: rule::number(raw.overprovisioning_factor, factor, 1.4, 1.0..=10.0),
        locality_weights: weights.map(|w| locality_weights(w, &at.field("locality_weights"))),
        slow_start: raw
            .slow_start
            .as_ref()
            .map(|s| slow_start(s, &at.field("slow_start"))),
    }
}

fn locality_weights(raw: &raw::Pairs<u32>, at: &At<'_>) -> balance::LocalityWeights {
    let mut weights = Vec::new();
    for (name, weight) in &raw.0 {
        let at = at.field(name);
        if endpoint::locality(name, &at) {
            weights.push((
                locality(name),
                rule::number(Some(*weight), &at, 0, 0..=1_000_000),
            ));
        }
    }
    if !weights.iter().any(|(_, weight)| *weight > 0) {
        at.error("no locality has a weight above 0").when_readable();
    }
    weights.into_iter().collect()
}

fn slow_start(raw: &raw::SlowStart, at: &At<'_>) -> balance::SlowStart {
    let percent = &at.field("min_weight_percent");
    let percent = rule::number(raw.min_weight_percent, percent, 10, 1..=100);
    balance::SlowStart {
        window: rule::time(
            raw.window,
            &at.field("window"),
            Duration::from_secs(30),
            MILLISECOND..=DAY,
        ),
        aggression: rule::number(raw.aggression, &at.field("aggression"), 1.0, 0.01..=100.0),
        min_weight_percent: u8::try_from(percent).unwrap_or(100),
    }
}

fn first_address_only(raw: &raw::Cluster, endpoints: &[Endpoint], at: &At<'_>) -> bool {
    let first = raw.dns_addresses == Some(raw::DnsAddresses::First);
    let is_name = |one: &Endpoint| matches!(one.address, EndpointAddress::Dns { .. });
    if first && !endpoints.is_empty() && !endpoints.iter().any(is_name) {
        at.field("dns_addresses")
            .error("`dns_addresses` has no effect: no endpoint of the cluster is a host name")
            .on_key()
            .help("remove the line, or write `endpoints: [NAME:PORT]`");
    }
    first
}

fn dns_refresh(raw: Option<&raw::DnsRefresh>, at: &At<'_>) -> DnsRefresh {
    let min = raw.and_then(|raw| raw.min);
    let max = raw.and_then(|raw| raw.max);
    let range = 100 * MILLISECOND..=DAY;
    let refresh = DnsRefresh {
        min: rule::time(min, &at.field("min"), SECOND, range.clone()),
        max: rule::time(max, &at.field("max"), 5 * MINUTE, range),
    };
    if refresh.min > refresh.max {
        let (min, max) = (raw::TimeSpan(refresh.min), raw::TimeSpan(refresh.max));
        at.field("min")
            .error(format!("`min` ({min}) is above `max` ({max})"));
    }
    refresh
}
