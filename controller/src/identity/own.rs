//! The controller's own certificate, and TLS on its port.
//!
//! The controller certifies itself by the authority that it has. Who connects may show a certificate of
//! the mesh, or none: without one there is nothing to be had but one's own, for a token. By the same certificate
//! replicas know each other; they speak another protocol on the same port, by ALPN.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_identity::tls::{Expected, client_config, open_server_config, peer_until};
use maglor_identity::{Error, Identity, LeafRequest, Live, Refusal, SpiffeId};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::authority::{Ca, Watched};

/// No handshake takes longer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// When a certificate cannot be made, it is tried again after so long.
const REST: Duration = Duration::from_secs(10);
/// What replicas speak with each other on the port: HTTP/1.1.
pub const REPLICA_ALPN: &[u8] = b"maglor-replica/1";
/// What is spoken on the port.
const ALPN: &[&[u8]] = &[b"h2", REPLICA_ALPN];

/// Where what a certificate is good for is published; `None` inside until there is one.
#[derive(Clone, Debug)]
pub struct Serving {
    /// TLS of the port.
    pub server: watch::Sender<Option<Arc<ServerConfig>>>,
    /// TLS to the same port of other replicas, which have to prove that they are such.
    pub replicas: watch::Sender<Option<Arc<ClientConfig>>>,
}

/// Who the controller is, and by which names others may call it.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its SPIFFE id.
    pub id: SpiffeId,
    /// For clients outside the mesh.
    pub dns_names: Vec<String>,
    /// How long a certificate holds, at most [`MAX_TTL`](maglor_identity::MAX_TTL).
    pub ttl: Duration,
}

impl Own {
    /// Keeps a certificate in force, made anew when it ages or the authority changes; returns when nobody
    /// serves any more.
    pub async fn keep(self, mut ca: Watched, serving: Serving) {
        let mut live = None;
        loop {
            let now = ca.borrow_and_update().clone();
            let again = match &now {
                None => None,
                Some(ca) => match self.renew(ca, &mut live, &serving) {
                    Ok(after) => Some(after),
                    Err(error) => {
                        tracing::error!(%error, "the controller cannot certify itself");
                        Some(REST)
                    }
                },
            };
            let renewal = async {
                match again {
                    Some(again) => tokio::time::sleep(again).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = ca.changed() => if changed.is_err() { return },
                () = renewal => {}
                () = serving.server.closed() => return,
            }
        }
    }

    /// Makes a certificate; how long to wait with the next one.
    fn renew(
        &self,
        ca: &Ca,
        live: &mut Option<Arc<Live>>,
        serving: &Serving,
    ) -> Result<Duration, Error> {
        let wanted = LeafRequest {
            ttl: self.ttl,
            dns_names: self.dns_names.clone(),
            ..LeafRequest::new(self.id.clone())
        };
        let now = SystemTime::now();
        let issued = ca.authority.issue(&wanted, now)?;
        let key = issued.private_key_pem.unwrap_or_default();
        let identity = Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes())?;
        let renew = identity.renew_after(now);
        match live {
            Some(live) => drop(live.rotate(identity, ca.bundle.clone())?),
            None => {
                let new = Live::new(identity, ca.bundle.clone())?;
                let server = open_server_config(&new, ALPN)?;
                let itself = Expected::OneOf(vec![self.id.clone()]);
                let replicas = client_config(&new, itself, &[REPLICA_ALPN])?;
                serving.replicas.send_replace(Some(replicas));
                serving.server.send_replace(Some(server));
                *live = Some(new);
            }
        }
        let trusted = live.as_ref().is_some_and(|live| live.is_trusted(now));
        if !trusted {
            tracing::error!(
                "the trust bundle does not vouch for what the authority signs: see `ca.crt`"
            );
        }
        Ok(renew)
    }
}

/// Who is at the other end of a connection, and until when that is proved.
pub type Proved = Option<(SpiffeId, SystemTime)>;

/// The handshake on a connection.
///
/// # Errors
/// When it fails, takes too long, or the client shows a certificate that is not good.
pub async fn accept(
    socket: TcpStream,
    config: Arc<ServerConfig>,
) -> io::Result<(TlsStream<TcpStream>, Proved)> {
    let accepted = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(socket)).await;
    let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let proved = match peer_until(stream.get_ref().1, SystemTime::now()) {
        Ok(proved) => Some(proved),
        Err(Refusal::NoCertificate) => None,
        Err(refusal) => return Err(io::Error::new(io::ErrorKind::InvalidData, refusal.as_str())),
    };
    Ok((stream, proved))
}
