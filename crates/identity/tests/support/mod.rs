//! Common functions of the tests: handshakes in memory, and certificates that our authority would not issue.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_identity::{
    Authority, Identity, LeafRequest, Live, Refusal, SpiffeId, TrustBundle, tls,
};
use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn authority() -> Authority {
    Authority::create(&"mesh.test".parse().unwrap(), SystemTime::now()).unwrap()
}

pub(crate) fn id(account: &str) -> SpiffeId {
    format!("spiffe://mesh.test/ns/shop/sa/{account}")
        .parse()
        .unwrap()
}

pub(crate) fn identity(authority: &Authority, account: &str) -> Identity {
    issued(authority, account, SystemTime::now())
}

/// As it was issued at `now`.
pub(crate) fn issued(authority: &Authority, account: &str, now: SystemTime) -> Identity {
    let issued = authority
        .issue(&LeafRequest::new(id(account)), now)
        .unwrap();
    let key = issued.private_key_pem.unwrap();
    Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes()).unwrap()
}

pub(crate) fn live(authority: &Authority, account: &str) -> Arc<Live> {
    Live::new(identity(authority, account), authority.bundle().unwrap()).unwrap()
}

pub(crate) fn server(live: &Arc<Live>) -> tls::Server {
    tls::Server::new(live, &[b"h2", b"http/1.1"]).unwrap()
}

pub(crate) fn client(live: &Arc<Live>) -> Arc<tls::Client> {
    tls::Client::new(live, tls::Expected::Member, &[b"h2"]).unwrap()
}

/// The TLS configuration of one side of a handshake.
pub(crate) trait Settings<C> {
    fn settings(&self) -> Arc<C>;
}

impl Settings<ClientConfig> for Arc<tls::Client> {
    fn settings(&self) -> Arc<ClientConfig> {
        self.config()
    }
}

impl Settings<ServerConfig> for tls::Server {
    fn settings(&self) -> Arc<ServerConfig> {
        self.config()
    }
}

impl Settings<ServerConfig> for tls::OpenServer {
    fn settings(&self) -> Arc<ServerConfig> {
        self.config()
    }
}

impl<C> Settings<C> for Arc<C> {
    fn settings(&self) -> Arc<C> {
        Arc::clone(self)
    }
}

/// Certificates of an authority without checks.
pub(crate) struct Obedient {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Obedient {
    pub(crate) fn new() -> Self {
        Self::until(2100)
    }

    /// Whose root expires with the beginning of a year.
    pub(crate) fn until(year: i32) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let name = format!("until {year}");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    pub(crate) fn bundle(&self) -> TrustBundle {
        TrustBundle::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// PEM of a certificate with these URIs, and of its key.
    pub(crate) fn issue(&self, uris: &[&str]) -> (String, String) {
        let mut params = CertificateParams::default();
        for uri in uris {
            let uri = (*uri).try_into().unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    pub(crate) fn live(&self, uri: &str) -> Arc<Live> {
        let (certificate, key) = self.issue(&[uri]);
        let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        Live::new(identity, self.bundle()).unwrap()
    }
}

/// A client that presents any certificate and trusts any server.
pub(crate) fn careless(certificate: Option<(String, String)>) -> ClientConfig {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    careless_by(certificate, provider.kx_groups)
}

/// The same, with these groups for the key exchange.
pub(crate) fn careless_by(
    certificate: Option<(String, String)>,
    kx_groups: Vec<&'static dyn rustls::crypto::SupportedKxGroup>,
) -> ClientConfig {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let provider = rustls::crypto::CryptoProvider {
        kx_groups,
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    match certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(chain.collect::<Result<_, _>>().unwrap(), key)
                .unwrap()
        }
    }
}

#[derive(Debug)]
struct Credulous;

impl rustls::client::danger::ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// How a handshake ended for each side.
pub(crate) struct Handshake {
    pub(crate) client: Result<ClientConnection, rustls::Error>,
    pub(crate) server: Result<ServerConnection, rustls::Error>,
}

impl Handshake {
    pub(crate) fn run(
        client: &impl Settings<ClientConfig>,
        server: &impl Settings<ServerConfig>,
    ) -> Self {
        Self::interrupted(client, server, |_| {})
    }

    /// `between` runs before each flight that is not the first: 1 before the server's answer arrives, 2 before the
    /// client's last flight does, 3 before the server's tickets do.
    pub(crate) fn interrupted(
        client: &impl Settings<ClientConfig>,
        server: &impl Settings<ServerConfig>,
        mut between: impl FnMut(usize),
    ) -> Self {
        let name = "127.0.0.1".try_into().unwrap();
        let mut client = ClientConnection::new(client.settings(), name).unwrap();
        let mut server = ServerConnection::new(server.settings()).unwrap();
        let (mut client_failed, mut server_failed) = (None, None);
        for round in 0.. {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut up).unwrap();
            }
            if round > 0 {
                between(2 * round);
            }
            if !up.is_empty() && server_failed.is_none() {
                server.read_tls(&mut up.as_slice()).unwrap();
                server_failed = server.process_new_packets().err();
            }
            while server.wants_write() {
                server.write_tls(&mut down).unwrap();
            }
            between(2 * round + 1);
            if !down.is_empty() && client_failed.is_none() {
                client.read_tls(&mut down.as_slice()).unwrap();
                client_failed = client.process_new_packets().err();
            }
            if up.is_empty() && down.is_empty() {
                break;
            }
        }
        Self {
            client: client_failed.map_or(Ok(client), Err),
            server: server_failed.map_or(Ok(server), Err),
        }
    }

    /// The client's identity as seen by the server.
    pub(crate) fn seen_by_server(&self) -> Result<SpiffeId, Refusal> {
        let connection = self.server.as_ref().map_err(Refusal::of)?;
        tls::peer(connection, SystemTime::now())
    }

    /// The server's identity as seen by the client.
    pub(crate) fn seen_by_client(&self) -> Result<SpiffeId, Refusal> {
        let connection = self.client.as_ref().map_err(Refusal::of)?;
        tls::peer(connection, SystemTime::now())
    }

    pub(crate) fn kind(&self) -> HandshakeKind {
        self.server.as_ref().unwrap().handshake_kind().unwrap()
    }
}
