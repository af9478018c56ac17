//! SPIFFE IDs and trust domains (SPIFFE-ID standard, §2).
//!
//! IDs are compared byte by byte, so only their canonical form is accepted: lower case where case is insignificant, no
//! percent-encoding, no empty segments.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The maximum length of an ID in bytes, including the scheme (§2.3).
const MAX_ID: usize = 2048;
/// The maximum length of a trust domain in bytes (§2.1).
const MAX_TRUST_DOMAIN: usize = 255;

const SCHEME: &str = "spiffe://";

/// The reason why a text is not a SPIFFE ID or a trust domain.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpiffeError {
    /// A path has a character that is not allowed; percent-encoding is not allowed, either.
    #[error("`{0}` is not allowed in a path: use letters, digits, `.`, `-` and `_`")]
    PathCharacter(char),
    /// A path has a segment `.` or `..`.
    #[error("the path segments `.` and `..` are not allowed")]
    DotSegment,
    /// A path has an empty segment, or ends with a slash.
    #[error("a path must not have an empty segment or end with `/`")]
    EmptySegment,
    /// The trust domain is empty.
    #[error("the trust domain is empty")]
    NoTrustDomain,
    /// The text does not begin with `spiffe://`.
    #[error("a SPIFFE ID must start with `spiffe://`")]
    Scheme,
    /// The text has more than this number of bytes.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// A trust domain has a character that is not allowed, such as those of a port or a user, or in upper case.
    #[error(
        "`{0}` is not allowed in a trust domain: use lower-case letters, digits, `.`, `-` and `_`"
    )]
    TrustDomainCharacter(char),
}

/// A trust domain, such as `cluster.local`: the set of identities that one set of roots certifies.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TrustDomain(Arc<str>);

impl TrustDomain {
    /// Returns the name of the trust domain, without a scheme.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TrustDomain {
    type Err = SpiffeError;

    /// Parses a name such as `cluster.local`, of 1 to 255 characters `a-z 0-9 . - _`.
    fn from_str(text: &str) -> Result<Self, SpiffeError> {
        check_trust_domain(text)?;
        Ok(Self(text.into()))
    }
}

/// The ID of a workload: `spiffe://<trust-domain>/<path>`.
///
/// In a mesh, the path is `/ns/<namespace>/sa/<service-account>`; see [`SpiffeId::workload`].
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SpiffeId {
    text: Arc<str>,
    /// The index at which the trust domain ends.
    domain_end: usize,
}

impl SpiffeId {
    /// Creates the ID of a service account: `spiffe://<trust-domain>/ns/<namespace>/sa/<service-account>`.
    ///
    /// # Errors
    /// If a name is empty or not allowed in a path.
    pub fn workload(
        trust_domain: &TrustDomain,
        namespace: &str,
        service_account: &str,
    ) -> Result<Self, SpiffeError> {
        for name in [namespace, service_account] {
            if let Some(slash) = name.chars().find(|&c| c == '/') {
                return Err(SpiffeError::PathCharacter(slash));
            }
        }
        format!("{SCHEME}{trust_domain}/ns/{namespace}/sa/{service_account}").parse()
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the name of the trust domain.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.text[SCHEME.len()..self.domain_end]
    }

    /// Returns the trust domain as an owned value.
    #[must_use]
    pub fn to_trust_domain(&self) -> TrustDomain {
        TrustDomain(self.trust_domain().into())
    }

    /// Returns the path with its leading slash; empty for the ID of a trust domain.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.text[self.domain_end..]
    }

    /// Returns the namespace of an ID in the mesh's form; `None` for other IDs.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.parts().map(|(namespace, _)| namespace)
    }

    /// Returns the service account of an ID in the mesh's form; `None` for other IDs.
    #[must_use]
    pub fn service_account(&self) -> Option<&str> {
        self.parts().map(|(_, account)| account)
    }

    fn parts(&self) -> Option<(&str, &str)> {
        let (namespace, account) = self.path().strip_prefix("/ns/")?.split_once("/sa/")?;
        let whole = !namespace.contains('/') && !account.contains('/');
        whole.then_some((namespace, account))
    }
}

impl fmt::Debug for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Borrow<str> for SpiffeId {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl FromStr for SpiffeId {
    type Err = SpiffeError;

