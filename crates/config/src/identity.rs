//! The identity of the proxy inside the mesh.

use std::path::PathBuf;

use maglor_identity::Paths;

/// Where the proxy's identity comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// The control plane certifies it.
    ControlPlane(Enrolment),
    /// Files that are kept up to date externally.
    Files(Paths),
}

/// What a proxy becomes a workload of the mesh by.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Enrolment {
    /// Proves to the control plane who the proxy is; read anew each time.
    pub token_file: PathBuf,
    /// The roots, PEM, by which the control plane is known before it has said anything.
    pub trust_bundle: PathBuf,
}
