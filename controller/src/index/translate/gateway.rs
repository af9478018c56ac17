//! Builds the resources of a Gateway: a route table for each port, or for each HTTPS listener, and the ports with
//! their certificates for the Gateway's proxies.
//!
//! A request is handled by the listener with the most specific matching host; of this listener's routes, those for
//! the most specific host come first, followed by the others in the order of the Gateway API. With TLS, the client
//! has chosen the listener by its server name; a request for a host of another listener is misdirected and gets 421
//! (GEP-3567).

use std::collections::{BTreeMap, BTreeSet};

use maglor_config::gateway::{Certificate, Chain, Port};
use maglor_config::raw;

use super::routes::{self, Caller};
use crate::index::Index;
use crate::index::facts::gateway::{Gateway, Listener as GatewayListener, ListenerProtocol};
use crate::index::facts::{Key, Route};
use crate::index::gateways::{ValidatedListener, covers};
use crate::index::links::RouteId;
use crate::index::resource::{Listener, Resource, ResourceId, ResourceKind};

/// The suffix of the names of Gateways' route tables, which no Service's table has.
const DOMAIN: &str = "gateway.maglor.dev";

/// Returns the resources of a Gateway; empty if there is no such Gateway, or if it does not belong to this mesh.
pub(crate) fn resources(index: &Index, key: &Key) -> BTreeMap<ResourceId, Resource> {
    let mut published = BTreeMap::new();
    let Some(gateway) = index.gateway(key) else {
        return published;
    };
    let served = served(index, key, gateway);
    let attached = attached(index, key);
    for (name, listeners) in tables(key, &served) {
        let same_port = |one: &&ValidatedListener<'_>| {
            listeners.iter().any(|own| own.port == one.listener.port)
        };
        let of_port = served.iter().filter(same_port).map(|one| one.listener);
        let of_port: Vec<&GatewayListener> = of_port.collect();
        let table = table(index, &name, (&listeners, &of_port), &attached);
        let id = ResourceId::new(ResourceKind::Routes, &name);
        published.insert(id, Resource::Routes(Box::new(table)));
        let listener = Listener::Http {
            routes: name.clone(),
            bytes: None,
        };
        let id = ResourceId::new(ResourceKind::Listener, &name);
        published.insert(id, Resource::Listener(listener));
    }
    published
}

/// Returns the ports of a Gateway, for its own proxies.
pub(crate) fn ports(index: &Index, key: &Key) -> Vec<Port> {
    let Some(gateway) = index.gateway(key) else {
        return Vec::new();
    };
    let served = served(index, key, gateway);
    let mut ports: BTreeMap<u16, Port> = BTreeMap::new();
    for one in &served {
        let listener = one.listener;
        let port = ports.entry(listener.port).or_default();
        port.port = listener.port;
        let name = table_name(key, listener);
        if listener.protocol == ListenerProtocol::Http {
            port.routes = Some(name);
            continue;
        }
        let certificates = one.certificates.iter();
        let certificate = |pair: &std::sync::Arc<(String, String)>| Certificate {
            certificate: pair.0.clone(),
            private_key: pair.1.clone(),
        };
        port.chains.push(Chain {
            server_name: listener.hostname.clone(),
            routes: name,
            certificates: certificates.map(certificate).collect(),
        });
    }
    ports.into_values().collect()
}

fn served<'a>(index: &'a Index, key: &Key, gateway: &'a Gateway) -> Vec<ValidatedListener<'a>> {
    let mut listeners = index.validated_listeners(key, gateway);
    listeners.retain(ValidatedListener::is_served);
    listeners
}

/// Returns the name of a listener's route table. Plain-text requests are distinguished by host, so a port has a
/// single table; with TLS each listener has its own.
fn table_name(key: &Key, listener: &GatewayListener) -> String {
    let Key { namespace, name } = key;
    let whole = format!("{name}.{namespace}.{DOMAIN}:{}", listener.port);
    match listener.protocol {
        ListenerProtocol::Https => format!("{}.{whole}", listener.name),
        ListenerProtocol::Http | ListenerProtocol::Other(_) => whole,
    }
}

/// Returns the listeners of each route table.
fn tables<'a>(
    key: &Key,
    served: &[ValidatedListener<'a>],
) -> BTreeMap<String, Vec<&'a GatewayListener>> {
    let mut tables: BTreeMap<String, Vec<&GatewayListener>> = BTreeMap::new();
    for one in served {
        let name = table_name(key, one.listener);
        tables.entry(name).or_default().push(one.listener);
    }
    tables
}

