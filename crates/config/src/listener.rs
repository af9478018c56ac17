//! Listeners and their filter chains: what happens to a downstream connection.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::authorization::Authorization;
use crate::traffic::RateLimit;
use crate::{Address, Discovery, RouteTable, Termination};

/// A listening socket and the chains that its connections may take.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Unique in the configuration; label `listener` in metrics.
    pub name: Arc<str>,
    /// Address to bind; port 0 lets the kernel choose.
    pub address: Address,
    /// Permissions of the file of a Unix socket, as of chmod(2).
    pub mode: u32,
    /// PROXY protocol (v1 and v2) on accepted connections.
    pub proxy_protocol: ProxyProtocolIn,
    /// Evaluated in order of specificity (see [`FilterChainMatch`]), at least one.
    pub filter_chains: Vec<FilterChain>,
    /// Connections open at once over all workers; above it new ones wait in the backlog.
    pub max_connections: usize,
    /// Connections were redirected here: the kernel knows where they were going.
    pub original_destination: bool,
    /// Whose connections they are.
    pub direction: TrafficDirection,
    /// A client that says nothing for this long waits for the server to speak.
    pub detection_timeout: Duration,
    /// Destination ports at which clients wait for the server to speak.
    pub server_first_ports: Vec<u16>,
    /// How long TLS detection, PROXY header and TLS handshake may take together.
    pub handshake_timeout: Duration,
    /// Who may do what; `None` = everybody everything.
    pub authorization: Option<Authorization>,
    /// On HTTP requests over all chains; `None` = no limit.
    pub rate_limit: Option<RateLimit>,
    /// The workload that the control plane is asked for: its TLS mode, ports and authorization; `None` =
    /// none is asked.
    pub workload: Option<Arc<str>>,
}

impl Listener {
    /// Permissions of a Unix socket's file unless `mode` says others: owner and group connect.
    pub const DEFAULT_MODE: u32 = 0o660;
}

/// Whether a listener reads the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProxyProtocolIn {
    /// Bytes are taken as they are.
    #[default]
    Off,
    /// A header is read if there is one.
    Accept,
    /// A connection without header is closed.
    Require,
}

/// Whose connections a listener takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TrafficDirection {
    /// Those of other hosts to the application here.
    Inbound,
    /// Those of the application here to other hosts; they outlast the others when the process ends.
    Outbound,
    /// Neither.
    #[default]
    Unspecified,
}

/// A match and what is done with the connections that it takes.
#[derive(Clone, Debug)]
pub struct FilterChain {
    /// Unique in the listener.
    pub name: Arc<str>,
    /// Which connections; the default takes all.
    pub matches: FilterChainMatch,
    /// TLS termination; `None` = plain (or passed through).
    pub tls: Option<Termination>,
    /// What speaks on the connection.
    pub filter: Filter,
}

/// Which connections a chain takes. The most specific chain wins, in the order: destination port,
/// destination prefix length, server name (exact, then longest suffix wildcard, then any), application
/// protocol, source prefix length.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FilterChainMatch {
    /// Ports that the connection goes to. Empty = any.
    pub destination_ports: Vec<u16>,
    /// Addresses that the connection goes to. Empty = any.
    pub destination_networks: Vec<IpNet>,
    /// SNI names, lower case: exact `a.example.com` or suffix wildcard `*.example.com`. Empty = any.
    pub server_names: Vec<String>,
    /// ALPN protocols the client offers. Empty = any.
    pub application_protocols: Vec<String>,
    /// Client addresses (after PROXY protocol). Empty = any.
    pub source: Vec<IpNet>,
}

/// The last filter of a chain.
#[derive(Clone, Debug)]
pub enum Filter {
    /// What the first bytes say: HTTP where they are HTTP, bytes otherwise.
    Detect {
        /// For HTTP/1 and HTTP/2.
        http: Box<HttpFilter>,
        /// For everything else, and for clients that wait for the server.
        tcp: TcpFilter,
    },
    /// HTTP/1.1 and HTTP/2 with routes.
    Http(Box<HttpFilter>),
    /// Bytes to a cluster.
    Tcp(TcpFilter),
}

