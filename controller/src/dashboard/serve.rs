//! The sockets of the dashboard: plain HTTP over loopback, and HTTPS with the webhook's certificate for the network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::dashboard::page::Dashboard;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::https::Serving;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of handshakes at a time; further connections wait in the socket's queue.
const HANDSHAKES: usize = 64;
/// Delay after a failure to accept a connection.
const REST: Duration = Duration::from_millis(100);

/// Options of the dashboard.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The loopback address for connections without TLS; `None` if there are none.
    pub address: Option<SocketAddr>,
    /// The address for connections over the network, with TLS and tokens; `None` if there are none.
    pub https: Option<SocketAddr>,
    /// Host names in URLs of the dashboard, in addition to `localhost`.
    pub host_names: Vec<String>,
    /// Names and admin addresses of proxies whose requests can be shown live.
    pub proxies: Vec<(String, SocketAddr)>,
}

impl Options {
    /// Returns whether there is a dashboard.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.address.is_some() || self.https.is_some()
    }
}

/// Serves connections over TLS, once there is a certificate; never returns.
pub(crate) async fn serve(dashboard: Dashboard, socket: TcpListener, mut serving: Serving) {
    if serving.wait_for(Option::is_some).await.is_err() {
        return std::future::pending().await;
    }
    let handshakes = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let accepted = accepted.and_then(|(tcp, peer)| Ok((tcp.local_addr()?, peer, tcp)));
        let (local, peer, tcp) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "dashboard: accept failed; retrying");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Some(config) = serving.borrow().clone() else {
            continue;
        };
        let dashboard = dashboard.clone();
        connections.spawn(async move {
            let handshake = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(tcp)).await;
            drop(place);
            if let Ok(Ok(tls)) = handshake {
                dashboard.serve(tls, peer, local).await;
            }
        });
    }
}
