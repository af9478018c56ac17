//! `listeners`: sockets, filter chains, and what speaks on them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Authorization, Discovery, DownstreamTls, Inbound, OneOrMany, Outbound, RateLimit, Short, Size,
    TimeSpan, VirtualHost,
};

/// A listening socket. Give it `http` or `tcp` (or both: the first bytes decide), a list of
/// `filter_chains`, or a sidecar's `inbound` or `outbound`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name", "address"]))]
pub struct Listener {
    /// Unique name; metrics are labelled with it.
    pub name: Option<String>,
    /// `IP:PORT` to listen on; port 0 lets the kernel choose. Or a Unix socket: `unix:/PATH`, or `unix:@NAME` in the
    /// abstract namespace.
    pub address: Option<String>,
    /// Permissions of the file of a Unix socket, in octal with a leading zero. Who may write may connect. Default: `0660`,
    /// owner and group.
    #[schemars(regex(pattern = r"^0o?[0-7]{3}$"))]
    pub mode: Option<String>,
    /// Whether connections begin with a PROXY protocol header (v1 or v2) of a balancer in front.
    #[schemars(extend("default" = "off"))]
    pub proxy_protocol: Option<ProxyProtocolIn>,
    /// Connections open at once over all workers, 1-10000000; above it new ones wait in the backlog.
    #[schemars(range(min = 1, max = 10_000_000), extend("default" = 65_536))]
    pub max_connections: Option<u32>,
    /// Time for PROXY header, detection of TLS and TLS handshake together, 1ms-10m.
    #[schemars(extend("default" = "10s"))]
    pub handshake_timeout: Option<TimeSpan>,
    /// Connections come by a redirection (nftables, iptables), so ask the kernel where they were going
    /// (`SO_ORIGINAL_DST`): filter chains and clusters of `type: original-destination` go by that.
    /// Default: true with `inbound` and `outbound`, otherwise false.
    pub original_destination: Option<bool>,
    /// Whose connections these are: at the end of the process `outbound` listeners go on until the
    /// application has ended. Default: that of `inbound` or `outbound`, otherwise `unspecified`.
    pub traffic_direction: Option<TrafficDirection>,
    /// Where the first bytes decide what is spoken: a client that says nothing for so long is taken to
    /// wait for the server, 1ms-10m.
    #[schemars(extend("default" = "1s"))]
    pub detection_timeout: Option<TimeSpan>,
    /// Where the first bytes decide what is spoken: destination ports, 1-65535, at which the server speaks
    /// first, so that a client is not waited for. Other such destinations are learned from their first
    /// connection. Default: `[21, 22, 25, 110, 143, 587, 3306]` (FTP, SSH, SMTP, POP3, IMAP, submission, MySQL).
    pub server_first_ports: Option<Vec<u32>>,
    /// Who may do what, by identity, address, method, path and port. Absent: everybody everything.
    pub authorization: Option<Authorization>,
    /// Limit the rate of HTTP requests over all chains; a text is a rate such as `100/s`. Absent: no
    /// limit.
    pub rate_limit: Option<Short<RateLimit>>,
    /// The pod that this proxy is, `NAMESPACE/POD`: who is let in, and who may do what, is what the
    /// control plane says of it, over `tls` and `authorization`. With `inbound` write
    /// `inbound.discovery`.
    pub workload: Option<String>,
    /// TLS termination of the only chain (with `http` or `tcp`).
    pub tls: Option<Short<DownstreamTls>>,
    /// HTTP on every connection; short for one filter chain.
    pub http: Option<Http>,
    /// Bytes to a cluster on every connection; short for one filter chain.
    pub tcp: Option<Tcp>,
    /// A sidecar's connections from other hosts to its application; short for several filter chains.
    pub inbound: Option<Inbound>,
    /// A sidecar's connections from its application to other hosts; short for several filter chains.
    pub outbound: Option<Outbound>,
    /// What is done with connections, by destination, server name, ALPN and client address. The most
    /// specific chain takes a connection; one that no chain takes is closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter_chains: Vec<FilterChain>,
}

