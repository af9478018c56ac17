//! The name of a signer (`signerName` of `certificates.k8s.io/v1`).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::names::is_subdomain;

/// A `signerName`: a domain and a path, such as `clusterissuers.cert-manager.io/mesh`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignerName(Arc<str>);

/// Reason why a text is not the name of a usable signer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignerNameError {
    /// The text names one of Kubernetes' built-in signers.
    #[error("the signers of Kubernetes (kubernetes.io) issue no certificates with SPIFFE IDs")]
    BuiltIn,
    /// The text does not have the form of a signer's name.
    #[error("expected DOMAIN/NAME, such as clusterissuers.cert-manager.io/mesh")]
    Form,
}

impl SignerName {
    /// Returns the name as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SignerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SignerName {
    type Err = SignerNameError;

    fn from_str(text: &str) -> Result<Self, SignerNameError> {
        let (domain, path) = text.split_once('/').ok_or(SignerNameError::Form)?;
        if !is_subdomain(domain) || !domain.contains('.') || !path.split('/').all(is_subdomain) {
            return Err(SignerNameError::Form);
        }
        match domain == "kubernetes.io" {
            true => Err(SignerNameError::BuiltIn),
            false => Ok(Self(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_signers_are_checked() {
        let read = |text: &str| text.parse::<SignerName>().map(drop);
        for good in [
            "clusterissuers.cert-manager.io/mesh",
            "issuers.cert-manager.io/maglor.mesh-2",
            "maglor.test/signer",
            "a.b/c/d",
        ] {
            assert_eq!(read(good), Ok(()), "{good}");
        }
        for wrong in [
            "", "mesh", "a.b", "a.b/", "/a", "a/b", "A.b/c", "a.b/C", "a.b/c d", "a.b/-c",
            "a.b/c-", "a..b/c", "a.b//c", "a.b/*",
        ] {
            assert_eq!(read(wrong), Err(SignerNameError::Form), "{wrong}");
        }
        let own = read("kubernetes.io/kube-apiserver-client");
        assert_eq!(own, Err(SignerNameError::BuiltIn));
    }
}
