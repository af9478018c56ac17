//! What differs between control planes: installation, programs, proxies.

use std::path::{Path, PathBuf};
use std::process::Command;

use maglor_cluster::Kubectl;

use super::part::Recipe;
use super::pods::Pod;
use crate::error::Result;

/// A control plane that can be measured.
pub(super) trait ControlPlane {
    /// Returns its name in tables.
    fn name(&self) -> &'static str;

    /// Returns the namespace of its objects.
    fn namespace(&self) -> &'static str;

    /// Returns the subcommand of `kubectl` and the value that request sidecars for a namespace.
    fn mark(&self) -> [&'static str; 2];

    /// Returns the name of the container that it injects.
    fn sidecar(&self) -> &'static str;

    /// Returns the audience of tokens with which proxies authenticate.
    fn audience(&self) -> &'static str;

    /// Applies its objects; returns its programs, which may have files in a folder.
    fn install(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<Vec<Recipe>>;

    /// Prepares what all proxies need, once the programs are ready.
    fn ready(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<()>;

    /// Returns the command of the proxy of a pod, with files, such as its token, in a folder.
    fn proxy(&self, pod: &Pod, folder: &Path) -> Result<Command>;

    /// Returns how many endpoints of the first Service a proxy has, from its metrics.
    fn endpoints(&self, metrics: &str) -> Option<u32>;

    /// Removes the objects of the cluster that are in no namespace.
    fn uninstall(&self, kubectl: &Kubectl) -> Result<()>;
}

/// The file of a proxy's token in its folder.
pub(super) fn token(folder: &Path) -> PathBuf {
    folder.join("token")
}