    /// Parses an ID. Only the canonical form is accepted, as in other implementations.
    fn from_str(text: &str) -> Result<Self, SpiffeError> {
        if text.len() > MAX_ID {
            return Err(SpiffeError::TooLong(MAX_ID));
        }
        let rest = text.strip_prefix(SCHEME).ok_or(SpiffeError::Scheme)?;
        let domain = rest.split('/').next().unwrap_or_default();
        check_trust_domain(domain)?;
        let path = &rest[domain.len()..];
        // An empty path is the trust domain's own id; otherwise it begins with a slash.
        for segment in path.split('/').skip(1) {
            check_segment(segment)?;
        }
        Ok(Self {
            text: text.into(),
            domain_end: SCHEME.len() + domain.len(),
        })
    }
}

fn check_trust_domain(text: &str) -> Result<(), SpiffeError> {
    if text.is_empty() {
        return Err(SpiffeError::NoTrustDomain);
    }
    if text.len() > MAX_TRUST_DOMAIN {
        return Err(SpiffeError::TooLong(MAX_TRUST_DOMAIN));
    }
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '.' | '-' | '_');
    match text.chars().find(|&c| !allowed(c)) {
        Some(c) => Err(SpiffeError::TrustDomainCharacter(c)),
        None => Ok(()),
    }
}

fn check_segment(segment: &str) -> Result<(), SpiffeError> {
    match segment {
        "" => return Err(SpiffeError::EmptySegment),
        "." | ".." => return Err(SpiffeError::DotSegment),
        _ => {}
    }
    let allowed = |c: char| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_');
    match segment.chars().find(|&c| !allowed(c)) {
        Some(c) => Err(SpiffeError::PathCharacter(c)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Result<SpiffeId, SpiffeError> {
        text.parse()
    }

    #[test]
    fn the_meshs_form_has_a_namespace_and_a_service_account() {
        let id = id("spiffe://cluster.local/ns/shop/sa/cart-v2").unwrap();
        assert_eq!(id.trust_domain(), "cluster.local");
        assert_eq!(id.path(), "/ns/shop/sa/cart-v2");
        assert_eq!(id.namespace(), Some("shop"));
        assert_eq!(id.service_account(), Some("cart-v2"));
        let domain: TrustDomain = "cluster.local".parse().unwrap();
        assert_eq!(SpiffeId::workload(&domain, "shop", "cart-v2"), Ok(id));
    }

    #[test]
    fn other_paths_are_ids_without_a_namespace() {
        for text in [
            "spiffe://a/ns/b/sa/c/d",
            "spiffe://a/ns/b/sb/c",
            "spiffe://a/x/ns/b/sa/c",
            "spiffe://a/b",
            "spiffe://a",
        ] {
            assert_eq!(id(text).unwrap().namespace(), None, "{text}");
        }
    }

    #[test]
    fn what_the_standard_forbids_is_refused() {
        use SpiffeError::*;
        for (text, why) in [
            ("", Scheme),
            ("spiffe:/a/b", Scheme),
            ("SPIFFE://a/b", Scheme),
            ("https://a/b", Scheme),
            ("spiffe://", NoTrustDomain),
            ("spiffe:///b", NoTrustDomain),
            ("spiffe://A/b", TrustDomainCharacter('A')),
            ("spiffe://a:80/b", TrustDomainCharacter(':')),
            ("spiffe://u@a/b", TrustDomainCharacter('@')),
            ("spiffe://a?q", TrustDomainCharacter('?')),
            ("spiffe://a#f", TrustDomainCharacter('#')),
            ("spiffe://[::1]/b", TrustDomainCharacter('[')),
            ("spiffe://a/b?q", PathCharacter('?')),
            ("spiffe://a/b#f", PathCharacter('#')),
            ("spiffe://a/b%41", PathCharacter('%')),
            ("spiffe://a/ü", PathCharacter('ü')),
            ("spiffe://a/", EmptySegment),
            ("spiffe://a/b/", EmptySegment),
            ("spiffe://a//b", EmptySegment),
            ("spiffe://a/./b", DotSegment),
            ("spiffe://a/b/..", DotSegment),
        ] {
            assert_eq!(id(text), Err(why), "{text}");
        }
        let domain: TrustDomain = "a".parse().unwrap();
        assert!(SpiffeId::workload(&domain, "b/sa/c", "d").is_err());
        assert!(SpiffeId::workload(&domain, "", "d").is_err());
    }

    #[test]
    fn lengths_are_limited() {
        let long = |n| format!("spiffe://a/{}", "b".repeat(n));
        assert!(id(&long(2048 - 11)).is_ok());
        assert_eq!(id(&long(2048 - 10)), Err(SpiffeError::TooLong(2048)));
        assert!("a".repeat(255).parse::<TrustDomain>().is_ok());
        assert!("a".repeat(256).parse::<TrustDomain>().is_err());
    }
}
