//! Handles a client's connection from `accept(2)` to its filter: original destination, PROXY header, ClientHello,
//! filter chain, TLS handshake, HTTP or TCP.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use maglor_config::listener::{ProxyProtocolIn, TrafficDirection};
use maglor_telemetry::Counter;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use self::connection::Step;
pub(crate) use self::connection::serve;
use self::forward::{Downstream, forward};
use self::reauthorize::{GrantedBy, Refusal};
use self::story::Closed;
use crate::http::{self, Client, Phase, Service};
use crate::mesh::load_feedback::upstreams::Upstreams;
use crate::net::client_address::ClientAddress;
use crate::net::io::{Io, Stream};
use crate::net::original_destination::original_destination;
use crate::net::send_queue;
use crate::protocol::detect::{self, ClientHello, Protocol};
use crate::protocol::proxy_protocol::{self, Addresses};
use crate::routing::listener::{Chain, Filter, HttpChain, Listener, Termination};
use crate::routing::on_demand::Discovered;
use crate::runtime::worker::{Slot, Worker};
use crate::tls::{self, Peer, mesh};

mod connection;
mod forward;
mod reauthorize;
mod story;

/// The current state of a listener.
pub(crate) type State = Rc<watch::Receiver<Arc<Listener>>>;

/// Data shared by the connections of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) worker: Rc<Worker>,
    pub(crate) upstreams: Rc<Upstreams>,
}

/// Reason why a connection was closed before it reached its filter.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("ClientHello: {0}")]
    ClientHello(#[from] detect::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("redirection loop: the connection was opened by this proxy")]
    Loop,
    #[error("no filter chain matches")]
    NoChain,
    #[error("PROXY protocol: {0}")]
    ProxyProtocol(#[from] proxy_protocol::Error),
    #[error("timeout before the connection was ready")]
    Timeout,
    #[error("TLS handshake: {0}")]
    Tls(#[source] io::Error),
    #[error("mesh: {0}")]
    Mesh(#[from] mesh::Refused),
}

impl Refused {
    /// Returns the reason in stories.
    fn reason(&self) -> &'static str {
        match self {
            Self::ClientHello(_) | Self::Tls(_) => "tls",
            Self::Io(_) => "io",
            Self::Loop => "loop",
            Self::Mesh(_) => "mtls",
            Self::NoChain => "no_chain",
            Self::ProxyProtocol(_) => "proxy_protocol",
            Self::Timeout => "timeout",
        }
    }
}

/// A connection that is ready for its filter.
struct Ready {
    stream: Stream,
    chain: usize,
    ends: Ends,
    /// The protocol; `None` if it was not detected from the first bytes.
    protocol: Option<Protocol>,
    /// The identity of the client; `None` if it is not a mesh member.
    peer: Option<Box<Peer>>,
    /// Result of discovery for the original destination; `None` without discovery.
    discovered: Option<Arc<Discovered>>,
}

/// Addresses of a connection.
#[derive(Clone, Copy)]
struct Ends {
    /// Both addresses; `None` for a Unix socket, unless a PROXY header names them.
    addresses: Option<Addresses>,
    /// Original destination, which is the destination in `addresses`; `None` if it is unknown or is this listener.
    original: Option<SocketAddr>,
}

async fn start(tcp: TcpStream, state: State, local: Local, slot: Slot) -> Option<Step> {
    let listener = Arc::clone(&state.borrow());
    let client = ClientAddress::new(tcp.peer_addr().ok());
    let ready = match came_back(&tcp, &listener, &local) {
        true => Err(Refused::Loop),
        false => prepare(tcp, &listener, local.worker.shard()).await,
    };
    let ready = match ready {
        Ok(ready) => detect_protocol(ready, &listener, &local).await,
        refused => refused,
    };
    match ready {
        Ok(ready) => filter(ready, &listener, &state, &local, slot),
        Err(refused) => {
            tracing::debug!(listener = %listener.config.name, error = %refused, "connection rejected");
            if let Some(counter) = counter(&refused, &listener) {
                counter.inc(local.worker.shard());
                let closed = Closed {
                    listener: &listener.config,
                    client,
                    peer: None,
                };
                story::keep(
                    &closed,
                    refused.reason(),
                    &refused.to_string(),
                    &local.worker,
                );
            }
            None
        }
    }
}

fn counter<'a>(refused: &Refused, listener: &'a Listener) -> Option<&'a Counter> {
    let metrics = &listener.metrics;
    match refused {
        // The client disconnected before it sent anything: a port check, not a failure.
        Refused::Io(_)
        | Refused::ClientHello(detect::Error::Closed)
        | Refused::Mesh(mesh::Refused::Silent(_)) => None,
        Refused::ClientHello(_) | Refused::Mesh(_) | Refused::Tls(_) => Some(&metrics.refused_tls),
        Refused::Loop => Some(&metrics.refused_loop),
        Refused::NoChain => Some(&metrics.refused_no_chain),
        Refused::ProxyProtocol(_) => Some(&metrics.refused_proxy_protocol),
        Refused::Timeout => Some(&metrics.refused_timeout),
    }
}

