//! Client side: builds a [`ClientConfig`] from an [`UpstreamTls`].

use std::sync::Arc;

use maglor_config::UpstreamTls;
use maglor_identity::tls::StrictServers;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::{Error, Roots, files, provider, versions};

/// Maximum number of sessions kept for resumption, over all servers of a cluster.
const SESSIONS: usize = 128;

/// Builds the configuration of a cluster and reads its files. `alpn` contains the protocols of the cluster, the
/// preferred one first.
///
/// # Errors
/// If a file cannot be read or used; the error names it.
pub(crate) fn client_config(
    tls: &UpstreamTls,
    alpn: &[&[u8]],
    roots: &mut Roots,
) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(provider().clone())
        .with_protocol_versions(versions(tls.min_version))
        .map_err(Error::Settings)?
        .dangerous()
        .with_custom_certificate_verifier(server_verifier(tls, roots)?);
    let mut config = match &tls.certificate {
        None => builder.with_no_client_auth(),
        Some(paths) => {
            let key = Arc::new(files::certified_key(paths)?.key);
            builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Arc::new(config))
}

fn server_verifier(
    tls: &UpstreamTls,
    roots: &mut Roots,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    if tls.insecure_skip_verify {
        tracing::warn!(
            server_name = tls.server_name.as_deref(),
            "insecure_skip_verify: any server certificate is accepted; never use this outside tests"
        );
        let algorithms = provider().signature_verification_algorithms;
        return Ok(Arc::new(AcceptAny(algorithms)));
    }
    let roots = match &tls.ca {
        Some(path) => roots.file(path)?,
        None => roots.system()?,
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider().clone()).build();
    let verifier = verifier.map_err(|e| Error::Settings(rustls::Error::General(e.to_string())))?;
    Ok(Arc::new(StrictServers(verifier)))
}

/// Verifier that accepts any certificate whose private key the server holds.
#[derive(Debug)]
struct AcceptAny(WebPkiSupportedAlgorithms);

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
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
