//! The xDS port, which serves proxies and other replicas over TLS, or in plain text if configured.
//!
//! A connection passes through three sets of limits, each by source and in total: connections in the TLS handshake,
//! unauthenticated clients that request a certificate, and members. Clients without an identity therefore take no
//! capacity from members.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use maglor_identity::tls::OpenServer;
use maglor_identity::{Refusal, SpiffeId};
use maglor_telemetry::admin::{Connections, Limits, Place};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use crate::clients::Clients;
use crate::graph::peers::Peers;
use crate::identity::own::{self, REPLICA_ALPN};
use crate::metrics::Metrics;
use crate::metrics::on_call::Expiries;
use crate::resource_server::Table;

/// Limits of connections in the handshake, which take 20 kB each. A thousand proxies may reconnect at the same time,
/// and behind NAT they have one address.
const ARRIVING: Limits = limits(2048, 1024);
/// Limits of clients without an identity, which take at most 100 kB each ([`maglor_xds::grpc_server::Server::serve`]). All
/// proxies of a node may start at the same time.
const ENROLLING: Limits = limits(512, 256);
/// Limits of members. All nodes behind one address together are limited to 4096.
const MEMBERS: Limits = limits(1 << 16, 4096);

const fn limits(all: usize, source: usize) -> Limits {
    Limits {
        network: all,
        source,
        loopback: source,
        bytes: 0,
    }
}

/// Time limit for unauthenticated clients, which only request a certificate.
const ANONYMOUS: Duration = Duration::from_secs(60);
/// Time limit for the first byte of a plain-text connection.
const FIRST: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const REST: Duration = Duration::from_millis(100);

/// The TLS configuration; the inner value is `None` until there is a certificate.
type Tls = watch::Receiver<Option<OpenServer>>;

/// The xDS port for proxies and replicas.
pub(crate) struct Port {
    listener: TcpListener,
    tls: Option<Tls>,
    served: Arc<Served>,
}

/// The services of the port, and the limits of each set of clients.
struct Served {
    table: Table,
    peers: Peers,
    arriving: Clients,
    enrolling: Arc<Connections>,
    members: Arc<Connections>,
    expiries: Expiries,
}

impl Port {
    /// Serves a table to proxies and `peers` to other replicas, in plain text if `tls` is `None`.
    pub(crate) fn new(
        listener: TcpListener,
        table: Table,
        peers: Peers,
        tls: Option<Tls>,
        metrics: &Metrics,
    ) -> Self {
        let served = Served {
            table,
            peers,
            arriving: Clients::new(ARRIVING, metrics.clients("discovery")),
            enrolling: Arc::new(Connections::new(ENROLLING)),
            members: Arc::new(Connections::new(MEMBERS)),
            expiries: metrics.on_call.expiries.clone(),
        };
        Self {
            listener,
            tls,
            served: Arc::new(served),
        }
    }

    /// Returns whether clients can be served: there is a certificate, or none is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.borrow().is_some())
    }

    /// Accepts one client if clients may be `served` yet; otherwise waits for a change.
    pub(crate) async fn accept(&mut self, served: bool) {
        if !served {
            if let Some(tls) = &mut self.tls
                && tls.changed().await.is_ok()
            {
                return;
            }
            // The sender is gone, so there will be no change.
            std::future::pending::<()>().await;
        }
        match self.listener.accept().await {
            Ok((socket, address)) => {
                let Some(place) = self.served.arriving.enter(address) else {
                    return;
                };
                let _ = socket.set_nodelay(true);
                let tls = self.tls.as_ref().map(|tls| tls.borrow().clone());
                let served = Arc::clone(&self.served);
                tokio::spawn(served.connection(place, tls, socket, address));
            }
            Err(error) => {
                tracing::warn!(%error, "xDS server: accept failed; retrying");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

impl Served {
    /// Serves one client until it disconnects or its certificate expires. By then the client has a new certificate
    /// and reconnects with it.
    async fn connection(
        self: Arc<Self>,
        place: Place,
        tls: Option<Option<OpenServer>>,
        socket: TcpStream,
        address: SocketAddr,
    ) {
        let server = match tls {
            None => return self.plain(place, socket, address).await,
            Some(None) => return,
            Some(Some(server)) => server,
        };
        let Some((stream, proved)) = self.handshake(&place, socket, address, &server).await else {
            return;
        };
        let expires = proved.as_ref().ok().map(|(_, expires)| *expires);
        let (identity, limit) = until(proved, address);
        let among = match identity {
            Some(_) => &self.members,
            None => &self.enrolling,
        };
        let place = self.arriving.next(place, among, address);
        let is_replica = stream.get_ref().1.alpn_protocol() == Some(REPLICA_ALPN);
        let _connected = expires.map(|expires| self.expiries.of_member(expires));
        let served = async {
            match is_replica {
                true => self.peers.clone().serve(stream, identity.as_ref()).await,
                false => self.table.serve(stream, address, identity).await,
            }
        };
        tokio::select! {
            served = tokio::time::timeout(limit, served) => if served.is_err() {
                tracing::debug!(client = %address, "xDS server: connection closed, client certificate expired");
            },
            () = place.closed() => {}
        }
    }

    /// Performs the handshake and returns the peer's identity; `None` if it has failed, or if the connection was
    /// closed in favour of another one.
    async fn handshake(
        &self,
        place: &Place,
        socket: TcpStream,
        address: SocketAddr,
        server: &OpenServer,
    ) -> Option<(TlsStream<TcpStream>, own::Proved)> {
        let accepted = tokio::select! {
            accepted = own::accept(socket, server) => accepted,
            () = place.closed() => return None,
        };
        let failed = accepted.as_ref().err();
        if failed.is_some_and(|error| error.kind() == ErrorKind::TimedOut) {
            self.arriving.metrics.silent();
        }
        accepted
            .inspect_err(|error| tracing::debug!(client = %address, %error, "xDS server: TLS handshake failed"))
            .ok()
    }

    /// Serves a client in plain text, which is not authenticated. Proxies speak HTTP/2; other replicas send a GET
    /// request over HTTP/1.1.
    async fn plain(&self, place: Place, socket: TcpStream, address: SocketAddr) {
        let mut first = [0];
        let peeked = tokio::select! {
            peeked = tokio::time::timeout(FIRST, socket.peek(&mut first)) => peeked,
            () = place.closed() => return,
        };
        if !matches!(peeked, Ok(Ok(1))) {
            if peeked.is_err() {
                self.arriving.metrics.silent();
            }
            return;
        }
        let place = self.arriving.next(place, &self.members, address);
        let served = async {
            match first {
                [b'G'] => self.peers.clone().serve(socket, None).await,
                _ => self.table.serve(socket, address, None).await,
            }
        };
        tokio::select! {
            () = served => {}
            () = place.closed() => {}
        }
    }
}

/// Returns the identity of a client, and the maximum duration of its connection.
fn until(proved: own::Proved, client: SocketAddr) -> (Option<SpiffeId>, Duration) {
    match proved {
        Ok((identity, until)) => {
            let left = until.duration_since(SystemTime::now());
            (Some(identity), left.unwrap_or_default())
        }
        Err(refusal) => {
            if refusal != Refusal::NoCertificate {
                let reason = refusal.as_str();
                tracing::debug!(%client, reason, "xDS server: invalid client certificate");
            }
            (None, ANONYMOUS)
        }
    }
}
