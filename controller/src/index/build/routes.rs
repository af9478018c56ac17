//! The routes of a port: those of the resources that are attached to it, in the order of the Gateway
//! API, or one to the Service itself.
//!
//! A route of the Service's own namespace holds for everybody; one of another namespace for the clients
//! of that namespace only, and there instead of the former (GEP-1426, "producer" and "consumer").

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_config::raw;

use super::{NO_BACKEND, port_name};
use crate::crd::merge_route;
use crate::index::Index;
use crate::index::facts::route::{Backend, Route, Rule};
use crate::index::facts::{Key, Kind};
use crate::index::links::RouteId;
use crate::index::resource::{Resource, ResourceId, ResourceKind};

/// The tables of a port: one for everybody, and one for each namespace with routes of its own.
pub(crate) fn tables(
    index: &Index,
    service: &Key,
    port: u16,
    name: &str,
    policy: &raw::Route,
) -> Vec<(ResourceId, Resource)> {
    let attached: Vec<(&RouteId, &Route)> = attached(index, service, port)
        .filter(|(id, route)| conflict(index, id, route, service, port).is_none())
        .collect();
    let mut by_namespace: BTreeMap<&str, Vec<(&RouteId, &Route)>> = BTreeMap::new();
    for (id, route) in attached {
        let list = by_namespace.entry(&id.1.namespace).or_default();
        list.push((id, route));
    }
    let own = by_namespace.remove(service.namespace.as_str());
    let routes = match own {
        Some(list) => ordered(index, &list, policy),
        None => vec![forward(name, policy)],
    };
    let mut given = vec![(
        ResourceId::new(ResourceKind::Routes, name),
        Resource::Routes(Box::new(table(name, routes))),
    )];
    for (namespace, list) in by_namespace {
        let id = ResourceId {
            consumer: Some(namespace.to_owned()),
            ..ResourceId::new(ResourceKind::Routes, name)
        };
        let table = table(name, ordered(index, &list, policy));
        given.push((id, Resource::Routes(Box::new(table))));
    }
    given
}

/// The routes that are attached to a port and can be used.
pub(crate) fn attached<'a>(
    index: &'a Index,
    service: &'a Key,
    port: u16,
) -> impl Iterator<Item = (&'a RouteId, &'a Route)> {
    let routes = index.links.routes_of_parent(service);
    let routes = routes.filter_map(|id| index.routes.get_key_value(id));
    routes.filter(move |(_, route)| {
        let to_port = |parent: &crate::index::facts::route::Parent| {
            parent.service == *service
                && parent.section.is_none()
                && parent.port.is_none_or(|one| one == port)
        };
        route.rules.is_ok() && route.parents.iter().any(to_port)
    })
}

/// The route of the other kind that holds instead of this one: HTTPRoute and GRPCRoute exclude each
/// other on a port, and the older one stays (`GRPCRoute`, "Conflicts").
pub(crate) fn conflict<'a>(
    index: &'a Index,
    id: &RouteId,
    route: &Route,
    service: &'a Key,
    port: u16,
) -> Option<&'a RouteId> {
    let others = attached(index, service, port)
        .filter(|(other, _)| other.0 != id.0 && other.1.namespace == id.1.namespace);
    let older = others.filter(|(other, facts)| (&facts.age, other.0) < (&route.age, id.0));
    older.map(|(other, _)| other).next()
}

/// A table of one virtual host.
pub(crate) fn table(name: &str, routes: Vec<raw::Route>) -> raw::RouteTable {
    raw::RouteTable {
        name: Some(name.to_owned()),
        virtual_hosts: vec![raw::VirtualHost {
            name: Some(name.to_owned()),
            domains: Some(raw::OneOrMany(vec!["*".to_owned()])),
            routes,
            ..raw::VirtualHost::default()
        }],
    }
}

/// Everything to one cluster.
pub(crate) fn forward(cluster: &str, policy: &raw::Route) -> raw::Route {
    let mut route = raw::Route {
        name: Some(cluster.to_owned()),
        cluster: Some(cluster.to_owned()),
        ..policy.clone()
    };
    limit_time(&mut route);
    route
}

