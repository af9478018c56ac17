//! Listeners and their filter chains, which handle downstream connections.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::authorization::Authorization;
use crate::traffic::RateLimit;
use crate::{Address, Discovery, RouteTable, Termination, raw};

/// A listening socket and its filter chains.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The name, unique in the configuration; the label `listener` in metrics.
    pub name: Arc<str>,
    /// The address to bind; port 0 lets the kernel choose.
    pub address: Address,
    /// The permissions of the file of a Unix socket, in the notation of chmod(2).
    pub mode: u32,
    /// Whether accepted connections have a PROXY protocol header (v1 or v2).
    pub proxy_protocol: ProxyProtocolIn,
    /// The chains, at least one. The most specific match wins (see [`FilterChainMatch`]).
    pub filter_chains: Vec<FilterChain>,
    /// The maximum number of open connections over all workers; further connections wait in the backlog.
    pub max_connections: usize,
    /// Whether connections are redirected to this listener, so that the kernel knows their original destination.
    pub original_destination: bool,
    /// The direction of the listener's connections.
    pub direction: TrafficDirection,
    /// The time without data from a client after which the server is assumed to speak first.
    pub detection_timeout: Duration,
    /// Destination ports of protocols in which the server speaks first.
    pub server_first_ports: Vec<u16>,
    /// The timeout of TLS detection, PROXY header and TLS handshake together.
    pub handshake_timeout: Duration,
    /// The authorization of clients; `None` = all clients are allowed.
    pub authorization: Option<Authorization>,
    /// The rate limit of HTTP requests over all chains; `None` = no limit.
    pub rate_limit: Option<RateLimit>,
    /// The workload whose TLS mode, ports and authorization are requested from the control plane;
    /// `None` = none.
    pub workload: Option<Arc<str>>,
}

impl Listener {
    /// The default permissions of a Unix socket's file, with which the owner and the group can connect.
    pub const DEFAULT_MODE: u32 = 0o660;
}

/// Whether a listener reads the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProxyProtocolIn {
    /// No header is expected.
    #[default]
    Off,
    /// A header is optional.
    Accept,
    /// A header is required; a connection without it is closed.
    Require,
}

/// The direction of a listener's connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TrafficDirection {
    /// From other hosts to the local application.
    Inbound,
    /// From the local application to other hosts. When the process ends, these listeners are drained last.
    Outbound,
    /// Neither direction.
    #[default]
    Unspecified,
}

/// A match and the filter for matching connections.
#[derive(Clone, Debug)]
pub struct FilterChain {
    /// The name, unique in the listener.
    pub name: Arc<str>,
    /// The matched connections; the default matches all.
    pub matches: FilterChainMatch,
    /// The TLS termination; `None` = plain text, or TLS passed through.
    pub tls: Option<Termination>,
    /// The filter that handles the connection.
    pub filter: Filter,
}

/// The conditions of a chain. The most specific chain wins, in the order: destination port,
/// destination prefix length, server name (exact, then longest suffix wildcard, then any),
/// application protocol, source prefix length.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FilterChainMatch {
    /// Destination ports; empty = any.
    pub destination_ports: Vec<u16>,
    /// Destination networks; empty = any.
    pub destination_networks: Vec<IpNet>,
    /// SNI names in lower case, exact (`a.example.com`) or suffix wildcard (`*.example.com`); empty = any.
    pub server_names: Vec<String>,
    /// ALPN protocols that the client offers; empty = any.
    pub application_protocols: Vec<String>,
    /// Client networks, matched after the PROXY protocol; empty = any.
    pub source: Vec<IpNet>,
}

/// The filter of a chain, which handles its connections.
#[derive(Clone, Debug)]
pub enum Filter {
    /// The protocol is detected from the first bytes: HTTP, or TCP for everything else.
    Detect {
        /// The filter for HTTP/1 and HTTP/2.
        http: Box<HttpFilter>,
        /// The filter for all other connections, including those whose clients wait for the server to send first.
        tcp: TcpFilter,
    },
    /// HTTP/1.1 and HTTP/2 with routes.
    Http(Box<HttpFilter>),
    /// Forwards bytes to a cluster.
    Tcp(TcpFilter),
}

/// The HTTP versions of a chain.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HttpProtocol {
    /// Chosen by ALPN with TLS; in plain text by the HTTP/2 preface (prior knowledge).
    #[default]
    Auto,
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// The handling of forwarding headers of requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ForwardedMode {
    /// Replace the client's values by those of the connection: the safe choice at an edge.
    Replace,
    /// Append to the client's values.
    #[default]
    Append,
    /// Forward the client's values unchanged.
    Off,
}

