//! The controller's own certificate, and TLS on its port.
//!
//! The controller issues its own certificate with its authority. A client may present a certificate of the mesh, or
//! none: without one it can only request its own certificate, with a token. The same certificate authenticates
//! replicas to each other; they use another protocol on the same port, selected by ALPN.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_identity::tls::{Client, Expected, OpenServer};
use maglor_identity::{Error, Identity, LeafRequest, Live, Refusal, SpiffeId};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::authority::{Ca, Watched};
use crate::metrics::on_call::Expiries;

/// The timeout of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Delay before a failed certificate is retried.
const REST: Duration = Duration::from_secs(10);
/// The ALPN ID of the protocol between replicas, HTTP/1.1.
pub const REPLICA_ALPN: &[u8] = b"maglor-replica/1";
/// How often the system clock is compared with the certificate.
const LOOK: Duration = Duration::from_secs(1);
/// The ALPN IDs of the port.
const ALPN: &[&[u8]] = &[b"h2", REPLICA_ALPN];

/// Publishes the TLS configurations for the certificate; `None` inside until there is one.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The TLS server of the port.
    pub server: watch::Sender<Option<OpenServer>>,
    /// The TLS client for the same port of other replicas, which must authenticate as replicas.
    pub replicas: watch::Sender<Option<Arc<Client>>>,
}

/// The identity of the controller, and the parameters of its certificate.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its SPIFFE ID.
    pub id: SpiffeId,
    /// DNS names for clients outside the mesh.
    pub dns_names: Vec<String>,
    /// Lifetime of a certificate, at most [`MAX_TTL`](maglor_identity::MAX_TTL).
    pub ttl: Duration,
    /// The metric of its expiry.
    pub expiries: Expiries,
}

impl Own {
    /// Keeps a valid certificate: renews it when it ages, or when the clock or the authority changes. Returns when
    /// there are no receivers any more.
    pub async fn keep(self, mut ca: Watched, serving: Serving) {
        let mut live = None;
        loop {
            let now = ca.borrow_and_update().clone();
            let made = now.map(|ca| self.renew(&ca, &mut live, &serving));
            let renewal = made.map(|made| {
                made.unwrap_or_else(|error| {
                    tracing::error!(%error, "cannot issue the controller's own certificate");
                    Renewal::after(REST)
                })
            });
            let renewal = async {
                match renewal {
                    Some(renewal) => renewal.due().await,
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

    /// Issues a certificate; returns when to issue the next one.
    fn renew(
        &self,
        ca: &Ca,
        live: &mut Option<Arc<Live>>,
        serving: &Serving,
    ) -> Result<Renewal, Error> {
        let wanted = LeafRequest {
            ttl: self.ttl,
            dns_names: self.dns_names.clone(),
            ..LeafRequest::new(self.id.clone())
        };
        let now = SystemTime::now();
        let issued = ca.authority.issue(&wanted, now)?;
        let key = issued.private_key_pem.unwrap_or_default();
        let identity = Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes())?;
        let renewal = Renewal {
            issued: now,
            ..Renewal::after(identity.renew_after(now))
        };
        match live {
            Some(live) => drop(live.rotate(identity, ca.bundle.clone())?),
            None => {
                let new = Live::new(identity, ca.bundle.clone())?;
                let server = OpenServer::new(&new, ALPN)?;
                let itself = Expected::OneOf(vec![self.id.clone()]);
                let replicas = Client::new(&new, itself, &[REPLICA_ALPN])?;
                serving.replicas.send_replace(Some(replicas));
                serving.server.send_replace(Some(server));
                *live = Some(new);
            }
        }
        self.expiries.of_controller(issued.expires);
        let expires = k8s_openapi::jiff::Timestamp::try_from(issued.expires).ok();
        let expires = expires.map(tracing::field::display);
        tracing::info!(expires, "controller certificate loaded");
        let trusted = live.as_ref().is_some_and(|live| live.is_trusted(now));
        if !trusted {
            tracing::error!(
                "the trust bundle does not contain the authority's root; check `ca.crt`"
            );
        }
        Ok(renewal)
    }
}

/// The time of the next certificate.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    began: Instant,
    wait: Duration,
    issued: SystemTime,
}

impl Renewal {
    fn after(wait: Duration) -> Self {
        Self {
            began: Instant::now(),
            wait,
            issued: SystemTime::now(),
        }
    }

    /// Returns whether a renewal is due, by the monotonic clock or by the system clock. The latter continues while a
    /// machine is suspended; and if it was set back, a certificate issued in its future is not valid yet for clients
    /// with correct clocks.
    fn is_due(&self, passed: Duration, now: SystemTime) -> bool {
        passed >= self.wait || now >= self.issued + self.wait || now < self.issued
    }

    async fn due(self) {
        let mut look = tokio::time::interval(LOOK);
        while !self.is_due(self.began.elapsed(), SystemTime::now()) {
            look.tick().await;
        }
    }
}

/// The authenticated identity of a peer, and when its certificate expires; or why it is not authenticated.
pub type Proved = Result<(SpiffeId, SystemTime), Refusal>;

/// Accepts a TLS connection. A client with an invalid certificate is treated as one without a certificate, so that it
/// can request a new one.
///
/// # Errors
/// The handshake fails or takes too long.
pub async fn accept(
    socket: TcpStream,
    server: &OpenServer,
) -> io::Result<(TlsStream<TcpStream>, Proved)> {
    let acceptor = TlsAcceptor::from(server.config());
    let accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await;
    let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let proved = server.peer(stream.get_ref().1, SystemTime::now());
    Ok((stream, proved))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_certificate_is_made_anew_when_either_clock_says_so() {
        let renewal = Renewal::after(Duration::from_secs(17 * 3600));
        let (second, now) = (Duration::from_secs(1), renewal.issued);
        assert!(!renewal.is_due(second, now + second));
        assert!(!renewal.is_due(renewal.wait - second, now + renewal.wait - second));
        assert!(renewal.is_due(renewal.wait, now + second));
        // The machine was suspended for days, or its clock set forward.
        assert!(renewal.is_due(second, now + 3 * DAY));
        // The clock was set back.
        assert!(renewal.is_due(second, now - second));
        assert!(renewal.is_due(second, now - 3 * DAY));
    }
}
