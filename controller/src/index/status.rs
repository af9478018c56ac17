//! Computes the statuses of objects: conditions with their reasons and generations.
//!
//! Statuses contain no times: the writer keeps the time of a condition that is unchanged, and sets the time of a
//! changed one.

mod gateway;
mod istio;

use serde::Serialize;
use serde_json::{Value, json};

use super::Index;
use super::effective::{Level, winner};
use super::facts::gateway::GATEWAY_CONTROLLER;
use super::facts::policy::OUTDATED;
use super::facts::route::{Parent, RouteKind, Rule};
use super::facts::{AuthorizationPolicy, Key, Kind, Route, TrafficPolicy};
use super::links::RouteId;
use super::translate::routes::{Caller, Unresolved, attached, conflict, resolve};
use crate::crd::{Condition, InForce, MESH_CONFIG_NAME, Recorded, TrafficPolicySpec};

/// Maximum size of rules in a status, in bytes: the API server stores no resource above 1.5 MB.
const LONGEST_RECORD: usize = 256 << 10;

/// The name of this controller in the status of routes.
pub const CONTROLLER: &str = "maglor.dev/controller";

/// The status of a resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// The status of one of the mesh's own kinds, with the last valid `spec` if it is known.
    Kept(Vec<Condition>, Option<InForce<Recorded>>),
    /// The status of Istio's kinds.
    Policy(Vec<Condition>),
    /// The status of a route, for each Service and Gateway to which it is attached.
    Route(Vec<ParentStatus>),
    /// The whole status of an object that has no other writer: a Gateway or its class.
    Whole(Value),
}

/// The parent of a route.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "downcast by kind")]
pub enum ParentRef {
    Gateway(Parent),
    Service(Parent),
}

/// The status of a route at one parent.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentStatus {
    /// The Service or Gateway.
    pub parent: ParentRef,
    /// The conditions of the route at this parent.
    pub conditions: Vec<Condition>,
}

impl Status {
    /// Returns whether a policy is invalid as it is stored.
    #[must_use]
    pub fn is_unusable(&self) -> bool {
        let (Self::Kept(conditions, _) | Self::Policy(conditions)) = self else {
            return false;
        };
        let reasons = ["DefinitionOutdated", "Invalid", "UnsupportedValue"];
        let mut all = conditions.iter();
        all.any(|one| one.status == "False" && reasons.contains(&one.reason.as_str()))
    }

    /// Returns the status in the JSON form of the resource.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Kept(conditions, in_force) => match in_force {
                Some(in_force) => {
                    let mut in_force = json!(in_force);
                    without_nulls(&mut in_force);
                    json!({"conditions": conditions, "inForce": in_force})
                }
                None => json!({"conditions": conditions}),
            },
            Self::Policy(conditions) => json!({"conditions": conditions}),
            Self::Route(parents) => {
                let parents: Vec<Value> = parents.iter().map(ParentStatus::to_json).collect();
                json!({"parents": parents})
            }
            Self::Whole(status) => status.clone(),
        }
    }
}

impl ParentStatus {
    fn to_json(&self) -> Value {
        let (controller, group, kind, parent) = match &self.parent {
            ParentRef::Gateway(parent) => (
                GATEWAY_CONTROLLER,
                "gateway.networking.k8s.io",
                "Gateway",
                parent,
            ),
            ParentRef::Service(parent) => (CONTROLLER, "", "Service", parent),
        };
        let mut reference = json!({"group": group, "kind": kind, "name": parent.key.name});
        if parent.names_namespace {
            reference["namespace"] = json!(parent.key.namespace);
        }
        if let Some(port) = parent.port {
            reference["port"] = json!(port);
        }
        if let Some(section) = &parent.section {
            reference["sectionName"] = json!(section);
        }
        json!({
            "controllerName": controller,
            "parentRef": reference,
            "conditions": self.conditions,
        })
    }
}

