//! Translates Istio's resources (`networking.istio.io`, `security.istio.io`, `telemetry.istio.io`) to facts.
//!
//! A `VirtualService` becomes a [`Route`] like those of the Gateway API; the other kinds have their own types.

use std::collections::BTreeMap;

use maglor_config::raw;
use maglor_manifests::istio;
use maglor_manifests::istio::{Effect, Finding, Read};
use serde_json::Value;

use super::policy::Closes;
use super::route::{
    Backend, Parent, Route, RouteKind, Rule, RuleMatch, Unsupported, refused_by_proxies,
};
use super::{Age, Checked, Key, Meta};
use crate::crd::check;

/// Namespaces whose policies apply to the whole mesh: those of Istio and of this mesh.
pub const ROOTS: [&str; 2] = ["istio-system", "maglor"];

/// A translated resource of Istio.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated<T> {
    /// The age of the resource. Of two contradicting resources the older one wins.
    pub age: Age,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The translated content.
    pub spec: Checked<T>,
    /// The pods to which an invalid resource about permissions or encryption may apply, and which therefore reject
    /// requests; `None` for a valid one.
    pub closes: Option<Closes>,
    /// Unsupported settings, in addition to the translated ones.
    pub notes: Vec<Finding>,
}

/// A `DestinationRule`.
pub type DestinationRule = Translated<istio::DestinationRule>;
/// A `PeerAuthentication`.
pub type PeerAuthentication = Translated<istio::PeerAuthentication>;
/// A `Telemetry`.
pub type Telemetry = Translated<istio::Telemetry>;
/// An `AuthorizationPolicy` of `security.istio.io`.
pub type AuthorizationPolicy = Translated<istio::AuthorizationPolicy>;

/// The facts of Istio's resources, by kind.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "downcast by kind")]
pub enum Facts {
    AuthorizationPolicy(AuthorizationPolicy),
    DestinationRule(Box<DestinationRule>),
    PeerAuthentication(PeerAuthentication),
    Telemetry(Telemetry),
}

impl Facts {
    /// Returns the unsupported settings.
    #[must_use]
    pub fn notes(&self) -> &[Finding] {
        match self {
            Self::AuthorizationPolicy(policy) => &policy.notes,
            Self::DestinationRule(rule) => &rule.notes,
            Self::PeerAuthentication(policy) => &policy.notes,
            Self::Telemetry(telemetry) => &telemetry.notes,
        }
    }
}

/// Returns the Service to which a name refers, such as `reviews`, `reviews.shop` or `reviews.shop.svc.cluster.local`.
#[must_use]
pub fn service(host: &str, namespace: &str) -> Option<Key> {
    let mut parts = host.split('.');
    let name = parts
        .next()
        .filter(|name| !name.is_empty() && *name != "*")?;
    let namespace = parts.next().unwrap_or(namespace);
    match parts.next() {
        None | Some("svc") => Some(Key::new(namespace, name)),
        Some(_) => None,
    }
}

/// Returns why a host is not that of a Service, and what to write instead.
#[must_use]
pub fn no_service(host: &str) -> String {
    match host.contains('*') {
        true => format!("`{host}`: {WILDCARD}"),
        false => format!(
            "`{host}` is not a Service of the cluster; for an external host create a Service of type ExternalName and refer to that"
        ),
    }
}

/// The message for a host with a `*`.
pub const WILDCARD: &str = "wildcard hosts are not supported; name each Service";

fn spec(value: &Value) -> &Value {
    value.get("spec").unwrap_or(&Value::Null)
}

impl<T> Translated<T> {
    fn new(meta: &Meta, read: Read<T>, check: impl FnOnce(&T) -> Result<(), String>) -> Self {
        let (refused, notes): (Vec<Finding>, Vec<Finding>) = read
            .findings
            .into_iter()
            .partition(|one| one.effect == Effect::Refused);
        let text = |list: &[Finding]| {
            let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
            texts.join("; ")
        };
        let mut problem = (!refused.is_empty()).then(|| text(&refused));
        if let (None, Some(value)) = (&problem, &read.value) {
            problem = check(value).err();
        }
        Self {
            age: meta.age(),
            generation: meta.generation,
            spec: Checked {
                value: read.value.filter(|_| problem.is_none()),
                problem,
            },
            closes: None,
            notes,
        }
    }
}

