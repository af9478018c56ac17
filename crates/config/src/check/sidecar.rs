//! Expands `inbound` and `outbound`, the short forms of a sidecar's listeners.
//!
//! An inbound listener has a chain for each named port and one for all others, which forward to the same cluster, the
//! application. An outbound listener has a chain for the addresses of each service, and one for all others, in which
//! the `Host` of HTTP requests selects the service. The generated clusters are created before the other clusters are
//! checked ([`clusters`]), so that routes can refer to both alike.
//!
//! A sidecar adds nothing that is visible to the application: no timeout, no forwarding headers.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::outbound::outbound;
use super::listener_context::ListenerContext;
use super::rule::{HOUR, Unique};
use super::tls::{self, Behind};
use super::{Scope, http, route, rule, tcp};
use crate::raw::{self, ApplicationProtocol, OneOrMany, TimeSpan};
use crate::report::At;
use crate::{
    Address, Domain, Filter, FilterChain, FilterChainMatch, HttpFilter, RouteTable, UnixAddress,
    VirtualHost,
};

mod outbound;

/// Returns the name of the cluster of the application behind a listener.
fn application_name(listener: &str) -> String {
    format!("{listener}/application")
}

/// Returns the name of the cluster of all destinations that a listener's services do not include.
fn unknown_name(listener: &str) -> String {
    format!("{listener}/unknown")
}

/// Returns the clusters for the short forms of all listeners.
pub(super) fn clusters(listeners: &[raw::Listener]) -> Vec<raw::Cluster> {
    listeners.iter().filter_map(cluster).collect()
}

/// Checks that no other cluster has the reserved name of a generated one.
pub(super) fn names(raw: &raw::Document, made: &[raw::Cluster], at: &At<'_>) {
    let list = at.field("clusters");
    for (i, cluster) in raw.clusters.iter().enumerate() {
        let Some(name) = &cluster.name else { continue };
        if made.iter().any(|made| made.name.as_ref() == Some(name)) {
            let what = format!(
                "the name `{}` is reserved for a listener's own cluster",
                crate::yaml::short(name)
            );
            list.index(i).field("name").error(what).help(
                "choose another name; `inbound` and `outbound` define clusters with reserved names",
            );
        }
    }
}

fn cluster(listener: &raw::Listener) -> Option<raw::Cluster> {
    let name = listener.name.as_deref()?;
    let by_destination = |name: String, address: Option<String>| raw::Cluster {
        name: Some(name),
        r#type: Some(raw::ClusterType::OriginalDestination),
        address,
        protocol: Some(raw::UpstreamProtocol::Downstream),
        ..raw::Cluster::default()
    };
    if let Some(inbound) = &listener.inbound {
        let name = application_name(name);
        let application = inbound.application.as_deref().unwrap_or("loopback");
        return Some(match application.parse::<Address>() {
            Ok(address) => raw::Cluster {
                name: Some(name),
                endpoints: vec![raw::Short(raw::Endpoint {
                    address: Some(address.to_string()),
                    ..raw::Endpoint::default()
                })],
                protocol: Some(raw::UpstreamProtocol::Downstream),
                ..raw::Cluster::default()
            },
            Err(_) => by_destination(name, Some(application.to_owned())),
        });
    }
    let outbound = listener.outbound.as_ref()?;
    passes(outbound).then(|| by_destination(unknown_name(name), None))
}

fn passes(outbound: &raw::Outbound) -> bool {
    !matches!(outbound.unknown, Some(raw::Unknown::Refuse))
}

