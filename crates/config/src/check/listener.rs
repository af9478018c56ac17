//! Validates listeners.

use std::net::SocketAddr;
use std::time::Duration;

use super::route::Tables;
use super::route::rate_limit_and_fault;
use super::rule::{self, MILLISECOND, MINUTE, Unique};
use super::{Scope, authorization, filter_chain, sidecar, unix_listener};
use crate::listener::{ProxyProtocolIn, TrafficDirection};
use crate::report::At;
use crate::{Address, Filter, FilterChain, Listener, raw};

/// Validates all listeners; returns each with its position in the list.
pub(super) fn all(
    raw: &raw::Document,
    at: &At<'_>,
    scope: &Scope<'_>,
    tables: &Tables,
) -> Vec<(usize, Listener)> {
    let (mut names, list) = (Unique::default(), at.field("listeners"));
    let control_plane = raw.control_plane.as_ref();
    let others = control_plane.is_some_and(|one| one.gateway.is_some());
    if raw.listeners.is_empty() && !others {
        let help =
            "add at least one, for example `listeners: [{name: web, address: 0.0.0.0:8080, …}]`";
        list.error("no listeners: the proxy would serve nothing")
            .when_readable()
            .help(help);
    }
    let each = raw.listeners.iter().enumerate();
    each.filter_map(|(i, raw)| {
        let listener = one(raw, &list.index(i), &mut names, scope, tables)?;
        Some((i, listener))
    })
    .collect()
}

pub(super) fn one(
    raw: &raw::Listener,
    at: &At<'_>,
    names: &mut Unique,
    scope: &Scope<'_>,
    tables: &Tables,
) -> Option<Listener> {
    let name = rule::name(
        raw.name.as_ref(),
        at,
        "the name is a label of metrics, for example `name: web`",
    );
    if let Some(name) = &name {
        names.check(name, &at.field("name"), "the listener");
    }
    let address = rule::listen_address(raw.address.as_ref(), at);
    let connections = &at.field("max_connections");
    let connections = rule::number(raw.max_connections, connections, 65_536, 1..=10_000_000);
    let label = name.clone().unwrap_or_default();
    let filter_chains = filter_chain::all(raw, at, &label, scope, tables);
    let server_first_ports = server_first_ports(raw, at, &filter_chains);
    let limit = &at.field("rate_limit");
    let rate_limit = raw.rate_limit.as_ref();
    let rate_limit = rate_limit.and_then(|raw| rate_limit_and_fault::rate_limit(&raw.0, limit));
    let http = |chain: &FilterChain| !matches!(chain.filter, Filter::Tcp(_));
    if rate_limit.is_some() && !filter_chains.is_empty() && !filter_chains.iter().any(http) {
        limit
            .error("this listener handles no HTTP requests")
            .on_key()
            .help("remove `rate_limit`; `max_connections` limits connections");
    }
    let place = &at.field("authorization");
    let authorization = raw.authorization.as_ref();
    let authorization =
        authorization.map(|raw| authorization::authorization(raw, place, &filter_chains, scope));
    let address = address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)).into());
    let mode = unix_listener::mode(raw.mode.as_deref(), &address, &at.field("mode"));
    if matches!(address, Address::Unix(_)) {
        unix_listener::check(raw, at);
    }
    Some(Listener {
        name: label,
        address,
        mode,
        proxy_protocol: match raw.proxy_protocol {
            None | Some(raw::ProxyProtocolIn::Off) => ProxyProtocolIn::Off,
            Some(raw::ProxyProtocolIn::Accept) => ProxyProtocolIn::Accept,
            Some(raw::ProxyProtocolIn::Require) => ProxyProtocolIn::Require,
        },
        filter_chains,
        authorization,
        original_destination: original_destination(raw),
        direction: direction(raw, at),
        detection_timeout: rule::time(
            raw.detection_timeout,
            &at.field("detection_timeout"),
            Duration::from_secs(1),
            MILLISECOND..=10 * MINUTE,
        ),
        server_first_ports,
        max_connections: connections as usize,
        handshake_timeout: rule::time(
            raw.handshake_timeout,
            &at.field("handshake_timeout"),
            Duration::from_secs(10),
            MILLISECOND..=10 * MINUTE,
        ),
        rate_limit,
        workload: sidecar::workload(raw, at, scope),
    })
}

/// Ports of protocols in which the server speaks first: FTP, SSH, SMTP, POP3, IMAP, submission,
/// MySQL.
const SERVER_FIRST_PORTS: [u16; 7] = [21, 22, 25, 110, 143, 587, 3306];

fn server_first_ports(raw: &raw::Listener, at: &At<'_>, chains: &[FilterChain]) -> Vec<u16> {
    let Some(ports) = &raw.server_first_ports else {
        return SERVER_FIRST_PORTS.to_vec();
    };
    let at = at.field("server_first_ports");
    let detects = |chain: &FilterChain| matches!(chain.filter, Filter::Detect { .. });
    if !chains.is_empty() && !chains.iter().any(detects) {
        at.error("no filter chain inspects the first bytes: the timeout has no effect")
            .on_key()
            .help("remove the timeout, or set both `http` and `tcp` in a chain");
    }
    let port = |(i, &port): (usize, &u32)| {
        let port = rule::number(Some(port), &at.index(i), 1, 1..=65_535);
        u16::try_from(port).unwrap_or(1)
    };
    ports.iter().enumerate().map(port).collect()
}

/// Returns whether connections are redirected. The short forms imply it; an explicit `false` is for clients that
/// connect to the listener's own address.
fn original_destination(raw: &raw::Listener) -> bool {
    let sidecar = raw.inbound.is_some() || raw.outbound.is_some();
    raw.original_destination.unwrap_or(sidecar)
}

fn direction(raw: &raw::Listener, at: &At<'_>) -> TrafficDirection {
    let own = match (&raw.inbound, &raw.outbound) {
        (Some(_), _) => Some(TrafficDirection::Inbound),
        (None, Some(_)) => Some(TrafficDirection::Outbound),
        (None, None) => None,
    };
    let set = raw.traffic_direction.map(|set| match set {
        raw::TrafficDirection::Inbound => TrafficDirection::Inbound,
        raw::TrafficDirection::Outbound => TrafficDirection::Outbound,
        raw::TrafficDirection::Unspecified => TrafficDirection::Unspecified,
    });
    if let (Some(own), Some(set)) = (own, set)
        && own != set
    {
        at.field("traffic_direction")
            .error("`traffic_direction` is implied by `inbound` and `outbound`")
            .on_key()
            .help("remove `traffic_direction`");
    }
    set.or(own).unwrap_or_default()
}
