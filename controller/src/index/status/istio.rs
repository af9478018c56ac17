//! Computes the statuses of Istio's resources: whether they are in force, and which settings are not supported.

use super::Status;
use super::route::{PARTLY, accepted_by, resolved};
use crate::crd::Condition;
use crate::index::Index;
use crate::index::facts::Key;
use crate::index::facts::istio::{Translated, no_service, service};
use crate::index::facts::route::RouteKind;
use crate::index::translate::routes::Caller;

/// Returns the condition of a resource that is in force, with its unsupported settings.
fn in_force(notes: &[String], generation: Option<i64>) -> Condition {
    match notes.is_empty() {
        true => Condition::new("Accepted", true, "Accepted", "accepted", generation),
        false => {
            let message = format!("accepted, except: {}", notes.join("; "));
            Condition::new("Accepted", true, "PartiallySupported", message, generation)
        }
    }
}

fn notes<T>(resource: &Translated<T>) -> Vec<String> {
    resource.notes.iter().map(ToString::to_string).collect()
}

/// Returns the status of a policy for pods. `closed` describes the effect of an invalid policy on its pods.
pub(super) fn policy<T>(resource: &Translated<T>, closed: &str) -> Status {
    let generation = resource.generation;
    let condition = match &resource.spec.problem {
        None => in_force(&notes(resource), generation),
        Some(problem) => {
            let reason = "UnsupportedValue";
            let message = match resource.closes {
                Some(_) => format!("{problem}; until it is valid, {closed}"),
                None => problem.clone(),
            };
            Condition::new("Accepted", false, reason, message, generation)
        }
    };
    Status::Policy(vec![condition])
}

pub(super) fn destination_rule(index: &Index, key: &Key) -> Option<Status> {
    let rule = index.istio.destinations.get(key)?;
    let Some(value) = &rule.spec.value else {
        return Some(policy(rule, ""));
    };
    let no = |reason: &str, message: String| {
        let condition = Condition::new("Accepted", false, reason, message, rule.generation);
        Some(Status::Policy(vec![condition]))
    };
    let host = &value.host;
    let Some(target) = service(host, &key.namespace) else {
        return no("TargetNotFound", format!("spec.host: {}", no_service(host)));
    };
    if !index.services.contains_key(&target) {
        return no(
            "TargetNotFound",
            format!("spec.host: {}", index.missing(&target, &key.namespace)),
        );
    }
    if target.namespace != key.namespace {
        let what = format!(
            "spec.host: must be in namespace {}, where the Service is",
            target.namespace
        );
        return no("TargetNotFound", what);
    }
    match index.destination_rule(&target) {
        Some((other, _)) if other != key => no(
            "Conflicted",
            format!("the older DestinationRule {other} applies to Service {target}"),
        ),
        _ => Some(policy(rule, "")),
    }
}

pub(super) fn telemetry(index: &Index, key: &Key) -> Option<Status> {
    let telemetry = index.istio.telemetry.get(key)?;
    let value = telemetry.spec.value.as_ref();
    let none = value.and_then(|value| index.telemetry_without_effect(key, value));
    Some(match none {
        Some((reason, message)) => {
            let generation = telemetry.generation;
            let condition = Condition::new("Accepted", false, reason, message, generation);
            Status::Policy(vec![condition])
        }
        None => policy(telemetry, ""),
    })
}

pub(super) fn virtual_service(index: &Index, key: &Key) -> Option<Status> {
    let id = (RouteKind::Istio, key.clone());
    let route = index.routes.get(&id)?;
    let attached = route
        .parents
        .iter()
        .map(|parent| accepted_by(index, &id, route, parent));
    let (held, refused): (Vec<Condition>, Vec<Condition>) =
        attached.partition(|condition| condition.status == "True");
    let accepted = match (&route.rules, held.is_empty(), refused.into_iter().next()) {
        (Ok(_), false, refused) => {
            // Ports on which another route takes precedence, and hosts that are no Services.
            let partly = held.iter().map(|one| one.message.strip_prefix(PARTLY));
            let refused = refused.iter().map(|one| one.message.as_str());
            let notes = partly.flatten().chain(refused).map(str::to_owned);
            let notes: Vec<String> = notes.chain(route.notes.iter().cloned()).collect();
            in_force(&notes, route.generation)
        }
        (_, _, Some(refused)) => refused,
        (Err(unsupported), _, None) => {
            let (reason, message) = ("UnsupportedValue", unsupported.to_string());
            Condition::new("Accepted", false, reason, message, route.generation)
        }
        (Ok(_), true, None) => {
            let message = "spec.hosts: none is a Service of the cluster";
            Condition::new(
                "Accepted",
                false,
                "NoMatchingParent",
                message,
                route.generation,
            )
        }
    };
    Some(Status::Policy(vec![
        accepted,
        resolved(index, &id, route, Caller::Client),
    ]))
}
