//! What differs between control planes: installation, programs, proxies.

use std::path::{Path, PathBuf};

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

/// What the sidecars of a control plane have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sidecar {
    /// The name of the container that the control plane injects.
    pub(super) container: &'static str,
    /// The audience of tokens with which proxies authenticate.
    pub(super) audience: &'static str,
    /// The port for connections to the application.
    pub(super) inbound: u16,
    /// The port for connections from the application.
    pub(super) outbound: u16,
    /// Port and path of the metrics.
    pub(super) metrics: (u16, &'static str),
    /// Ports of the pod's loopback that lead to these ports of control-plane programs.
    pub(super) control: &'static [(u16, u16)],
}

/// The file of a proxy's token in its folder.
pub(super) fn token(folder: &Path) -> PathBuf {
    folder.join("token")
}
