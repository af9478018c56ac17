//! The authorization rules of a listener.

use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

/// The authorization of a listener. Rules are evaluated in Istio's order, whatever their order in
/// the file: first those that deny, then those that allow; if none matches, the default applies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authorization {
    /// The effect on a request or connection that no rule matches.
    pub default: Effect,
    /// Whether denials are only logged and counted.
    pub dry_run: bool,
    /// The rules in the order of the file.
    pub rules: Vec<AuthorizationRule>,
}

/// The effect of authorization on a request or connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// The request or connection is allowed.
    Allow,
    /// The request or connection is denied.
    Deny,
}

/// The action of a rule on matching requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Allow them, unless another rule denies them.
    Allow,
    /// Log and count them, without a decision.
    Audit,
    /// Deny them, regardless of other rules.
    Deny,
}

/// A rule matches a request from one of `from` (or anywhere) and from none of `not_from`, with an
/// operation in `to` (or any) and not in `not_to`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizationRule {
    /// The label `rule` in metrics.
    pub name: Arc<str>,
    /// The action on matching requests.
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

/// The source of a request; every field that is set must match, by one of its values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Source {
    /// SPIFFE IDs.
    pub identities: Vec<Pattern>,
    /// Namespaces of SPIFFE IDs in the form of the mesh.
    pub namespaces: Vec<Pattern>,
    /// Trust domains of SPIFFE IDs.
    pub trust_domains: Vec<Pattern>,
    /// Networks of client addresses.
    pub networks: Vec<IpNet>,
}

/// The operation of a request; every field that is set must match, by one of its values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Operation {
    /// HTTP methods, in upper case.
    pub methods: Vec<Pattern>,
    /// Paths without query, after normalization.
    pub paths: Vec<Pattern>,
    /// Ports that the client connected to.
    pub ports: Vec<u16>,
    /// Values of `Host`, without port.
    pub hosts: Vec<Pattern>,
    /// Conditions on header fields; all must match.
    pub headers: Vec<HeaderCondition>,
}

/// A condition on a header field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderCondition {
    /// The name of the field.
    pub name: HeaderName,
    /// The allowed values, one of which must match.
    pub values: Vec<Pattern>,
}

impl Operation {
    /// Returns whether the operation has conditions that apply only to HTTP.
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
    /// `text*`: any value that starts with the text.
    Prefix(String),
    /// `*text`: any value that ends with the text.
    Suffix(String),
}

impl Pattern {
    /// Returns whether the pattern matches `text`, byte by byte.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Any => !text.is_empty(),
            Self::Exact(exact) => text == exact.as_bytes(),
            Self::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            Self::Suffix(suffix) => text.ends_with(suffix.as_bytes()),
        }
    }

    /// Returns whether the pattern matches `text`, ignoring the case of ASCII letters.
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
