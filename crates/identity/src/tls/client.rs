//! The client's side of mutual TLS: the certificate that it presents, and the servers that it trusts.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::epoch::PerEpoch;
use super::{algorithms, member};
use crate::provider::provider;
use crate::refusal::PeerError;
use crate::rotating_identity::State;
use crate::{Error, Live, SpiffeId};

/// The identities that a client accepts of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expected {
    /// Any workload of our trust domain.
    Member,
    /// Any of these IDs.
    OneOf(Vec<SpiffeId>),
}

/// The maximum number of servers for which sessions are stored.
const SERVERS: usize = 128;

/// A client that presents the identity of a [`Live`]. It trusts servers that have an expected identity and are verified
/// by a root in the bundle. The server name is only the key of stored sessions.
#[derive(Debug)]
pub struct Client(PerEpoch<ClientConfig>);

impl Client {
    /// Creates a client with the identity of `live`; `alpn` lists the protocols to request in order of preference.
    ///
    /// # Errors
    /// Only those of the provider, which supports TLS 1.3.
    pub fn new(live: &Arc<Live>, expected: Expected, alpn: &[&[u8]]) -> Result<Arc<Self>, Error> {
        let live_of = || Arc::clone(live);
        let servers = Servers {
            live: live_of(),
            expected,
        };
        let mut base = ClientConfig::builder_with_provider(Arc::clone(provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Settings)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(servers))
            .with_client_cert_resolver(Arc::new(Shown(live_of())));
        base.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(Self(PerEpoch::new(live, base, of_epoch))))
    }

    /// Returns the configuration for one handshake that begins now. It resumes no session that began with another
    /// certificate of ours, or before a root was removed.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.current()
    }
}

fn of_epoch(base: &ClientConfig, _: &State) -> ClientConfig {
    let mut config = base.clone();
    config.resumption = Resumption::in_memory_sessions(SERVERS);
    config
}

/// Presents the certificate in use, or none if there is no identity or it cannot be used: with an unusable certificate,
/// the connection would be rejected even by a server that accepts clients without a certificate.
#[derive(Debug)]
struct Shown(Arc<Live>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let state = self.0.state();
        let own = state.usable(SystemTime::now()).ok()?;
        Some(Arc::clone(own.key()))
    }

    fn has_certs(&self) -> bool {
        self.0.usable(SystemTime::now()).is_ok()
    }
}

/// Verifies servers with the trust bundle in use.
#[derive(Debug)]
struct Servers {
    live: Arc<Live>,
    expected: Expected,
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let state = self.live.state();
        state.verify_server(leaf, intermediates, state.time(now))?;
        let expected = match &self.expected {
            Expected::Member => [].as_slice(),
            Expected::OneOf(ids) => ids,
        };
        let id = member(leaf, &state, expected)?;
        match &self.expected {
            Expected::OneOf(ids) if !ids.contains(&id) => Err(PeerError::Unexpected(id).into()),
            Expected::Member | Expected::OneOf(_) => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}
