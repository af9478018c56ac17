//! Builds the routes of a port: those of the attached resources, in the order of the Gateway API, or a single route
//! to the Service itself.
//!
//! A route in the Service's own namespace applies to all clients. A route in another namespace applies only to the
//! clients of that namespace, and replaces the former for them (GEP-1426, "producer" and "consumer").

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_config::raw;
use maglor_xds::encode::NOWHERE;

use super::{port_name, settings, shown_name, subset_name};
use crate::crd::merge_route;
use crate::index::Index;
use crate::index::facts::route::{Backend, Route, RouteKind, Rule};
use crate::index::facts::{Key, Kind};
use crate::index::links::RouteId;
use crate::index::resource::{Consumer, Resource, ResourceId, ResourceKind};

/// Maximum weight that proxies accept.
const MOST_WEIGHT: u32 = 1_000_000;

/// The type of client that uses a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Caller {
    /// A workload of the mesh. It needs no grant to route to a Service, because it may call the Service anyway.
    Client,
    /// A Gateway. Backends in other namespaces must be granted to the route.
    Gateway,
}

/// The kind and namespace of a route, and the type of its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Referrer<'a> {
    from: (&'a str, &'a str),
    caller: Caller,
}

impl Caller {
    /// Returns the referrer of the backends of a route.
    pub(crate) fn of(self, id: &RouteId) -> Referrer<'_> {
        Referrer {
            from: (id.0.kind(), &id.1.namespace),
            caller: self,
        }
    }
}

/// Returns the route tables of a port: one for all clients, and one for each namespace with its own routes.
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
    let mut everybodys = Vec::new();
    let mut by_namespace: BTreeMap<&str, Vec<(&RouteId, &Route)>> = BTreeMap::new();
    for (id, route) in attached {
        let producer = id.1.namespace == service.namespace && !route.own_namespace_only;
        let list = match producer {
            true => &mut everybodys,
            false => by_namespace.entry(&id.1.namespace).or_default(),
        };
        list.push((id, route));
    }
    if let Some(list) = by_namespace.get_mut(service.namespace.as_str()) {
        list.extend(&everybodys);
    }
    let routes = match everybodys.is_empty() {
        true => vec![forward(name, policy)],
        false => ordered(index, &everybodys, port, policy, Caller::Client),
    };
    let mut published = vec![(
        ResourceId::new(ResourceKind::Routes, name),
        Resource::Routes(Box::new(table(name, routes))),
    )];
    for (namespace, list) in by_namespace {
        let id = ResourceId {
            consumer: Some(Consumer::Namespace(namespace.to_owned())),
            ..ResourceId::new(ResourceKind::Routes, name)
        };
        let table = table(name, ordered(index, &list, port, policy, Caller::Client));
        published.push((id, Resource::Routes(Box::new(table))));
    }
    published
}

/// Returns the clusters among which the requests to a port are divided, with their weights. They are those of the
/// least specific route that divides requests of all clients; empty if there is no such route.
pub(crate) fn divided(index: &Index, service: &Key, port: u16) -> Vec<(String, u32)> {
    let everybodys: Vec<(&RouteId, &Route)> = attached(index, service, port)
        .filter(|(id, route)| id.1.namespace == service.namespace && !route.own_namespace_only)
        .filter(|(id, route)| conflict(index, id, route, service, port).is_none())
        .collect();
    let none = raw::Route::default();
    let routes = ordered(index, &everybodys, port, &none, Caller::Client);
    let each = routes.into_iter().rev().map(|route| {
        let shares = route.clusters.into_iter();
        let shares = shares.map(|share| Some((share.name?, share.weight?)));
        shares.collect::<Option<Vec<(String, u32)>>>()
    });
    let mut divided = each.flatten().filter(|shares| shares.len() > 1);
    divided.next().unwrap_or_default()
}

