//! Computes the statuses of Gateways and their classes.

use serde_json::{Value, json};

use super::Status;
use crate::crd::Condition;
use crate::index::Index;
use crate::index::facts::Key;
use crate::index::facts::gateway::{GATEWAY_CONTROLLER, Gateway};
use crate::index::gateways::{Problem, ValidatedListener, made_name};
use crate::index::translate::members;

/// The supported features of the Gateway API, sorted as the API requires.
pub(super) const FEATURES: [&str; 31] = [
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
];

pub(super) fn class(index: &Index, key: &Key) -> Option<Status> {
    let class = index.gateways.classes.get(key)?;
    if class.controller != GATEWAY_CONTROLLER {
        return None;
    }
    let generation = class.generation;
    let condition = match class.has_parameters {
        true => {
            let what = "spec.parametersRef: parameters are not supported; remove it";
            Condition::new("Accepted", false, "InvalidParameters", what, generation)
        }
        false => {
            let what = "Gateways of this class get dedicated proxies";
            Condition::new("Accepted", true, "Accepted", what, generation)
        }
    };
    let features: Vec<Value> = FEATURES.iter().map(|name| json!({"name": name})).collect();
    Some(Status::Whole(json!({
        "conditions": [condition],
        "supportedFeatures": features,
    })))
}

pub(super) fn gateway(index: &Index, key: &Key) -> Option<Status> {
    let gateway = index.gateway(key)?;
    let generation = gateway.generation;
    let validated = index.validated_listeners(key, gateway);
    let addresses = addresses(index, key);
    let ready = has_proxies(index, key);
    let listeners: Vec<Value> = validated
        .iter()
        .map(|one| listener(index, key, one, generation, ready))
        .collect();
    let conditions = [
        accepted(key, gateway, &validated),
        programmed((key, gateway), &validated, &addresses, ready),
    ];
    Some(Status::Whole(json!({
        "addresses": addresses,
        "conditions": conditions,
        "listeners": listeners,
    })))
}

