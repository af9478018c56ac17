//! Errors of certificates, keys and requests.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::pem;

use crate::{SpiffeError, SpiffeId, TrustDomain};

/// An error in an identity, a bundle or an authority, or in issuing a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The authority's own certificate is no longer valid.
    #[error("the authority's certificate has expired: create a new root")]
    AuthorityExpired,
    /// A certificate cannot be read.
    #[error("certificate {position} is malformed")]
    CertificateMalformed {
        /// The position of the certificate in the file, counted from 1.
        position: usize,
    },
    /// A file has an error.
    #[error("{}: {source}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error in the contents of the file.
        source: Box<Self>,
    },
    /// The requested ID belongs to another workload.
    #[error("{id} is not in the trust domain {trust_domain} of this authority")]
    ForeignId {
        /// The requested ID.
        id: SpiffeId,
        /// The trust domain of the authority.
        trust_domain: TrustDomain,
    },
    /// The certificate from a signer does not belong to the requested key.
    #[error("the issued certificate is for another key than the request")]
    IssuedKey,
    /// The certificate from a signer is valid for longer than the mesh accepts.
    #[error("the issued certificate is valid for {} more; at most {} is accepted", humantime::format_duration(*left), humantime::format_duration(*max))]
    IssuedLifetime {
        /// The remaining lifetime of the certificate.
        left: Duration,
        /// The maximum lifetime that is accepted.
        max: Duration,
    },
    /// The certificate from a signer has names that were not requested, or lacks the requested ID.
    #[error("the issued certificate names {found}; expected {required}")]
    IssuedNames {
        /// The names in the certificate.
        found: String,
        /// The requested names.
        required: String,
    },
    /// The certificate from a signer is not valid now, or does not lead to a root.
    #[error("the issued certificate does not verify with the trusted roots: {0}")]
    IssuedUntrusted(#[source] rustls::Error),
    /// The certificate belongs to another key.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The type of the private key is not supported.
    #[error("private key not usable: {0}")]
    KeyUnusable(String),
    /// There is no certificate.
    #[error("no certificate found (expected PEM)")]
    NoCertificate,
    /// There is no private key.
    #[error("no private key found (expected PEM: PKCS#8, PKCS#1 or SEC1)")]
    NoKey,
    /// The certificate may not sign other certificates.
    #[error("the certificate is not a CA certificate")]
    NotAnAuthority,
    /// The certificate does not identify a workload in the form of an X.509-SVID.
    #[error(transparent)]
    NotAnIdentity(#[from] SanError),
    /// The root certificate does not name a trust domain.
    #[error(
        "the root certificate has no URI `spiffe://TRUST-DOMAIN`, from which the trust domain \
         is read; set the trust domain"
    )]
    NoTrustDomain,
    /// The text is not PEM.
    #[error("not PEM: {0}")]
    Pem(#[source] pem::Error),
    /// A file cannot be read.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// The request is for a CA certificate.
    #[error(
        "the certificate signing request is for a CA certificate, which is not issued to workloads"
    )]
    RequestAuthority,
    /// The request contains more than its names, which a signer might copy.
    #[error("the certificate signing request has {0}; only subject alternative names are accepted")]
    RequestExtra(String),
    /// The signing request is malformed.
    #[error("the certificate signing request is malformed")]
    RequestMalformed,
    /// Certificates are not issued for this type of key.
    #[error("the request's key is neither ECDSA P-256, ECDSA P-384 nor Ed25519")]
    RequestKey,
    /// The request does not have the required names.
    #[error("the certificate signing request names {found}; it must name {required} only")]
    RequestNames {
        /// The names in the request.
        found: String,
        /// The required names.
        required: String,
    },
    /// The signature of the request does not match its key.
    #[error("the request is not signed by its own key")]
    RequestSignature,
    /// The request has no names, so a signer that copies them could not issue an identity.
    #[error("the certificate signing request has no names; it must name its SPIFFE ID")]
    RequestUnnamed,
    /// A root is not a CA certificate: the owner of its key could impersonate any workload.
    #[error("certificate {position} is not a CA certificate")]
    RootNotAnAuthority {
        /// The position of the root in the bundle, counted from 1.
        position: usize,
    },
    /// A root cannot be used to verify others.
    #[error("certificate {position} is not usable as a root: {source}")]
    RootUnusable {
        /// The position of the root in the bundle, counted from 1.
        position: usize,
        /// The error of the verifier.
        source: rustls::Error,
    },
    /// A TLS configuration cannot be created, for example because there are no random bytes.
    #[error("invalid TLS settings: {0}")]
    Settings(#[source] rustls::Error),
    /// A certificate cannot be created.
    #[error("cannot issue a certificate: {0}")]
    Signing(#[from] rcgen::Error),
    /// The authority's name has a form that cannot be written as the issuer of another certificate.
    #[error("the subject of this root has parts that are not supported in issued certificates")]
    SubjectUnsupported,
    /// The lifetime is outside the allowed range.
    #[error("the lifetime of a certificate must be above 0s and at most {max:?}, not {wanted:?}")]
    Ttl {
        /// The requested lifetime.
        wanted: Duration,
        /// The maximum lifetime.
        max: Duration,
    },
}

impl Error {
    /// Returns whether the error is in the private key, and not in the certificate.
    #[must_use]
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::KeyMismatch | Self::KeyUnusable(_) | Self::NoKey)
    }

    /// Returns whether the file could not be read, so that the error is not about its contents.
    pub(crate) fn is_unread(&self) -> bool {
        match self {
            Self::File { source, .. } => source.is_unread(),
            error => matches!(error, Self::Read(_)),
        }
    }

    /// Adds the path of the file to an error.
    pub(crate) fn in_file(path: impl Into<PathBuf>) -> impl FnOnce(Self) -> Self {
        move |source| Self::File {
            path: path.into(),
            source: Box::new(source),
        }
    }
}

/// A violation of the X.509-SVID standard (§2, §4, §5.2) by a certificate.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SanError {
    /// The certificate has no URI, or several.
    #[error("the certificate has {0} URI names; a workload certificate has one, its SPIFFE ID")]
    Count(usize),
    /// The certificate is a CA certificate.
    #[error("the certificate is a CA certificate, not a workload certificate")]
    MaySign,
    /// The key usages of the certificate do not allow the signature of a handshake.
    #[error("the certificate lacks the key usage `digitalSignature`")]
    MayNotProve,
    /// The certificate names the trust domain, and not a workload.
    #[error("`{0}` is a trust domain, not a workload: it has no path")]
    NoPath(SpiffeId),
    /// The URI of the certificate is not a SPIFFE ID.
    #[error("`{uri}` is not a SPIFFE ID: {source}")]
    NotSpiffe {
        /// The URI.
        uri: String,
        /// The reason why the URI is not a SPIFFE ID.
        source: SpiffeError,
    },
    /// The certificate cannot be parsed.
    #[error("the certificate is malformed")]
    Malformed,
}