/// Removes null fields, as in resources that are written.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Returns the status of a resource; `None` if the resource is deleted or another controller writes its status.
pub(super) fn of(index: &Index, kind: Kind, key: &Key) -> Option<Status> {
    match kind {
        Kind::AuthorizationPolicy => Some(authorization(index.authorization.get(key)?)),
        Kind::MeshConfig => {
            let config = index.mesh.get(key)?;
            let own = key.name == MESH_CONFIG_NAME;
            let misnamed = format!("only the MeshConfig named `{MESH_CONFIG_NAME}` has an effect");
            let (problem, closed) = match own {
                true => (
                    config.spec.problem.as_deref(),
                    "until it is valid, only its `mtls` and `trustDomain` are in force",
                ),
                false => (Some(misnamed.as_str()), ""),
            };
            let in_force = config.in_force.filter(|_| own);
            let condition = accepted(problem, (in_force, closed), config.generation);
            let record = record(in_force, config.spec.value.as_ref());
            Some(Status::Kept(vec![condition], record))
        }
        Kind::TrafficPolicy => {
            let policy = index.traffic.get(key)?;
            let conditions = vec![traffic_policy(index, key, policy)];
            Some(Status::Kept(
                conditions,
                record(policy.in_force, policy.spec.value.as_ref()),
            ))
        }
        Kind::DestinationRule => istio::destination_rule(index, key),
        Kind::HttpRoute => route(index, &(RouteKind::Http, key.clone())),
        Kind::IstioAuthorizationPolicy => {
            let policy = index.istio.authorization.get(key)?;
            let closed = "all requests to its pods are denied";
            Some(istio::policy(policy, closed))
        }
        Kind::PeerAuthentication => {
            let policy = index.istio.peers.get(key)?;
            Some(istio::policy(policy, "its pods accept only mutual TLS"))
        }
        Kind::Telemetry => istio::telemetry(index, key),
        Kind::VirtualService => istio::virtual_service(index, key),
        Kind::Gateway => gateway::gateway(index, key),
        Kind::GatewayClass => gateway::class(index, key),
        Kind::GrpcRoute => route(index, &(RouteKind::Grpc, key.clone())),
        _ => None,
    }
}

/// Returns the condition of a version: whether it is valid, and if not, which version is in force instead.
fn accepted(
    problem: Option<&str>,
    (in_force, otherwise): (Option<i64>, &str),
    generation: Option<i64>,
) -> Condition {
    let Some(problem) = problem else {
        return Condition::new("Accepted", true, "Accepted", "accepted", generation);
    };
    let message = match in_force.filter(|version| Some(*version) != generation) {
        Some(version) => format!("{problem}; generation {version} stays in force"),
        None if otherwise.is_empty() => problem.to_owned(),
        None => format!("{problem}; {otherwise}"),
    };
    Condition::new("Accepted", false, "Invalid", message, generation)
}

/// Returns the record of the last valid version, for replicas that start.
fn record<T: Serialize>(generation: Option<i64>, spec: Option<&T>) -> Option<InForce<Recorded>> {
    let (generation, spec) = generation.zip(spec)?;
    let spec = serde_json::to_value(spec).ok()?;
    let length = serde_json::to_vec(&spec).map_or(usize::MAX, |text| text.len());
    let spec = Recorded(spec);
    (length <= LONGEST_RECORD).then_some(InForce { generation, spec })
}

/// Returns the status with the rules in force, for replicas that start.
fn authorization(policy: &AuthorizationPolicy) -> Status {
    let condition = match &policy.spec.problem {
        None => Condition::new("Accepted", true, "Accepted", "accepted", policy.generation),
        Some(problem) => {
            let reason = match policy.outdated {
                true => OUTDATED,
                false => "Invalid",
            };
            let effect = match (&policy.spec.value, policy.in_force) {
                (Some(_), Some(generation)) => {
                    format!("the rules of generation {generation} stay in force")
                }
                (Some(_), None) => "the rules before it stay in force".to_owned(),
                (None, _) => "until it is valid, all requests to its pods are denied".to_owned(),
            };
            let message = match policy.closes.is_none() && policy.spec.value.is_none() {
                true => problem.clone(),
                false => format!("{problem}; {effect}"),
            };
            Condition::new("Accepted", false, reason, message, policy.generation)
        }
    };
    Status::Kept(
        vec![condition],
        record(policy.in_force, policy.spec.value.as_ref()),
    )
}