/// Whether a listener reads the PROXY protocol.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocolIn {
    /// A header is read where there is one. Only where clients are trusted.
    Accept,
    /// Bytes are taken as they are.
    Off,
    /// A connection without header is closed.
    Require,
}

/// Whose connections a listener takes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrafficDirection {
    /// Those of other hosts to the application here.
    Inbound,
    /// Those of the application here to other hosts.
    Outbound,
    /// Neither: a reverse proxy.
    Unspecified,
}

/// A match and what is done with the connections that it takes: `http`, `tcp`, or both. With both, the
/// first bytes decide: HTTP/1 and HTTP/2 go to `http`, everything else to `tcp`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilterChain {
    /// Unique in the listener. Default: the chain's position, `0`, `1`, ….
    pub name: Option<String>,
    /// Which connections. Default: all that no other chain takes.
    pub r#match: Option<FilterChainMatch>,
    /// TLS termination. Absent: plain text, or TLS passed through to a `tcp` cluster.
    pub tls: Option<Short<DownstreamTls>>,
    /// HTTP on these connections.
    pub http: Option<Http>,
    /// Bytes to a cluster.
    pub tcp: Option<Tcp>,
}

/// Conditions on a connection; all must hold. The most specific chain wins: by destination port, then by
/// length of the destination's prefix, then by server name (exact, then longest wildcard, then any), then
/// by ALPN protocol, then by length of the source prefix.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilterChainMatch {
    /// Ports that the connection goes to, 1-65535; with `original_destination` those before the
    /// redirection. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<u32>,
    /// Networks that the connection goes to, such as `10.0.0.0/8`, or addresses. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination_networks: Vec<String>,
    /// Names in the TLS client hello (SNI): `a.example.com`, `*.example.com`. Default: any, and no TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// ALPN protocols of the client, such as `h2`. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub application_protocols: Vec<String>,
    /// Client networks, such as `10.0.0.0/8`, or addresses; after the PROXY protocol. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<String>,
}

/// Bytes to a cluster, both ways. A hashing policy hashes the client's address.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Name of the cluster. May be left out beside `http` with `discovery.host`: bytes go where the control plane
    /// says, and nowhere until it has.
    pub cluster: Option<String>,
    /// A connection on which no byte moves either way is closed after this, 1ms-30d.
    #[schemars(extend("default" = "1h"))]
    pub idle_timeout: Option<TimeSpan>,
}

/// HTTP versions that are spoken.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpProtocol {
    /// By ALPN under TLS; in plain text by the HTTP/2 preface (prior knowledge).
    Auto,
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// How forwarding headers are treated.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardedMode {
    /// The proxy appends to what the client sent.
    Append,
    /// Passed on untouched.
    Off,
    /// What the client sent is replaced by what the proxy saw: the safe choice at an edge.
    Replace,
}

/// How `x-forwarded-client-cert` is treated.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertMode {
    /// A member of the mesh may bring one, and is appended to it; others may not.
    Append,
    /// Nobody may bring one, and none is set.
    Remove,
    /// Nobody may bring one; members of the mesh get theirs.
    Replace,
}

/// How a path is made comparable before it is routed and forwarded; each includes those before it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathNormalization {
    /// Taken as it came.
    Off,
    /// RFC 3986: no dot segments, unreserved characters decoded; `\` becomes `/`.
    Base,
    /// Slashes that follow each other become one.
    MergeSlashes,
    /// `%2F` and `%5C` become `/` first.
    DecodeAndMergeSlashes,
}

