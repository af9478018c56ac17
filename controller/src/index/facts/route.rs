//! Facts of HTTPRoute and GRPCRoute (Gateway API v1), attached to Services (GAMMA, GEP-1426) and to Gateways,
//! translated to the proxy's routes.
//!
//! `hostnames` have no effect on a route that is attached to a Service.

mod backend;
mod matching;
pub(super) mod resource;

use maglor_config::raw;
use serde::Deserialize as _;
use serde_json::Value;

pub use self::backend::Backend;
pub use self::matching::Precedence;
use self::resource::{BackendRef, Filter, GATEWAY, Rule as ResourceRule, Spec, changes};
use super::gateway::hostname_fault;
use super::{Age, Key, Meta, part};
use crate::crd::check::{self, SpecError};

/// The kind of a route.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RouteKind {
    /// GRPCRoute.
    Grpc,
    /// HTTPRoute.
    Http,
    /// Istio's VirtualService. Routes of the other kinds take precedence over it.
    Istio,
}

impl RouteKind {
    /// Returns the `kind` of the resource.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Grpc => "GRPCRoute",
            Self::Http => "HTTPRoute",
            Self::Istio => "VirtualService",
        }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Kind of the route.
    pub kind: RouteKind,
    /// The age of the route. Of two contradicting routes the older one wins.
    pub age: Age,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Services to which the route is attached.
    pub parents: Vec<Parent>,
    /// Gateways to which the route is attached.
    pub gateways: Vec<Parent>,
    /// Hosts of the route's requests at a Gateway, in lower case; empty for those of the listener.
    pub hostnames: Vec<String>,
    /// Rules of the route, or why they are not supported.
    pub rules: Result<Vec<Rule>, Unsupported>,
    /// Whether the route applies only to clients in its own namespace, regardless of the Service's namespace.
    pub own_namespace_only: bool,
    /// Unsupported settings that do not affect the rest of the route.
    pub notes: Vec<String>,
}

/// A Service or Gateway, or a part of it, to which a route is attached.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Parent {
    /// The Service or Gateway.
    pub key: Key,
    /// Whether the reference contains the namespace, so that the status repeats it.
    pub names_namespace: bool,
    /// Port of the Service, or of the Gateway's listeners, to which the route is attached; `None` for all ports.
    pub port: Option<u16>,
    /// Name of the Gateway's listener to which the route is attached; `None` for all listeners. Services have no
    /// sections, but the status repeats the name.
    pub section: Option<String>,
}

/// A rule: several matches with one action.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name of the rule for metrics; `None` if it has none.
    pub name: Option<String>,
    /// The matches of the rule.
    pub matches: Vec<RuleMatch>,
    /// Header changes, rewrite, redirect and timeouts; clusters are added later.
    pub action: raw::Route,
    /// Backends of requests, each with its weight.
    pub backends: Vec<Backend>,
    /// Backends of mirrored requests, each with the percentage of requests.
    pub mirrors: Vec<(Backend, f64)>,
}

impl Rule {
    /// Returns a backend that is there twice with different filters, which the proxy's shares cannot express.
    pub(super) fn shares_with_other_filters(&self) -> Option<&Backend> {
        let sent: Vec<&Backend> = self.backends.iter().filter(|one| one.weight > 0).collect();
        sent.iter().enumerate().find_map(|(at, one)| {
            let mut before = sent[..at].iter();
            let differs =
                |other: &&Backend| one.is_same_port(other) && !one.has_same_filters(other);
            before.any(differs).then_some(*one)
        })
    }

    /// Returns all backends of requests and of mirrored requests.
    pub fn every_backend(&self) -> impl Iterator<Item = &Backend> {
        let mirrors = self.mirrors.iter().map(|(backend, _)| backend);
        self.backends.iter().chain(mirrors)
    }
}

/// A match of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleMatch {
    /// Precedence of the match among all matches of a Service.
    pub precedence: Precedence,
    /// Port of the Service whose requests match; `None` for all ports.
    pub port: Option<u16>,
    /// Conditions on the request.
    pub conditions: raw::RouteMatch,
}

