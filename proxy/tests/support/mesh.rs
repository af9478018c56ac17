//! Members of a mesh, and unauthenticated clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use maglor_identity::{Files, Live, Paths, TrustBundle, tls};
use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use tempfile::TempDir;

/// A root that signs any request, and a directory for its certificates.
pub(crate) struct Root {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    dir: TempDir,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

pub(crate) fn id(account: &str) -> String {
    format!("spiffe://mesh.test/ns/shop/sa/{account}")
}

impl Root {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
            dir: TempDir::with_prefix("maglor-mesh-").unwrap(),
        }
    }

    /// Returns a certificate with these URIs.
    pub(crate) fn sign(&self, uris: &[&str]) -> Pair {
        self.sign_with(uris, |_| {})
    }

    /// Returns an expired certificate.
    pub(crate) fn sign_expired(&self, uri: &str) -> Pair {
        self.sign_with(&[uri], |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        })
    }

    fn sign_with(&self, uris: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::default();
        for uri in uris {
            let uri = (*uri).try_into().unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
        }
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Creates the files of a member.
    pub(crate) fn member(&self, account: &str) -> Member {
        let member = Member(self.dir.path().join(account));
        fs::create_dir_all(&member.0).unwrap();
        member.write(&self.sign(&[&id(account)]), &self.pem);
        member
    }
}

/// Files of a member, as a proxy reads them.
#[derive(Clone, Debug)]
pub(crate) struct Member(PathBuf);

impl Member {
    pub(crate) fn in_folder(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Replaces all of the files.
    pub(crate) fn write(&self, pair: &Pair, bundle: &str) {
        self.write_bundle(bundle);
        replace(&self.0.join("private_key.pem"), &pair.key);
        replace(&self.0.join("certificate.pem"), &pair.certificate);
    }

    pub(crate) fn write_bundle(&self, bundle: &str) {
        replace(&self.0.join("trust_bundle.pem"), bundle);
    }

    /// Returns the setting that names the files.
    pub(crate) fn yaml(&self) -> String {
        let file = |name| self.0.join(name).display().to_string();
        format!(
            "identity: {{certificate: '{}', private_key: '{}', trust_bundle: '{}'}}",
            file("certificate.pem"),
            file("private_key.pem"),
            file("trust_bundle.pem")
        )
    }

    /// The same as flags.
    pub(crate) fn flags(&self) -> [String; 6] {
        let file = |name| self.0.join(name).display().to_string();
        [
            "--certificate".to_owned(),
            file("certificate.pem"),
            "--private-key".to_owned(),
            file("private_key.pem"),
            "--trust-bundle".to_owned(),
            file("trust_bundle.pem"),
        ]
    }

    /// Returns the TLS configuration of a client, like that of a proxy; without ALPN if it is empty.
    pub(crate) fn client(&self, alpn: &str) -> Arc<ClientConfig> {
        let paths = Paths {
            certificate: self.0.join("certificate.pem"),
            private_key: self.0.join("private_key.pem"),
            trust_bundle: self.0.join("trust_bundle.pem"),
        };
        let (_, identity, bundle) = Files::open(paths).unwrap();
        let live = Live::new(identity, bundle).unwrap();
        let alpn: Vec<_> = Some(alpn.as_bytes())
            .filter(|a| !a.is_empty())
            .into_iter()
            .collect();
        let client = tls::Client::new(&live, tls::Expected::Member, &alpn).unwrap();
        client.config()
    }
}

/// Returns a bundle of both roots.
pub(crate) fn both(a: &str, b: &str) -> String {
    let read = |pem: &str| TrustBundle::from_pem(pem.as_bytes()).unwrap();
    read(a).union(&read(b)).unwrap().to_pem()
}

fn replace(path: &Path, text: &str) {
    let partial = path.with_extension("partial");
    fs::write(&partial, text).unwrap();
    fs::rename(partial, path).unwrap();
}

/// Returns a client configuration that presents any certificate, and trusts any server.
pub(crate) fn careless(
    pair: Option<&Pair>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    Arc::new(match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(chain.collect::<Result<_, _>>().unwrap(), key)
                .unwrap()
        }
    })
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
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
