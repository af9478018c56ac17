//! Collects the problems of a resource in a file: those in its statuses, and those that statuses do not report.

use maglor_manifests::istio::ALLOWS_NOTHING;
use serde::Deserialize as _;

use super::{Place, Problem, Severity, parts};
use crate::crd::Condition;
use crate::index::facts::istio::WILDCARD;
use crate::index::facts::{Facts, Key, Kind, Object};
use crate::index::{Index, NO_LISTENER, Status, UNKNOWN_LABELS};

/// The place of a resource, and the parts that are checked in addition to its status.
pub(super) struct Source<'a> {
    pub(super) place: Place<'a>,
    pub(super) id: (Kind, Key),
    /// Unsupported settings, regardless of whether the rest of the resource has an effect.
    notes: Vec<String>,
    /// Subsets of Services to which the resource refers, each with the path of the field.
    subsets: Vec<(String, Key, String)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(place: Place<'a>, object: &Object) -> Self {
        let (mut notes, mut subsets) = (Vec::new(), Vec::new());
        match &object.facts {
            Facts::Istio(facts) => {
                notes.extend(facts.notes().iter().map(ToString::to_string));
            }
            Facts::Route(route) => {
                notes.clone_from(&route.notes);
                for (at, rule) in route.rules.iter().flatten().enumerate() {
                    for backend in rule.every_backend() {
                        if let (Some(service), Some(subset)) = (&backend.service, &backend.subset) {
                            let field = format!("spec.http[{at}]");
                            subsets.push((field, service.clone(), subset.clone()));
                        }
                    }
                }
            }
            _ => {}
        }
        let id = (object.kind, object.key.clone());
        Self {
            place,
            id,
            notes,
            subsets,
        }
    }

    /// Returns all problems without repetitions.
    pub(super) fn problems(&self, conditions: &[Condition], index: &Index) -> Vec<Problem> {
        let mut found: Vec<Problem> = Vec::new();
        let mut add = |reason: &str, message: String| {
            if !found.iter().any(|one| one.message == message) {
                found.push(self.problem(reason, message));
            }
        };
        for condition in conditions {
            if matches!(&*condition.reason, "Accepted" | "ResolvedRefs") {
                continue;
            }
            let message = condition.message.as_str();
            let message = message.strip_prefix("accepted, except: ");
            for part in parts(message.unwrap_or(&condition.message)) {
                add(&condition.reason, part);
            }
        }
        for note in &self.notes {
            add("PartiallySupported", note.clone());
        }
        for (field, service, subset) in &self.subsets {
            let Some(known) = index.subsets_of_rule(service) else {
                continue;
            };
            if !known.contains(subset) {
                let known = match known.is_empty() {
                    true => "it has none".to_owned(),
                    false => format!("it has {}", known.join(", ")),
                };
                let what = format!(
                    "{field}: the DestinationRule of Service {service} has no subset `{subset}`; {known}"
                );
                add("SubsetNotFound", what);
            }
        }
        without_repeats(found)
    }

    fn problem(&self, reason: &str, message: String) -> Problem {
        let (kind, key) = &self.id;
        let never = message.contains(ALLOWS_NOTHING)
            || message.contains(WILDCARD)
            || message.ends_with(NO_LISTENER);
        let severity = match reason {
            "Invalid"
            | "InvalidKind"
            | "InvalidParameters"
            | "InvalidRouteKinds"
            | "HostnameConflict"
            | "NoMatchingListenerHostname"
            | "ProtocolConflict"
            | "SubsetNotFound"
            | "UnsupportedAddress"
            | "UnsupportedProtocol"
            | "UnsupportedValue" => Severity::Error,
            "NotAllowedByListeners" if !message.contains(UNKNOWN_LABELS) => Severity::Error,
            _ if never => Severity::Error,
            _ => Severity::Warning,
        };
        Problem {
            file: self.place.file.to_owned(),
            line: self.place.line(&message),
            resource: format!("{} {key}", kind.names().1),
            severity,
            reason: reason.to_owned(),
            message,
        }
    }
}

/// Removes problems that follow from another one: a Service that is missing both as a parent and as a backend; a list
/// of hosts without any Service, in addition to its single hosts; a Gateway in addition to its listeners; the kinds
/// of routes of a listener whose protocol is not supported.
fn without_repeats(mut found: Vec<Problem>) -> Vec<Problem> {
    let missing = found.iter().filter_map(|one| {
        let rest = one.message.split("there is no Service ").nth(1)?;
        Some(rest.split([':', ' ']).next()?.to_owned())
    });
    let missing: Vec<String> = missing.collect();
    let has = |text: &str| found.iter().any(|one| one.message.starts_with(text));
    let of_hosts = has("spec.hosts[");
    let of_listeners = found
        .iter()
        .any(|one| !matches!(&*one.reason, "ListenersNotValid" | "PartiallySupported"));
    let listener = |one: &Problem| -> Option<String> {
        let rest = one.message.strip_prefix("spec.listeners: ")?;
        Some(rest.split_once(": ")?.0.to_owned())
    };
    let foreign = found
        .iter()
        .filter(|one| one.reason == "UnsupportedProtocol");
    let foreign: Vec<String> = foreign.filter_map(listener).collect();
    found.retain(|one| {
        let backend = one.message.strip_prefix("Service ");
        let backend = backend.and_then(|rest| rest.strip_suffix(" does not exist"));
        let again = backend.is_some_and(|service| missing.iter().any(|one| one == service));
        let hosts = of_hosts && one.message.starts_with("spec.hosts: ");
        let listeners = of_listeners && one.reason == "ListenersNotValid";
        let kinds = one.reason == "InvalidRouteKinds"
            && listener(one).is_some_and(|name| foreign.contains(&name));
        !(again || hosts || listeners || kinds)
    });
    found
}

/// Returns the conditions of a status, except `Programmed`, which files alone cannot fulfil.
pub(super) fn conditions(status: &Status) -> Vec<Condition> {
    match status {
        Status::Kept(conditions, _) | Status::Policy(conditions) => conditions.clone(),
        Status::Route(parents) => {
            let each = parents.iter().flat_map(|parent| &parent.conditions);
            each.cloned().collect()
        }
        Status::Whole(status) => {
            let listeners = status["listeners"].as_array().into_iter().flatten();
            let of_listeners = listeners.flat_map(|listener| {
                let name = listener["name"].as_str().unwrap_or_default();
                let read = Vec::<Condition>::deserialize(&listener["conditions"]);
                let named = move |mut one: Condition| {
                    if one.status == "False" && !one.message.starts_with("spec") {
                        one.message = format!("spec.listeners: {name}: {}", one.message);
                    }
                    one
                };
                read.unwrap_or_default().into_iter().map(named)
            });
            let own = Vec::<Condition>::deserialize(&status["conditions"]);
            let all = of_listeners.chain(own.unwrap_or_default());
            let reported =
                |one: &Condition| matches!(one.r#type.as_str(), "Accepted" | "ResolvedRefs");
            all.filter(reported).collect()
        }
    }
}