/// Returns whether an outgoing connection of this proxy was redirected to the proxy itself. On an inbound listener
/// this is correct, because the destination was this host.
fn came_back(tcp: &TcpStream, listener: &Listener, local: &Local) -> bool {
    let config = &listener.config;
    let may = config.original_destination && config.direction != TrafficDirection::Inbound;
    let own = &local.worker.shared().own_connections;
    may && tcp.peer_addr().is_ok_and(|peer| own.contains(peer))
}

/// Performs all steps before the filter, under one time limit.
async fn prepare(tcp: TcpStream, listener: &Listener, shard: usize) -> Result<Ready, Refused> {
    if listener.config.address.ip().is_some() {
        tcp.set_nodelay(true)?;
        send_queue::limit(&tcp)?;
    }
    let limit = listener.config.handshake_timeout;
    let handshake = handshake(tcp, listener, shard);
    // Plain connections are ready immediately and need no timer.
    if listener.is_immediate() {
        return handshake.await;
    }
    tokio::time::timeout(limit, handshake)
        .await
        .unwrap_or(Err(Refused::Timeout))
}

async fn handshake(
    mut tcp: TcpStream,
    listener: &Listener,
    shard: usize,
) -> Result<Ready, Refused> {
    let mut seen = BytesMut::new();
    let mut ends = ends(&tcp, listener)?;
    if listener.config.proxy_protocol != ProxyProtocolIn::Off {
        let mode = listener.config.proxy_protocol;
        if let Some(header) = proxy_protocol::read_header(&mut tcp, &mut seen, mode).await? {
            ends = Ends {
                addresses: Some(header),
                original: Some(header.destination),
            };
        }
    }
    let addresses = ends.addresses;
    let hello = match listener.selector.needs_client_hello(addresses) {
        true => wait_for_hello(&mut tcp, &mut seen, listener, ends).await?,
        false => Some(ClientHello::default()),
    };
    let mut protocol = hello.is_none().then_some(Protocol::Silent);
    let hello = hello.unwrap_or_default();
    let chain = listener.selector.select(&hello, addresses);
    let chain = chain.ok_or(Refused::NoChain)?;
    let taken = listener.chains.get(chain);
    let tls = taken.and_then(|chain| chain.tls.clone());
    let mut peer = None;
    let stream = match tls {
        Some(Termination::Mesh(mesh)) => {
            // On a chain that forwards bytes, a client that sends nothing may be waiting for the server to send
            // first.
            let bytes = taken.is_some_and(|chain| chain.filter.tcp().is_some());
            let patience = bytes.then_some(listener.config.detection_timeout);
            let admitted = mesh.accept(tcp, seen, patience, shard).await?;
            if admitted.is_silent() {
                protocol = Some(Protocol::Silent);
            }
            peer = admitted.peer;
            admitted.stream
        }
        Some(Termination::Certificates(config)) => {
            let io = tls::accept(tcp, seen, config)
                .await
                .map_err(|error| Refused::Tls(tls::explain::explained(error)))?;
            Stream {
                io,
                prefix: Bytes::new(),
                guard: None,
            }
        }
        None => Stream {
            io: Io::Tcp(tcp),
            prefix: seen.freeze(),
            guard: None,
        },
    };
    Ok(Ready {
        stream,
        chain,
        ends,
        protocol,
        peer,
        discovered: None,
    })
}