impl RuleMatch {
    /// Returns whether it applies to requests for this port.
    #[must_use]
    pub fn is_for(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// An unsupported or invalid part of a route.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Unsupported {
    /// Path of the part, such as `spec.rules[0].filters[1]`.
    pub path: String,
    /// Why the part has no effect, and an alternative.
    pub message: String,
}

impl Unsupported {
    pub(super) fn new(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
        }
    }

    /// Joins several errors into one with the path of the first; the others follow with their own paths. Duplicates,
    /// which several matches of a rule cause, are removed. `None` if there are none.
    pub(super) fn all(errors: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut each: Vec<SpecError> = Vec::new();
        for Self { path, message } in errors {
            let one = SpecError::Value { path, message };
            if !each.contains(&one) {
                each.push(one);
            }
        }
        check::all(each).map(Self::from)
    }
}

impl From<SpecError> for Unsupported {
    fn from(error: SpecError) -> Self {
        match error {
            SpecError::Foreign { .. } => Self::new("spec", error.to_string()),
            SpecError::Value { path, message } => Self { path, message },
        }
    }
}

impl Route {
    pub(super) fn http(meta: &Meta, value: &Value) -> Self {
        Self::read(RouteKind::Http, meta, value)
    }

    pub(super) fn grpc(meta: &Meta, value: &Value) -> Self {
        Self::read(RouteKind::Grpc, meta, value)
    }

    fn read(kind: RouteKind, meta: &Meta, value: &Value) -> Self {
        // The second parser reports the place of the error.
        let spec: Result<Spec, SpecError> = part(value, "spec").or_else(|_| check::spec(value));
        let (mut gateways, mut hostnames) = (Vec::new(), Vec::new());
        if let Ok(spec) = &spec {
            gateways = spec.gateways(&meta.namespace);
            let hosts = spec.hostnames.iter();
            hostnames.extend(hosts.map(|host| host.to_ascii_lowercase()));
        }
        let (parents, rules) = match spec {
            Ok(spec) => {
                let parents = spec.parents(&meta.namespace);
                let normalization = match parents.is_empty() {
                    true => raw::PathNormalization::Base,
                    false => raw::PathNormalization::Off,
                };
                // All errors are reported at once, so that fixing one does not merely reveal the next.
                let (rules, mut errors) = Rule::all(kind, &spec, &meta.namespace);
                errors.extend(refused_by_proxies(&rules, normalization, path_of_rule));
                errors.extend(no_names(&hostnames));
                let rules = Unsupported::all(errors).map_or(Ok(rules), Err);
                (parents, rules)
            }
            Err(error) => {
                // The statuses of its parents report why the route is not in force.
                let spec = Spec {
                    parent_refs: Vec::deserialize(&value["spec"]["parentRefs"]).unwrap_or_default(),
                    ..Spec::default()
                };
                gateways = spec.gateways(&meta.namespace);
                (spec.parents(&meta.namespace), Err(error.into()))
            }
        };
        Self {
            kind,
            age: meta.age(),
            generation: meta.generation,
            parents,
            gateways,
            hostnames,
            rules,
            own_namespace_only: false,
            notes: Vec::new(),
        }
    }
}

fn path_of_rule(at: usize) -> String {
    format!("spec.rules[{at}]")
}

/// Returns the invalid host names of a route.
fn no_names(hosts: &[String]) -> impl Iterator<Item = Unsupported> {
    let each = hosts.iter().enumerate();
    each.filter_map(|(at, host)| {
        let fault = hostname_fault(host)?;
        Some(Unsupported::new(&format!("spec.hostnames[{at}]"), fault))
    })
}

