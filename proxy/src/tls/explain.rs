//! Descriptions of failed handshakes. rustls describes some errors only by the names of its types.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Replaces the error of a handshake with one that has a helpful message.
pub(crate) fn explained(error: io::Error) -> io::Error {
    let inner = error.get_ref();
    let Some(source) = inner.and_then(|inner| inner.downcast_ref::<Error>()) else {
        return error;
    };
    io::Error::new(error.kind(), Handshake(source.clone()))
}

/// A failed handshake.
#[derive(Debug, thiserror::Error)]
#[error("{}", describe(.0))]
struct Handshake(#[source] Error);

fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(reason) => {
            format!("the peer's certificate {}", certificate(reason))
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                "the peer requires a certificate: set `tls.certificate` and `tls.private_key`"
                    .into()
            }
            AlertDescription::UnknownCA | AlertDescription::BadCertificate => {
                "the peer does not trust our certificate, or its authority".into()
            }
            AlertDescription::CertificateExpired => {
                "the peer rejected our certificate: it has expired".into()
            }
            AlertDescription::UnrecognisedName => {
                "the peer has no certificate for this name: set `tls.server_name`".into()
            }
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
                "the peer has no TLS version or cipher suite in common with us".into()
            }
            AlertDescription::NoApplicationProtocol => {
                "the peer supports none of the offered HTTP versions: set `protocol`".into()
            }
            other => format!(
                "the peer refused the handshake: {}",
                spaced(&format!("{other:?}"))
            ),
        },
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not use TLS on this port".into()
        }
        Error::PeerIncompatible(_) => {
            "the peer has no TLS version or cipher suite in common with us".into()
        }
        Error::NoApplicationProtocol => {
            "the peer supports none of the offered HTTP versions".into()
        }
        Error::NoCertificatesPresented => "the peer has shown no certificate".into(),
        other => other.to_string(),
    }
}

fn certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; is the clock right?".into()
        }
        CertificateError::UnknownIssuer => {
            "is of an authority that is not trusted: set `tls.ca` to its root".into()
        }
        CertificateError::NotValidForName => "is not for this name: set `tls.server_name`".into(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names = match presented.as_slice() {
                [] => "no name".to_owned(),
                names => names.join(", "),
            };
            format!(
                "is for {names}, not for {}: set `tls.server_name`",
                expected.to_str()
            )
        }
        CertificateError::BadSignature => "has an invalid signature".into(),
        CertificateError::BadEncoding => "is malformed".into(),
        CertificateError::Revoked => "has been revoked".into(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for this purpose (extended key usage)".into()
        }
        CertificateError::Other(other) => match format!("{:?}", other.0).as_str() {
            "CaUsedAsEndEntity" => "is an authority's own (CA:TRUE), not a server's".into(),
            "EndEntityUsedAsCa" => "is signed by one that may not sign (CA:FALSE)".into(),
            // The Debug output of library types is a name; messages contain spaces.
            _ => match other.0.to_string() {
                sentence if sentence.contains(' ') => format!("cannot be used: {sentence}"),
                name => format!("cannot be used: {}", spaced(&name)),
            },
        },
        other => format!("cannot be used: {other}"),
    }
}

/// Splits the name of a type into words: `UnsupportedCertVersion` becomes `unsupported cert version`.
fn spaced(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: Error) -> String {
        explained(io::Error::new(io::ErrorKind::InvalidData, error)).to_string()
    }

    #[test]
    fn no_names_of_types_are_shown() {
        #[derive(Debug, thiserror::Error)]
        #[error("{self:?}")]
        enum Webpki {
            CaUsedAsEndEntity,
            UnsupportedCertVersion,
        }
        let other = |error| CertificateError::Other(rustls::OtherError(std::sync::Arc::new(error)));
        for (error, piece) in [
            (
                Error::InvalidCertificate(other(Webpki::CaUsedAsEndEntity)),
                "CA:TRUE",
            ),
            (
                Error::InvalidCertificate(other(Webpki::UnsupportedCertVersion)),
                "unsupported cert version",
            ),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "tls.ca",
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "does not use TLS",
            ),
            (
                Error::AlertReceived(AlertDescription::AccessDenied),
                "access denied",
            ),
        ] {
            let text = said(error);
            assert!(text.contains(piece), "{text}");
            assert!(!text.contains("Error"), "{text}");
        }
        let plain = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(explained(plain).kind(), io::ErrorKind::ConnectionReset);
    }
}
