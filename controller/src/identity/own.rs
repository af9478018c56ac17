//! The controller's own certificate, and TLS on its port.
//!
//! The controller certifies itself by the authority that it has. Who connects may show a certificate of
//! the mesh, or none: without one there is nothing to be had but one's own, for a token. By the same certificate
//! replicas know each other; they speak another protocol on the same port, by ALPN.

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

/// No handshake takes longer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Delay before a failed certificate is retried.
const REST: Duration = Duration::from_secs(10);
/// What replicas speak with each other on the port: HTTP/1.1.
pub const REPLICA_ALPN: &[u8] = b"maglor-replica/1";
/// How often the system's clock is compared with the certificate.
const LOOK: Duration = Duration::from_secs(1);
/// The protocol of the port.
const ALPN: &[&[u8]] = &[b"h2", REPLICA_ALPN];

/// Where what a certificate is good for is published; `None` inside until there is one.
#[derive(Clone, Debug)]
pub struct Serving {
    /// TLS of the port.
    pub server: watch::Sender<Option<OpenServer>>,
    /// TLS to the same port of other replicas, which have to prove that they are such.
    pub replicas: watch::Sender<Option<Arc<Client>>>,
}

/// Who the controller is, and by which names others may call it.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its SPIFFE ID.
    pub id: SpiffeId,
    /// For clients outside the mesh.
    pub dns_names: Vec<String>,
    /// How long a certificate holds, at most [`MAX_TTL`](maglor_identity::MAX_TTL).
    pub ttl: Duration,
    /// Where it is shown when it expires.
    pub expiries: Expiries,
}

impl Own {
    /// Keeps a certificate in force, made anew when it ages, the clock was changed or the authority changes; returns
    /// when no replica serves any more.
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

    /// Makes a certificate; when to make the next one.
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
        tracing::info!(expires, "controller identity in force");
        let trusted = live.as_ref().is_some_and(|live| live.is_trusted(now));
        if !trusted {
            tracing::error!(
                "the trust bundle does not contain the authority's root; check `ca.crt`"
            );
        }
        Ok(renewal)
    }
}

/// When the next certificate is made.
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

    /// Whether it is time. By the clock that never jumps, and by the system's: that one continues while a machine is
    /// suspended, and a certificate that was issued at a time which is still to come is not valid yet for clients
    /// whose clocks are right.
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

/// Who is at the other end of a connection, and until when that is proved; or why nothing is proved.
pub type Proved = Result<(SpiffeId, SystemTime), Refusal>;

/// The handshake on a connection. A client whose certificate proves nothing is one without a certificate: it has to
/// be able to come for another one.
///
/// # Errors
/// When it fails or takes too long.
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
