//! A check of the CA certificates in a chain that webpki does not perform: key usages, if present, must include
//! certificate signing (RFC 5280, section 6.1.4 (n)).

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::x509;

/// Rejects a chain with an intermediate CA that may not sign certificates, or with an element that is not a
/// certificate, whether or not the path needs it.
///
/// # Errors
/// [`CertificateError::UnknownIssuer`], as for any other chain without a valid issuer.
pub(crate) fn check(intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    let mut read = intermediates.iter().map(|one| x509::parse(one));
    // A certificate that is no CA cannot issue others anyway; some peers send their leaf twice.
    match read.all(|one| one.is_some_and(|one| one.may_certify || !one.is_ca)) {
        true => Ok(()),
        false => Err(CertificateError::UnknownIssuer.into()),
    }
}

/// A [`ClientCertVerifier`] that wraps another one and also checks the intermediate CAs.
#[derive(Debug)]
pub struct StrictClients(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for StrictClients {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check(intermediates)?;
        self.0.verify_client_cert(leaf, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A [`ServerCertVerifier`] that wraps another one and also checks the intermediate CAs.
#[derive(Debug)]
pub struct StrictServers(pub Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for StrictServers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check(intermediates)?;
        self.0
            .verify_server_cert(leaf, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
