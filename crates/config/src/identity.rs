//! The identity of the proxy inside the mesh.

use std::path::PathBuf;

use maglor_identity::Paths;

/// The source of the proxy's identity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// A certificate issued by the control plane.
    ControlPlane(Enrolment),
    /// Files that are kept up to date externally.
    Files(Paths),
}

/// The credentials for the enrolment of a proxy in the mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Enrolment {
    /// The token that authenticates the proxy to the control plane; read again each time.
    pub token_file: PathBuf,
    /// The initial roots, PEM, for verifying the control plane.
    pub trust_bundle: PathBuf,
}
