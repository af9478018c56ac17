//! Errors of certificates, keys and requests.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::pem;

use crate::{SpiffeError, SpiffeId, TrustDomain};

/// Why an identity, a bundle or an authority was not read, or a certificate not issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The authority's own certificate is no longer valid.
    #[error("the authority's certificate has expired: create a new root")]
    AuthorityExpired,
    /// A certificate cannot be read.
    #[error("certificate {position} is malformed")]
    CertificateMalformed {
        /// Counted from 1.
        position: usize,
    },
    /// Something is wrong with a file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: Box<Self>,
    },
    /// The requested ID belongs to another workload.
    #[error("{id} is not in the trust domain {trust_domain}, which this authority vouches for")]
    ForeignId {
        /// The id.
        id: SpiffeId,
        /// The authority's.
        trust_domain: TrustDomain,
    },
    /// The certificate is of another key.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The private key is of a kind that is not supported.
    #[error("private key not usable: {0}")]
    KeyUnusable(String),
    /// There is no certificate.
    #[error("no certificate found (expected PEM)")]
    NoCertificate,
    /// There is no private key.
    #[error("no private key found (expected PEM: PKCS#8, PKCS#1 or SEC1)")]
    NoKey,
    /// The certificate may not sign others.
    #[error("not a CA certificate")]
    NotAnAuthority,
    /// The certificate does not name a workload as an X.509-SVID does.
    #[error(transparent)]
    NotAnIdentity(#[from] SanError),
    /// A root that names no trust domain.
    #[error("the root has no URI `spiffe://TRUST-DOMAIN`: set its trust domain")]
    NoTrustDomain,
    /// The text is not PEM.
    #[error("not PEM: {0}")]
    Pem(#[source] pem::Error),
    /// A file cannot be read.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// The request to sign is malformed.
    #[error("the certificate signing request is malformed")]
    RequestMalformed,
    /// The request's key is of a kind that is not issued for.
    #[error("the request's key is neither ECDSA P-256, ECDSA P-384 nor Ed25519")]
    RequestKey,
    /// Who made the request does not have its key.
    #[error("the request is not signed by its own key")]
    RequestSignature,
    /// A certificate that is no authority's: its key would allow impersonating any workload.
    #[error("certificate {position} is not a CA certificate")]
    RootNotAnAuthority {
        /// Counted from 1.
        position: usize,
    },
    /// A root cannot be used to verify others.
    #[error("certificate {position} is not usable as a root: {source}")]
    RootUnusable {
        /// Counted from 1.
        position: usize,
        /// The error.
        source: rustls::Error,
    },
    /// A TLS configuration cannot be created, for example without random bytes.
    #[error("TLS settings: {0}")]
    Settings(#[source] rustls::Error),
    /// A certificate cannot be made.
    #[error("cannot issue: {0}")]
    Signing(#[from] rcgen::Error),
    /// The authority's name has a form in which it cannot be repeated as an issuer.
    #[error("the subject of this root has parts that are not supported in issued certificates")]
    SubjectUnsupported,
    /// The time to live is not one that is issued.
    #[error("the lifetime of a certificate must be above 0s and at most {max:?}, not {wanted:?}")]
    Ttl {
        /// What was asked for.
        wanted: Duration,
        /// What may be.
        max: Duration,
    },
}

impl Error {
    /// Whether the error is in the private key, rather than the certificate.
    #[must_use]
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::KeyMismatch | Self::KeyUnusable(_) | Self::NoKey)
    }

    /// Whether it says nothing of what is in a file, for the file could not be read.
    pub(crate) fn is_unread(&self) -> bool {
        match self {
            Self::File { source, .. } => source.is_unread(),
            error => matches!(error, Self::Read(_)),
        }
    }

    /// The same error, with the file that it is about.
    pub(crate) fn in_file(path: impl Into<PathBuf>) -> impl FnOnce(Self) -> Self {
        move |source| Self::File {
            path: path.into(),
            source: Box::new(source),
        }
    }
}

/// Why a certificate is not an X.509-SVID (X509-SVID standard, §2, §4, §5.2).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SanError {
    /// It has no URI, or several.
    #[error("the certificate has {0} URI names; a workload certificate has one, its SPIFFE ID")]
    Count(usize),
    /// It is an authority's.
    #[error("the certificate is a CA certificate, not a workload certificate")]
    MaySign,
    /// Its key usages leave out the signatures by which a peer proves to have the key.
    #[error("the certificate lacks the key usage `digitalSignature`")]
    MayNotProve,
    /// It names the trust domain, not a workload.
    #[error("`{0}` is a trust domain, not a workload: it has no path")]
    NoPath(SpiffeId),
    /// Its URI is not a SPIFFE ID.
    #[error("`{uri}` is not a SPIFFE ID: {source}")]
    NotSpiffe {
        /// The URI.
        uri: String,
        /// Why not.
        source: SpiffeError,
    },
    /// The certificate cannot be read at all.
    #[error("the certificate is malformed")]
    Malformed,
}
