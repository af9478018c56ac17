//! The scope of an optional feature: disabled, all namespaces, or those chosen at the installation.
//!
//! The chart binds the feature's role to the same scope, so that the controller sends no requests that the API server
//! rejects.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::names::{is_label, is_subdomain};

/// The namespaces where a feature may write.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Scope {
    /// In all namespaces.
    Everywhere,
    /// In these namespaces.
    In(BTreeSet<String>),
    /// The feature is disabled.
    #[default]
    Off,
}

impl Scope {
    /// Returns the scope for a switch and a list of namespaces; an empty list means all.
    #[must_use]
    pub fn new(on: bool, namespaces: &[String]) -> Self {
        match (on, namespaces) {
            (false, _) => Self::Off,
            (true, []) => Self::Everywhere,
            (true, some) => Self::In(some.iter().cloned().collect()),
        }
    }

    /// Returns whether the feature may write in a namespace.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::In(some) => some.contains(namespace),
            Self::Off => false,
        }
    }

    /// Returns whether the feature may write in all of these namespaces; an empty list stands for all namespaces of
    /// the cluster.
    #[must_use]
    pub fn covers_all(&self, namespaces: &[String]) -> bool {
        match namespaces {
            [] => *self == Self::Everywhere,
            some => some.iter().all(|one| self.covers(one)),
        }
    }
}

/// Which certificates of Gateways, in Secrets of type `kubernetes.io/tls`, the controller reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Certificates {
    /// All certificates in this scope.
    All(Scope),
    /// Only the certificates in these Secrets.
    Named(BTreeSet<SecretName>),
}

impl Default for Certificates {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

/// The namespace and name of a Secret, written `NAMESPACE/NAME`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SecretName {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret in its namespace.
    pub name: String,
}

/// Error for a text that is not the name of a Secret.
#[derive(Debug, thiserror::Error)]
#[error("expected NAMESPACE/NAME, such as edge/shop-example")]
pub struct SecretNameError;

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_subdomain(name) => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(SecretNameError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_means_all_of_them() {
        let shop = ["shop".to_owned()];
        let both = ["shop".to_owned(), "other".to_owned()];
        let off = Scope::new(false, &shop);
        assert!(!off.covers("shop") && !off.covers_all(&[]) && !off.covers_all(&shop));
        let everywhere = Scope::new(true, &[]);
        assert!(everywhere.covers("shop") && everywhere.covers_all(&[]));
        let some = Scope::new(true, &shop);
        assert!(some.covers("shop") && some.covers_all(&shop));
        assert!(!some.covers("other") && !some.covers_all(&both) && !some.covers_all(&[]));
    }
}
