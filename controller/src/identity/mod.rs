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
//! | [`external`], [`roots`] | an external signer instead of an authority; its roots |
//! | [`trust_bundles`] | the trusted roots for starting pods |
//! | [`own`] | the controller's own certificate |
//! | [`start`] | the settings |

pub mod authenticate;
pub mod authority;
pub mod certify;
pub mod external;
pub mod folder;
mod labels;
pub mod own;
pub mod replicas;
pub mod review;
pub mod roots;
pub mod rotation;
pub mod secret;
pub mod start;
pub mod succession;
pub mod tokens;
pub mod trust_bundles;