/// HTTP/1.1 and HTTP/2 with routes; give it `virtual_hosts`, or the name of a table in `routes`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Versions spoken.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<HttpProtocol>,
    /// Names and their routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_hosts: Vec<VirtualHost>,
    /// Name of a table in `route_tables`, instead of `virtual_hosts`.
    pub routes: Option<String>,
    /// Ask the control plane for hosts that no virtual host has. Absent: nobody is asked.
    pub discovery: Option<Discovery>,
    /// What is done to a path before it is routed and forwarded: `base` removes dot segments and
    /// decodes unreserved characters (RFC 3986), the others also treat slashes.
    #[schemars(extend("default" = "base"))]
    pub path_normalization: Option<PathNormalization>,
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[schemars(extend("default" = "append"))]
    pub x_forwarded: Option<ForwardedMode>,
    /// `Forwarded` (RFC 7239).
    #[schemars(extend("default" = "off"))]
    pub forwarded: Option<ForwardedMode>,
    /// `X-Forwarded-Client-Cert`, which tells the application who the client is: `By=` this proxy's
    /// SPIFFE id, `URI=` the client's. One that does not come from a member of the mesh is removed.
    #[schemars(extend("default" = "replace"))]
    pub x_forwarded_client_cert: Option<ClientCertMode>,
    /// Tell endpoints that are members of the mesh who the client of a request is, its address and the
    /// identity that it has proved, in `x-maglor-client`. Who has this proxy among its `tls.delegates`
    /// believes it; no application sees the field.
    #[schemars(extend("default" = false))]
    pub x_maglor_client: Option<bool>,
    /// Give a request an `x-request-id` where it has none.
    #[schemars(extend("default" = true))]
    pub request_id: Option<bool>,
    /// Keep the `x-request-id` that a client sent; `false` at an edge.
    #[schemars(extend("default" = true))]
    pub preserve_request_id: Option<bool>,
    /// Protocols that `Upgrade` of an HTTP/1.1 request may switch to; `[]` for none.
    #[schemars(extend("default" = ["websocket"]))]
    pub upgrades: Option<OneOrMany>,
    /// Let routes match the method CONNECT; otherwise it is answered with 405.
    #[schemars(extend("default" = false))]
    pub allow_connect: Option<bool>,
    /// A keep-alive connection without request is closed after this, 1ms-30d.
    #[schemars(extend("default" = "1h"))]
    pub idle_timeout: Option<TimeSpan>,
    /// Time from the first byte of a request to the end of its head, and from the connection to the first byte of
    /// the first request, with HTTP/2 to the end of the preface, 1ms-1h.
    #[schemars(extend("default" = "10s"))]
    pub header_timeout: Option<TimeSpan>,
    /// A request or response on which no byte moves, its last ones included, is reset after this, 1ms-30d.
    #[schemars(extend("default" = "5m"))]
    pub stream_idle_timeout: Option<TimeSpan>,
    /// A connection is closed gracefully when it is this old, 1s-3650d. Absent: never.
    pub max_connection_age: Option<TimeSpan>,
    /// Size of a request head, 1KiB-1MiB; larger ones get 431.
    #[schemars(extend("default" = "64KiB"))]
    pub max_header_bytes: Option<Size>,
    /// Number of headers of a request, 1-4096; more get 431.
    #[schemars(range(min = 1, max = 4096), extend("default" = 128))]
    pub max_headers: Option<u32>,
    /// HTTP/2 streams at once on a connection, 1-65536.
    #[schemars(range(min = 1, max = 65536), extend("default" = 128))]
    pub max_concurrent_streams: Option<u32>,
    /// The `server` header of responses that the proxy itself makes.
    #[schemars(extend("default" = "maglor"))]
    pub server_name: Option<String>,
    /// This chain stands before one server: tell balancers how many requests are in flight there.
    /// Absent: nobody is told.
    pub load_reports: Option<LoadReports>,
}

/// What the inbound proxy of a server tells balancers, so that the policies `a-lsq`, `bounce`, `ledger`
/// and `probe` go by its true queue. `{}` is enough for all but `ledger`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadReports {
    /// Name of the cluster of all servers of the service, this one included, with the policy that its
    /// clients use. Absent: no ledger is kept.
    pub cluster: Option<String>,
    /// `IP:PORT` or `unix:/PATH` under which clients know this server: one of the cluster's endpoints.
    pub endpoint: Option<String>,
    /// Say it in responses in the ORCA format, too (`endpoint-load-metrics`), for other balancers.
    #[schemars(extend("default" = false))]
    pub orca: Option<bool>,
}