/// A route, and the hosts for which a listener accepts it.
struct Taken<'a> {
    listener: &'a str,
    hosts: Vec<String>,
    id: &'a RouteId,
    route: &'a Route,
}

fn attached<'a>(index: &'a Index, key: &Key) -> Vec<Taken<'a>> {
    let mut taken = Vec::new();
    for (id, route) in &index.routes {
        let parents = route.gateways.iter().filter(|one| one.key == *key);
        for parent in parents.filter(|_| route.rules.is_ok()) {
            let attached = index.attach(id, route, parent).and_then(Result::ok);
            let each = attached.into_iter().flatten().map(|one| Taken {
                listener: &one.listener.name,
                hosts: one.hosts,
                id,
                route,
            });
            taken.extend(each);
        }
    }
    taken
}

fn table(
    index: &Index,
    name: &str,
    (listeners, of_port): (&[&GatewayListener], &[&GatewayListener]),
    attached: &[Taken<'_>],
) -> raw::RouteTable {
    let mut hosts: BTreeMap<String, Vec<raw::Route>> = BTreeMap::new();
    for listener in listeners {
        let own: Vec<&Taken<'_>> = attached
            .iter()
            .filter(|one| one.listener == listener.name)
            .collect();
        let of_listener = listener.hostname.as_deref().unwrap_or("*");
        // Hosts of a more specific listener are excluded, even if that listener has no routes for them.
        let others = || {
            let others = of_port.iter().filter_map(|one| one.hostname.as_deref());
            others.filter(|host| *host != of_listener && covers(of_listener, host))
        };
        let domains = own
            .iter()
            .flat_map(|one| one.hosts.iter().map(String::as_str));
        let domains: BTreeSet<&str> = domains.chain([of_listener]).collect();
        let free = |domain: &&str| !others().any(|other| covers(other, domain));
        for domain in domains.into_iter().filter(free) {
            hosts.insert(
                domain.to_owned(),
                routes_for(index, listener.port, domain, &own),
            );
        }
    }
    for other in of_port {
        let host = other.hostname.as_deref().unwrap_or("*");
        hosts
            .entry(host.to_owned())
            .or_insert_with(|| vec![respond(421, &format!("misdirected/{host}"))]);
    }
    let mut names = BTreeSet::new();
    let virtual_hosts = hosts.into_iter().map(|(domain, mut routes)| {
        for route in &mut routes {
            if let Some(name) = &mut route.name {
                let known = names.contains(name);
                let own = if known {
                    format!("{name}@{domain}")
                } else {
                    name.clone()
                };
                *name = routes::unique(&mut names, &own);
            }
        }
        raw::VirtualHost {
            name: Some(domain.clone()),
            domains: Some(raw::OneOrMany(vec![domain])),
            routes,
            ..raw::VirtualHost::default()
        }
    });
    raw::RouteTable {
        name: Some(name.to_owned()),
        virtual_hosts: virtual_hosts.collect(),
    }
}

/// Returns the routes of a listener for the hosts of a domain, with those for the most specific hosts first.
fn routes_for(index: &Index, port: u16, domain: &str, own: &[&Taken<'_>]) -> Vec<raw::Route> {
    let all = own.iter().flat_map(|one| &one.hosts);
    let mut patterns: Vec<&String> = all.filter(|host| covers(host, domain)).collect();
    patterns.sort_by_key(|host| std::cmp::Reverse((!host.starts_with('*'), host.len())));
    patterns.dedup();
    let mut routes = Vec::new();
    let mut seen = BTreeSet::new();
    for pattern in patterns {
        let of_pattern = own.iter().filter(|one| one.hosts.contains(pattern));
        let list: Vec<(&RouteId, &Route)> = of_pattern
            .filter(|one| seen.insert(one.id))
            .map(|one| (one.id, one.route))
            .collect();
        let policy = raw::Route::default();
        routes.extend(routes::ordered(
            index,
            &list,
            port,
            &policy,
            Caller::Gateway,
        ));
    }
    if routes.is_empty() {
        // A virtual host needs at least one route.
        routes.push(respond(404, &format!("none/{domain}")));
    }
    routes
}

/// Returns a route with a direct response.
fn respond(status: u32, name: &str) -> raw::Route {
    raw::Route {
        name: Some(name.to_owned()),
        direct_response: Some(raw::DirectResponse {
            status: Some(status),
            body: None,
            headers: None,
        }),
        ..raw::Route::default()
    }
}
