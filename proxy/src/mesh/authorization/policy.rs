//! The authorization decision, a pure function. Rules are evaluated in the order of Istio's AuthorizationPolicy
//! ("implicit enablement"): first rules that deny, then rules that allow, then the default.

use std::net::IpAddr;

use http::Method;
use ipnet::IpNet;
use maglor_config::authorization::{
    Action, Authorization, AuthorizationRule, Effect, HeaderCondition, Operation, Pattern, Source,
};
use maglor_identity::SpiffeId;

use crate::protocol::fields::Fields;

/// Facts about a request or a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The authenticated identity of the client; `None` if it is not authenticated.
    pub(crate) peer: Option<&'a SpiffeId>,
    /// Address of the client; `None` for a Unix socket.
    pub(crate) client: Option<IpAddr>,
    /// Port that the client connected to; `None` for a Unix socket.
    pub(crate) port: Option<u16>,
    /// The HTTP request; `None` for a TCP connection.
    pub(crate) request: Option<RequestFacts<'a>>,
}

/// Facts about an HTTP request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) method: &'a Method,
    /// Normalized path without query.
    pub(crate) path: &'a [u8],
    /// Host without port.
    pub(crate) host: &'a [u8],
    pub(crate) fields: &'a Fields,
}

/// A decision and its reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Decision {
    pub(super) effect: Effect,
    pub(super) reason: Reason,
}

/// The reason for a decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    Default,
    /// Position of the rule in the configuration.
    Rule(usize),
}

/// Rules by action, each with its position.
#[derive(Debug)]
pub(super) struct Policy {
    deny: Vec<(usize, AuthorizationRule)>,
    allow: Vec<(usize, AuthorizationRule)>,
    audit: Vec<(usize, AuthorizationRule)>,
    default: Effect,
}

impl Policy {
    pub(super) fn new(config: &Authorization) -> Self {
        let of = |action: Action| {
            let numbered = config.rules.iter().cloned().enumerate();
            numbered.filter(|(_, rule)| rule.action == action).collect()
        };
        Self {
            deny: of(Action::Deny),
            allow: of(Action::Allow),
            audit: of(Action::Audit),
            default: config.default,
        }
    }

    pub(super) fn decide(&self, facts: &Facts<'_>) -> Decision {
        let first = |rules: &[(usize, AuthorizationRule)]| {
            let taken = rules.iter().find(|(_, rule)| takes(rule, facts));
            taken.map(|(position, _)| Reason::Rule(*position))
        };
        if let Some(reason) = first(&self.deny) {
            let effect = Effect::Deny;
            return Decision { effect, reason };
        }
        if let Some(reason) = first(&self.allow) {
            let effect = Effect::Allow;
            return Decision { effect, reason };
        }
        Decision {
            effect: self.default,
            reason: Reason::Default,
        }
    }

    /// Returns the positions of audit rules that match.
    pub(super) fn audited(&self, facts: &Facts<'_>) -> impl Iterator<Item = usize> {
        let taken = self.audit.iter().filter(|(_, rule)| takes(rule, facts));
        taken.map(|(position, _)| *position)
    }
}

fn takes(rule: &AuthorizationRule, facts: &Facts<'_>) -> bool {
    let from = |source: &Source| comes_from(source, facts);
    let (own, except) = match rule.action {
        Action::Deny => (Reading::Wide, Reading::Narrow),
        Action::Allow | Action::Audit => (Reading::Narrow, Reading::Wide),
    };
    let among = |list: &[Operation], reading| list.iter().any(|to| is_done(to, facts, reading));
    (rule.from.is_empty() || rule.from.iter().any(from))
        && !rule.not_from.iter().any(from)
        && (rule.to.is_empty() || among(&rule.to, own))
        && !among(&rule.not_to, except)
}

/// How ambiguous requests are read. Rules that deny, and exceptions of rules that allow, use the wide reading, so
/// that no spelling of a request evades them: raw bytes may be any request, a server may treat `get` as `GET`, and it
/// may use either of two fields of the same name.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reading {
    Narrow,
    Wide,
}

/// Matches the client. An unauthenticated client matches no identity, not even `*`.
fn comes_from(source: &Source, facts: &Facts<'_>) -> bool {
    let peer = facts.peer;
    let is_within = |net: &IpNet| facts.client.is_some_and(|client| net.contains(&client));
    any(&source.identities, peer.map(SpiffeId::as_str))
        && any(&source.namespaces, peer.and_then(SpiffeId::namespace))
        && any(&source.trust_domains, peer.map(SpiffeId::trust_domain))
        && (source.networks.is_empty() || source.networks.iter().any(is_within))
}

/// Returns whether there are no patterns, or one of them matches the text.
fn any(patterns: &[Pattern], text: Option<&str>) -> bool {
    patterns.is_empty()
        || text.is_some_and(|text| patterns.iter().any(|p| p.matches(text.as_bytes())))
}

fn is_done(operation: &Operation, facts: &Facts<'_>, reading: Reading) -> bool {
    let is_port = |port: &u16| facts.port == Some(*port);
    if !(operation.ports.is_empty() || operation.ports.iter().any(is_port)) {
        return false;
    }
    let wide = reading == Reading::Wide;
    let Some(request) = &facts.request else {
        return !operation.is_http() || wide;
    };
    let Operation {
        methods,
        paths,
        hosts,
        headers,
        ..
    } = operation;
    let method = request.method.as_str().as_bytes();
    let is_method = |one: &Pattern| match reading {
        Reading::Narrow => one.matches(method),
        Reading::Wide => one.matches_ignoring_case(method),
    };
    // A request without a host, which a server accepts as its own, matches only `*`.
    let is_host = |host: &Pattern| {
        host.matches_ignoring_case(request.host) || (wide && *host == Pattern::Any)
    };
    (methods.is_empty() || methods.iter().any(is_method))
        && (paths.is_empty() || paths.iter().any(|path| path.matches(request.path)))
        && (hosts.is_empty() || hosts.iter().any(is_host))
        && headers
            .iter()
            .all(|header| has_header(header, request.fields, reading))
}

/// Returns whether a header field is present with one of the values.
fn has_header(condition: &HeaderCondition, fields: &Fields, reading: Reading) -> bool {
    let is_one = |value: &[u8]| {
        let mut each = condition.values.iter();
        // `*` also matches an empty value: the field is present.
        each.any(|one| *one == Pattern::Any || one.matches(value))
    };
    let mut values = fields.all(&condition.name);
    let Some(first) = values.next() else {
        return false;
    };
    let several = values.next().is_some();
    let all = || fields.all(&condition.name);
    // Repeated fields are rare, so that an allocation to join them is acceptable.
    let joined = || all().collect::<Vec<_>>().join(&b","[..]);
    let members = |value: &[u8]| {
        value
            .split(|byte| *byte == b',')
            .any(|one| is_one(one.trim_ascii()))
    };
    match (reading, several) {
        (Reading::Narrow, false) => is_one(first),
        (Reading::Narrow, true) => all().all(is_one) && is_one(&joined()),
        (Reading::Wide, false) => is_one(first) || members(first),
        (Reading::Wide, true) => {
            all().any(|value| is_one(value) || members(value)) || is_one(&joined())
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
