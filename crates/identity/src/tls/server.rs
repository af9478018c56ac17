//! The server's side of mutual TLS: the certificate that it presents, and the clients that it accepts.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CommonState, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};

use super::epoch::PerEpoch;
use super::{algorithms, member, peer_until};
use crate::provider::provider;
use crate::rotating_identity::State;
use crate::{Error, Live, Refusal, SpiffeId};

/// A server that presents the identity of a [`Live`] and accepts clients that the bundle verifies.
#[derive(Debug)]
pub struct Server(PerEpoch<ServerConfig>);

impl Server {
    /// Creates a server with the identity of `live`. Sessions are resumed by stateless tickets; `alpn` lists the
    /// protocols in order of preference.
    ///
    /// # Errors
    /// Only those of the provider, which supports TLS 1.3.
    pub fn new(live: &Arc<Live>, alpn: &[&[u8]]) -> Result<Self, Error> {
        Ok(Self(settings(live, alpn, true)?))
    }

    /// Returns the configuration for one handshake that begins now. Its tickets become invalid when the identity
    /// changes, or when a root is removed.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

/// A server that issues certificates. A handshake succeeds without a client certificate, and with an invalid one,
/// because a client whose certificate has expired connects to renew it. Only [`OpenServer::peer`] decides whether the
/// client is an authenticated member.
#[derive(Clone, Debug)]
pub struct OpenServer(Arc<PerEpoch<ServerConfig>>);

impl OpenServer {
    /// Creates a server that presents the identity of `live`. Sessions and `alpn` are as for [`Server::new`].
    ///
    /// # Errors
    /// As those of [`Server::new`].
    pub fn new(live: &Arc<Live>, alpn: &[&[u8]]) -> Result<Self, Error> {
        Ok(Self(Arc::new(settings(live, alpn, false)?)))
    }

    /// Returns the configuration for one handshake, like [`Server::config`].
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.current()
    }

    /// Returns the authenticated member on the other side of a connection whose handshake has completed, and the end of
    /// its certificate's validity period. The certificate is verified, including that of a resumed session.
    ///
    /// # Errors
    /// [`Refusal::NoCertificate`], or the reason why the certificate is invalid. The connection may stay open; its
    /// client is unauthenticated then.
    pub fn peer(
        &self,
        connection: &CommonState,
        now: SystemTime,
    ) -> Result<(SpiffeId, SystemTime), Refusal> {
        let chain = connection.peer_certificates().unwrap_or_default();
        let [leaf, intermediates @ ..] = chain else {
            return Err(Refusal::NoCertificate);
        };
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let time = UnixTime::since_unix_epoch(since.unwrap_or_default());
        let refusal = |error| Refusal::of(&error);
        verify(self.0.live(), leaf, intermediates, time).map_err(refusal)?;
        peer_until(connection, now)
    }
}

fn settings(
    live: &Arc<Live>,
    alpn: &[&[u8]],
    members_only: bool,
) -> Result<PerEpoch<ServerConfig>, Error> {
    let clients = Clients {
        live: Arc::clone(live),
        members_only,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::Settings)?
        .with_client_cert_verifier(Arc::new(clients))
        .with_cert_resolver(Arc::new(Shown(Arc::clone(live))));
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(PerEpoch::new(live, config, of_epoch))
}

/// Presents the certificate in use, for any server name. An expired certificate is presented as well: without one, the
/// handshake would also fail, but the client would not see the reason.
#[derive(Debug)]
struct Shown(Arc<Live>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let state = self.0.state();
        state.identity.as_ref().map(|own| Arc::clone(own.key()))
    }
}

/// Verifies clients with the trust bundle in use; on an open server, verifies only that the client has the key of its
/// certificate.
#[derive(Debug)]
struct Clients {
    live: Arc<Live>,
    members_only: bool,
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.members_only
    }

    /// Returns an empty list: clients have only one certificate, and the names of roots would lengthen the handshake.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.members_only {
            true => verify(&self.live, leaf, intermediates, now),
            // The certificate is not trusted here; `OpenServer::peer` verifies it.
            false => Ok(ClientCertVerified::assertion()),
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

/// Verifies a client's certificate: its chain and its identity.
fn verify(
    live: &Live,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<ClientCertVerified, rustls::Error> {
    let state = live.state();
    let verified = state.verify_client(leaf, intermediates, state.time(now))?;
    member(leaf, &state, &[])?;
    Ok(verified)
}

fn of_epoch(base: &ServerConfig, state: &State) -> ServerConfig {
    let mut config = base.clone();
    config.ticketer = Arc::clone(&state.tickets);
    config
}