/// Returns the valid routes that are attached to a port. A route without a match for the port leaves it as it is.
pub(crate) fn attached<'a>(
    index: &'a Index,
    service: &'a Key,
    port: u16,
) -> impl Iterator<Item = (&'a RouteId, &'a Route)> {
    let routes = index.links.routes_of_parent(service);
    let routes = routes.filter_map(|id| index.routes.get_key_value(id));
    routes.filter(move |(_, route)| {
        let to_port = |parent: &crate::index::facts::route::Parent| {
            parent.key == *service
                && parent.section.is_none()
                && parent.port.is_none_or(|one| one == port)
        };
        let mut matches = route.rules.iter().flatten().flat_map(|rule| &rule.matches);
        matches.any(|one| one.is_for(port)) && route.parents.iter().any(to_port)
    })
}

/// Returns the route of another kind that takes precedence over this one. HTTPRoutes and GRPCRoutes exclude each
/// other on a port, and the older one applies (`GRPCRoute`, "Conflicts"); both take precedence over Istio's routes.
pub(crate) fn conflict<'a>(
    index: &'a Index,
    id: &RouteId,
    route: &Route,
    service: &'a Key,
    port: u16,
) -> Option<&'a RouteId> {
    let others = attached(index, service, port)
        .filter(|(other, _)| other.0 != id.0 && other.1.namespace == id.1.namespace);
    let is_istio = |id: &RouteId| id.0 == RouteKind::Istio;
    let older = others.filter(|(other, facts)| {
        (is_istio(other), &facts.age, other.0) < (is_istio(id), &route.age, id.0)
    });
    older.map(|(other, _)| other).next()
}

/// Returns a route table with one virtual host.
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

/// Returns a route that forwards everything to one cluster.
pub(crate) fn forward(cluster: &str, policy: &raw::Route) -> raw::Route {
    let mut route = raw::Route {
        name: Some(cluster.to_owned()),
        cluster: Some(cluster.to_owned()),
        ..policy.clone()
    };
    reconcile(&mut route);
    route
}

/// Returns the matches of all rules in order of precedence: the most specific first, then by the age of the route,
/// then by the order of the rules.
pub(crate) fn ordered(
    index: &Index,
    routes: &[(&RouteId, &Route)],
    port: u16,
    policy: &raw::Route,
    caller: Caller,
) -> Vec<raw::Route> {
    let mut found = Vec::new();
    for (id, route) in routes {
        for (at, rule) in route.rules.iter().flatten().enumerate() {
            let action = action(index, route.kind, rule, port, policy, caller.of(id));
            let rule_name = rule.name.clone().unwrap_or_else(|| at.to_string());
            for (i, one) in rule
                .matches
                .iter()
                .filter(|one| one.is_for(port))
                .enumerate()
            {
                let name = shown_name(&match i {
                    0 => format!("{}/{rule_name}", id.1),
                    _ => format!("{}/{rule_name}/{i}", id.1),
                });
                let route_of_match = raw::Route {
                    name: Some(name),
                    r#match: Some(one.conditions.clone()),
                    ..action.clone()
                };
                found.push(((Reverse(one.precedence), &route.age, at, i), route_of_match));
            }
        }
    }
    found.sort_by_key(|(order, _)| *order);
    let mut routes: Vec<raw::Route> = found.into_iter().map(|(_, route)| route).collect();
    let mut names = BTreeSet::new();
    for route in &mut routes {
        // Two rules of one route may have the same name, but names in a route table must be unique.
        if let Some(name) = &mut route.name {
            *name = unique(&mut names, name);
        }
    }
    routes
}

/// Returns a name that is unique in a route table, with a length that proxies accept.
pub(super) fn unique(names: &mut BTreeSet<String>, name: &str) -> String {
    let mut own = shown_name(name);
    let mut at = 1;
    while !names.insert(own.clone()) {
        own = shown_name(&format!("{name}/#{at}"));
        at += 1;
    }
    own
}

