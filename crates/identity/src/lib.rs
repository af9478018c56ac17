//! Workload identity: SPIFFE IDs, the certificate authority, and mutual TLS that verifies peers.
//!
//! The terms are those of the SPIFFE standards: a *trust domain* is the set of identities that one
//! set of roots certifies, a *SPIFFE ID* names a workload in it, an *X.509-SVID* is a certificate
//! with exactly one such id among its alternative names, a *trust bundle* is the set of roots.
//!
//! ```text
//!  Authority ──issues──► certificate, key ──► Identity ─┐
//!      └───────────────► roots ─────────────► TrustBundle ├─► Live ──► server, client (rustls)
//!                                 Files (watches them) ─┘     each handshake reads what is there now
//! ```
//!
//! Nothing here has a runtime: handshakes are driven by the owner of the socket, files are checked
//! when the caller calls [`Files::poll`].

mod authorities;
mod authority;
mod bundle;
mod certificate_pem;
mod der;
mod error;
mod external_signer;
mod files;
mod identity;
mod leaf;
mod provider;
mod refusal;
mod request;
mod rotating_identity;
mod spiffe;
pub mod tls;
pub mod x509;

pub use authority::Authority;
pub use bundle::TrustBundle;
pub use error::{Error, SanError};
pub use external_signer::NamedRequest;
pub use files::{Files, Fingerprint, Paths, Watch};
pub use identity::Identity;
pub use leaf::{Issued, LeafRequest, MAX_TTL};
pub use refusal::Refusal;
pub use request::KeyRequest;
pub use rotating_identity::{Live, Rotation, Unusable};
pub use spiffe::{SpiffeError, SpiffeId, TrustDomain};