/// Returns the addresses that are known before any input of the client.
fn ends(tcp: &TcpStream, listener: &Listener) -> io::Result<Ends> {
    if listener.config.address.unix().is_some() {
        return Ok(Ends {
            addresses: None,
            original: None,
        });
    }
    let local = tcp.local_addr()?;
    let redirected = listener.config.original_destination;
    let original = redirected.then(|| original_destination(tcp)).flatten();
    Ok(Ends {
        addresses: Some(Addresses {
            source: tcp.peer_addr()?,
            destination: original.unwrap_or(local),
        }),
        original,
    })
}

/// Reads the ClientHello; an empty one for a client that does not use TLS. `None` means that the client sends nothing
/// and the wait has ended, because the connection can be forwarded as bytes.
async fn wait_for_hello(
    tcp: &mut TcpStream,
    seen: &mut BytesMut,
    listener: &Listener,
    ends: Ends,
) -> Result<Option<ClientHello>, Refused> {
    let nothing = ClientHello::default();
    let silent = listener.selector.select(&nothing, ends.addresses);
    let silent = silent.and_then(|chain| listener.chains.get(chain));
    let passes = silent.is_some_and(|c| c.tls.is_none() && c.filter.tcp().is_some());
    if passes && seen.is_empty() {
        let limit = listener.config.detection_timeout;
        match tokio::time::timeout(limit, tcp.read_buf(seen)).await {
            Ok(Ok(0)) => return Err(detect::Error::Closed.into()),
            Ok(read) => read?,
            Err(_) => return Ok(None),
        };
    }
    match detect::read_client_hello(tcp, seen).await {
        Ok(hello) => Ok(Some(hello.unwrap_or_default())),
        Err(error @ detect::Error::Io(_)) => Err(error.into()),
        // The data begins like TLS but is something else, or names no known host: it is forwarded as bytes.
        Err(_) if passes && !seen.is_empty() => Ok(Some(nothing)),
        Err(error) => Err(error.into()),
    }
}

/// Detects the protocol, if the chain depends on it.
async fn detect_protocol(
    mut ready: Ready,
    listener: &Listener,
    local: &Local,
) -> Result<Ready, Refused> {
    let chain = listener.chains.get(ready.chain);
    if let Some(Filter::Detect { http, .. }) = chain.map(|chain| &chain.filter) {
        if declared(&mut ready, http, local).await {
            return Ok(ready);
        }
        let limit = listener.config.detection_timeout;
        let mut protocol = match ready.protocol {
            Some(known) => known,
            None if server_speaks_first(&ready, listener, local) => Protocol::Silent,
            None => detect::detect(&mut ready.stream, limit).await?,
        };
        // A tunnel is forwarded as bytes, unless there are routes for it.
        if http.settings.allow_connect && ready.stream.prefix.starts_with(b"CONNECT ") {
            protocol = Protocol::Http1;
        }
        listener.metrics.detected(local.worker.shard(), protocol);
        ready.protocol = Some(protocol);
    }
    Ok(ready)
}

/// Returns whether the client is known to wait for the server, from the destination's port or from earlier
/// connections.
fn server_speaks_first(ready: &Ready, listener: &Listener, local: &Local) -> bool {
    let Some(Addresses { destination, .. }) = ready.ends.addresses else {
        return false;
    };
    let now = local.worker.time(Instant::now());
    let ports = &listener.config.server_first_ports;
    ready.stream.prefix.is_empty()
        && (ports.contains(&destination.port())
            || local.worker.server_first.contains(destination, now))
}