fn accepted(key: &Key, gateway: &Gateway, validated: &[ValidatedListener<'_>]) -> Condition {
    let condition = |holds, reason, message: String| {
        Condition::new("Accepted", holds, reason, message, gateway.generation)
    };
    if let Some(what) = unnameable(key, gateway) {
        return condition(false, "Invalid", what);
    }
    if gateway.has_addresses {
        let what = "spec.addresses: not supported".to_owned();
        return condition(false, "UnsupportedAddress", what);
    }
    if gateway.has_parameters {
        let what = "spec.infrastructure.parametersRef: parameters are not supported".to_owned();
        return condition(false, "InvalidParameters", what);
    }
    let good = |one: &ValidatedListener<'_>| one.is_served() && one.unresolved.is_none();
    let invalid: Vec<&str> = validated
        .iter()
        .filter(|one| !good(one))
        .map(|one| one.listener.name.as_str())
        .collect();
    let some = validated
        .iter()
        .any(|one| one.unsupported.is_none() && one.conflict.is_none());
    match invalid.is_empty() {
        true => condition(true, "Accepted", "accepted".to_owned()),
        false => {
            let what = format!("see the conditions of listeners {}", invalid.join(", "));
            condition(some, "ListenersNotValid", what)
        }
    }
}

/// Returns why no Service can have the name of a Gateway's objects, because a Gateway's name may be longer and
/// contain dots; `None` if the name is valid.
fn unnameable(key: &Key, gateway: &Gateway) -> Option<String> {
    let name = made_name(&key.name, &gateway.class);
    (name.len() > 63 || name.contains('.')).then(|| {
        format!(
            "its Service name `{name}` would be invalid: at most 63 characters, and no dots; rename the Gateway"
        )
    })
}

fn programmed(
    (key, gateway): (&Key, &Gateway),
    validated: &[ValidatedListener<'_>],
    addresses: &[Value],
    ready: bool,
) -> Condition {
    let condition = |holds, reason, message: &str| {
        Condition::new("Programmed", holds, reason, message, gateway.generation)
    };
    if let Some(what) = unnameable(key, gateway) {
        return condition(false, "Invalid", &what);
    }
    if !validated.iter().any(ValidatedListener::is_served) {
        return condition(false, "Invalid", "no listener is valid");
    }
    if addresses.is_empty() {
        let what = "its Service has no address yet";
        return condition(false, "AddressNotAssigned", what);
    }
    match ready {
        true => condition(true, "Programmed", "programmed in the proxies"),
        false => condition(false, "Pending", "none of its proxies is ready yet"),
    }
}

fn listener(
    index: &Index,
    key: &Key,
    validated: &ValidatedListener<'_>,
    generation: Option<i64>,
    ready: bool,
) -> Value {
    let condition = |kind: &str, holds, reason: &str, message: &str| {
        Condition::new(kind, holds, reason, message, generation)
    };
    let holds_unless = |kind: &str, problem: Option<&Problem>| match problem {
        Some(problem) => condition(kind, false, problem.reason, &problem.message),
        None => condition(kind, true, kind, ""),
    };
    let refused = validated
        .unsupported
        .as_ref()
        .or(validated.conflict.as_ref());
    let programmed = match (refused, validated.is_served(), ready) {
        (Some(problem), _, _) => condition("Programmed", false, "Invalid", &problem.message),
        (None, false, _) => {
            let message = validated
                .unresolved
                .as_ref()
                .map(|one| one.message.as_str());
            condition("Programmed", false, "Invalid", message.unwrap_or_default())
        }
        (None, true, true) => condition("Programmed", true, "Programmed", ""),
        (None, true, false) => condition("Programmed", false, "Pending", ""),
    };
    let conditions = [
        holds_unless("Accepted", refused),
        match &validated.conflict {
            Some(problem) => condition("Conflicted", true, problem.reason, &problem.message),
            None => condition("Conflicted", false, "NoConflicts", ""),
        },
        programmed,
        holds_unless("ResolvedRefs", validated.unresolved.as_ref()),
    ];
    let kind = |kind: &&str| json!({"group": "gateway.networking.k8s.io", "kind": kind});
    json!({
        "name": validated.listener.name,
        "attachedRoutes": attached_routes(index, key, &validated.listener.name),
        "supportedKinds": validated.kinds.iter().map(kind).collect::<Vec<_>>(),
        "conditions": conditions,
    })
}

fn attached_routes(index: &Index, key: &Key, listener: &str) -> usize {
    let attached = index.routes.iter().filter(|(id, route)| {
        let mut parents = route.gateways.iter().filter(|one| one.key == *key);
        parents.any(|parent| {
            let attached = index.attach(id, route, parent).and_then(Result::ok);
            let mut attached = attached.into_iter().flatten();
            route.rules.is_ok() && attached.any(|one| one.listener.name == listener)
        })
    });
    attached.count()
}

/// Returns the addresses of a Gateway: those of its load balancer or, until there are any, those inside the cluster.
fn addresses(index: &Index, key: &Key) -> Vec<Value> {
    let service = index.service_of_gateway(key);
    let Some(service) = service.and_then(|key| index.services.get(&key)) else {
        return Vec::new();
    };
    let own: Vec<String> = match service.ingress.is_empty() {
        true => service.addresses.iter().map(ToString::to_string).collect(),
        false => service.ingress.clone(),
    };
    let address = |value: &String| {
        let kind = match value.parse::<std::net::IpAddr>() {
            Ok(_) => "IPAddress",
            Err(_) => "Hostname",
        };
        json!({"type": kind, "value": value})
    };
    own.iter().map(address).collect()
}

/// Returns whether a proxy of the Gateway is ready.
fn has_proxies(index: &Index, key: &Key) -> bool {
    let Some(service) = index.service_of_gateway(key) else {
        return false;
    };
    members::of(index, &service).any(|one| !one.draining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_service_can_have_are_said() {
        let of = |name: &str| {
            let key = Key::new("edge", name);
            let gateway = Gateway {
                class: "maglor".to_owned(),
                generation: Some(3),
                ..Gateway::default()
            };
            [
                accepted(&key, &gateway, &[]),
                programmed((&key, &gateway), &[], &[], true),
            ]
        };
        for name in ["my.web", &"w".repeat(57)] {
            for condition in of(name) {
                assert_eq!(
                    (&*condition.status, &*condition.reason),
                    ("False", "Invalid")
                );
                assert!(condition.message.contains(name), "{}", condition.message);
            }
        }
        let [accepted, _] = of(&"w".repeat(56));
        assert_eq!(accepted.status, "True");
    }
}
