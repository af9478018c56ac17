//! The controller's own certificate, and TLS on its xDS port.
//!
//! The controller gets its own certificate from its authority or its external signer. A client may present a
//! certificate of the mesh, or none: without a certificate it can only request one, with a token. The same
//! certificate authenticates replicas to each other; they use another protocol on the same port, selected by ALPN.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_identity::tls::{Client, Expected, OpenServer};
use maglor_identity::{
    Error, Identity, KeyRequest, LeafRequest, Live, NamedRequest, Refusal, SpiffeId,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::authority::{InForce, Issuer, Watched};
use super::signer::{RemoteSigner, SignerError};
use crate::metrics::on_call::Expiries;

/// Timeout of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Delay before a failed certificate request is retried.
const REST: Duration = Duration::from_secs(10);
/// The ALPN ID of the protocol between replicas, which is HTTP/1.1.
pub const REPLICA_ALPN: &[u8] = b"maglor-replica/1";
/// Maximum interval at which the system clock is compared with the certificate's validity.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The ALPN IDs of the xDS port.
const ALPN: &[&[u8]] = &[b"h2", REPLICA_ALPN];

/// Publishes the TLS configurations for the certificate; they are `None` until there is one.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The TLS server of the port.
    pub server: watch::Sender<Option<OpenServer>>,
    /// The TLS client for the xDS ports of other replicas, which must authenticate as replicas.
    pub replicas: watch::Sender<Option<Arc<Client>>>,
    /// Why there is no certificate or no new one; `None` if the last attempt has succeeded, or if there was none.
    pub failure: watch::Sender<Option<String>>,
}