/// Discovers the original destination, or the chain's target, if the chain is configured to do so. Returns whether
/// the control plane has declared the protocol of the destination, so that the protocol need not be detected.
async fn declared(ready: &mut Ready, chain: &HttpChain, local: &Local) -> bool {
    let Some(on_demand) = &chain.on_demand else {
        return false;
    };
    let now = local.worker.time(Instant::now());
    // Without a timely response, the connection is handled as without discovery.
    let found = on_demand.find_silent(ready.ends.original, now).await;
    let known = found
        .as_deref()
        .map(|found| (found.table.is_some(), found.bytes.is_some()));
    ready.discovered = found;
    match known {
        Some((true, false)) => ready.protocol = None,
        Some((false, true)) => ready.protocol = Some(Protocol::Bytes),
        Some((true, true) | (false, false)) | None => return false,
    }
    true
}

fn filter(
    ready: Ready,
    listener: &Arc<Listener>,
    state: &State,
    local: &Local,
    slot: Slot,
) -> Option<Step> {
    let Ready {
        stream,
        chain,
        ends,
        protocol,
        peer,
        discovered,
    } = ready;
    let Ends {
        addresses,
        original,
    } = ends;
    let Chain { filter, tls, .. } = listener.chains.get(chain)?;
    let routed = protocol.is_none_or(Protocol::is_http);
    Some(match filter {
        Filter::Detect { http: chain, .. } | Filter::Http(chain) if routed => {
            let source = ClientAddress::new(addresses.map(|both| both.source));
            let client = Client::new(source, stream.io.is_tls(), peer);
            let service = Service::new(
                (&local.worker, &local.upstreams),
                Arc::clone(chain),
                client,
                (addresses.map(|both| both.destination), original.is_some()),
                slot,
            );
            Step::Starting(Box::pin(async move {
                http::serving(stream, service).await.map(Step::Serving)
            }))
        }
        Filter::Detect { tcp: chain, .. } | Filter::Tcp(chain) => {
            local.worker.connections.mark_active(slot);
            let (mesh, is_peer) = (mesh(tls), peer.is_some());
            let delegate = |peer: &Peer| mesh.is_some_and(|mesh| mesh.is_delegate(peer));
            let mut state = watch::Receiver::clone(state);
            let now = Arc::clone(&state.borrow_and_update());
            let granted_by = GrantedBy {
                state,
                addresses,
                asserted_client: peer.as_deref().is_some_and(delegate),
                plain_text: mesh.is_some() && !is_peer,
                peer,
            };
            let metrics = &listener.metrics;
            if let Err(refusal) = granted_by.check(&now, local.worker.shard()) {
                let (counter, reason) = match refusal {
                    Refusal::Denied => (&metrics.refused_denied, "denied"),
                    Refusal::PlainText => (&metrics.refused_tls, "mtls"),
                };
                counter.inc(local.worker.shard());
                let closed = Closed {
                    listener: &now.config,
                    client: granted_by.client(),
                    peer: granted_by.peer.as_deref().map(|peer| &peer.id),
                };
                story::keep(&closed, reason, refusal.message(), &local.worker);
                return None;
            }
            let (chain, metrics) = (Arc::clone(chain), Arc::clone(&listener.metrics));
            let cluster = discovered.and_then(|found| found.bytes.clone());
            let (local, worker) = (local.clone(), Rc::clone(&local.worker));
            let silent = protocol == Some(Protocol::Silent);
            let downstream = Downstream {
                stream,
                ends,
                silent,
            };
            let bytes = forward(downstream, chain, cluster, metrics, local);
            Step::Serving(Phase::last(granted_by.keep(bytes, worker)))
        }
        Filter::Http(_) => return None,
    })
}

fn mesh(tls: &Option<Termination>) -> Option<&mesh::Mesh> {
    match tls {
        Some(Termination::Mesh(mesh)) => Some(mesh),
        Some(Termination::Certificates(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of an idle connection is mostly the size of its task.
    #[test]
    fn a_connections_future_stays_small() {
        fn size<F>(_: impl FnOnce(TcpStream, State, Local) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(serve);
        assert!(size <= 256, "{size} bytes");
    }
}
