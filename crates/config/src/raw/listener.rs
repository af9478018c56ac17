//! `listeners`: sockets, filter chains, and their protocols.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{
    Authorization, Discovery, DownstreamTls, Inbound, LoadReports, OneOrMany, Outbound, RateLimit,
    Short, Size, TimeSpan, VirtualHost,
};

/// A listening socket. Set `http` or `tcp` (or both, to detect the protocol from the first bytes), a list of
/// `filter_chains`, or `inbound` or `outbound` of a sidecar.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name", "address"]))]
pub struct Listener {
    /// Unique name; the label `listener` in metrics.
    pub name: Option<String>,
    /// `IP:PORT` to listen on; port 0 lets the kernel choose. Or a Unix socket: `unix:/PATH`, or `unix:@NAME` in the
    /// abstract namespace.
    pub address: Option<String>,
    /// Permissions of the file of a Unix socket, in octal with a leading zero. Write permission is needed to connect.
    /// Default: `0660`, which lets the owner and the group connect.
    #[schemars(regex(pattern = r"^0o?[0-7]{3}$"))]
    pub mode: Option<String>,
    /// Whether connections start with a PROXY protocol header (v1 or v2) of a load balancer in front.
    #[schemars(extend("default" = "off"))]
    pub proxy_protocol: Option<ProxyProtocolIn>,
    /// Maximum open connections over all workers, 1-10000000; further connections wait in the backlog.
    #[schemars(range(min = 1, max = 10_000_000), extend("default" = 65_536))]
    pub max_connections: Option<u32>,
    /// Timeout of PROXY header, TLS detection and TLS handshake together, 1ms-10m.
    #[schemars(extend("default" = "10s"))]
    pub handshake_timeout: Option<TimeSpan>,
    /// Connections are redirected (nftables, iptables): read their original destination from the kernel
    /// (`SO_ORIGINAL_DST`) for filter chains and clusters of `type: original-destination`. Default: true with
    /// `inbound` and `outbound`, otherwise false.
    pub original_destination: Option<bool>,
    /// Direction of the connections: at shutdown, `outbound` listeners continue until the application has exited.
    /// Default: that of `inbound` or `outbound`, otherwise `unspecified`.
    pub traffic_direction: Option<TrafficDirection>,
    /// Timeout of protocol detection, 1ms-10m: a client that sends nothing for this time is assumed to wait for the
    /// server.
    #[schemars(extend("default" = "1s"))]
    pub detection_timeout: Option<TimeSpan>,
    /// With protocol detection: destination ports, 1-65535, of protocols in which the server sends first; connections
    /// to them skip detection. Other such ports are learned from their first connection. Default:
    /// `[21, 22, 25, 110, 143, 587, 3306]` (FTP, SSH, SMTP, POP3, IMAP, submission, MySQL).
    pub server_first_ports: Option<Vec<u32>>,
    /// Authorization by identity, address, method, path and port. Absent: all clients are allowed.
    pub authorization: Option<Authorization>,
    /// Rate limit of HTTP requests over all chains; a string is a rate such as `100/s`. Absent: no limit.
    pub rate_limit: Option<Short<RateLimit>>,
    /// Pod of this proxy, `NAMESPACE/POD`: the control plane sets its mutual TLS mode and authorization, which
    /// override `tls` and `authorization`. With `inbound`, use `inbound.discovery`.
    pub workload: Option<String>,
    /// TLS termination of the only chain (with `http` or `tcp`).
    pub tls: Option<Short<DownstreamTls>>,
    /// HTTP on all connections; short for a single filter chain.
    pub http: Option<Http>,
    /// TCP to a cluster on all connections; short for a single filter chain.
    pub tcp: Option<Tcp>,
    /// A sidecar's connections from other hosts to its application; short for several filter chains.
    pub inbound: Option<Inbound>,
    /// A sidecar's connections from its application to other hosts; short for several filter chains.
    pub outbound: Option<Outbound>,
    /// Handling of connections by destination, server name, ALPN and client address. The most specific chain applies;
    /// connections without a matching chain are closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter_chains: Vec<FilterChain>,
}

/// PROXY protocol on accepted connections.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocolIn {
    /// A header is optional. Use it only for trusted clients.
    Accept,
    /// No header is expected.
    Off,
    /// A header is required; connections without it are closed.
    Require,
}

/// Direction of a listener's connections.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrafficDirection {
    /// From other hosts to the local application.
    Inbound,
    /// From the local application to other hosts.
    Outbound,
    /// Neither direction, as in a reverse proxy.
    Unspecified,
}

/// A match and the protocol of its connections: `http`, `tcp`, or both. With both, the protocol is detected from the
/// first bytes: HTTP/1 and HTTP/2 go to `http`, everything else to `tcp`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilterChain {
    /// Name, unique in the listener. Default: the chain's position, `0`, `1`, ….
    pub name: Option<String>,
    /// Connections to match. Default: all connections that no other chain matches.
    pub r#match: Option<FilterChainMatch>,
    /// TLS termination. Absent: plain text, or TLS passed through to a `tcp` cluster.
    pub tls: Option<Short<DownstreamTls>>,
    /// HTTP on these connections.
    pub http: Option<Http>,
    /// TCP to a cluster on these connections.
    pub tcp: Option<Tcp>,
}

/// Conditions on a connection; all must hold. The most specific chain wins: by destination port, then by
/// length of the destination's prefix, then by server name (exact, then longest wildcard, then any), then
/// by ALPN protocol, then by length of the source prefix.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilterChainMatch {
    /// Destination ports, 1-65535; with `original_destination`, the ports before the redirection. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<u32>,
    /// Destination networks, such as `10.0.0.0/8`, or addresses. Default: any.
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