/// HTTP versions that a chain speaks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HttpProtocol {
    /// By ALPN under TLS; in plain text by the HTTP/2 preface (prior knowledge).
    #[default]
    Auto,
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// How the forwarding headers of a request are treated.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ForwardedMode {
    /// What the client sent is replaced by what the proxy saw: the safe choice at an edge.
    Replace,
    /// The proxy appends to what the client sent.
    #[default]
    Append,
    /// Passed on untouched.
    Off,
}

/// How `x-forwarded-client-cert` of a request is treated.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertMode {
    /// A workload of the mesh may bring one, and is appended to it; others may not.
    Append,
    /// Remove the header, and set none.
    Remove,
    /// Remove the header of clients; set it for workloads of the mesh.
    #[default]
    Replace,
}

/// How a request's path is made comparable before it is routed and forwarded (RFC 3986 §6.2.2), so
/// that a rule for `/admin` is not passed by `/x/../admin`. Each step includes those before it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum PathNormalization {
    /// Taken as it came.
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
    /// Versions spoken.
    pub protocol: HttpProtocol,
    /// Virtual hosts and routes.
    pub routes: Arc<RouteTable>,
    /// On-demand discovery of hosts without a virtual host; `None` if disabled.
    pub discovery: Option<Discovery>,
    /// What is done to a path before a route is looked for.
    pub path_normalization: PathNormalization,
    /// `X-Forwarded-For/-Proto/-Host`.
    pub x_forwarded: ForwardedMode,
    /// RFC 7239 `Forwarded`.
    pub forwarded: ForwardedMode,
    /// `X-Forwarded-Client-Cert`.
    pub client_cert: ClientCertMode,
    /// Set `X-Maglor-Client` towards workloads of the mesh.
    pub says_client: bool,
    /// Give a request an `x-request-id` if it has none.
    pub request_id: bool,
    /// Trust the `x-request-id` that the client sent.
    pub preserve_request_id: bool,
    /// Protocols that `Upgrade` of an HTTP/1.1 request may switch to, lower case; empty = none.
    pub upgrades: Vec<String>,
    /// Whether routes may match CONNECT requests; otherwise they are answered with 405.
    pub allow_connect: bool,
    /// A keep-alive connection without request is closed after this.
    pub idle_timeout: Duration,
    /// From the first byte of a request to the end of its head.
    pub header_timeout: Duration,
    /// A stream (request and response) on which no byte moves is reset after this.
    pub stream_idle_timeout: Duration,
    /// A connection is closed gracefully when it is this old; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// Size of a request head, HTTP/1 and HTTP/2 alike; larger ones get 431.
    pub max_header_bytes: usize,
    /// Number of request headers; more get 431.
    pub max_headers: usize,
    /// HTTP/2 streams at once on a connection.
    pub max_concurrent_streams: u32,
    /// Value of the `server` header on responses made by the proxy itself.
    pub server_name: Arc<str>,
    /// Load reports of the server behind the chain, if there is one.
    pub load_reports: Option<LoadReports>,
}

/// Load reports of a server's inbound proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadReports {
    /// The servers of the service; `None`: no ledger is kept.
    pub peers: Option<Peers>,
    /// Whether responses say it in the ORCA format, too.
    pub orca: bool,
}

/// The servers of a service, and one of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peers {
    /// Name of the cluster that has them all.
    pub cluster: Arc<str>,
    /// The server behind the chain, as the cluster knows it.
    pub endpoint: Address,
}

/// TCP on a chain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TcpFilter {
    /// Where bytes go, unless something else is discovered; empty = nowhere.
    pub cluster: Arc<str>,
    /// A connection on which no byte moves either way is closed after this.
    pub idle_timeout: Duration,
}