/// Returns the errors of the proxy's own checks of expressions, headers and paths, by rule; `path` returns the path of a
/// rule by its position. Sidecars compare paths as the application sends them, Gateways normalize them.
pub(super) fn refused_by_proxies(
    rules: &[Rule],
    normalization: raw::PathNormalization,
    path: impl Fn(usize) -> String,
) -> Vec<Unsupported> {
    let mut routes = Vec::new();
    let mut rule_of = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        for one in &rule.matches {
            routes.push(raw::Route {
                r#match: Some(one.conditions.clone()),
                ..rule.action.clone()
            });
            rule_of.push(at);
        }
        // Header changes of a backend are checked like those of a route.
        let changes = rule.backends.iter();
        let changes =
            changes.filter(|one| one.request_headers.is_some() || one.response_headers.is_some());
        for backend in changes {
            routes.push(raw::Route {
                request_headers: backend.request_headers.clone(),
                response_headers: backend.response_headers.clone(),
                ..raw::Route::default()
            });
            rule_of.push(at);
        }
    }
    // Without a valid rule there is nothing to check.
    if routes.is_empty() {
        return Vec::new();
    }
    let errors = check::routes(routes, normalization)
        .err()
        .unwrap_or_default()
        .into_iter();
    let errors = errors.map(|(at, message)| {
        let at = at.and_then(|at| rule_of.get(at));
        let path = at.map_or("spec".to_owned(), |at| path(*at));
        Unsupported::new(&path, message)
    });
    errors.collect()
}

impl Rule {
    /// Reads all rules, and returns the errors in them.
    fn all(kind: RouteKind, spec: &Spec, namespace: &str) -> (Vec<Self>, Vec<Unsupported>) {
        let mut errors = Vec::new();
        let each = spec.rules.iter().enumerate();
        let rules = each.map(|(at, rule)| Self::read(kind, rule, at, namespace, &mut errors));
        (rules.collect(), errors)
    }

    /// Reads a rule without its invalid parts, for which errors are added.
    fn read(
        kind: RouteKind,
        rule: &ResourceRule,
        at: usize,
        namespace: &str,
        errors: &mut Vec<Unsupported>,
    ) -> Self {
        let path = path_of_rule(at);
        let mut matches = Vec::new();
        if rule.matches.is_empty() {
            matches.push(matching::anything(kind));
        }
        for (i, one) in rule.matches.iter().enumerate() {
            match matching::read(kind, one, &format!("{path}.matches[{i}]")) {
                Ok(one) => matches.push(one),
                Err(error) => errors.push(error),
            }
        }
        let matches = matches
            .into_iter()
            .map(|(precedence, conditions)| RuleMatch {
                precedence,
                port: None,
                conditions,
            });
        let mut read = Self {
            name: rule.name.clone(),
            matches: matches.collect(),
            action: raw::Route::default(),
            backends: Vec::new(),
            mirrors: Vec::new(),
        };
        for (i, filter) in rule.filters.iter().enumerate() {
            errors.extend(
                read.filter(filter, &format!("{path}.filters[{i}]"), namespace)
                    .err(),
            );
        }
        if read.action.redirect.is_some() {
            // A redirected request is not forwarded, so its header changes have no effect; the combination is
            // allowed.
            read.action.request_headers = None;
        }
        for (i, reference) in rule.backend_refs.iter().enumerate() {
            let path = format!("{path}.backendRefs[{i}].filters");
            read.backend(reference, &path, namespace, errors);
        }
        if rule.session_persistence.is_some() {
            let what =
                "not supported; for session affinity use `route.hash_policy` of a TrafficPolicy";
            errors.push(Unsupported::new(
                &format!("{path}.sessionPersistence"),
                what,
            ));
        }
        read.attempts(rule, &path, errors);
        read
    }

    /// Adds a backend.
    fn backend(
        &mut self,
        reference: &BackendRef,
        path: &str,
        namespace: &str,
        errors: &mut Vec<Unsupported>,
    ) {
        let mut backend = reference.backend(namespace);
        let before = errors.len();
        backend.filters(&reference.filters, path, errors);
        let other = self
            .backends
            .iter()
            .find(|other| backend.is_same_port(other));
        if errors.len() == before && other.is_some_and(|other| !backend.has_same_filters(other)) {
            let what = "two references to one port of a Service differ in their filters";
            errors.push(Unsupported::new(path, what));
        }
        self.backends.push(backend);
    }