/// TCP to a cluster. A hashing policy hashes the client's address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// Name of the cluster. Optional with `http` and `discovery.host`: the control plane sets the destination, and
    /// connections fail until it has.
    pub cluster: Option<String>,
    /// Time without data in either direction after which a connection is closed, 1ms-30d.
    #[schemars(extend("default" = "1h"))]
    pub idle_timeout: Option<TimeSpan>,
}

/// HTTP versions of a filter chain.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpProtocol {
    /// Chosen by ALPN under TLS; in plain text by the HTTP/2 preface (prior knowledge).
    Auto,
    /// HTTP/1.1 (and 1.0) only.
    Http1,
    /// HTTP/2 only.
    Http2,
}

/// Handling of forwarding headers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardedMode {
    /// Append to the values that the client sent.
    Append,
    /// Forward the client's values unchanged.
    Off,
    /// Replace the values that the client sent: the safe choice at an edge.
    Replace,
}

/// Handling of `x-forwarded-client-cert`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertMode {
    /// Append to the header of workloads of the mesh; remove it from other clients.
    Append,
    /// Remove the header, and set none.
    Remove,
    /// Remove the header of clients; set it for workloads of the mesh.
    Replace,
}

/// Normalization of a path before it is routed and forwarded; each value includes the previous ones.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathNormalization {
    /// No normalization.
    Off,
    /// Remove dot segments, decode unreserved characters (RFC 3986), and replace `\` by `/`.
    Base,
    /// Also merge consecutive slashes.
    MergeSlashes,
    /// Also replace `%2F` and `%5C` by `/`, before slashes are merged.
    DecodeAndMergeSlashes,
}

/// HTTP/1.1 and HTTP/2 with routes; set `virtual_hosts`, or the name of a table in `routes`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// HTTP versions.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<HttpProtocol>,
    /// Domains and their routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_hosts: Vec<VirtualHost>,
    /// Name of a table in `route_tables`, instead of `virtual_hosts`.
    pub routes: Option<String>,
    /// On-demand discovery of hosts without a virtual host. Absent: disabled.
    pub discovery: Option<Discovery>,
    /// Path normalization before routing and forwarding: `base` removes dot segments, decodes unreserved characters,
    /// writes other escapes in upper case and escapes characters that no URI contains (RFC 3986); the other values also normalize slashes.
    #[schemars(extend("default" = "base"))]
    pub path_normalization: Option<PathNormalization>,
    /// Handling of `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    #[schemars(extend("default" = "append"))]
    pub x_forwarded: Option<ForwardedMode>,
    /// Handling of `Forwarded` (RFC 7239).
    #[schemars(extend("default" = "off"))]
    pub forwarded: Option<ForwardedMode>,
    /// Handling of `X-Forwarded-Client-Cert`, which names the client's identity: `By=` this proxy's SPIFFE ID, `URI=`
    /// the client's. A header from a client outside the mesh is removed.
    #[schemars(extend("default" = "replace"))]
    pub x_forwarded_client_cert: Option<ClientCertMode>,
    /// Whether to send the address and verified identity of a request's client to endpoints of the mesh, in
    /// `x-maglor-client`. Proxies that list this proxy in `tls.delegates` trust the header; applications do not see it.
    #[schemars(extend("default" = false))]
    pub x_maglor_client: Option<bool>,
    /// Whether to add an `x-request-id` to requests without one.
    #[schemars(extend("default" = true))]
    pub request_id: Option<bool>,
    /// Whether to keep the client's `x-request-id`; use `false` at an edge.
    #[schemars(extend("default" = true))]
    pub preserve_request_id: Option<bool>,
    /// `Upgrade` protocols that HTTP/1.1 requests may switch to; `[]` for none.
    #[schemars(extend("default" = ["websocket"]))]
    pub upgrades: Option<OneOrMany>,
    /// Whether routes may match the method CONNECT; if not, CONNECT requests get 405.
    #[schemars(extend("default" = false))]
    pub allow_connect: Option<bool>,
    /// Time without a request after which a keep-alive connection is closed, 1ms-30d.
    #[schemars(extend("default" = "1h"))]
    pub idle_timeout: Option<TimeSpan>,
    /// Timeout from the first byte of a request to the end of its head, and from the start of a connection to its first
    /// byte (HTTP/2: to the end of the preface), 1ms-1h.
    #[schemars(extend("default" = "10s"))]
    pub header_timeout: Option<TimeSpan>,
    /// Time without data after which a request or response stream is reset, 1ms-30d.
    #[schemars(extend("default" = "5m"))]
    pub stream_idle_timeout: Option<TimeSpan>,
    /// Age at which a connection is closed gracefully, 1s-3650d. Absent: unlimited.
    pub max_connection_age: Option<TimeSpan>,
    /// Maximum size of a request head, 1KiB-1MiB; larger heads get 431.
    #[schemars(extend("default" = "64KiB"))]
    pub max_header_bytes: Option<Size>,
    /// Maximum number of request headers, 1-4096; requests with more headers get 431.
    #[schemars(range(min = 1, max = 4096), extend("default" = 128))]
    pub max_headers: Option<u32>,
    /// Maximum concurrent HTTP/2 streams on a connection, 1-65536.
    #[schemars(range(min = 1, max = 65536), extend("default" = 128))]
    pub max_concurrent_streams: Option<u32>,
    /// `server` header of the proxy's own responses.
    #[schemars(extend("default" = "maglor"))]
    pub server_name: Option<String>,
    /// Load reports to balancers about the server behind this chain. Absent: disabled.
    pub load_reports: Option<LoadReports>,
}
