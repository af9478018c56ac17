//! Authorization rules of a listener.

use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

/// The authorization of a listener. Rules are evaluated in Istio's order, whatever their order in
/// the file: first those that deny, then those that allow; if none matches, the default applies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authorization {
    /// The effect if no rule matches.
    pub default: Effect,
    /// Whether denials are only logged and counted.
    pub dry_run: bool,
    /// The rules in the order of the file.
    pub rules: Vec<AuthorizationRule>,
}

/// The result of authorization.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// The action of a rule on requests that it matches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Allows them, unless another rule denies them.
    Allow,
    /// Logs and counts them without a decision.
    Audit,
    /// Denies them, whatever other rules decide.
    Deny,
}

/// A rule matches a request from one of `from` (or anywhere) and from none of `not_from`, with an
/// operation in `to` (or any) and not in `not_to`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizationRule {
    /// The label `rule` in metrics.
    pub name: Arc<str>,
    /// The action on requests that it matches.
    pub action: Action,
    /// The sources; empty = any.
    pub from: Vec<Source>,
    /// The excluded sources; empty = no exception.
    pub not_from: Vec<Source>,
    /// The operations; empty = any.
    pub to: Vec<Operation>,
    /// The excluded operations; empty = no exception.
    pub not_to: Vec<Operation>,
}

/// The source of a request; every given field must match, each by one of its values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Source {
    /// SPIFFE IDs.
    pub identities: Vec<Pattern>,
    /// Namespaces of ids in the mesh's form.
    pub namespaces: Vec<Pattern>,
    /// Trust domains.
    pub trust_domains: Vec<Pattern>,
    /// Addresses of clients.
    pub networks: Vec<IpNet>,
}

/// The operation of a request; every given field must match, each by one of its values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Operation {
    /// HTTP methods, in upper case.
    pub methods: Vec<Pattern>,
    /// Paths without query, normalized.
    pub paths: Vec<Pattern>,
    /// Ports that the client connected to.
    pub ports: Vec<u16>,
    /// `Host` without port.
    pub hosts: Vec<Pattern>,
    /// Header fields; all must match.
    pub headers: Vec<HeaderCondition>,
}

/// A condition on a header field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderCondition {
    /// The name of the field.
    pub name: HeaderName,
    /// The allowed values; one must match.
    pub values: Vec<Pattern>,
}

impl Operation {
    /// Returns whether it has conditions that only apply to HTTP.
    #[must_use]
    pub fn is_http(&self) -> bool {
        !(self.methods.is_empty()
            && self.paths.is_empty()
            && self.hosts.is_empty()
            && self.headers.is_empty())
    }
}

/// A text with at most one `*`, at its beginning or its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Pattern {
    /// `*`: any value that is present.
    Any,
    /// The whole text.
    Exact(String),
    /// `text*`
    Prefix(String),
    /// `*text`
    Suffix(String),
}

impl Pattern {
    /// Returns whether it matches `text`, byte by byte.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Any => !text.is_empty(),
            Self::Exact(exact) => text == exact.as_bytes(),
            Self::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            Self::Suffix(suffix) => text.ends_with(suffix.as_bytes()),
        }
    }

    /// Returns whether it matches `text`, ignoring the case of ASCII letters.
    #[must_use]
    pub fn matches_ignoring_case(&self, text: &[u8]) -> bool {
        let same = |part: Option<&[u8]>, pattern: &str| {
            part.is_some_and(|part| part.eq_ignore_ascii_case(pattern.as_bytes()))
        };
        match self {
            Self::Any => !text.is_empty(),
            Self::Exact(exact) => same(Some(text), exact),
            Self::Prefix(prefix) => same(text.get(..prefix.len()), prefix),
            Self::Suffix(suffix) => {
                let at = text.len().checked_sub(suffix.len());
                same(at.and_then(|at| text.get(at..)), suffix)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_at_the_end_that_they_name() {
        let prefix = Pattern::Prefix("/api/".into());
        let suffix = Pattern::Suffix(".html".into());
        let exact = Pattern::Exact("/a".into());
        assert!(prefix.matches(b"/api/x") && prefix.matches(b"/api/") && !prefix.matches(b"/api"));
        assert!(suffix.matches(b"a.html") && !suffix.matches(b"html"));
        assert!(exact.matches(b"/a") && !exact.matches(b"/A") && !exact.matches(b"/a/"));
        assert!(Pattern::Any.matches(b"x") && !Pattern::Any.matches(b""));
    }

    #[test]
    fn hosts_are_the_same_in_either_case() {
        let exact = Pattern::Exact("a.example".into());
        let prefix = Pattern::Prefix("a.".into());
        let suffix = Pattern::Suffix(".Example".into());
        assert!(exact.matches_ignoring_case(b"A.EXAMPLE") && !exact.matches_ignoring_case(b"a"));
        assert!(prefix.matches_ignoring_case(b"A.b") && !prefix.matches_ignoring_case(b"a"));
        assert!(suffix.matches_ignoring_case(b"x.eXAMPLE") && !suffix.matches_ignoring_case(b"e"));
    }
}
