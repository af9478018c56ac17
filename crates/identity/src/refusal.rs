//! Reasons for rejecting a peer, as metric labels.

use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

use crate::SpiffeId;
use crate::error::SanError;

/// The reason for which a handshake between workloads of the mesh failed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Refusal {
    /// The certificate names not exactly one SPIFFE ID.
    BadSan,
    /// The certificate is outside its validity.
    Expired,
    /// The peer has shown no certificate.
    NoCertificate,
    /// Something else: the peer turned us away, spoke TLS wrongly, left.
    Other,
    /// The peer does not speak TLS.
    Plaintext,
    /// The peer does not speak TLS 1.3.
    TlsVersion,
    /// None of the bundle's roots vouches for the certificate.
    UnknownRoot,
    /// The certificate is good, but its owner is not expected here.
    WrongIdentity,
}

impl Refusal {
    /// Every reason, for tables of counters.
    pub const ALL: [Self; 8] = [
        Self::BadSan,
        Self::Expired,
        Self::NoCertificate,
        Self::Other,
        Self::Plaintext,
        Self::TlsVersion,
        Self::UnknownRoot,
        Self::WrongIdentity,
    ];

    /// The word in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadSan => "bad-san",
            Self::Expired => "expired",
            Self::NoCertificate => "no-certificate",
            Self::Other => "other",
            Self::Plaintext => "plaintext",
            Self::TlsVersion => "tls-version",
            Self::UnknownRoot => "unknown-root",
            Self::WrongIdentity => "wrong-identity",
        }
    }

    /// The reason behind the error of a handshake.
    #[must_use]
    pub fn of(error: &rustls::Error) -> Self {
        use rustls::Error as E;
        match error {
            E::InvalidCertificate(error) => Self::of_certificate(error),
            E::NoCertificatesPresented => Self::NoCertificate,
            E::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled,
            )
            | E::AlertReceived(AlertDescription::ProtocolVersion) => Self::TlsVersion,
            E::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::Plaintext,
            _ => Self::Other,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as C;
        match error {
            C::Expired
            | C::ExpiredContext { .. }
            | C::NotValidYet
            | C::NotValidYetContext { .. } => Self::Expired,
            // Another root of the same name, or an unknown one.
            C::BadSignature | C::UnknownIssuer => Self::UnknownRoot,
            C::Other(other) => match other.0.downcast_ref::<PeerError>() {
                // Nothing is wrong with its names.
                Some(PeerError::San(SanError::MaySign | SanError::MayNotProve)) | None => {
                    Self::Other
                }
                Some(PeerError::San(_)) => Self::BadSan,
                Some(PeerError::Unexpected(_)) => Self::WrongIdentity,
            },
            _ => Self::Other,
        }
    }

    /// The reason behind an error as a TLS stream reports it.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        let inner = error.get_ref();
        let tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        tls.map_or(Self::Other, Self::of)
    }
}

/// What a verifier finds wrong with a certificate whose chain is good. It travels inside rustls'
/// error, from where [`Refusal::of`] takes it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error(transparent)]
    San(#[from] SanError),
    #[error("unexpected {0}")]
    Unexpected(SpiffeId),
}

impl From<PeerError> for rustls::Error {
    fn from(error: PeerError) -> Self {
        let other = rustls::OtherError(std::sync::Arc::new(error));
        Self::InvalidCertificate(CertificateError::Other(other))
    }
}