pub(super) fn destination_rule(meta: &Meta, value: &Value) -> DestinationRule {
    let read = istio::DestinationRule::read(spec(value));
    Translated::new(meta, read, |rule| {
        let mut ports = vec![0];
        ports.extend(rule.ports());
        for port in ports {
            let subsets = rule.subsets.iter().map(Some);
            for subset in std::iter::once(None).chain(subsets) {
                let settings = rule.settings(port, subset);
                let route = raw::Route {
                    hash_policy: settings.hash_policy,
                    ..raw::Route::default()
                };
                let fields = check::blocks(Some(&settings.cluster), Some(&route));
                fields.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    })
}

pub(super) fn peer_authentication(meta: &Meta, value: &Value) -> PeerAuthentication {
    let read = istio::PeerAuthentication::read(spec(value));
    let mut policy = Translated::new(meta, read, |_| Ok(()));
    // An unreadable policy must not make pods accept plain text.
    if policy.spec.problem.is_some() {
        let closes = Closes::of(spec(value));
        let selects = !spec(value)["selector"].is_null();
        policy.spec.value = Some(istio::PeerAuthentication {
            selector: selects.then(|| closes.labels.clone()),
            mode: Some(raw::MeshMode::Strict),
            ports: BTreeMap::new(),
        });
        policy.closes = Some(closes);
    }
    policy
}

pub(super) fn telemetry(meta: &Meta, value: &Value) -> Telemetry {
    let read = istio::Telemetry::read(spec(value));
    Translated::new(meta, read, |telemetry| {
        let tracing = raw::MeshTracing {
            collector: Some("collector:4317".to_owned()),
            attributes: telemetry.attributes.clone(),
            ..raw::MeshTracing::default()
        };
        check::tracing(&tracing).map_err(|error| error.to_string())
    })
}

pub(super) fn authorization_policy(meta: &Meta, value: &Value) -> AuthorizationPolicy {
    let read = istio::AuthorizationPolicy::read(spec(value));
    let mut policy = Translated::new(meta, read, |policy| {
        check::rules(&policy.rules).map_err(|error| error.to_string())
    });
    // A policy with target references concerns gateways and selects no pods.
    let of_targets = ["targetRef", "targetRefs"]
        .iter()
        .any(|field| spec(value).get(field).is_some());
    if policy.spec.problem.is_some() && !of_targets {
        policy.closes = Some(Closes::of(spec(value)));
    }
    policy
}

/// Translates a `VirtualService` to a route that is attached to the Services of its `hosts`.
pub(super) fn virtual_service(meta: &Meta, value: &Value) -> Route {
    let read = istio::VirtualService::read(spec(value));
    let (mut notes, mut refused) = (Vec::new(), Vec::new());
    for finding in &read.findings {
        match finding.effect {
            Effect::Ignored => notes.push(finding.to_string()),
            Effect::Refused => refused.push(finding.clone()),
        }
    }
    let namespace = &meta.namespace;
    let hosts = spec(value)["hosts"].as_array();
    let hosts = hosts.into_iter().flatten().filter_map(Value::as_str);
    let mut parents = Vec::new();
    for (i, host) in hosts.enumerate() {
        match service(host, namespace) {
            Some(service) => parents.push(Parent {
                key: service,
                names_namespace: true,
                port: None,
                section: None,
            }),
            None => notes.push(format!("spec.hosts[{i}]: {}", no_service(host))),
        }
    }
    let rules = match (read.value, refused.first()) {
        (Some(service), _) => checked(&service, namespace),
        (None, Some(_)) => {
            // All errors are reported at once, so that fixing one does not merely reveal the next.
            let each = refused.iter().map(|one| Unsupported {
                path: one.path.clone(),
                message: one.message.clone(),
            });
            Unsupported::all(each).map_or(Ok(Vec::new()), Err)
        }
        (None, None) => Ok(Vec::new()),
    };
    let export = spec(value)["exportTo"].as_array();
    let own = |list: &Vec<Value>| !list.is_empty() && list.iter().all(|to| to == ".");
    Route {
        kind: RouteKind::Istio,
        age: meta.age(),
        generation: meta.generation,
        parents,
        gateways: Vec::new(),
        hostnames: Vec::new(),
        rules,
        own_namespace_only: export.is_some_and(own),
        notes,
    }
}

/// Returns the rules, or the errors in them.
fn checked(service: &istio::VirtualService, namespace: &str) -> Result<Vec<Rule>, Unsupported> {
    let rules = rules(service, namespace);
    let path = |at: usize| {
        let rule = service.rules.get(at);
        rule.map_or("spec".to_owned(), |rule| {
            format!("spec.http[{}]", rule.position)
        })
    };
    let mut errors = refused_by_proxies(&rules, raw::PathNormalization::Off, path);
    for (at, rule) in rules.iter().enumerate() {
        if let Some(backend) = rule.shares_with_other_filters() {
            let what = format!(
                "two destinations are {}, but with different `headers`; write it once, or set `headers` of the rule",
                backend.text
            );
            errors.push(Unsupported::new(&format!("{}.route", path(at)), what));
        }
    }
    Unsupported::all(errors).map_or(Ok(rules), Err)
}

fn rules(service: &istio::VirtualService, namespace: &str) -> Vec<Rule> {
    let rule = |rule: &istio::Rule| Rule {
        name: rule.name.clone(),
        matches: rule
            .matches
            .iter()
            .map(|one| RuleMatch {
                port: one.port,
                conditions: one.conditions.clone(),
                ..RuleMatch::default()
            })
            .collect(),
        action: rule.action.clone(),
        backends: rule
            .destinations
            .iter()
            .map(|one| backend(one, namespace))
            .collect(),
        mirrors: rule
            .mirrors
            .iter()
            .map(|(one, share)| (backend(one, namespace), *share))
            .collect(),
    };
    service.rules.iter().map(rule).collect()
}

fn backend(destination: &istio::Destination, namespace: &str) -> Backend {
    Backend {
        service: service(&destination.host, namespace),
        port: destination.port,
        callers_port: true,
        subset: destination.subset.clone(),
        weight: destination.weight,
        request_headers: destination.request_headers.clone(),
        response_headers: destination.response_headers.clone(),
        text: format!("`{}`", destination.host),
    }
}