/// Reason why the controller has no new certificate.
#[derive(Debug, thiserror::Error)]
enum OwnError {
    #[error(transparent)]
    Identity(#[from] Error),
    #[error(transparent)]
    Signer(#[from] SignerError),
}

/// The identity of the controller, and the parameters of its certificate.
#[derive(Clone, Debug)]
pub struct ControllerIdentity {
    /// SPIFFE ID of the controller.
    pub id: SpiffeId,
    /// DNS names of the controller, for clients outside the mesh.
    pub dns_names: Vec<String>,
    /// Lifetime of a certificate, at most [`MAX_TTL`](maglor_identity::MAX_TTL).
    pub ttl: Duration,
    /// The metric of the certificate's expiry.
    pub expiries: Expiries,
}

impl ControllerIdentity {
    /// Maintains a valid certificate: renews it when it ages, or when the clock, the issuer or the roots change.
    /// Returns when all receivers are dropped.
    pub async fn keep(self, mut in_force: Watched, serving: Serving) {
        let mut live = None;
        loop {
            let now = in_force.borrow_and_update().clone();
            let renewal = async {
                match now {
                    Some(now) => self.renew(&now, &mut live, &serving).await.due().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // First, because the controller's own authority issues immediately.
                biased;
                () = renewal => {}
                changed = in_force.changed() => if changed.is_err() { return },
                () = serving.server.closed() => return,
            }
        }
    }

    /// Applies a new certificate; returns when to renew it or to try again.
    async fn renew(
        &self,
        in_force: &InForce,
        live: &mut Option<Arc<Live>>,
        serving: &Serving,
    ) -> Renewal {
        let now = SystemTime::now();
        let issued = self.issue(in_force, live.as_deref(), now).await;
        let serves = issued.and_then(|identity| {
            let renewal = Renewal {
                issued: now,
                ..Renewal::after(identity.renew_after(now))
            };
            self.serve(identity, in_force, live, serving)?;
            Ok(renewal)
        });
        serving
            .failure
            .send_replace(serves.as_ref().err().map(ToString::to_string));
        serves.unwrap_or_else(|error| {
            tracing::error!(%error, retry_in = ?REST, "cannot issue the controller's own certificate");
            Renewal::after(REST)
        })
    }

    async fn issue(
        &self,
        in_force: &InForce,
        live: Option<&Live>,
        now: SystemTime,
    ) -> Result<Identity, OwnError> {
        match &in_force.issuer {
            Issuer::Authority(authority) => {
                let wanted = LeafRequest {
                    ttl: self.ttl,
                    dns_names: self.dns_names.clone(),
                    ..LeafRequest::new(self.id.clone())
                };
                let issued = authority.issue(&wanted, now)?;
                let key = issued.private_key_pem.unwrap_or_default();
                let chain = issued.certificate_pem.as_bytes();
                Ok(Identity::from_pem(chain, key.as_bytes())?)
            }
            Issuer::Signer(signer) => {
                // An external signer takes time, but new roots must take effect immediately.
                if let Some(live) = live {
                    live.trust(in_force.bundle.clone())?;
                }
                self.request(&**signer, in_force).await
            }
        }
    }

    async fn request(
        &self,
        signer: &dyn RemoteSigner,
        in_force: &InForce,
    ) -> Result<Identity, OwnError> {
        let key = KeyRequest::generate()?;
        let der = key.der_naming(&self.id, &self.dns_names)?;
        let request = NamedRequest::verify(&der, &self.id, &self.dns_names)?;
        let issued = signer.sign(&request, "this controller", &in_force.bundle);
        let chain = issued.await?.chain;
        Ok(key.certified(chain.iter().map(|one| one.to_vec()))?)
    }

    /// Serves with this certificate from now on.
    fn serve(
        &self,
        identity: Identity,
        in_force: &InForce,
        live: &mut Option<Arc<Live>>,
        serving: &Serving,
    ) -> Result<(), OwnError> {
        let (expires, bundle) = (identity.expires(), in_force.bundle.clone());
        match live {
            Some(live) => drop(live.rotate(identity, bundle)?),
            None => {
                let new = Live::new(identity, bundle)?;
                let server = OpenServer::new(&new, ALPN)?;
                let itself = Expected::OneOf(vec![self.id.clone()]);
                let replicas = Client::new(&new, itself, &[REPLICA_ALPN])?;
                serving.replicas.send_replace(Some(replicas));
                serving.server.send_replace(Some(server));
                *live = Some(new);
            }
        }
        self.expiries.of_controller(expires);
        let shown = jiff::Timestamp::try_from(expires).ok();
        let expires = shown.map(tracing::field::display);
        tracing::info!(expires, "controller certificate loaded");
        let now = SystemTime::now();
        let trusted = live.as_ref().is_some_and(|live| live.is_trusted(now));
        if !trusted {
            tracing::error!(
                "the trust bundle does not contain the authority's root; check `ca.crt`"
            );
        }
        Ok(())
    }
}

/// The time at which the certificate must be renewed.
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

    /// Returns whether a renewal is due, by the monotonic clock or by the system clock. The system clock continues
    /// while a machine is suspended. If it was set back, a certificate issued before that is not yet valid for
    /// clients with correct clocks.
    fn is_due(&self, passed: Duration, now: SystemTime) -> bool {
        passed >= self.wait || now >= self.issued + self.wait || now < self.issued
    }

    async fn due(self) {
        while !self.is_due(self.began.elapsed(), SystemTime::now()) {
            let left = self.wait.saturating_sub(self.began.elapsed());
            tokio::time::sleep(left.min(POLL_INTERVAL)).await;
        }
    }
}

/// The authenticated identity of a peer and when its certificate expires, or why the peer is not authenticated.
pub type Proved = Result<(SpiffeId, SystemTime), Refusal>;

/// Accepts a TLS connection. A client with an invalid certificate is treated as one without a certificate, so that it
/// can request a new one.
///
/// # Errors
/// If the handshake fails or takes too long.
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
        // The machine was suspended for days, or the clock was set forward.
        assert!(renewal.is_due(second, now + 3 * DAY));
        // The clock was set back.
        assert!(renewal.is_due(second, now - second));
        assert!(renewal.is_due(second, now - 3 * DAY));
    }
}
