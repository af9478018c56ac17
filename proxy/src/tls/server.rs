//! Server side: builds a [`ServerConfig`] from a [`DownstreamTls`].

use std::sync::Arc;

use maglor_config::DownstreamTls;
use maglor_identity::tls::StrictClients;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};

use super::resolver::CertificateResolver;
use super::{Error, Roots, files, provider, versions};

/// Builds the configuration of a filter chain and reads its files.
///
/// Sessions are resumed by stateless tickets, whose keys belong to this configuration: a new configuration (for
/// example with another `client_ca`) rejects tickets of the old one.
///
/// # Errors
/// If a file cannot be read or used; the error names it.
pub(crate) fn server_config(
    tls: &DownstreamTls,
    roots: &mut Roots,
) -> Result<Arc<ServerConfig>, Error> {
    let certificates = tls.certificates.iter().map(files::certified_key);
    let resolver = CertificateResolver::new(certificates.collect::<Result<_, _>>()?);
    let mut config = ServerConfig::builder_with_provider(provider().clone())
        .with_protocol_versions(versions(tls.min_version))
        .map_err(Error::Settings)?
        .with_client_cert_verifier(client_verifier(tls, roots)?)
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = tls
        .alpn
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new().map_err(Error::Settings)?;
    Ok(Arc::new(config))
}

fn client_verifier(
    tls: &DownstreamTls,
    roots: &mut Roots,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let Some(path) = &tls.client_ca else {
        return Ok(Arc::new(NoClientAuth));
    };
    let builder =
        WebPkiClientVerifier::builder_with_provider(roots.file(path)?, provider().clone());
    let builder = match tls.require_client_certificate {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    let verifier = builder
        .build()
        .map_err(|e| Error::Settings(rustls::Error::General(e.to_string())))?;
    Ok(Arc::new(StrictClients(verifier)))
}
