//! Mutual TLS with mesh members: admission of clients, verification of endpoints, and their metrics.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use maglor_config::tls::{MeshMode, MeshTermination};
use maglor_identity::tls::Server;
use maglor_identity::{Live, Refusal, SpiffeId};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::net::io::{Io, Stream};
use crate::os::throttle::Throttle;
use crate::telemetry::metrics::{MeshMetrics, Refusals};

/// First byte of a TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// A mesh member at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Identity of the member.
    pub id: SpiffeId,
    /// Identity of this proxy during the handshake.
    pub by: SpiffeId,
}

/// Mutual TLS on a filter chain.
#[derive(Debug)]
pub(crate) struct Mesh {
    server: Server,
    live: Arc<Live>,
    permissive: bool,
    /// Proxies that are trusted to report the client of a request.
    delegates: Vec<SpiffeId>,
    metrics: MeshMetrics,
    log: Throttle,
}

/// An admitted client.
pub(crate) struct Admitted {
    pub(crate) stream: Stream,
    /// Identity of the client; `None` if it uses plain text, which is allowed.
    pub(crate) peer: Option<Box<Peer>>,
}

impl Admitted {
    /// Returns whether the client has not sent anything yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.peer.is_none() && self.stream.prefix.is_empty()
    }
}

/// Reason why a client was not admitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The client has not authenticated as a mesh member.
    #[error("{}: {source}", reason.as_str())]
    Handshake { reason: Refusal, source: io::Error },
    /// The certificate of the client's resumed session is no longer valid.
    #[error("{}", .0.as_str())]
    Peer(Refusal),
    /// The client disconnected before it sent anything.
    #[error(transparent)]
    Silent(io::Error),
}

impl Refused {
    fn reason(&self) -> Option<Refusal> {
        match self {
            Self::Handshake { reason, .. } | Self::Peer(reason) => Some(*reason),
            Self::Silent(_) => None,
        }
    }
}

impl Mesh {
    /// Creates the TLS of a filter chain. `live` is the proxy's identity.
    pub(crate) fn new(
        termination: &MeshTermination,
        live: &Arc<Live>,
        metrics: MeshMetrics,
    ) -> Result<Self, maglor_identity::Error> {
        let alpn: Vec<_> = termination.alpn.iter().map(String::as_bytes).collect();
        Ok(Self {
            server: Server::new(live, &alpn)?,
            live: Arc::clone(live),
            permissive: termination.mode == MeshMode::Permissive,
            delegates: termination.delegates.clone(),
            metrics,
            log: Throttle::new(),
        })
    }

    /// Returns whether clients may use plain text.
    pub(crate) fn takes_plain_text(&self) -> bool {
        self.permissive
    }

    /// Returns whether the peer is trusted to report clients of any identity.
    pub(crate) fn is_delegate(&self, peer: &Peer) -> bool {
        self.delegates.contains(&peer.id)
    }

    /// Performs the handshake as the server; `seen` contains the bytes already read. A client that is allowed to use
    /// plain text and sends nothing is admitted after `patience`. Refusals are counted and logged.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        seen: BytesMut,
        patience: Option<Duration>,
        shard: usize,
    ) -> Result<Admitted, Refused> {
        let client = tcp.peer_addr();
        let outcome = self.admit(tcp, seen, patience, shard).await;
        if let Err(refused) = &outcome
            && let Some(reason) = refused.reason()
        {
            self.metrics.refused.count(reason);
            if let Some(unsaid) = self.log.allow() {
                let client = client.map_or_else(|_| String::new(), |client| client.to_string());
                tracing::warn!(
                    %client,
                    reason = reason.as_str(),
                    error = %refused,
                    suppressed = unsaid,
                    "connection rejected: client is not a member of the mesh"
                );
            }
        }
        outcome
    }

    async fn admit(
        &self,
        mut tcp: TcpStream,
        mut seen: BytesMut,
        patience: Option<Duration>,
        shard: usize,
    ) -> Result<Admitted, Refused> {
        if self.permissive {
            if seen.is_empty() {
                first_bytes(&mut tcp, &mut seen, patience).await?;
            }
            if seen.first() != Some(&HANDSHAKE) {
                let stream = stream(Io::Tcp(tcp), seen.freeze());
                return Ok(Admitted { stream, peer: None });
            }
        }
        // Shortly after the start there may be no identity yet; the caller sets a time limit.
        self.live.identified().await;
        let io = super::accept(tcp, seen, self.server.config()).await;
        let io = io.map_err(|source| match source.kind() {
            // A port check, not an unauthenticated client.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                Refused::Silent(source)
            }
            _ => Refused::Handshake {
                reason: Refusal::of_io(&source),
                source,
            },
        })?;
        let id = peer(&io).map_err(Refused::Peer)?;
        match is_resumed(&io) {
            true => self.metrics.resumed.inc(shard),
            false => self.metrics.full.inc(shard),
        }
        let by = self.live.id().ok_or(Refused::Peer(Refusal::Other))?;
        Ok(Admitted {
            stream: stream(io, Bytes::new()),
            peer: Some(Box::new(Peer { id, by })),
        })
    }
}

/// Reads until TLS and plain text can be distinguished, or until `patience` has passed.
async fn first_bytes(
    tcp: &mut TcpStream,
    seen: &mut BytesMut,
    patience: Option<Duration>,
) -> Result<(), Refused> {
    let read = tcp.read_buf(seen);
    let read = match patience {
        None => read.await,
        Some(patience) => match tokio::time::timeout(patience, read).await {
            Ok(read) => read,
            Err(_) => return Ok(()),
        },
    };
    match read.map_err(Refused::Silent)? {
        0 => Err(Refused::Silent(io::ErrorKind::UnexpectedEof.into())),
        _ => Ok(()),
    }
}

/// Performs the handshake as the client. Endpoints that fail to authenticate are counted.
///
/// # Errors
/// If the handshake fails or the endpoint has an unexpected identity.
pub(crate) async fn connect(
    tcp: TcpStream,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    refused: &Refusals,
) -> io::Result<Io> {
    let io = super::connect(tcp, name, config).await;
    let io = io.inspect_err(|error| refused.count(Refusal::of_io(error)))?;
    match peer(&io) {
        Ok(_) => Ok(io),
        Err(reason) => {
            refused.count(reason);
            Err(io::Error::new(io::ErrorKind::InvalidData, reason.as_str()))
        }
    }
}

/// Returns the identity of the peer.
fn peer(io: &Io) -> Result<SpiffeId, Refusal> {
    let connection = io.session().ok_or(Refusal::Plaintext)?;
    maglor_identity::tls::peer(connection, SystemTime::now())
}

fn is_resumed(io: &Io) -> bool {
    let kind = io.session().and_then(rustls::CommonState::handshake_kind);
    kind == Some(HandshakeKind::Resumed)
}

fn stream(io: Io, prefix: Bytes) -> Stream {
    Stream {
        io,
        prefix,
        guard: None,
    }
}
