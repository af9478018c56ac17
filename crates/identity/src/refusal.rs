//! Reasons for which the handshake with a peer fails, as metric labels.

use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

use crate::SpiffeId;
use crate::error::SanError;

/// The reason of a failed handshake between workloads of the mesh.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Refusal {
    /// The certificate does not name exactly one SPIFFE ID.
    BadSan,
    /// The certificate is outside its validity period.
    Expired,
    /// The peer has presented no certificate.
    NoCertificate,
    /// Any other reason: the peer rejected our certificate, violated the protocol, or closed the connection.
    Other,
    /// The peer does not use TLS.
    Plaintext,
    /// The peer does not support TLS 1.3.
    TlsVersion,
    /// None of the bundle's roots verifies the certificate.
    UnknownRoot,
    /// The certificate is valid, but its identity is not expected here.
    WrongIdentity,
}

impl Refusal {
    /// All reasons, for tables of counters.
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

    /// Returns the label of the reason in metrics and logs.
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

    /// Maps the error of a handshake to its reason.
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
            // The root is unknown, or another one has the same name.
            C::BadSignature | C::UnknownIssuer => Self::UnknownRoot,
            C::Other(other) => match other.0.downcast_ref::<PeerError>() {
                // The names are valid.
                Some(PeerError::San(SanError::MaySign | SanError::MayNotProve)) | None => {
                    Self::Other
                }
                Some(PeerError::San(_)) => Self::BadSan,
                Some(PeerError::Unexpected(_)) => Self::WrongIdentity,
            },
            _ => Self::Other,
        }
    }

    /// Maps an error of a TLS stream to its reason.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        let inner = error.get_ref();
        let tls = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        tls.map_or(Self::Other, Self::of)
    }
}

/// A verifier's objection to a certificate whose chain is valid. It is wrapped in rustls' error, from which
/// [`Refusal::of`] extracts it.
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
