//! Computes the conditions of routes at their parents.

use super::{ParentRef, ParentStatus, Status};
use crate::crd::Condition;
use crate::index::Index;
use crate::index::facts::route::{Parent, RouteKind, Rule};
use crate::index::facts::{Key, Kind, Route};
use crate::index::links::RouteId;
use crate::index::translate::routes::{Caller, Unresolved, attached, conflict, resolve};

pub(super) fn route(index: &Index, id: &RouteId) -> Option<Status> {
    let route = index.routes.get(id)?;
    let services = route.parents.iter().map(|parent| ParentStatus {
        parent: ParentRef::Service(parent.clone()),
        conditions: vec![
            accepted_by(index, id, route, parent),
            resolved(index, id, route, Caller::Client),
        ],
    });
    let gateways = route.gateways.iter().filter_map(|parent| {
        let accepted = match (index.attach(id, route, parent)?, &route.rules) {
            (Err(problem), _) => Condition::new(
                "Accepted",
                false,
                problem.reason,
                problem.message,
                route.generation,
            ),
            (Ok(_), Err(unsupported)) => {
                let (reason, message) = ("UnsupportedValue", unsupported.to_string());
                Condition::new("Accepted", false, reason, message, route.generation)
            }
            (Ok(_), Ok(_)) => match index.unusable_route(&id.1) {
                Some(unusable) => {
                    let reason = "UnsupportedValue";
                    Condition::new("Accepted", false, reason, unusable, route.generation)
                }
                None => {
                    let message = "accepted";
                    Condition::new("Accepted", true, "Accepted", message, route.generation)
                }
            },
        };
        Some(ParentStatus {
            parent: ParentRef::Gateway(parent.clone()),
            conditions: vec![accepted, resolved(index, id, route, Caller::Gateway)],
        })
    });
    let parents: Vec<ParentStatus> = services.chain(gateways).collect();
    (!parents.is_empty()).then_some(Status::Route(parents))
}

/// The message about a route that is in force on all ports of a parent.
const WHOLLY: &str = "accepted";
/// The beginning of the message about a route that is in force only on some ports of a parent.
pub(super) const PARTLY: &str = "accepted, but ";

pub(super) fn accepted_by(
    index: &Index,
    id: &RouteId,
    route: &Route,
    parent: &Parent,
) -> Condition {
    let condition = |holds, reason, message: String| {
        Condition::new("Accepted", holds, reason, message, route.generation)
    };
    if let Err(unsupported) = &route.rules {
        return condition(false, "UnsupportedValue", unsupported.to_string());
    }
    let service = &parent.key;
    let Some(facts) = index.services.get(service) else {
        let what = match id.0 {
            RouteKind::Istio => index.missing(service, &id.1.namespace),
            RouteKind::Grpc | RouteKind::Http => format!("there is no Service {service}"),
        };
        return condition(false, "NoMatchingParent", what);
    };
    if let Some(section) = &parent.section {
        let what = format!("Services have no section `{section}`; use `port`");
        return condition(false, "NoMatchingParent", what);
    }
    let ports: Vec<u16> = match parent.port {
        Some(port) => facts.port(port).map(|one| one.port).into_iter().collect(),
        None => facts.ports.iter().map(|one| one.port).collect(),
    };
    if ports.is_empty() {
        let what = match parent.port {
            Some(port) => format!("Service {service} has no TCP port {port}"),
            None => format!("Service {service} has no TCP port"),
        };
        return condition(false, "NoMatchingParent", what);
    }
    if facts.carries_only_bytes(&ports) {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let what = format!(
            "requests cannot be routed on port {} of Service {service}, whose declared protocol is TCP or TLS; if it is HTTP, set `appProtocol: http`",
            ports.join(", ")
        );
        return condition(false, "NoMatchingParent", what);
    }
    if let Some(unusable) = index.unusable_route(&id.1) {
        return condition(false, "UnsupportedValue", unusable);
    }
    let own: Vec<u16> = ports
        .into_iter()
        .filter(|port| !facts.carries_only_bytes(&[*port]))
        .filter(|port| attached(index, service, *port).any(|(one, _)| one == id))
        .collect();
    let others: Vec<String> = own
        .iter()
        .filter_map(|port| {
            let other = conflict(index, id, route, service, *port)?;
            Some(preceding(id, other, service, *port))
        })
        .collect();
    match (own.len(), others.len()) {
        (0, _) => {
            let what = format!("no rule has a match for a port of Service {service}");
            condition(false, "NoMatchingParent", what)
        }
        (_, 0) => condition(true, "Accepted", WHOLLY.to_owned()),
        (own, other) if own == other => condition(false, "Conflicted", others.join("; ")),
        _ => condition(true, "Accepted", format!("{PARTLY}{}", others.join("; "))),
    }
}

/// Describes the route that takes precedence over this one on a port.
fn preceding(id: &RouteId, (kind, key): &RouteId, service: &Key, port: u16) -> String {
    let kind = match kind {
        RouteKind::Grpc => Kind::GrpcRoute,
        RouteKind::Http => Kind::HttpRoute,
        RouteKind::Istio => Kind::VirtualService,
    };
    let older = match id.0 {
        RouteKind::Istio => "",
        RouteKind::Grpc | RouteKind::Http => "older ",
    };
    format!(
        "the {older}{} {key} is attached to port {port} of Service {service}",
        kind.names().1
    )
}

pub(super) fn resolved(index: &Index, id: &RouteId, route: &Route, caller: Caller) -> Condition {
    let rules = route.rules.iter().flatten();
    let backends = rules.flat_map(Rule::every_backend);
    let first = backends
        .filter_map(|backend| resolve(index, backend, None, caller.of(id)).err())
        .next();
    let (holds, reason, message) = match first {
        None => (true, "ResolvedRefs", "all backends exist".to_owned()),
        Some(Unresolved::InvalidKind(what)) => (false, "InvalidKind", what),
        Some(Unresolved::NotPermitted(what)) => (false, "RefNotPermitted", what),
        Some(Unresolved::NotFound(what)) => (false, "BackendNotFound", what),
    };
    Condition::new("ResolvedRefs", holds, reason, message, route.generation)
}
