//! Validates authorization: rules must be able to match requests, and their values must be valid.

mod never;

use maglor_identity::{SpiffeId, TrustDomain};

use self::never::Never;
use super::route::matching;
use super::rule::{self, Unique};
use super::{Scope, filter_chain, headers};
use crate::authorization::{
    Action, Authorization, AuthorizationRule, Effect, HeaderCondition, Operation, Pattern, Source,
};
use crate::listener::PathNormalization;
use crate::report::At;
use crate::{Filter, FilterChain, Termination, raw, yaml};

/// Validates the authorization of a listener with these chains.
pub(super) fn authorization(
    raw: &raw::Authorization,
    at: &At<'_>,
    chains: &[FilterChain],
    scope: &Scope<'_>,
) -> Authorization {
    let place = Place {
        authored: scope.has_one_author(),
        http: chains.is_empty() || chains.iter().any(|c| !matches!(c.filter, Filter::Tcp(_))),
        mesh: chains
            .iter()
            .any(|chain| matches!(chain.tls, Some(Termination::Mesh(_)))),
        normalization: chains.iter().filter_map(normalization).min(),
    };
    let (mut names, list) = (Unique::default(), at.field("rules"));
    let each = raw.rules.iter().enumerate();
    let rules: Vec<_> = each
        .map(|(i, raw)| place.rule(raw, i, &list.index(i), &mut names))
        .collect();
    let allows = rules.iter().any(|rule| rule.action == Action::Allow);
    let default = match raw.default {
        Some(raw::Effect::Deny) => Effect::Deny,
        // As in Istio: if some requests are allowed explicitly, all others are denied.
        None if allows || rules.is_empty() => Effect::Deny,
        Some(raw::Effect::Allow) | None => Effect::Allow,
    };
    if allows && default == Effect::Allow {
        at.field("default")
            .warning("allow rules have no effect with `default: allow`")
            .help("remove `default` to deny requests that no rule allows");
    }
    Authorization {
        default,
        dry_run: raw.audit.unwrap_or(false),
        rules,
    }
}

/// The conditions that can be evaluated on a listener.
struct Place {
    /// Whether the rules come from a file or a resource whose author sees errors. A proxy must apply the others of the
    /// control plane's rules when one of them matches nothing.
    authored: bool,
    http: bool,
    mesh: bool,
    /// The least normalization of paths on any chain; `None` without HTTP.
    normalization: Option<PathNormalization>,
}

fn normalization(chain: &FilterChain) -> Option<PathNormalization> {
    match &chain.filter {
        Filter::Http(http) | Filter::Detect { http, .. } => Some(http.path_normalization),
        Filter::Tcp(_) => None,
    }
}

