//! Identities of workloads: the certificate authority, its creation, and the rotation of its root.
//!
//! ```text
//! Secret, folder, signer ──► InForce (watch) ──┬──► certify: token ► caller ► leaf
//!                                              ├──► own: the controller's own certificate, TLS of the port
//!                                              └──► resource_server: the trust bundle, as a discovery resource
//! ```
//!
//! | module | responsibility |
//! | --- | --- |
//! | [`authenticate`] | authentication by token; [`review`]: by Kubernetes, [`tokens`]: by a file |
//! | [`certify`] | the service `maglor.identity.v1.Identity` |
//! | [`authority`], [`folder`] | the authority, and its storage without Kubernetes |
//! | [`secret`], [`rotation`], [`replicas`] | its storage in Kubernetes, and the rotation of its root |
//! | [`succession`] | replacing an authority that is managed externally, in a folder or a Secret |
//! | [`signer`]; [`external`], [`roots`] | a signer outside the mesh instead of an authority; on Kubernetes, and its roots |
//! | [`trust_bundles`] | the trusted roots for starting pods |
//! | [`own`] | the controller's own certificate |
//! | [`start`] | the settings |
//! | [`on_kubernetes`] | what `start` uses of Kubernetes; with the modules that only it uses, absent without the feature |

pub mod authenticate;
pub mod authority;
pub mod certify;
#[cfg(feature = "kubernetes")]
pub mod external;
pub mod folder;
#[cfg(feature = "kubernetes")]
mod labels;
#[cfg(feature = "kubernetes")]
pub mod on_kubernetes;
pub mod own;
#[cfg(feature = "kubernetes")]
pub mod replicas;
#[cfg(feature = "kubernetes")]
pub mod review;
#[cfg(feature = "kubernetes")]
pub mod roots;
pub mod rotation;
#[cfg(feature = "kubernetes")]
pub mod secret;
pub mod signer;
pub mod start;
pub mod succession;
pub mod tokens;
#[cfg(feature = "kubernetes")]
pub mod trust_bundles;
