//! Expands `outbound`: chains of services by address and by name, and a chain for all other connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::{Host, Sidecar, forward, passes, unknown_name};
use crate::check::host;
use crate::check::listener_context::ListenerContext;
use crate::check::rule::{self, Unique};
use crate::raw::{self, ApplicationProtocol, TimeSpan};
use crate::report::At;
use crate::{Domain, FilterChain, FilterChainMatch};

/// Returns the chains of `outbound`.
pub(in crate::check) fn outbound(
    raw: &raw::Listener,
    at: &At<'_>,
    context: &ListenerContext<'_, '_>,
) -> Vec<FilterChain> {
    let Some(outbound) = &raw.outbound else {
        return Vec::new();
    };
    if raw.tls.is_some() {
        at.field("tls")
            .error("`tls` has no effect with `outbound`: the application's TLS is passed through")
            .on_key()
            .help("remove `tls`; for TLS to services, set `tls` of the clusters");
    }
    // A request to an unknown host is forwarded unchanged.
    let sidecar = Sidecar {
        context,
        normalization: raw::PathNormalization::Off,
        discovery: None,
    };
    let place = at.field("outbound");
    let list = place.field("services");
    let (mut chains, mut names) = (Vec::new(), Unique::default());
    let mut taken = TakenBy::default();
    let mut known = Vec::new();
    for (i, raw) in outbound.services.iter().enumerate() {
        let place = list.index(i);
        let help = "the name is a label of metrics, for example `name: reviews`";
        let Some(name) = rule::name(raw.name.as_ref(), &place, help) else {
            continue;
        };
        names.check(&name, &place.field("name"), "the service");
        let Some(service) = Service::new(raw, &name, &place, &mut taken, context) else {
            continue;
        };
        chains.extend(service.chains(&sidecar, &place));
        known.push((service, i));
    }
    let pass = passes(outbound).then(|| unknown_name(context.listener));
    let mut hosts: Vec<_> = known
        .iter()
        .filter(|(service, _)| service.is_found_by_host())
        .map(|(service, i)| service.host(service.hosts.clone(), list.index(*i)))
        .collect();
    if let Some(cluster) = &pass {
        hosts.push(Host {
            name: "unknown",
            domains: vec![Domain::Any],
            route: forward(cluster),
            load_reports: None,
            place: place.field("unknown"),
        });
    }
    let sidecar = Sidecar {
        discovery: outbound.discovery.clone().map(|raw| (raw, place)),
        ..sidecar
    };
    if hosts.is_empty() && outbound.discovery.is_some() {
        // No destinations are known, and unknown ones are rejected.
        hosts.push(Host {
            name: "unknown",
            domains: Vec::new(),
            route: raw::Route {
                direct_response: Some(raw::DirectResponse {
                    status: Some(404),
                    ..raw::DirectResponse::default()
                }),
                ..raw::Route::default()
            },
            load_reports: None,
            place,
        });
    }
    let protocol = match pass {
        Some(_) => ApplicationProtocol::Auto,
        None => ApplicationProtocol::Http,
    };
    // If unknown destinations are neither passed through nor discovered, there is no chain for
    // them: such connections are closed.
    let rest = sidecar.filter(protocol, &hosts, pass.as_deref(), "unknown");
    chains.extend(rest.map(|filter| FilterChain {
        name: "unknown".into(),
        matches: FilterChainMatch::default(),
        tls: None,
        filter,
    }));
    chains
}

/// Names and addresses that two services of a listener may not share.
#[derive(Default)]
struct TakenBy {
    addresses: Unique,
    hosts: Unique,
}

/// A service with valid names and addresses.
struct Service<'a> {
    raw: &'a raw::Service,
    name: Arc<str>,
    protocol: ApplicationProtocol,
    addresses: Vec<SocketAddr>,
    hosts: Vec<Domain>,
    cluster: &'a str,
}

