//! A separate certificate authority for each test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
use tempfile::TempDir;

/// A certificate authority; its files live as long as it does.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    dir: TempDir,
}

/// A certificate with its key, in memory and in files of the [`Authority`]'s directory.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate chain (without the authority).
    pub cert_pem: String,
    /// The private key, PKCS #8.
    pub key_pem: String,
    /// The file that holds [`Identity::cert_pem`].
    pub cert_file: PathBuf,
    /// The file that holds [`Identity::key_pem`].
    pub key_file: PathBuf,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates an authority with a new key.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Maglor test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let dir = TempDir::with_prefix("maglor-certs-").expect("a temporary directory");
        fs::write(dir.path().join("ca.pem"), &pem).expect("a file in it");
        Self {
            issuer: Issuer::new(params, key),
            pem,
            dir,
        }
    }

    /// Returns the certificate of the authority.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the file that holds [`Authority::pem`].
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Returns a directory for other files of the test, removed with the authority.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Issues a certificate for DNS names, IP addresses or URIs (`spiffe://…`), valid for both
    /// sides of TLS.
    ///
    /// The files are named by the first name; issuing the name again replaces them.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Identity {
        let (uris, hosts): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| name.contains("://"));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).expect("names for a certificate");
        for uri in uris {
            let uri = uri.to_owned().try_into().expect("a URI is ASCII");
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
        }
        let first = names.first().copied().unwrap_or("unnamed");
        params.distinguished_name.push(DnType::CommonName, first);
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");

        let file_name = first.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let path = |suffix| self.dir.path().join(format!("{file_name}.{suffix}.pem"));
        let identity = Identity {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
            cert_file: path("cert"),
            key_file: path("key"),
        };
        fs::write(&identity.cert_file, &identity.cert_pem).expect("the certificate's file");
        fs::write(&identity.key_file, &identity.key_pem).expect("the key's file");
        identity
    }

    /// Returns the configuration of a server with `identity`; with `require_client`, it accepts
    /// only clients of this authority.
    #[must_use]
    pub fn server_config(
        &self,
        identity: &Identity,
        alpn: &[&str],
        require_client: bool,
    ) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider speaks TLS");
        let builder = if require_client {
            let verifier = WebPkiClientVerifier::builder_with_provider(self.roots(), provider())
                .build()
                .expect("there is a root");
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder
            .with_single_cert(identity.chain(), identity.key())
            .expect("the key fits the certificate");
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }

    /// Returns the configuration of a client that trusts this authority and presents `identity` if
    /// requested.
    #[must_use]
    pub fn client_config(&self, identity: Option<&Identity>, alpn: &[&str]) -> Arc<ClientConfig> {
        let builder = client().with_root_certificates(self.roots());
        let mut config = match identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain(), identity.key())
                .expect("the key fits the certificate"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }

    fn roots(&self) -> Arc<RootCertStore> {
        Arc::new(roots(self.pem.as_bytes()))
    }
}

/// Returns the configuration of a client that trusts these authorities (PEM) and presents no
/// certificate.
#[must_use]
pub fn trusting(authorities: &[u8]) -> Arc<ClientConfig> {
    let config = client().with_root_certificates(roots(authorities));
    Arc::new(config.with_no_client_auth())
}

fn client() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider speaks TLS")
}

fn roots(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(pem) {
        roots.add(root.expect("PEM")).expect("an authority");
    }
    roots
}

impl Identity {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.cert_pem.as_bytes())
            .collect::<Result<_, _>>()
            .expect("PEM")
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("PEM")
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn protocols(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.as_bytes().to_vec()).collect()
}