/// Returns the chains of `inbound`.
pub(super) fn inbound(
    raw: &raw::Listener,
    at: &At<'_>,
    context: &ListenerContext<'_, '_>,
) -> Vec<FilterChain> {
    let Some(inbound) = &raw.inbound else {
        return Vec::new();
    };
    let place = at.field("inbound");
    if let Some(text) = &inbound.application {
        application(text, &place.field("application"));
    }
    let cluster = application_name(context.listener);
    // Paths are normalized, because authorization by path is evaluated here.
    let sidecar = Sidecar {
        context,
        normalization: raw::PathNormalization::Base,
        discovery: None,
    };
    let filter = |port: &raw::ApplicationPort, place: &At<'_>| {
        let hosts = [Host {
            name: "application",
            domains: vec![Domain::Any],
            route: forward(&cluster),
            load_reports: port.load_reports.clone(),
            place: *place,
        }];
        let protocol = port.protocol.unwrap_or(ApplicationProtocol::Auto);
        sidecar.filter(protocol, &hosts, Some(&cluster), "application")
    };
    let secure = |filter: &Filter, own: Option<raw::MeshMode>, place: &At<'_>| {
        let behind = Behind::of(http_of(filter));
        let tls = tls_of_port(raw, own, place);
        let scope = context.scope;
        tls.map(|raw| tls::termination(&raw, &at.field("tls"), behind, scope))
    };
    let (mut chains, mut seen) = (Vec::new(), HashSet::new());
    let ports = inbound.ports.as_ref().map_or(&[][..], |ports| &ports.0);
    for (text, described) in ports {
        let place = place.field("ports");
        let place = place.field(text);
        let Some(port) = text.parse().ok().filter(|port: &u16| *port > 0) else {
            place
                .error(format!("`{}` is not a port", crate::yaml::short(text)))
                .on_key()
                .help("a port is a number from 1 to 65535");
            continue;
        };
        if !seen.insert(port) {
            place
                .error(format!("the port {port} is listed twice"))
                .on_key();
            continue;
        }
        chains.extend(filter(&described.0, &place).map(|filter| FilterChain {
            name: port.to_string().into(),
            matches: FilterChainMatch {
                destination_ports: vec![port],
                ..FilterChainMatch::default()
            },
            tls: secure(&filter, described.0.tls, &place),
            filter,
        }));
    }
    let others = raw::ApplicationPort {
        protocol: inbound.protocol,
        ..raw::ApplicationPort::default()
    };
    chains.extend(filter(&others, &place).map(|filter| FilterChain {
        name: "others".into(),
        matches: FilterChainMatch::default(),
        tls: secure(&filter, None, &place),
        filter,
    }));
    chains
}

/// Returns the listener's TLS settings, with the mesh mode of one of its ports.
fn tls_of_port(
    listener: &raw::Listener,
    own: Option<raw::MeshMode>,
    place: &At<'_>,
) -> Option<raw::DownstreamTls> {
    let mut tls = listener.tls.as_ref().map(|tls| tls.0.clone());
    let fits = match &mut tls {
        Some(tls) if tls.mesh.is_some() => {
            tls.mesh = own.or(tls.mesh);
            true
        }
        Some(_) => own.is_none(),
        // Plain text is the only possibility.
        None => own != Some(raw::MeshMode::Strict),
    };
    if !fits {
        place
            .field("tls")
            .error("the listener has no mutual TLS to which this mode applies")
            .on_key()
            .help("remove the mode, or add `tls: mesh` to the listener");
    }
    tls
}

/// Returns the name of the workload for which a listener requests its configuration from the control plane.
pub(super) fn workload(raw: &raw::Listener, at: &At<'_>, scope: &Scope<'_>) -> Option<Arc<str>> {
    let inbound = &at.field("inbound");
    let (name, at) = match (&raw.workload, &raw.inbound) {
        (Some(_), Some(_)) => {
            at.field("workload")
                .error("`workload` cannot be combined with `inbound`")
                .on_key()
                .help("write `inbound.discovery` instead");
            return None;
        }
        (Some(name), None) => (name.as_str(), at.field("workload")),
        (None, Some(raw)) => (raw.discovery.as_deref()?, inbound.field("discovery")),
        (None, None) => return None,
    };
    scope.needs_control_plane(&at);
    let parts = name.split_once('/');
    let right = |(namespace, name)| is_dns_name(namespace, "-") && is_dns_name(name, "-.");
    if !parts.is_some_and(right) {
        at.error(format!("`{}` is not a workload", crate::yaml::short(name)))
            .help("write `NAMESPACE/POD`, by which the control plane identifies workloads");
    }
    Some(name.into())
}

/// Returns whether a text consists of letters, digits and the characters `others`, as names in Kubernetes do (RFC
/// 1123).
fn is_dns_name(text: &str, others: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || others.contains(c);
    (1..=253).contains(&text.len()) && text.chars().all(fits)
}

/// Checks the address in `application`. Connections to an address other than loopback may be redirected to the listener
/// again.
fn application(text: &str, at: &At<'_>) {
    if let Some(unix) = UnixAddress::parse(text) {
        rule::unix_address(unix, text, at);
        return;
    }
    let ip = text.parse::<IpAddr>();
    let ip = ip.or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    match ip {
        Ok(ip) if ip.is_loopback() => {}
        Ok(ip) => {
            at.warning(format!("{ip} is not a loopback address"))
                .help("connections to other addresses may be redirected to this listener again; use 127.0.0.1");
        }
        Err(_) => {
            at.error(format!(
                "`{}` is neither `IP`, `IP:PORT` nor `unix:/PATH`",
                crate::yaml::short(text)
            ))
            .help("write `127.0.0.1` for all ports, or `127.0.0.1:8080` for one port");
        }
    }
}