impl Place {
    fn rule(
        &self,
        raw: &raw::AuthorizationRule,
        position: usize,
        at: &At<'_>,
        names: &mut Unique,
    ) -> AuthorizationRule {
        let name = raw.name.clone().unwrap_or_else(|| position.to_string());
        if rule::well_formed(&name, &at.field("name")) {
            names.check(&name, &at.field("name"), "the rule");
        }
        let sources = |list: &[raw::AuthorizationSource], at: &At<'_>| {
            let each = list.iter().enumerate();
            each.map(|(i, raw)| self.source(raw, &at.index(i)))
                .collect()
        };
        let operations = |list: &[raw::AuthorizationOperation], at: &At<'_>| {
            let each = list.iter().enumerate();
            each.map(|(i, raw)| self.operation(raw, &at.index(i)))
                .collect()
        };
        AuthorizationRule {
            name: name.into(),
            action: match raw.action {
                None | Some(raw::AuthorizationAction::Allow) => Action::Allow,
                Some(raw::AuthorizationAction::Audit) => Action::Audit,
                Some(raw::AuthorizationAction::Deny) => Action::Deny,
            },
            from: sources(&raw.from, &at.field("from")),
            not_from: sources(&raw.not_from, &at.field("not_from")),
            to: operations(&raw.to, &at.field("to")),
            not_to: operations(&raw.not_to, &at.field("not_to")),
        }
    }

    fn source(&self, raw: &raw::AuthorizationSource, at: &At<'_>) -> Source {
        let fields = [
            ("identities", &raw.identities),
            ("namespaces", &raw.namespaces),
            ("trust_domains", &raw.trust_domains),
            ("networks", &raw.networks),
        ];
        present(&fields, at);
        empty_lists(&fields, at);
        let by_identity = fields[..3].iter().find(|(_, list)| list.is_some());
        if let Some((field, _)) = by_identity.filter(|_| !self.mesh) {
            at.field(field)
                .warning(
                    "clients of this listener are not authenticated: the condition matches nothing",
                )
                .on_key()
                .help("add `tls: mesh` to the listener");
        }
        let networks = texts(raw.networks.as_ref()).iter().enumerate();
        let networks = networks
            .filter_map(|(i, text)| filter_chain::network(text, &at.field("networks").index(i)));
        Source {
            identities: patterns(
                raw.identities.as_ref(),
                &at.field("identities"),
                identity,
                |one| self.judged(never::an_identity(one)),
            ),
            namespaces: patterns(
                raw.namespaces.as_ref(),
                &at.field("namespaces"),
                namespace,
                |_| None,
            ),
            trust_domains: patterns(
                raw.trust_domains.as_ref(),
                &at.field("trust_domains"),
                trust_domain,
                |_| None,
            ),
            networks: networks.collect(),
        }
    }

    fn judged(&self, never: Option<Never>) -> Option<Never> {
        never.filter(|_| self.authored)
    }

    fn operation(&self, raw: &raw::AuthorizationOperation, at: &At<'_>) -> Operation {
        let fields = [
            ("methods", &raw.methods),
            ("paths", &raw.paths),
            ("hosts", &raw.hosts),
            ("ports", &raw.ports),
        ];
        if raw.headers.is_empty() {
            present(&fields, at);
        }
        empty_lists(&fields, at);
        let of_http = fields[..3].iter().find(|(_, list)| list.is_some());
        let of_http = of_http.map(|(field, _)| *field);
        let of_http = of_http.or((!raw.headers.is_empty()).then_some("headers"));
        if let Some(field) = of_http.filter(|_| !self.http) {
            at.field(field)
                .error("this listener handles no HTTP requests")
                .on_key()
                .help("remove the field; TCP connections can be matched only by `ports`");
        }
        let ports = texts(raw.ports.as_ref()).iter().enumerate();
        let mode = self.normalization.unwrap_or_default();
        Operation {
            methods: methods(raw.methods.as_ref(), &at.field("methods")),
            paths: patterns(raw.paths.as_ref(), &at.field("paths"), path, |one| {
                self.judged(never::a_path(one, mode))
            }),
            hosts: patterns(
                raw.hosts.as_ref(),
                &at.field("hosts"),
                |_| Ok(()),
                |one| self.judged(never::a_host(one)),
            ),
            ports: ports
                .filter_map(|(i, text)| port(text, &at.field("ports").index(i)))
                .collect(),
            headers: raw
                .headers
                .iter()
                .enumerate()
                .filter_map(|(i, raw)| header(raw, &at.field("headers").index(i)))
                .collect(),
        }
    }
}

fn texts(list: Option<&raw::OneOrMany>) -> &[String] {
    list.map_or(&[], |list| &list.0)
}

/// Rejects a block without conditions, which would match everything.
fn present(fields: &[(&str, &Option<raw::OneOrMany>)], at: &At<'_>) {
    if fields.iter().all(|(_, list)| list.is_none()) {
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        let one_of = crate::suggest::one_of(&names);
        at.error(format!("one of {one_of} is required"))
            .when_readable();
    }
}

/// Rejects a condition without values, which matches nothing.
fn empty_lists(fields: &[(&str, &Option<raw::OneOrMany>)], at: &At<'_>) {
    for (name, list) in fields {
        if list.as_ref().is_some_and(|list| list.0.is_empty()) {
            at.field(name)
                .error("an empty list matches nothing")
                .help("remove the field to match any value");
        }
    }
}