/// Returns the action of a rule, merged with the policy of the Service.
fn action(
    index: &Index,
    kind: RouteKind,
    rule: &Rule,
    port: u16,
    policy: &raw::Route,
    referrer: Referrer<'_>,
) -> raw::Route {
    let mut route = rule.action.clone();
    if route.redirect.is_some() || route.direct_response.is_some() {
        return raw::Route {
            redirect: route.redirect,
            direct_response: route.direct_response,
            fault: route.fault,
            response_headers: route.response_headers,
            ..raw::Route::default()
        };
    }
    let cluster = |backend: &Backend| {
        let (service, port) = resolve(index, backend, Some(port), referrer).ok()?;
        let name = port_name(index, service, port);
        Some(match &backend.subset {
            Some(subset) => subset_name(&name, subset),
            None => name,
        })
    };
    let sent = || rule.backends.iter().filter(|backend| backend.weight > 0);
    if kind == RouteKind::Http && sent().all(|backend| cluster(backend).is_none()) {
        return raw::Route {
            direct_response: Some(raw::DirectResponse {
                status: Some(500),
                body: Some("no backend of this route exists\n".to_owned()),
                headers: None,
            }),
            ..raw::Route::default()
        };
    }
    divide(&mut route, shares(sent(), cluster), kind);
    let mirror = |(backend, percent): &(Backend, f64)| {
        Some(raw::Short(raw::Mirror {
            cluster: Some(cluster(backend)?),
            percent: Some(*percent),
        }))
    };
    route.mirror = rule.mirrors.iter().filter_map(mirror).collect();
    let own = route.retry.take();
    let behind = sent().find_map(|backend| {
        let (key, port) = resolve(index, backend, Some(port), referrer).ok()?;
        let subset = backend.subset.as_deref();
        Some(settings::route_policy(index, key, port, subset))
    });
    inherit(
        &mut route,
        kind,
        policy,
        &behind.unwrap_or_default(),
        referrer,
    );
    match own {
        // The route has its own retries, not only a timeout for each attempt.
        Some(own) if own.0.retry_on.is_some() => route.retry = Some(own),
        Some(own) => {
            let retry = route.retry.get_or_insert_default();
            retry.0.per_try_timeout = own.0.per_try_timeout;
        }
        None => {}
    }
    reconcile(&mut route);
    route
}

/// Adds the policies of the Service to which a route is attached, and of the first Service to which it sends
/// (`behind`). The hash policy is that of the cluster whose balancer hashes.
fn inherit(
    route: &mut raw::Route,
    kind: RouteKind,
    policy: &raw::Route,
    behind: &raw::Route,
    referrer: Referrer<'_>,
) {
    if kind == RouteKind::Istio {
        // A DestinationRule applies to the destination.
        route.hash_policy.clone_from(&behind.hash_policy);
    }
    merge_route(route, policy);
    match referrer.caller {
        // A Gateway is a client of the Services behind it and is not attached to any Service.
        Caller::Gateway => merge_route(route, behind),
        Caller::Client if route.hash_policy.is_empty() => {
            route.hash_policy.clone_from(&behind.hash_policy);
        }
        Caller::Client => {}
    }
}

/// Returns the shares of clusters, with the sum of the weights of equal backends. Backends of one cluster that differ in
/// their filters stay apart: proxies reject them, which the status of the route reports.
fn shares<'a>(
    backends: impl Iterator<Item = &'a Backend>,
    cluster: impl Fn(&Backend) -> Option<String>,
) -> Vec<(Option<String>, raw::ClusterWeight)> {
    let mut shares: Vec<(Option<String>, raw::ClusterWeight)> = Vec::new();
    for backend in backends {
        let name = cluster(backend);
        let same = |(other, share): &&mut (Option<String>, raw::ClusterWeight)| {
            *other == name
                && (other.is_none()
                    || share.request_headers == backend.request_headers
                        && share.response_headers == backend.response_headers)
        };
        match shares.iter_mut().find(same) {
            Some((_, share)) => {
                share.weight = share
                    .weight
                    .map(|weight| weight.saturating_add(backend.weight));
            }
            None => {
                let share = raw::ClusterWeight {
                    weight: Some(backend.weight),
                    request_headers: backend.request_headers.clone(),
                    response_headers: backend.response_headers.clone(),
                    ..raw::ClusterWeight::default()
                };
                shares.push((name, share));
            }
        }
    }
    shares.sort_by(|(one, _), (other, _)| one.cmp(other));
    shares
}