/// The matches of all rules, the most specific first; of equal ones that of the older route, then of
/// the earlier rule.
fn ordered(index: &Index, routes: &[(&RouteId, &Route)], policy: &raw::Route) -> Vec<raw::Route> {
    let mut found = Vec::new();
    for (id, route) in routes {
        for (at, rule) in route.rules.iter().flatten().enumerate() {
            let action = action(index, rule, policy);
            let rule_name = rule.name.clone().unwrap_or_else(|| at.to_string());
            for (i, (precedence, matches)) in rule.matches.iter().enumerate() {
                let name = match i {
                    0 => format!("{}/{rule_name}", id.1),
                    _ => format!("{}/{rule_name}/{i}", id.1),
                };
                let route_of_match = raw::Route {
                    name: Some(name),
                    r#match: Some(matches.clone()),
                    ..action.clone()
                };
                found.push(((Reverse(*precedence), &route.age, at, i), route_of_match));
            }
        }
    }
    found.sort_by_key(|(order, _)| *order);
    let mut names = BTreeSet::new();
    let mut routes: Vec<raw::Route> = found.into_iter().map(|(_, route)| route).collect();
    for (at, route) in routes.iter_mut().enumerate() {
        // Two rules of one route may have one name; a table may not.
        if let Some(name) = &mut route.name
            && !names.insert(name.clone())
        {
            name.push_str(&format!("/#{at}"));
        }
    }
    routes
}

/// What a rule does, with what the policy says about the Service.
fn action(index: &Index, rule: &Rule, policy: &raw::Route) -> raw::Route {
    let mut route = rule.action.clone();
    if route.redirect.is_some() {
        return raw::Route {
            redirect: route.redirect,
            response_headers: route.response_headers,
            ..raw::Route::default()
        };
    }
    let cluster = |backend: &Backend| match resolve(index, backend) {
        Ok((service, port)) => port_name(index, service, port),
        Err(_) => NO_BACKEND.to_owned(),
    };
    let sent = || rule.backends.iter().filter(|backend| backend.weight > 0);
    if sent().all(|backend| resolve(index, backend).is_err()) {
        return raw::Route {
            direct_response: Some(raw::DirectResponse {
                status: Some(500),
                body: Some("no backend of this route exists\n".to_owned()),
                headers: None,
            }),
            ..raw::Route::default()
        };
    }
    let mut weights: BTreeMap<String, u32> = BTreeMap::new();
    for backend in sent() {
        let weight = weights.entry(cluster(backend)).or_default();
        *weight = weight.saturating_add(backend.weight);
    }
    let weight = |(name, weight)| raw::ClusterWeight {
        name: Some(name),
        weight: Some(weight),
    };
    if weights.len() == 1 {
        route.cluster = weights.into_keys().next();
    } else {
        route.clusters = weights.into_iter().map(weight).collect();
    }
    let mirrors = rule.mirrors.iter();
    let mirrors = mirrors.filter(|(backend, _)| resolve(index, backend).is_ok());
    let mirror = |(backend, percent): &(Backend, f64)| {
        raw::Short(raw::Mirror {
            cluster: Some(cluster(backend)),
            percent: Some(*percent),
        })
    };
    route.mirror = mirrors.map(mirror).collect();
    let per_try = route.retry.take().and_then(|retry| retry.0.per_try_timeout);
    merge_route(&mut route, policy);
    if per_try.is_some() {
        let retry = route.retry.get_or_insert_default();
        retry.0.per_try_timeout = per_try;
    }
    limit_time(&mut route);
    route
}

/// The application's own time limits hold where nobody has set one; and a try has no more time than
/// the request.
fn limit_time(route: &mut raw::Route) {
    let timeout = *route.timeout.get_or_insert(raw::TimeSpan(Duration::ZERO));
    if let Some(retry) = &mut route.retry
        && let Some(per_try) = retry.0.per_try_timeout
        && !timeout.0.is_zero()
        && per_try > timeout
    {
        retry.0.per_try_timeout = None;
    }
}

/// Why a backend cannot be sent to, in the words of the Gateway API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Unresolved {
    InvalidKind(String),
    NotFound(String),
}

/// The Service and port that a backend means.
pub(crate) fn resolve<'a>(
    index: &Index,
    backend: &'a Backend,
) -> Result<(&'a Key, u16), Unresolved> {
    let Some(key) = &backend.service else {
        let what = format!("{} is no Service", backend.text);
        return Err(Unresolved::InvalidKind(what));
    };
    let service = index.services.get(key);
    let service = service
        .ok_or_else(|| Unresolved::NotFound(format!("{} {key} does not exist", kind_name())))?;
    let Some(port) = backend.port else {
        let what = format!("say which port of {} {key} is meant", kind_name());
        return Err(Unresolved::NotFound(what));
    };
    match service.port(port) {
        Some(_) => Ok((key, port)),
        None => Err(Unresolved::NotFound(format!(
            "{} {key} has no TCP port {port}",
            kind_name()
        ))),
    }
}

fn kind_name() -> &'static str {
    Kind::Service.names().1
}