impl<'a> Service<'a> {
    fn new(
        raw: &'a raw::Service,
        name: &Arc<str>,
        at: &At<'_>,
        taken: &mut TakenBy,
        context: &ListenerContext<'_, '_>,
    ) -> Option<Self> {
        let Some(cluster) = &raw.cluster else {
            at.missing("cluster", "write `cluster: NAME`");
            return None;
        };
        let there = context
            .scope
            .resolve_cluster(cluster, &at.field("cluster"))
            .is_some();
        let service = Self {
            raw,
            name: Arc::clone(name),
            protocol: raw.protocol.unwrap_or(ApplicationProtocol::Auto),
            addresses: addresses(&raw.addresses, &at.field("addresses"), &mut taken.addresses),
            hosts: hosts(raw, name, at, &mut taken.hosts),
            cluster,
        };
        there.then_some(service)
    }

    /// Returns whether HTTP requests to other addresses can be routed to the service by their host.
    fn is_found_by_host(&self) -> bool {
        use ApplicationProtocol as P;
        matches!(self.protocol, P::Auto | P::Http | P::Http2) && !self.hosts.is_empty()
    }

    fn host<'p>(&'p self, domains: Vec<Domain>, place: At<'p>) -> Host<'p> {
        Host {
            name: &self.name,
            domains,
            route: raw::Route {
                retry: self.raw.retry.clone(),
                timeout: self.raw.timeout.or(Some(TimeSpan(Duration::ZERO))),
                ..forward(self.cluster)
            },
            load_reports: None,
            place,
        }
    }

    /// Returns the chains for the addresses of the service; for TLS without addresses, a chain for its names.
    fn chains(&self, sidecar: &Sidecar<'_, '_, '_>, at: &At<'_>) -> Vec<FilterChain> {
        let hosts = [self.host(vec![Domain::Any], *at)];
        let bytes = Some(self.cluster);
        let chain = |name: String, matches| {
            let filter = sidecar.filter(self.protocol, &hosts, bytes, &self.name)?;
            Some(FilterChain {
                name: name.into(),
                matches,
                tls: None,
                filter,
            })
        };
        if self.addresses.is_empty() && self.protocol == ApplicationProtocol::Tls {
            let names = self.hosts.iter().filter_map(server_name).collect();
            let matches = FilterChainMatch {
                server_names: names,
                ..FilterChainMatch::default()
            };
            return chain(self.name.to_string(), matches).into_iter().collect();
        }
        let by_address = self.addresses.iter().filter_map(|address| {
            let matches = FilterChainMatch {
                destination_ports: vec![address.port()],
                destination_networks: vec![IpNet::from(address.ip().to_canonical())],
                ..FilterChainMatch::default()
            };
            chain(format!("{}/{address}", self.name), matches)
        });
        by_address.collect()
    }
}

/// Converts a domain to a server name for matching SNI; `None` if there is none for it.
fn server_name(domain: &Domain) -> Option<String> {
    match domain {
        Domain::Any | Domain::Prefix(_) => None,
        Domain::Exact(name) => Some(name.clone()),
        Domain::Suffix(suffix) => Some(format!("*{suffix}")),
    }
}

fn addresses(raw: &[String], at: &At<'_>, seen: &mut Unique) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for (i, text) in raw.iter().enumerate() {
        let at = at.index(i);
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => {
                seen.check(&address.to_string(), &at, "the address");
                addresses.push(address);
            }
            _ => {
                at.error(format!("`{}` is not `IP:PORT`", crate::yaml::short(text)))
                    .help("connections are matched by address: use the address that clients call, such as `10.0.0.5:80`; set names in `hosts`");
            }
        }
    }
    addresses
}

fn hosts(raw: &raw::Service, name: &str, at: &At<'_>, seen: &mut Unique) -> Vec<Domain> {
    if raw.hosts.is_empty() {
        // A name that is not a valid host is no error here, because it need not be one.
        return host::domain(name)
            .ok()
            .filter(|_| seen.check(&name.to_ascii_lowercase(), &at.field("name"), "the host"))
            .into_iter()
            .collect();
    }
    let (at, mut domains) = (at.field("hosts"), Vec::new());
    for (i, text) in raw.hosts.iter().enumerate() {
        let at = at.index(i);
        match host::domain(text) {
            Ok(Domain::Any) => {
                at.error("`*` matches every host, known or not")
                    .help("list the service's names; `unknown` applies to all others");
            }
            Ok(domain) => {
                seen.check(&text.to_ascii_lowercase(), &at, "the host");
                domains.push(domain);
            }
            Err(help) => {
                at.error(format!("`{}` is not a host", crate::yaml::short(text)))
                    .help(help);
            }
        }
    }
    domains
}
