//! The identity of the proxy inside the mesh.

use std::path::PathBuf;

use maglor_identity::Paths;

/// The source of the proxy's identity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// A certificate issued by the control plane.
    ControlPlane(Enrolment),
    /// Files, which another program keeps up to date.
    Files(Paths),
}

/// The credentials with which a proxy requests its first certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Enrolment {
    /// The file of the token that authenticates the proxy to the control plane. It is read for each certificate.
    pub token_file: PathBuf,
    /// The PEM file of the initial roots, for verifying the control plane.
    pub trust_bundle: PathBuf,
}