/// Divides a route's requests among its backends. The share without a name is that of backends that do not exist.
/// With an HTTPRoute this share gets 500; with other routes it gets the response of a Service without endpoints:
/// `UNAVAILABLE` in gRPC (`GRPCRouteRule.backendRefs`), and 503 as with Istio.
fn divide(
    route: &mut raw::Route,
    shares: Vec<(Option<String>, raw::ClusterWeight)>,
    kind: RouteKind,
) {
    let shares = shares.into_iter().map(|(name, share)| {
        let (name, status) = match (name, kind) {
            (Some(name), _) => (Some(name), None),
            (None, RouteKind::Grpc | RouteKind::Istio) => (Some(NOWHERE.to_owned()), None),
            (None, RouteKind::Http) => (None, Some(500)),
        };
        raw::ClusterWeight {
            name,
            status,
            ..share
        }
    });
    let mut shares: Vec<raw::ClusterWeight> = shares.collect();
    // The sum for several backends of one cluster may exceed the maximum weight that proxies accept.
    let most = shares.iter().filter_map(|share| share.weight).max();
    let by = most.unwrap_or(0).div_ceil(MOST_WEIGHT).max(1);
    for weight in shares.iter_mut().filter_map(|share| share.weight.as_mut()) {
        *weight = (*weight / by).max(1);
    }
    match shares.as_mut_slice() {
        [] => route.cluster = Some(NOWHERE.to_owned()),
        [one]
            if one.name.is_some()
                && one.request_headers.is_none()
                && one.response_headers.is_none() =>
        {
            route.cluster = one.name.take();
        }
        _ => route.clusters = shares,
    }
}

/// Resolves conflicts between settings of different levels, which are valid separately but which proxies would reject
/// in combination. An attempt cannot take longer than the request, and no attempt starts after the request has ended.
/// If no timeout is set, only the application's own timeouts apply.
fn reconcile(route: &mut raw::Route) {
    let timeout = *route.timeout.get_or_insert(raw::TimeSpan(Duration::ZERO));
    let is_beyond = |part: raw::TimeSpan| !timeout.0.is_zero() && part > timeout;
    if let Some(retry) = &mut route.retry {
        let per_try = &mut retry.0.per_try_timeout;
        *per_try = per_try.filter(|per_try| !is_beyond(*per_try));
    }
    let per_try = route.retry.as_ref();
    let per_try = per_try.and_then(|retry| retry.0.per_try_timeout);
    let begins = |hedge: &raw::Short<raw::Hedge>| match (hedge.0.delay, per_try) {
        (Some(delay), Some(per_try)) => delay < per_try,
        (Some(delay), None) => !is_beyond(delay),
        (None, per_try) => per_try.is_some(),
    };
    route.hedge.take_if(|hedge| !begins(hedge));
}

/// Reason why a backend cannot be used, as in the Gateway API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Unresolved {
    InvalidKind(String),
    NotFound(String),
    NotPermitted(String),
}

/// Returns the Service and port of a backend. A backend without a port may use the port of the original request.
pub(crate) fn resolve<'a>(
    index: &Index,
    backend: &'a Backend,
    called: Option<u16>,
    referrer: Referrer<'_>,
) -> Result<(&'a Key, u16), Unresolved> {
    let Some(key) = &backend.service else {
        let what = format!("{} is not a Service", backend.text);
        return Err(Unresolved::InvalidKind(what));
    };
    if referrer.caller == Caller::Gateway && !index.is_granted(referrer.from, kind_name(), key) {
        let what = format!("no ReferenceGrant permits {} {key}", kind_name());
        return Err(Unresolved::NotPermitted(what));
    }
    let service = index.services.get(key);
    let service = service
        .ok_or_else(|| Unresolved::NotFound(format!("{} {key} does not exist", kind_name())))?;
    if let Some(name) = &service.external_name
        && let Some(why) = index.external_refusal(referrer.from, key, name)
    {
        return Err(Unresolved::NotPermitted(why));
    }
    let inherited = || match service.ports.as_slice() {
        [only] => Some(only.port),
        _ => called.or(service.ports.first().map(|port| port.port)),
    };
    let Some(port) = backend
        .port
        .or_else(|| inherited().filter(|_| backend.callers_port))
    else {
        let what = format!("the port of {} {key} must be set", kind_name());
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