    /// Reads timeouts and retries.
    fn attempts(&mut self, rule: &ResourceRule, path: &str, errors: &mut Vec<Unsupported>) {
        let mut time = |text: &Option<String>, field: &str| {
            let read = text.as_deref()?.parse::<raw::TimeSpan>();
            let error = |error| Unsupported::new(&format!("{path}.{field}"), format!("{error}"));
            read.map_err(|wrong| errors.push(error(wrong))).ok()
        };
        self.action.timeout = time(&rule.timeouts.request, "timeouts.request");
        let per_try = time(&rule.timeouts.backend_request, "timeouts.backendRequest");
        let per_try = per_try.filter(|time| !time.0.is_zero());
        if let Some(retry) = &rule.retry {
            // Connection failures are retried in addition to the statuses (GEP-1731).
            let mut conditions = vec!["connect-failure", "refused-stream", "reset"];
            if !retry.codes.is_empty() {
                conditions.push("retriable-status-codes");
            }
            let pause = time(&retry.backoff, "retry.backoff");
            self.action.retry = Some(raw::Short(raw::Retry {
                attempts: retry.attempts,
                retry_on: Some(raw::OneOrMany(
                    conditions.into_iter().map(str::to_owned).collect(),
                )),
                retriable_status_codes: retry.codes.clone(),
                per_try_timeout: per_try,
                back_off: pause.map(|pause| raw::BackOff {
                    base_interval: Some(pause),
                    ..raw::BackOff::default()
                }),
                ..raw::Retry::default()
            }));
        } else if per_try.is_some() {
            self.action.retry = Some(raw::Short(raw::Retry {
                per_try_timeout: per_try,
                ..raw::Retry::default()
            }));
        }
    }

    fn filter(&mut self, filter: &Filter, path: &str, namespace: &str) -> Result<(), Unsupported> {
        let action = &mut self.action;
        match filter.r#type.as_str() {
            "RequestHeaderModifier" => {
                let field = format!("{path}.requestHeaderModifier");
                action.request_headers = changes(filter.request_header_modifier.as_ref(), &field)?;
            }
            "ResponseHeaderModifier" => {
                let field = format!("{path}.responseHeaderModifier");
                action.response_headers =
                    changes(filter.response_header_modifier.as_ref(), &field)?;
            }
            "RequestRedirect" => {
                action.redirect = filter.request_redirect.as_ref().map(Into::into);
            }
            "URLRewrite" => {
                let rewrite = filter.url_rewrite.as_ref();
                action.rewrite = rewrite
                    .map(Into::into)
                    .filter(|one| *one != raw::Rewrite::default());
            }
            "RequestMirror" => {
                let mirror = filter.request_mirror.as_ref();
                self.mirrors.extend(
                    mirror.map(|mirror| (mirror.backend_ref.backend(namespace), mirror.percent())),
                );
            }
            other => {
                let what = resource::unsupported_filter(other);
                return Err(Unsupported::new(&format!("{path}.type"), what));
            }
        }
        Ok(())
    }
}

impl Spec {
    fn gateways(&self, namespace: &str) -> Vec<Parent> {
        self.attached_to((GATEWAY, "Gateway"), namespace)
    }

    fn parents(&self, namespace: &str) -> Vec<Parent> {
        self.attached_to(("", "Service"), namespace)
    }

    /// Returns the parents of one kind, which is given by its group and name.
    fn attached_to(&self, kind: (&str, &str), namespace: &str) -> Vec<Parent> {
        let all = self.parent_refs.iter();
        let parents = all.filter(|parent| (parent.group.as_str(), parent.kind.as_str()) == kind);
        let parents = parents.map(|parent| Parent {
            key: Key::new(
                parent.namespace.as_deref().unwrap_or(namespace),
                &parent.name,
            ),
            names_namespace: parent.namespace.is_some(),
            port: parent.port,
            section: parent.section_name.clone(),
        });
        parents.collect()
    }
}

#[cfg(test)]
mod tests;
