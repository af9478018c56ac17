//! Revisions: control planes in addition to the default one, for chosen namespaces, for example to try a new version.
//!
//! A revision injects sidecars into the pods of namespaces with the label `maglor.dev/revision: NAME`, and certifies
//! and configures their proxies. It writes nothing else: the default control plane writes statuses and roots, and
//! deploys the operators' objects. Both use the same certificate authority, so their workloads authenticate each
//! other.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::names::is_label;

/// Name of the controller's Service, Lease and Deployment.
const CONTROLLER: &str = "maglor-controller";
/// Maximum length of a revision's name: `maglor-controller-NAME` with the suffixes of a ReplicaSet and a pod must be
/// a label of at most 63 bytes.
const LONGEST: usize = 25;

/// A control plane: the default one, or a named revision.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Revision(Option<String>);

/// Error for an invalid name of a revision.
#[derive(Debug, thiserror::Error)]
#[error("must be 1 to {LONGEST} lower-case letters, digits and `-`, and not `default`")]
pub struct RevisionError;

impl FromStr for Revision {
    type Err = RevisionError;

    fn from_str(text: &str) -> Result<Self, RevisionError> {
        match is_label(text) && text.len() <= LONGEST && text != "default" {
            true => Ok(Self(Some(text.to_owned()))),
            false => Err(RevisionError),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("default"))
    }
}

impl Revision {
    /// Returns the name; `None` for the default control plane.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Returns whether this is the default control plane.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the name of an object that each control plane has: `base`, or `base-NAME`.
    #[must_use]
    pub fn object(&self, base: &str) -> String {
        match &self.0 {
            None => base.to_owned(),
            Some(name) => format!("{base}-{name}"),
        }
    }

    /// Returns the name of the Service at which proxies and the API server reach this control plane.
    #[must_use]
    pub fn service(&self) -> String {
        self.object(CONTROLLER)
    }

    /// Returns the name of the Lease that the leader of this control plane holds.
    #[must_use]
    pub fn lease(&self) -> String {
        self.object(CONTROLLER)
    }
}

/// Label selector of all pods of the mesh itself. [`is_replica`] identifies those of the controller.
pub const PODS: &str = "app.kubernetes.io/part-of=maglor";
/// The label that contains the name of a pod's program.
const NAME: &str = "app.kubernetes.io/name";

/// Returns whether a pod with these labels is a replica of a control plane of any revision.
#[must_use]
pub fn is_replica(labels: &BTreeMap<String, String>) -> bool {
    labels.get(NAME).is_some_and(|name| is_controller(name))
}

fn is_controller(name: &str) -> bool {
    name.strip_prefix(CONTROLLER)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revision_has_objects_of_its_own() {
        let default = Revision::default();
        assert_eq!(default.service(), "maglor-controller");
        assert!(default.is_default());
        let canary: Revision = "canary".parse().unwrap();
        assert_eq!(canary.service(), "maglor-controller-canary");
        assert_eq!(canary.object("maglor-webhook"), "maglor-webhook-canary");
        for name in [&default, &canary].map(Revision::service) {
            assert!(is_controller(&name), "{name}");
        }
        assert!(!is_controller("maglor-controllers") && !is_controller("maglor-proxy"));
    }

    #[test]
    fn a_name_is_a_label_that_fits() {
        for wrong in ["", "default", "1.2", "-a", "A", &"a".repeat(26)] {
            assert!(wrong.parse::<Revision>().is_err(), "{wrong}");
        }
        for right in ["a", "canary", "v0-2", &"a".repeat(25)] {
            assert!(right.parse::<Revision>().is_ok(), "{right}");
        }
    }
}
