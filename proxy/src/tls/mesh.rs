//! Mutual TLS with members of the mesh: who is let in, who is turned away, and what is said of it.

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

/// The first byte of TLS: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// A member of the mesh on the other side of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Who it is.
    pub id: SpiffeId,
    /// Who we were when we met.
    pub by: SpiffeId,
}

/// Mutual TLS on a filter chain.
#[derive(Debug)]
pub(crate) struct Mesh {
    server: Server,
    live: Arc<Live>,
    permissive: bool,
    /// Proxies that speak for clients.
    delegates: Vec<SpiffeId>,
    metrics: MeshMetrics,
    log: Throttle,
}

/// A client that is let in.
pub(crate) struct Admitted {
    pub(crate) stream: Stream,
    /// `None` = it speaks plain text, and may.
    pub(crate) peer: Option<Box<Peer>>,
}

impl Admitted {
    /// Whether it has said nothing yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.peer.is_none() && self.stream.prefix.is_empty()
    }
}

/// Why a client is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// It is not a member of the mesh, or does not prove it.
    #[error("{}: {source}", reason.as_str())]
    Handshake { reason: Refusal, source: io::Error },
    /// Its certificate was good when the session began that it has resumed.
    #[error("{}", .0.as_str())]
    Peer(Refusal),
    /// It left before it said anything.
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
    /// Of a filter chain; the identity is `live`'s.
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

    /// Whether clients may speak plain text.
    pub(crate) fn takes_plain_text(&self) -> bool {
        self.permissive
    }

    /// Whether it speaks for clients, who may be anybody.
    pub(crate) fn is_delegate(&self, peer: &Peer) -> bool {
        self.delegates.contains(&peer.id)
    }

    /// The handshake as the server; `seen` is what was already read from the socket. A client that
    /// may speak plain text and says nothing is let in after `patience`. A refusal is counted and
    /// logged here.
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
                    unsaid,
                    "refused: not a member of the mesh"
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
        // A proxy that starts has nothing to prove itself by yet; the caller's time limit holds.
        self.live.identified().await;
        let io = super::accept(tcp, seen, self.server.config()).await;
        let io = io.map_err(|source| match source.kind() {
            // A port check, not a stranger.
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

/// Reads until there is something to distinguish TLS from plain text by, or patience ends.
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

/// The handshake as the client; an endpoint that does not prove who it is, is counted.
///
/// # Errors
/// When the handshake fails or the endpoint is not one that is expected.
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

/// Who is on the other side.
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
