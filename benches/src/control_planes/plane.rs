//! What differs between control planes: installation, programs, proxies.

use std::path::{Path, PathBuf};

use maglor_testkit::cluster::Kubectl;

use super::part::Recipe;
use super::pods::Pod;
use super::sidecar::Sidecar;
use crate::error::Result;

/// A control plane that can be measured.
pub(super) trait ControlPlane {
    /// Returns its name in tables.
    fn name(&self) -> &'static str;

    /// Returns the namespace of its objects.
    fn namespace(&self) -> &'static str;

    /// Returns the subcommand of `kubectl` and the value that request sidecars for a namespace.
    fn mark(&self) -> [&'static str; 2];

    /// Returns what all its sidecars have in common.
    fn sidecar(&self) -> Sidecar;

    /// Applies its objects; returns its programs, which may have files in a folder.
    fn install(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<Vec<Recipe>>;

    /// Prepares what all proxies need, once the programs are ready.
    fn ready(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<()>;

    /// Returns the proxy of a pod, with files, such as its token, in a folder.
    fn proxy(&self, pod: &Pod, folder: &Path) -> Result<Recipe>;

    /// Returns how many endpoints of the first Service a proxy has, from its metrics.
    fn endpoints(&self, metrics: &str) -> Option<u32>;

    /// Returns its webhooks, as arguments of `kubectl delete`.
    fn webhooks(&self) -> &'static [&'static str];
}

/// The file of a proxy's token in its folder.
pub(super) fn token(folder: &Path) -> PathBuf {
    folder.join("token")
}
