//! The port where proxies are served, and other replicas: TLS, or plain text where that is asked for.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use maglor_identity::tls::OpenServer;
use maglor_identity::{Refusal, SpiffeId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::graph::peers::Peers;
use crate::identity::own::{self, REPLICA_ALPN};
use crate::serve::Table;

/// Who has proved nothing asks for a certificate, and goes.
const ANONYMOUS: Duration = Duration::from_secs(60);
/// Time for the first byte in plain text.
const FIRST: Duration = Duration::from_secs(10);
/// After a failure to accept.
const REST: Duration = Duration::from_millis(100);

/// Of TLS; `None` inside until there is a certificate.
type Tls = watch::Receiver<Option<OpenServer>>;

/// See the module's documentation.
pub(crate) struct Port {
    listener: TcpListener,
    table: Table,
    peers: Peers,
    tls: Option<Tls>,
}

impl Port {
    /// Serves a table, and to other replicas what `peers` says; without `tls` in plain text.
    pub(crate) fn new(listener: TcpListener, table: Table, peers: Peers, tls: Option<Tls>) -> Self {
        Self {
            listener,
            table,
            peers,
            tls,
        }
    }

    /// Whether clients can be served: there is a certificate where one is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.borrow().is_some())
    }

    /// Takes one client, if clients may be `served` yet; else waits until something is different.
    pub(crate) async fn accept(&mut self, served: bool) {
        if !served {
            if let Some(tls) = &mut self.tls
                && tls.changed().await.is_ok()
            {
                return;
            }
            // Without its sender nothing will be different.
            std::future::pending::<()>().await;
        }
        match self.listener.accept().await {
            Ok((socket, address)) => {
                let _ = socket.set_nodelay(true);
                let tls = self.tls.as_ref().map(|tls| tls.borrow().clone());
                let served = (self.table.clone(), self.peers.clone());
                tokio::spawn(connection(served, tls, socket, address));
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Serves one client to its end, or to the end of what it has proved: by then it has a new certificate,
/// and comes back with that.
async fn connection(
    (table, peers): (Table, Peers),
    tls: Option<Option<OpenServer>>,
    socket: TcpStream,
    address: SocketAddr,
) {
    let server = match tls {
        None => return plain(table, peers, socket, address).await,
        Some(None) => return,
        Some(Some(server)) => server,
    };
    let (stream, proved) = match own::accept(socket, &server).await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::debug!(client = %address, %error, "no handshake");
            return;
        }
    };
    let (identity, limit) = until(proved, address);
    let is_replica = stream.get_ref().1.alpn_protocol() == Some(REPLICA_ALPN);
    let served = async {
        match is_replica {
            true => peers.serve(stream, identity.as_ref()).await,
            false => table.serve(stream, address, identity).await,
        }
    };
    if tokio::time::timeout(limit, served).await.is_err() {
        tracing::debug!(client = %address, "what the client had proved has expired");
    }
}

/// Serves a client in plain text, which is believed what it says. Proxies speak HTTP/2; another replica sends GET.
async fn plain(table: Table, peers: Peers, socket: TcpStream, address: SocketAddr) {
    let mut first = [0];
    let peeked = tokio::time::timeout(FIRST, socket.peek(&mut first)).await;
    match (peeked, first) {
        (Ok(Ok(1)), [b'G']) => peers.serve(socket, None).await,
        (Ok(Ok(1)), _) => table.serve(socket, address, None).await,
        _ => {}
    }
}

/// Who a client is, and how long it is served.
fn until(proved: own::Proved, client: SocketAddr) -> (Option<SpiffeId>, Duration) {
    match proved {
        Ok((identity, until)) => {
            let left = until.duration_since(SystemTime::now());
            (Some(identity), left.unwrap_or_default())
        }
        Err(refusal) => {
            if refusal != Refusal::NoCertificate {
                let reason = refusal.as_str();
                tracing::debug!(%client, reason, "the certificate of a client proves nothing");
            }
            (None, ANONYMOUS)
        }
    }
}
