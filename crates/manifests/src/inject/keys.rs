//! The registry of all labels and annotations in the mesh's domain, `maglor.dev/…`, with the objects on which each is
//! read, and the allowed values.
//!
//! Kubernetes stores any key. A misspelt or misplaced key has no effect and causes no error; [`check`] reports it, with
//! the key that was probably meant. docs/injection.md lists all keys.

use std::fmt;

use serde_json::Value;

use crate::inject::annotations::{KNOWN, Put};
use crate::inject::template::template;
use crate::inject::{INJECT, INJECTED, INJECTED_BY, Settings};

/// The domain of the mesh's keys.
pub const DOMAIN: &str = "maglor.dev";
/// On a proxy's own resources: a hash of their last written state, by which changes by other writers are detected.
pub const APPLIED: &str = "maglor.dev/applied";
/// On a Service or a namespace: excludes it from automatic shared proxies.
pub const AUTO_PROXIES: &str = "maglor.dev/auto-proxies";
/// On an `AuthorizationPolicy`: the generation that is known to be complete, although it was written when the
/// definition in the cluster was older than the controller.
pub const CONFIRMED: &str = "maglor.dev/confirmed-generation";
/// On a generated `TrafficPolicy`: its `spec` before the last change.
pub const FORMER: &str = "maglor.dev/former";
/// On the target Service of a Service that has left a group: since when no client is sent to the shared proxies.
pub const LEFT: &str = "maglor.dev/left";
/// On the Lease of a controller replica: the clients that do not have its roots yet.
pub const MISSING: &str = "maglor.dev/missing";
/// On a pod that is moved: marks the pod, and contains the state of the move.
pub const MOVING: &str = "maglor.dev/moving";
/// On a namespace: overrides the `mtls` setting of the mesh.
pub const MTLS: &str = "maglor.dev/mtls";
/// On a new pod: its preferred node, and the reason.
pub const PLACED: &str = "maglor.dev/placed";
/// On a pod: with the value `disabled`, the pod is not moved.
pub const PLACEMENT: &str = "maglor.dev/placement";
/// On a Deployment of proxies: the ports that the proxies listen on.
pub const PORTS: &str = "maglor.dev/ports";
/// On a Service with shared proxies: its original target ports.
pub const PROXIED_PORTS: &str = "maglor.dev/proxied-ports";
/// On a Service with proxies: its original selector.
pub const PROXIED_SELECTOR: &str = "maglor.dev/proxied-selector";
/// On a target Service: the service account of its proxies.
pub const PROXY_ACCOUNT: &str = "maglor.dev/proxy-account";
/// On all objects that were created for a group of Services that share proxies, and on their target Services: the
/// group.
pub const PROXY_GROUP: &str = "maglor.dev/proxy-group";
/// On a target Service with shared proxies: the port of the proxies for each of its own ports.
pub const PROXY_PORTS: &str = "maglor.dev/proxy-ports";
/// On all objects that were created for a Service with proxies: the name of the Service.
pub const PROXY_SERVICE: &str = "maglor.dev/proxy-service";
/// On a namespace: the revision of the control plane that serves it.
pub const REVISION: &str = "maglor.dev/revision";
/// On the Lease of a controller replica: marks it as such.
pub const REPLICA: &str = "maglor.dev/replica";
/// On the Secret of the authority: requests a new root if the value differs from that of [`ROTATED`].
pub const ROTATE: &str = "maglor.dev/rotate";
/// On the Secret of the authority: the last value of [`ROTATE`] for which a CA rotation was begun.
pub const ROTATED: &str = "maglor.dev/rotated";
/// On the Secret of the authority: the time at which the present step of a CA rotation began.
pub const ROTATION_SINCE: &str = "maglor.dev/rotation-since";
/// On a Gateway: the type of its Service.
pub const SERVICE_TYPE: &str = "maglor.dev/service-type";
/// The allowed types of a Gateway's Service.
pub const SERVICE_TYPES: [&str; 3] = ["ClusterIP", "LoadBalancer", "NodePort"];
/// On the Lease of a controller replica: the version of the roots that it serves.
pub const TRUST_BUNDLE: &str = "maglor.dev/trust-bundle";
/// On a Deployment: the values that tuning has written, and the previous ones.
pub const TUNED: &str = "maglor.dev/tuned";
/// On a generated `TrafficPolicy`: the `TuningPolicy` that has generated it.
pub const TUNED_BY: &str = "maglor.dev/tuned-by";
/// On a Deployment or pod: with the value `disabled`, it is not tuned.
pub const TUNING: &str = "maglor.dev/tuning";

/// The maximum number of reported keys of an object, which may have thousands.
const MOST: usize = 16;