/// A virtual host with one route.
struct Host<'a> {
    name: &'a str,
    domains: Vec<Domain>,
    route: raw::Route,
    /// The load reports of a chain whose first host this is; `None` = no load reports.
    load_reports: Option<raw::LoadReports>,
    /// The place of the host's settings.
    place: At<'a>,
}

fn forward(cluster: &str) -> raw::Route {
    raw::Route {
        cluster: Some(cluster.to_owned()),
        timeout: Some(TimeSpan(Duration::ZERO)),
        ..raw::Route::default()
    }
}

/// Settings that the chains of one listener share.
struct Sidecar<'a, 'b, 'c> {
    context: &'c ListenerContext<'a, 'b>,
    /// The path normalization.
    normalization: raw::PathNormalization,
    /// The discovery of unknown hosts, with the place of its block; `None` = disabled.
    discovery: Option<(raw::Discovery, At<'c>)>,
}

impl Sidecar<'_, '_, '_> {
    /// Returns the filter of a chain for its protocol; bytes are forwarded to the cluster `bytes`.
    fn filter(
        &self,
        protocol: ApplicationProtocol,
        hosts: &[Host<'_>],
        bytes: Option<&str>,
        table: &str,
    ) -> Option<Filter> {
        use ApplicationProtocol as P;
        let first = hosts.first()?;
        let place = first.place;
        if first.load_reports.is_some() && matches!(protocol, P::Tcp | P::Tls) {
            place
                .field("load_reports")
                .error("this port handles no HTTP requests")
                .on_key()
                .help("remove `load_reports`, or write `protocol: http`");
        }
        let http = |version| Box::new(self.http(version, hosts, table, &place));
        let tcp = bytes.map(|cluster| {
            let raw = raw::Tcp {
                cluster: Some(cluster.to_owned()),
                idle_timeout: None,
            };
            tcp::filter(&raw, false, &place, self.context.scope)
        });
        match (protocol, tcp) {
            (P::Auto, Some(tcp)) => Some(Filter::Detect {
                http: http(raw::HttpProtocol::Auto),
                tcp,
            }),
            (P::Auto | P::Http, _) => Some(Filter::Http(http(raw::HttpProtocol::Auto))),
            (P::Http2, _) => Some(Filter::Http(http(raw::HttpProtocol::Http2))),
            (P::Tcp | P::Tls, tcp) => tcp.map(Filter::Tcp),
        }
    }

    fn http(
        &self,
        version: raw::HttpProtocol,
        hosts: &[Host<'_>],
        table: &str,
        place: &At<'_>,
    ) -> HttpFilter {
        let only_http2 = matches!(version, raw::HttpProtocol::Http2);
        let raw = raw::Http {
            protocol: Some(version),
            x_forwarded: Some(raw::ForwardedMode::Off),
            path_normalization: Some(self.normalization),
            discovery: self.discovery.as_ref().map(|(raw, _)| raw.clone()),
            stream_idle_timeout: Some(TimeSpan(HOUR)),
            // There is no `Upgrade` in HTTP/2.
            upgrades: only_http2.then(OneOrMany::default),
            load_reports: hosts.first().and_then(|host| host.load_reports.clone()),
            ..raw::Http::default()
        };
        let routes = Arc::new(self.table(hosts, table));
        let place = self.discovery.as_ref().map_or(place, |(_, block)| block);
        http::with_routes(&raw, place, routes, self.context.scope)
    }

    fn table(&self, hosts: &[Host<'_>], table: &str) -> RouteTable {
        let virtual_host = |host: &Host<'_>| {
            let mut names = Unique::default();
            let raw = raw::Route {
                name: Some(host.name.to_owned()),
                ..host.route.clone()
            };
            let scope = self.context.scope;
            let route = route::route(&raw, 0, &host.place, host.name, &mut names, scope);
            VirtualHost {
                name: host.name.into(),
                domains: host.domains.clone(),
                routes: route.into_iter().map(Arc::new).collect(),
                request_headers: None,
                response_headers: None,
            }
        };
        RouteTable {
            name: format!("{}/{table}", self.context.listener).into(),
            virtual_hosts: hosts.iter().map(virtual_host).collect(),
        }
    }
}

fn http_of(filter: &Filter) -> Option<&HttpFilter> {
    match filter {
        Filter::Detect { http, .. } | Filter::Http(http) => Some(http),
        Filter::Tcp(_) => None,
    }
}
