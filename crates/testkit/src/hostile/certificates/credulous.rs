//! TLS peers that accept any certificate and present a given one.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};

use super::Shown;

/// Returns the configuration of a client that presents this certificate.
///
/// # Panics
///
/// If the key cannot be used.
#[must_use]
pub(in crate::hostile) fn client_config(
    shown: &Shown,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&str],
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    let mut config = match shown.chain.is_empty() {
        true => builder.with_no_client_auth(),
        false => builder.with_client_cert_resolver(Arc::new(Certified(shown.certified()))),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Returns the configuration of a server that presents this certificate, and requests none of
/// clients.
pub(super) fn server_config(shown: &Shown) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Certified(shown.certified())));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

#[derive(Debug)]
struct Certified(Arc<CertifiedKey>);

impl ResolvesClientCert for Certified {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Certified {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