/// The kind of object that has labels and annotations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holder {
    /// A Gateway of the Gateway API.
    Gateway,
    /// A Namespace.
    Namespace,
    /// Any other object.
    Other,
    /// A Pod, or a pod template.
    Pod,
    /// A Service.
    Service,
    /// An object that creates pods, such as a Deployment; the object itself, not its pod template.
    Workload,
}

/// A label or an annotation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// `metadata.annotations`.
    Annotation,
    /// `metadata.labels`.
    Label,
}

use Holder::{Gateway, Namespace, Other, Pod, Service, Workload};
use Part::{Annotation, Label};

impl Part {
    fn field(self) -> &'static str {
        match self {
            Annotation => "annotations",
            Label => "labels",
        }
    }
}

/// The allowed values of a key.
#[derive(Clone, Copy, Debug)]
enum Values {
    Any,
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// A sidecar setting, which is parsed.
    Sidecar(Put),
}

/// A label or annotation key of the mesh.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key, including its domain.
    pub name: &'static str,
    /// The places where a key set by users is read; empty = only the mesh itself sets the key.
    pub read: &'static [(Holder, Part)],
    values: Values,
}

const SWITCH: Values = Values::OneOf(&["disabled", "enabled"]);

const OTHERS: [Key; 30] = [
    own(APPLIED),
    people(
        AUTO_PROXIES,
        &[(Namespace, Annotation), (Service, Annotation)],
        SWITCH,
    ),
    people(CONFIRMED, &[(Other, Annotation)], Values::Any),
    own(FORMER),
    people(
        INJECT,
        &[(Namespace, Label), (Pod, Label), (Pod, Annotation)],
        Values::OneOf(&["disabled", "enabled", "false", "true"]),
    ),
    own(INJECTED),
    own(INJECTED_BY),
    own(LEFT),
    own(MISSING),
    own(MOVING),
    people(
        MTLS,
        &[(Namespace, Annotation)],
        Values::OneOf(&["permissive", "strict"]),
    ),
    own(PLACED),
    people(PLACEMENT, &[(Pod, Label), (Pod, Annotation)], SWITCH),
    own(PORTS),
    own(PROXIED_PORTS),
    own(PROXIED_SELECTOR),
    own(PROXY_ACCOUNT),
    own(PROXY_GROUP),
    own(PROXY_PORTS),
    own(PROXY_SERVICE),
    own(REPLICA),
    people(REVISION, &[(Namespace, Label)], Values::Any),
    people(ROTATE, &[(Other, Annotation)], Values::Any),
    own(ROTATED),
    own(ROTATION_SINCE),
    people(
        SERVICE_TYPE,
        &[(Gateway, Annotation)],
        Values::OneOf(&SERVICE_TYPES),
    ),
    own(TRUST_BUNDLE),
    own(TUNED),
    own(TUNED_BY),
    people(
        TUNING,
        &[
            (Workload, Label),
            (Workload, Annotation),
            (Pod, Label),
            (Pod, Annotation),
        ],
        SWITCH,
    ),
];

const fn own(name: &'static str) -> Key {
    people(name, &[], Values::Any)
}

const fn people(name: &'static str, read: &'static [(Holder, Part)], values: Values) -> Key {
    Key { name, read, values }
}

/// Returns all known keys.
pub fn all() -> impl Iterator<Item = Key> {
    let sidecar = |(name, put): (&'static str, Put)| {
        let read: &[(Holder, Part)] = &[(Namespace, Annotation), (Pod, Annotation)];
        people(name, read, Values::Sidecar(put))
    };
    OTHERS.into_iter().chain(KNOWN.into_iter().map(sidecar))
}

/// A fault in a label or annotation of the mesh.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The key is known, but not read at this place.
    #[error("ignored here; allowed as {}", Places(read))]
    Misplaced {
        /// The places where the key is read.
        read: &'static [(Holder, Part)],
    },
    /// The key is unknown.
    #[error("unknown key{}", meant(*near))]
    Unknown {
        /// The most similar known key; `None` if none is similar.
        near: Option<&'static str>,
    },
    /// The value of the key is invalid.
    #[error("{reason}")]
    Value {
        /// The key.
        name: &'static str,
        /// The reason, with a valid alternative.
        reason: String,
    },
}

fn meant(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

struct Places<'a>(&'a [(Holder, Part)]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (holder, part)) in self.0.iter().enumerate() {
            let or = if at > 0 { " or " } else { "" };
            let part = match part {
                Annotation => "annotation",
                Label => "label",
            };
            let holder = match holder {
                Gateway => "Gateways",
                Namespace => "namespaces",
                Other => "Secrets",
                Pod => "pods and their templates",
                Service => "Services",
                Workload => "Deployments",
            };
            write!(f, "{or}{part} of {holder}")?;
        }
        Ok(())
    }
}

