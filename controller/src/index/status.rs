//! Computes the statuses of objects: conditions with their reasons and generations.
//!
//! Statuses contain no times: the writer keeps the time of a condition that is unchanged, and sets the time of a
//! changed one.

mod gateway;
mod istio;
mod route;
mod traffic_policy;

use self::route::route;
use self::traffic_policy::traffic_policy;

use serde::Serialize;
use serde_json::{Value, json};

use super::Index;
use super::facts::gateway::GATEWAY_CONTROLLER;
use super::facts::policy::OUTDATED;
use super::facts::route::{Parent, RouteKind};
use super::facts::{AuthorizationPolicy, Key, Kind};
use crate::crd::{Condition, InForce, MESH_CONFIG_NAME, Recorded};

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
