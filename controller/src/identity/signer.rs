//! A signer outside the mesh that has the key of the certificate authority: what the identity service needs of it, and
//! why it may issue no certificate.

mod name;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use maglor_identity::{Error, Issued, NamedRequest, TrustBundle, TrustDomain};

pub use self::name::{SignerName, SignerNameError};

/// Maximum number of requests of this replica that wait for the signer at the same time.
pub(super) const AT_ONCE: usize = 64;
/// Timeout for a certificate, including the wait until the request may be sent ([`AT_ONCE`]).
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Reason why the signer has issued no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// Too many requests wait for the signer.
    #[error("signer `{signer}`: too many pending requests, maximum {AT_ONCE}; retry later")]
    Busy {
        /// Name of the signer.
        signer: SignerName,
    },
    /// The object was deleted before there was a certificate.
    #[error(
        "signer `{signer}`: CertificateSigningRequest `{object}` was deleted by another client"
    )]
    Deleted {
        /// Name of the signer.
        signer: SignerName,
        /// Name of the object.
        object: String,
    },
    /// The request was denied, although the controller has approved it.
    #[error("signer `{signer}` denied the request: {why}")]
    Denied {
        /// Name of the signer.
        signer: SignerName,
        /// Reason and message of the denial.
        why: String,
    },
    /// The signer could not issue the certificate.
    #[error("signer `{signer}` failed: {why}")]
    Failed {
        /// Name of the signer.
        signer: SignerName,
        /// Reason and message of the failure.
        why: String,
    },
    /// The API server has rejected a step or cannot be reached.
    #[error("signer `{signer}`: cannot {step} the CertificateSigningRequest: {source}")]
    Kubernetes {
        /// Name of the signer.
        signer: SignerName,
        /// The attempted step.
        step: &'static str,
        /// The error of the API server.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The signer did not respond in time.
    #[error(
        "signer `{signer}` issued no certificate within {LIMIT:?}; check that it is running and serves this signerName"
    )]
    Timeout {
        /// Name of the signer.
        signer: SignerName,
    },
    /// The certificate that the signer has issued is not what was requested.
    #[error("signer `{signer}`: {source}")]
    Unusable {
        /// Name of the signer.
        signer: SignerName,
        /// How the certificate differs from the request.
        source: Error,
    },
}

impl SignerError {
    /// Returns whether a retry can succeed only after an operator has made a change.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::Failed { .. } | Self::Unusable { .. } => true,
            Self::Busy { .. }
            | Self::Deleted { .. }
            | Self::Kubernetes { .. }
            | Self::Timeout { .. } => false,
        }
    }
}

/// The future of [`RemoteSigner::sign`].
pub type Signed<'a> = Pin<Box<dyn Future<Output = Result<Issued, SignerError>> + Send + 'a>>;

/// Issues certificates with a key that the controller does not have.
pub trait RemoteSigner: Debug + Send + Sync {
    /// Returns the name of the signer.
    fn name(&self) -> &str;

    /// Returns the trust domain of the requested IDs.
    fn trust_domain(&self) -> &TrustDomain;

    /// Requests a certificate and verifies it with `roots`. `requester` is part of the approval's message. Takes at
    /// most 30 s.
    ///
    /// # Errors
    /// If the signer rejects the request or does not respond, or if the certificate differs from the request.
    fn sign<'a>(
        &'a self,
        request: &'a NamedRequest,
        requester: &'a str,
        roots: &'a TrustBundle,
    ) -> Signed<'a>;
}