/// A key of an object that has no effect or an invalid value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct Finding {
    /// The path of the field, such as `spec.template.metadata.annotations.KEY`.
    pub path: String,
    /// The fault.
    pub fault: Fault,
}

impl Finding {
    /// Returns whether the value is invalid; a key without an effect is not an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self.fault, Fault::Value { .. })
    }
}

/// Checks the labels and annotations of an object and of its pod template; returns a limited number of findings.
#[must_use]
pub fn check(object: &Value) -> Vec<Finding> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let template = template(kind).filter(|path| !path.is_empty());
    let made = template.and_then(|path| object.pointer(path));
    let made = made.map_or(&Value::Null, |pod| &pod["metadata"]);
    let mut findings = of(&object["metadata"], holder(object), "", made);
    if let Some(path) = template {
        let before = format!("{}.", path.trim_start_matches('/').replace('/', "."));
        findings.extend(of(made, Pod, &before, &Value::Null));
    }
    findings.truncate(MOST);
    findings
}

fn holder(object: &Value) -> Holder {
    let word = |name: &str| object[name].as_str().unwrap_or_default();
    let group = word("apiVersion")
        .split_once('/')
        .map_or("", |(one, _)| one);
    match (group, word("kind")) {
        ("", "Namespace") => Namespace,
        ("", "Pod") => Pod,
        ("", "Service") => Service,
        ("gateway.networking.k8s.io", "Gateway") => Gateway,
        (_, kind) if template(kind).is_some() => Workload,
        _ => Other,
    }
}

/// Checks one `metadata`; `made` is the `metadata` of the object's pod template.
fn of(metadata: &Value, holder: Holder, before: &str, made: &Value) -> Vec<Finding> {
    let each = [Annotation, Label].into_iter().flat_map(|part| {
        let pairs = metadata[part.field()].as_object().into_iter().flatten();
        pairs.map(move |(name, value)| (part, name, value))
    });
    let ours = each.filter(|(_, name, value)| is_ours(name) && !value.is_null());
    let found = ours.filter_map(|(part, name, value)| {
        let fault = fault(name, value, (holder, part))?;
        // A Deployment is often labelled together with its pods; only the label of the pods is
        // read.
        let there = [Annotation, Label].map(|part| &made[part.field()][name]);
        let read = there.into_iter().any(|value| !value.is_null());
        if read && matches!(fault, Fault::Misplaced { .. }) {
            return None;
        }
        let path = format!("{before}metadata.{}.{name}", part.field());
        Some(Finding { path, fault })
    });
    found.take(MOST).collect()
}

/// Returns whether a key is in our domain, or below it.
fn is_ours(name: &str) -> bool {
    let domain = name.split_once('/').map(|(domain, _)| domain);
    domain.is_some_and(|domain| {
        let above = domain.strip_suffix(DOMAIN);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })
}

fn fault(name: &str, value: &Value, place: (Holder, Part)) -> Option<Fault> {
    let Some(key) = all().find(|key| key.name == name) else {
        return Some(Fault::Unknown {
            near: nearest(name),
        });
    };
    if !key.read.contains(&place) {
        // Labels that tools add to every object are ignored.
        let asked = place.0 != Other && !key.read.is_empty();
        return asked.then_some(Fault::Misplaced { read: key.read });
    }
    let reason = match value.as_str() {
        Some(text) => key.values.check(text).err()?,
        None => "must be a string: put it in quotes".to_owned(),
    };
    Some(Fault::Value {
        name: key.name,
        reason,
    })
}

impl Values {
    fn check(self, text: &str) -> Result<(), String> {
        match self {
            Self::Any => Ok(()),
            Self::OneOf(words) if words.contains(&text) => Ok(()),
            Self::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                Err(format!(
                    "unknown value `{text}`, expected one of {}",
                    words.join(", ")
                ))
            }
            Self::Sidecar(put) => put(&mut Settings::default(), text.trim()),
        }
    }
}

/// Returns the key that was probably meant, of those that users may set: at most a third of the letters differ.
fn nearest(name: &str) -> Option<&'static str> {
    let word = |name: &str| {
        let word = name.rsplit('/').next().unwrap_or_default();
        word.to_ascii_lowercase().replace('_', "-")
    };
    let wrong = word(name);
    let limit = (wrong.chars().count() / 3).max(1);
    // Kubernetes allows no longer ones, and the cost is the product of the lengths.
    if wrong.len() > 63 {
        return None;
    }
    let known = all().filter(|key| !key.read.is_empty());
    let near = known.map(|key| (strsim::osa_distance(&wrong, &word(key.name)), key.name));
    let near = near.filter(|(distance, _)| *distance <= limit).min();
    near.map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
