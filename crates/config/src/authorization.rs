//! Authorization rules of a listener.

use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

/// Who may do what. Rules are asked in Istio's order, whatever their order in the file: first those
/// that deny, then those that allow; what none takes gets the default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authorization {
    /// What no rule takes.
    pub default: Effect,
    /// Nothing is denied: what would be is only logged and counted.
    pub dry_run: bool,
    /// In the order of the file.
    pub rules: Vec<AuthorizationRule>,
}

/// Whether something may be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// What a rule does with what it takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Allows it, unless another rule denies it.
    Allow,
    /// Logs and counts it; decides nothing.
    Audit,
    /// Denies it, whatever other rules say.
    Deny,
}

/// A rule takes what comes from one of `from` (or anywhere), from none of `not_from`, and is one of
/// `to` (or anything), and none of `not_to`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizationRule {
    /// Label `rule` in metrics.
    pub name: Arc<str>,
    /// What happens to what it takes.
    pub action: Action,
    /// Empty = from anywhere.
    pub from: Vec<Source>,
    /// Empty = no exception.
    pub not_from: Vec<Source>,
    /// Empty = anything.
    pub to: Vec<Operation>,
    /// Empty = no exception.
    pub not_to: Vec<Operation>,
}

/// Where something comes from; all that is given must hold, each by one of its values.
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

/// What is done; all that is given must hold, each by one of its values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Operation {
    /// HTTP methods, in upper case.
    pub methods: Vec<Pattern>,
    /// Paths without query, normalized.
    pub paths: Vec<Pattern>,
    /// Ports that the client has connected to.
    pub ports: Vec<u16>,
    /// `Host` without port.
    pub hosts: Vec<Pattern>,
    /// Header fields; all must match.
    pub headers: Vec<HeaderCondition>,
}

/// A condition on a header field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderCondition {
    /// Its name.
    pub name: HeaderName,
    /// One of these must match.
    pub values: Vec<Pattern>,
}

impl Operation {
    /// Whether it says something that only HTTP has.
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
    /// `*`: any that is there.
    Any,
    /// The whole text.
    Exact(String),
    /// `text*`
    Prefix(String),
    /// `*text`
    Suffix(String),
}

impl Pattern {
    /// Whether it is `text`, byte for byte.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Any => !text.is_empty(),
            Self::Exact(exact) => text == exact.as_bytes(),
            Self::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            Self::Suffix(suffix) => text.ends_with(suffix.as_bytes()),
        }
    }

    /// Whether it is `text`, upper and lower case of ASCII being the same.
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