/// The handling of the request header `x-forwarded-client-cert`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertMode {
    /// Append to the header of workloads of the mesh; remove it from other clients.
    Append,
    /// Remove the header, and set none.
    Remove,
    /// Remove the header of clients; set it for workloads of the mesh.
    #[default]
    Replace,
}

/// The normalization of a request's path before it is routed and forwarded (RFC 3986 §6.2.2), so
/// that a rule for `/admin` is not bypassed by `/x/../admin`. Each step includes those before it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum PathNormalization {
    /// No normalization.
    Off,
    /// Remove dot segments, decode unreserved characters, write other escapes in upper case, escape what no URI contains, and
    /// replace `\` by `/`.
    #[default]
    Base,
    /// Also merge consecutive slashes.
    MergeSlashes,
    /// Also replace `%2F` and `%5C` by `/`, before slashes are merged.
    DecodeAndMergeSlashes,
}

impl From<raw::PathNormalization> for PathNormalization {
    fn from(raw: raw::PathNormalization) -> Self {
        match raw {
            raw::PathNormalization::Off => Self::Off,
            raw::PathNormalization::Base => Self::Base,
            raw::PathNormalization::MergeSlashes => Self::MergeSlashes,
            raw::PathNormalization::DecodeAndMergeSlashes => Self::DecodeAndMergeSlashes,
        }
    }
}

/// HTTP on a chain.
///
/// # Defaults
///
/// `path_normalization: base`, `protocol: auto`, `forwarded: append`, `idle_timeout: 1h`, `header_timeout: 10s`,
/// `max_header_bytes: 64 KiB`, `max_headers: 128`, `max_concurrent_streams: 128`.
#[derive(Clone, Debug)]
pub struct HttpFilter {
    /// The supported versions.
    pub protocol: HttpProtocol,
    /// The virtual hosts and routes.
    pub routes: Arc<RouteTable>,
    /// On-demand discovery of hosts without a virtual host; `None` if disabled.
    pub discovery: Option<Discovery>,
    /// The normalization of a path before routing.
    pub path_normalization: PathNormalization,
    /// The handling of `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub x_forwarded: ForwardedMode,
    /// The handling of RFC 7239 `Forwarded`.
    pub forwarded: ForwardedMode,
    /// The handling of `X-Forwarded-Client-Cert`.
    pub client_cert: ClientCertMode,
    /// Whether to send `X-Maglor-Client` to workloads of the mesh.
    pub says_client: bool,
    /// Whether to add an `x-request-id` to requests without one.
    pub request_id: bool,
    /// Whether to trust the `x-request-id` of clients.
    pub preserve_request_id: bool,
    /// The protocols, in lower case, that `Upgrade` of an HTTP/1.1 request may switch to; empty = none.
    pub upgrades: Vec<String>,
    /// Whether routes may match CONNECT requests; if not, these get a 405 response.
    pub allow_connect: bool,
    /// The time without a request after which a keep-alive connection is closed.
    pub idle_timeout: Duration,
    /// The timeout from the first byte of a request to the end of its head.
    pub header_timeout: Duration,
    /// The time without data after which a request or response stream is reset.
    pub stream_idle_timeout: Duration,
    /// The age at which a connection is closed gracefully; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// The maximum size of a request head in bytes, for HTTP/1 and HTTP/2; larger heads get a 431 response.
    pub max_header_bytes: usize,
    /// The maximum number of request headers; requests with more get a 431 response.
    pub max_headers: usize,
    /// The maximum number of concurrent HTTP/2 streams on a connection.
    pub max_concurrent_streams: u32,
    /// The value of the `server` header of the proxy's own responses.
    pub server_name: Arc<str>,
    /// The load reports of the server behind the chain; `None` = disabled.
    pub load_reports: Option<LoadReports>,
}

/// The load reports of a server's inbound proxy to balancers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadReports {
    /// The servers of the service; `None` = no ledger is kept.
    pub peers: Option<Peers>,
    /// Whether responses also carry the load in the ORCA format.
    pub orca: bool,
}

/// The servers of a service, and the one behind this proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peers {
    /// The name of the cluster of all servers of the service.
    pub cluster: Arc<str>,
    /// The address in the cluster of the server behind the chain.
    pub endpoint: Address,
}

/// TCP on a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TcpFilter {
    /// The name of the cluster to which bytes are forwarded, unless another one is discovered; empty = none.
    pub cluster: Arc<str>,
    /// The time without data in either direction after which a connection is closed.
    pub idle_timeout: Duration,
}
