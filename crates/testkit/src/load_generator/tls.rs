//! TLS of the clients: the servers they trust, and the certificate they present.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The servers that clients trust.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Those with a certificate of an authority of the system.
    #[default]
    System,
    /// Those with a certificate of one of these authorities (PEM).
    Authorities(Vec<u8>),
    /// All, whatever their name and certificate. For tests only.
    Anyone,
}

/// A certificate chain and its private key (PEM).
#[derive(Clone)]
pub struct Certificate {
    /// The chain, the client's own certificate first.
    pub chain: Vec<u8>,
    /// The private key, in PKCS #8, PKCS #1 or SEC 1.
    pub key: Vec<u8>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// Settings of TLS, 1.2 or 1.3.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The servers that clients trust.
    pub trust: Trust,
    /// What clients present to servers that ask for a certificate.
    pub certificate: Option<Certificate>,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The system has no authorities.
    #[error("the system has no authorities to trust: {0}")]
    NoSystemAuthorities(String),
    /// There is no usable authority among those given.
    #[error("no certificate of an authority: {0}")]
    Authorities(String),
    /// The client's certificate or key cannot be read.
    #[error("the client's {0}: {1}")]
    Certificate(&'static str, pem::Error),
    /// The certificate and the key do not fit each other, or are not supported.
    #[error("the client's certificate and key: {0}")]
    Pair(rustls::Error),
}

/// Creates the configuration of clients that offer the protocol `alpn`.
pub(crate) fn client_config(
    settings: &Settings,
    alpn: &[u8],
) -> Result<Arc<ClientConfig>, SettingsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(SettingsError::Pair)?;
    let builder = match &settings.trust {
        Trust::System => builder.with_root_certificates(system_roots()?),
        Trust::Authorities(pem) => builder.with_root_certificates(authorities(pem)?),
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider))),
    };
    let mut config = match &settings.certificate {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::pem_slice_iter(&own.chain).collect::<Result<Vec<_>, _>>();
            let chain = chain.map_err(|error| SettingsError::Certificate("certificate", error))?;
            let key = PrivateKeyDer::from_pem_slice(&own.key);
            let key = key.map_err(|error| SettingsError::Certificate("key", error))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(SettingsError::Pair)?
        }
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

fn system_roots() -> Result<RootCertStore, SettingsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(SettingsError::NoSystemAuthorities(reasons.join(", ")));
    }
    Ok(roots)
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|error| SettingsError::Authorities(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| SettingsError::Authorities(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(SettingsError::Authorities("none found".into())),
        false => Ok(roots),
    }
}

/// Accepts any certificate whose private key the server holds.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
