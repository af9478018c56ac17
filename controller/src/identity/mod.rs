//! Identities in the mesh: the certificate authority, its creation, and the rotation of its root.
//!
//! ```text
//! Secret, folder ──► Ca (watch) ──┬──► certify: token ► who ► leaf
//!                                 ├──► own: the controller's own certificate, TLS of the port
//!                                 └──► serve: the trust bundle, as a resource of discovery
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`authenticate`] | who stands behind a token; [`review`]: Kubernetes, [`tokens`]: a file |
//! | [`certify`] | the service `maglor.identity.v1.Identity` |
//! | [`authority`], [`folder`] | what issues, and where it is kept without Kubernetes |
//! | [`secret`], [`rotation`], [`replicas`] | where it is kept with Kubernetes, and how its root is replaced |
//! | [`succession`] | how an authority that others write is replaced, in a folder or a Secret |
//! | [`trust_bundles`] | whom to trust, for pods that begin |
//! | [`own`] | the controller's own certificate |
//! | [`start`] | the settings |

pub mod authenticate;
pub mod authority;
pub mod certify;
pub mod folder;
pub mod own;
pub mod replicas;
pub mod review;
pub mod rotation;
pub mod secret;
pub mod start;
pub mod succession;
pub mod tokens;
pub mod trust_bundles;