/// Returns the condition of a policy. It is accepted if it wins for at least one port; the message lists where
/// another policy wins.
fn traffic_policy(index: &Index, key: &Key, policy: &TrafficPolicy) -> Condition {
    let problem = policy.spec.problem.as_deref();
    let accepted = || accepted(problem, (policy.in_force, ""), policy.generation);
    let (None, Some(spec)) = (problem, &policy.spec.value) else {
        return accepted();
    };
    let no = |reason: &str, message: String| {
        Condition::new("Accepted", false, reason, message, policy.generation)
    };
    if spec.target_refs.is_empty() {
        // The winner of a namespace does not depend on the Service.
        let any = Key::new(&key.namespace, "");
        return match winner(index, &any, 0, Level::Namespace) {
            Some((other, _)) if other != key => no(
                "Conflicted",
                format!("the older TrafficPolicy {other} applies to the namespace"),
            ),
            _ => accepted(),
        };
    }
    let (mut wins, mut missing, mut lost) = (0, Vec::new(), Vec::new());
    for (text, found) in targets(index, key, policy, spec) {
        match found {
            Target::Wins => wins += 1,
            Target::Missing => missing.push(text),
            Target::Loses(other) => lost.push(format!("{text} (to the older {other})")),
        }
    }
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(format!("there is no {}", missing.join(", ")));
    }
    if !lost.is_empty() {
        problems.push(format!("it does not apply to {}", lost.join(", ")));
    }
    let message = problems.join("; ");
    if wins == 0 {
        let reason = match lost.is_empty() {
            true => "TargetNotFound",
            false => "Conflicted",
        };
        return no(reason, message);
    }
    let message = match message.is_empty() {
        true => "accepted".to_owned(),
        false => message,
    };
    Condition::new("Accepted", true, "Accepted", message, policy.generation)
}

enum Target<'a> {
    Loses(&'a Key),
    Missing,
    Wins,
}

fn targets<'a>(
    index: &'a Index,
    key: &Key,
    policy: &TrafficPolicy,
    spec: &TrafficPolicySpec,
) -> Vec<(String, Target<'a>)> {
    let mut found = Vec::new();
    for target in &spec.target_refs {
        let service = Key::new(&key.namespace, &target.name);
        let facts = index.services.get(&service);
        let (text, ports): (String, Vec<u16>) = match target.port {
            Some(port) => (
                format!("port {port} of Service {}", target.name),
                facts
                    .and_then(|facts| facts.port(port))
                    .map(|one| one.port)
                    .into_iter()
                    .collect(),
            ),
            None => (
                format!("Service {}", target.name),
                facts
                    .iter()
                    .flat_map(|facts| facts.ports.iter().map(|one| one.port))
                    .collect(),
            ),
        };
        let level = Level::of_target(policy, target.port);
        let other = ports
            .first()
            .and_then(|port| winner(index, &service, *port, level));
        let target = match (facts, target.port, other) {
            (None, _, _) => Target::Missing,
            (Some(_), Some(_), _) if ports.is_empty() => Target::Missing,
            (_, _, Some((other, _))) if other != key => Target::Loses(other),
            _ => Target::Wins,
        };
        found.push((text, target));
    }
    found
}

fn route(index: &Index, id: &RouteId) -> Option<Status> {
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
const PARTLY: &str = "accepted, but ";

fn accepted_by(index: &Index, id: &RouteId, route: &Route, parent: &Parent) -> Condition {
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
    let of_bytes = |port: &u16| facts.port(*port).is_some_and(|one| one.protocol.is_bytes());
    if ports.iter().all(of_bytes) {
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
    let others: Vec<(u16, &RouteId)> = ports
        .iter()
        .filter_map(|port| Some((*port, conflict(index, id, route, service, *port)?)))
        .collect();
    let precedes = |(port, other): &(u16, &RouteId)| preceding(id, other, service, *port);
    let applies = |port: &&u16| {
        !others.iter().any(|(other, _)| other == *port)
            && !of_bytes(port)
            && attached(index, service, **port).any(|(one, _)| one == id)
    };
    match (ports.iter().find(applies), others.as_slice()) {
        (Some(_), []) => condition(true, "Accepted", WHOLLY.to_owned()),
        (Some(_), others) => {
            let others: Vec<String> = others.iter().map(precedes).collect();
            condition(true, "Accepted", format!("{PARTLY}{}", others.join("; ")))
        }
        (None, [other, ..]) => condition(false, "Conflicted", precedes(other)),
        (None, []) => {
            let what = format!("no rule has a match for a port of Service {service}");
            condition(false, "NoMatchingParent", what)
        }
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

fn resolved(index: &Index, id: &RouteId, route: &Route, caller: Caller) -> Condition {
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