/// Validates texts with a `*` at one end; `exact` checks a text without `*`. `never` returns why no request can match
/// such a text, which is rejected: a deny rule with it would deny nothing.
fn patterns(
    list: Option<&raw::OneOrMany>,
    at: &At<'_>,
    exact: impl Fn(&str) -> Result<(), String>,
    never: impl Fn(&Pattern) -> Option<Never>,
) -> Vec<Pattern> {
    let (mut patterns, mut seen) = (Vec::new(), Unique::default());
    for (i, text) in texts(list).iter().enumerate() {
        let at = at.index(i);
        let (begins, ends) = (text.starts_with('*'), text.ends_with('*'));
        let inner = text.trim_start_matches('*').trim_end_matches('*');
        let stars = text.matches('*').count();
        if text.is_empty() || stars > 1 || (stars == 1 && !begins && !ends) {
            let text = yaml::short(text);
            at.error(format!(
                "invalid pattern `{text}`: `*` is allowed only at one end"
            ))
            .help("write `text`, `text*`, `*text` or `*`");
            continue;
        }
        let pattern = match (begins, ends) {
            _ if text == "*" => Pattern::Any,
            (true, _) => Pattern::Suffix(inner.to_owned()),
            (_, true) => Pattern::Prefix(inner.to_owned()),
            _ => {
                if let Err(why) = exact(text) {
                    at.error(why);
                }
                Pattern::Exact(inner.to_owned())
            }
        };
        if let Some(Never { why, instead }) = never(&pattern) {
            at.error(format!("`{}` matches nothing: {why}", yaml::short(text)))
                .help(instead);
        }
        patterns.push(pattern);
        seen.check(text, &at, "the text");
    }
    patterns
}

/// Validates methods: names, or patterns of names.
fn methods(list: Option<&raw::OneOrMany>, at: &At<'_>) -> Vec<Pattern> {
    for (i, text) in texts(list)
        .iter()
        .enumerate()
        .filter(|(_, text)| !text.contains('*'))
    {
        matching::method(text, &at.index(i));
    }
    let patterns = patterns(list, at, |_| Ok(()), |_| None);
    for (i, pattern) in patterns.iter().enumerate() {
        if let Pattern::Prefix(text) | Pattern::Suffix(text) = pattern
            && text.bytes().any(|byte| byte.is_ascii_lowercase())
        {
            at.index(i).warning(
                "well-known methods are in upper case: only conditions that deny ignore the case",
            );
        }
    }
    patterns
}

/// Validates a condition on a header field.
fn header(raw: &raw::AuthorizationHeader, at: &At<'_>) -> Option<HeaderCondition> {
    let Some(text) = &raw.name else {
        at.missing("name", "write `name: HEADER`");
        return None;
    };
    let name = headers::name(text, &at.field("name"));
    if name.as_ref() == Some(&http::header::HOST) {
        at.field("name")
            .error("the host cannot be matched as a header")
            .help("use `hosts` instead");
    }
    if raw.values.is_none() {
        at.missing("values", "write `values: [TEXT]`, or `values: '*'` for any");
    }
    empty_lists(&[("values", &raw.values)], at);
    Some(HeaderCondition {
        name: name?,
        values: patterns(raw.values.as_ref(), &at.field("values"), value, |_| None),
    })
}

fn value(text: &str) -> Result<(), String> {
    let good = http::HeaderValue::from_str(text).is_ok() && text.trim() == text;
    match good {
        true => Ok(()),
        false => Err(format!(
            "`{}` is not a valid header value: use printable text on one line, without surrounding spaces",
            yaml::short(text)
        )),
    }
}

fn identity(text: &str) -> Result<(), String> {
    let id = text.parse::<SpiffeId>();
    id.map(drop)
        .map_err(|why| format!("`{}` is not a SPIFFE ID: {why}", yaml::short(text)))
}

fn trust_domain(text: &str) -> Result<(), String> {
    let domain = text.parse::<TrustDomain>();
    domain
        .map(drop)
        .map_err(|why| format!("`{}` is not a trust domain: {why}", yaml::short(text)))
}

fn namespace(text: &str) -> Result<(), String> {
    match text.contains('/') {
        true => Err(format!("`{}` is not a namespace", yaml::short(text))),
        false => Ok(()),
    }
}

fn path(text: &str) -> Result<(), String> {
    match text.starts_with('/') {
        true => Ok(()),
        false => Err(format!(
            "the path `{}` does not start with `/`",
            yaml::short(text)
        )),
    }
}

fn port(text: &str, at: &At<'_>) -> Option<u16> {
    let port = text.parse().ok().filter(|port| *port > 0);
    if port.is_none() {
        at.error(format!("`{}` is not a port", yaml::short(text)))
            .help("a port is a number from 1 to 65535");
    }
    port
}
