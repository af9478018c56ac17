//! Listeners and their filter chains: the handling of downstream connections.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::authorization::Authorization;
use crate::traffic::RateLimit;
use crate::{Address, Discovery, RouteTable, Termination};

/// A listening socket and its filter chains.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The name, unique in the configuration; the label `listener` in metrics.
    pub name: Arc<str>,
    /// The address to bind; port 0 lets the kernel choose.
    pub address: Address,
    /// The permissions of the file of a Unix socket, as of chmod(2).
    pub mode: u32,
    /// The PROXY protocol (v1 and v2) on accepted connections.
    pub proxy_protocol: ProxyProtocolIn,
    /// The chains, evaluated in order of specificity (see [`FilterChainMatch`]), at least one.
    pub filter_chains: Vec<FilterChain>,
    /// The limit of open connections over all workers; above it new ones wait in the backlog.
    pub max_connections: usize,
    /// Whether connections were redirected here: the kernel knows their original destination.
    pub original_destination: bool,
    /// The direction of its connections.
    pub direction: TrafficDirection,
    /// The time without data from a client after which the server is assumed to speak first.
    pub detection_timeout: Duration,
    /// Destination ports of protocols in which the server speaks first.
    pub server_first_ports: Vec<u16>,
    /// The limit of TLS detection, PROXY header and TLS handshake together.
    pub handshake_timeout: Duration,
    /// The authorization of clients; `None` = everything is allowed.
    pub authorization: Option<Authorization>,
    /// The rate limit of HTTP requests over all chains; `None` = no limit.
    pub rate_limit: Option<RateLimit>,
    /// The workload whose TLS mode, ports and authorization are requested from the control plane;
    /// `None` = none.
    pub workload: Option<Arc<str>>,
}

impl Listener {
    /// The default permissions of a Unix socket's file: owner and group connect.
    pub const DEFAULT_MODE: u32 = 0o660;
}

/// Whether a listener reads the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProxyProtocolIn {
    /// No header is expected.
    #[default]
    Off,
    /// A header is read if there is one.
    Accept,
    /// A connection without header is closed.
    Require,
}

/// The direction of a listener's connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TrafficDirection {
    /// From other hosts to the application here.
    Inbound,
    /// From the application here to other hosts; they outlast the others when the process ends.
    Outbound,
    /// Neither.
    #[default]
    Unspecified,
}

/// A match and the filter of its connections.
#[derive(Clone, Debug)]
pub struct FilterChain {
    /// The name, unique in the listener.
    pub name: Arc<str>,
    /// The matched connections; the default matches all.
    pub matches: FilterChainMatch,
    /// TLS termination; `None` = plain text (or passed through).
    pub tls: Option<Termination>,
    /// The protocol of the connection.
    pub filter: Filter,
}

/// The conditions of a chain. The most specific chain wins, in the order: destination port,
/// destination prefix length, server name (exact, then longest suffix wildcard, then any),
/// application protocol, source prefix length.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FilterChainMatch {
    /// Destination ports. Empty = any.
    pub destination_ports: Vec<u16>,
    /// Destination addresses. Empty = any.
    pub destination_networks: Vec<IpNet>,
    /// SNI names, lower case: exact `a.example.com` or suffix wildcard `*.example.com`. Empty = any.
    pub server_names: Vec<String>,
    /// ALPN protocols that the client offers. Empty = any.
    pub application_protocols: Vec<String>,
    /// Client addresses (after PROXY protocol). Empty = any.
    pub source: Vec<IpNet>,
}

/// The last filter of a chain.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Detects the protocol by the first bytes: HTTP, or bytes otherwise.
    Detect {
        /// The filter for HTTP/1 and HTTP/2.
        http: Box<HttpFilter>,
        /// The filter for everything else, and for clients that wait for the server.
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
    /// By ALPN with TLS; in plain text by the HTTP/2 preface (prior knowledge).
    #[default]
    Auto,
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// The handling of a request's forwarding headers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ForwardedMode {
    /// The client's values are replaced by those of the connection: the safe choice at an edge.
    Replace,
    /// The proxy appends to the client's values.
    #[default]
    Append,
    /// Forwarded unchanged.
    Off,
}

/// The handling of a request's `x-forwarded-client-cert`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertMode {
    /// A workload of the mesh may send one, and is appended to it; others may not.
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
    /// Unchanged.
    Off,
    /// Dot segments are removed, unreserved characters are decoded, `\` becomes `/`.
    #[default]
    Base,
    /// Slashes that follow each other become one.
    MergeSlashes,
    /// `%2F` and `%5C` become `/` first.
    DecodeAndMergeSlashes,
}

/// HTTP on a chain.
///
/// # Defaults
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
    /// The handling of `X-Forwarded-For/-Proto/-Host`.
    pub x_forwarded: ForwardedMode,
    /// The handling of RFC 7239 `Forwarded`.
    pub forwarded: ForwardedMode,
    /// The handling of `X-Forwarded-Client-Cert`.
    pub client_cert: ClientCertMode,
    /// Whether to set `X-Maglor-Client` for workloads of the mesh.
    pub says_client: bool,
    /// Whether to add an `x-request-id` to requests without one.
    pub request_id: bool,
    /// Whether to trust the `x-request-id` of clients.
    pub preserve_request_id: bool,
    /// Protocols that `Upgrade` of an HTTP/1.1 request may switch to, lower case; empty = none.
    pub upgrades: Vec<String>,
    /// Whether routes may match CONNECT requests; otherwise they get a 405 response.
    pub allow_connect: bool,
    /// The time after which a keep-alive connection without request is closed.
    pub idle_timeout: Duration,
    /// The limit from the first byte of a request to the end of its head.
    pub header_timeout: Duration,
    /// The time without any byte after which a stream (request and response) is reset.
    pub stream_idle_timeout: Duration,
    /// The age at which a connection is closed gracefully; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// The limit of the size of a request head, HTTP/1 and HTTP/2 alike; larger ones get 431.
    pub max_header_bytes: usize,
    /// The limit of the number of request headers; more get 431.
    pub max_headers: usize,
    /// The limit of concurrent HTTP/2 streams on a connection.
    pub max_concurrent_streams: u32,
    /// The value of the `server` header on responses made by the proxy itself.
    pub server_name: Arc<str>,
    /// The load reports of the server behind the chain, if there is one.
    pub load_reports: Option<LoadReports>,
}

/// The load reports of a server's inbound proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadReports {
    /// The servers of the service; `None`: no ledger is kept.
    pub peers: Option<Peers>,
    /// Whether responses also carry the load in the ORCA format.
    pub orca: bool,
}

/// The servers of a service, and the one behind this proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peers {
    /// The name of the cluster that contains them all.
    pub cluster: Arc<str>,
    /// The server behind the chain, by its address in the cluster.
    pub endpoint: Address,
}

/// TCP on a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TcpFilter {
    /// The cluster for the bytes, unless another one is discovered; empty = none.
    pub cluster: Arc<str>,
    /// The time without any byte in either direction after which a connection is closed.
    pub idle_timeout: Duration,
}
