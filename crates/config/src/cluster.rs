//! Clusters: sets of endpoints, with the settings of connections and balancing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance as balance;
use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::concurrency::ConcurrencyParams;
use maglor_balance::guard::fault::Distance;
use maglor_balance::guard::limits::LimitParams;
use maglor_balance::guard::outlier::OutlierParams;
use maglor_balance::guard::retry_budget::BudgetParams;

use crate::{HealthCheck, Origination, UnixAddress};

/// A set of endpoints that serve the same requests.
///
/// # Defaults
///
/// `policy: lor(choices=2)`, `protocol: http1`, `connect_timeout: 5s`, `idle_timeout: 60s`, `panic_threshold: 50`,
/// `max_idle_connections: 1024` per worker and endpoint, `outlier_ejection` and `retry_budget` with their own defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The unique name; the label `cluster` in metrics.
    pub name: Arc<str>,
    /// The balancing policy.
    pub policy: balance::PolicySpec,
    /// The panic threshold, priorities, localities and slow start.
    pub view: balance::ViewParams,
    /// The address used instead of `endpoints`, which is then empty, derived from the original destination of the
    /// client's connection; `None` = `endpoints` are used.
    pub original_destination: Option<DestinationAddress>,
    /// The endpoints. If there are none, requests get a 503 response.
    pub endpoints: Vec<Endpoint>,
    /// The HTTP version of connections to the endpoints.
    pub protocol: UpstreamProtocol,
    /// Whether gRPC calls use HTTP/2 although other requests use HTTP/1.1; false if HTTP/1.1 was chosen explicitly.
    pub grpc_by_http2: bool,
    /// The TLS settings of connections to the endpoints; `None` = plain text.
    pub tls: Option<Origination>,
    /// The PROXY protocol header sent on each new connection; `None` = no header.
    pub proxy_protocol: Option<ProxyProtocolOut>,
    /// The timeout of the TCP and TLS handshakes together.
    pub connect_timeout: Duration,
    /// The time after which an idle pooled connection is closed.
    pub idle_timeout: Duration,
    /// The number of requests after which a connection is closed; `None` = no limit.
    pub max_requests_per_connection: Option<NonZeroU32>,
    /// The maximum number of HTTP/1.1 connections that stay open after one second without a request, for each worker
    /// and endpoint; 0 = no connection is reused.
    pub max_idle_connections: usize,
    /// The maximum number of concurrent HTTP/2 streams on a connection; further requests open another one.
    pub max_concurrent_streams: u32,
    /// The bounds of the interval between two resolutions of a DNS name; between them, the record's TTL is the
    /// interval.
    pub dns_refresh: DnsRefresh,
    /// Whether only the first address of a DNS name is an endpoint, as long as responses contain that address.
    pub first_address_only: bool,
    /// Active health checks; `None` = none.
    pub health_check: Option<HealthCheck>,
    /// Ejection of failing endpoints; `None` if disabled.
    pub outlier: Option<OutlierParams>,
    /// The limits on requests and connections in progress and pending.
    pub limits: LimitParams,
    /// The share of the traffic that may be retries and hedged attempts.
    pub retry_budget: BudgetParams,
    /// The circuit breaker; `None` = none.
    pub circuit_breaker: Option<BreakerParams>,
    /// An adaptive limit on requests in progress; `None` = none.
    pub concurrency_limit: Option<ConcurrencyParams>,
    /// A delay of every request, to emulate network distance; `None` = none.
    pub delay: Option<Distance>,
}

/// The host of the address that replaces a connection's original destination; the port is always the destination's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DestinationAddress {
    /// The destination's own host.
    AsIs,
    /// This host.
    Ip(IpAddr),
    /// The loopback address of the destination's address family.
    Loopback,
}

impl DestinationAddress {
    /// Returns the address for a connection to `destination`.
    #[must_use]
    pub fn of(self, destination: SocketAddr) -> SocketAddr {
        let ip = destination.ip().to_canonical();
        let ip = match self {
            Self::AsIs => ip,
            Self::Ip(ip) => ip,
            Self::Loopback if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            Self::Loopback => Ipv6Addr::LOCALHOST.into(),
        };
        SocketAddr::new(ip, destination.port())
    }
}

/// The bounds of the re-resolution interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DnsRefresh {
    /// The minimum interval, to which a smaller TTL is raised. Default 1 s.
    pub min: Duration,
    /// The maximum interval, to which a larger TTL is lowered. Default 5 min.
    pub max: Duration,
}

/// One server, or a DNS name that resolves to several.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// The address of the server, or its DNS name.
    pub address: EndpointAddress,
    /// The weight: the share of requests relative to other endpoints.
    pub weight: NonZeroU32,
    /// The priority: 0 is used first; endpoints with a higher number are used if too few of those with a lower number
    /// are healthy.
    pub priority: u8,
    /// `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`; the unit of locality weights, see [`locality`].
    pub locality: Option<Arc<str>>,
}

/// Parses `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`.
#[must_use]
pub fn locality(text: &str) -> balance::Locality {
    let mut parts = text.splitn(3, '/');
    let mut next = || parts.next().unwrap_or_default();
    balance::Locality::new(next(), next(), next())
}

/// Formats the address as `HOST:PORT` or `unix:/PATH`, the notation of the file.
impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(address) => address.fmt(f),
            Self::Unix(address) => address.fmt(f),
        }
    }
}

/// The address of an endpoint.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum EndpointAddress {
    /// A DNS name: each of its addresses is an endpoint.
    Dns {
        /// The name in lower case.
        host: Arc<str>,
        /// The port of all its addresses.
        port: u16,
    },
    /// An IP address with port.
    Socket(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

/// The HTTP version of connections to the endpoints of a cluster.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UpstreamProtocol {
    /// Chosen by ALPN with TLS, otherwise HTTP/1.1.
    Auto,
    /// HTTP/1.1.
    #[default]
    Http1,
    /// The version of the client's request.
    Downstream,
    /// HTTP/2, in plain text with prior knowledge.
    Http2,
}

/// The version of the PROXY protocol header that is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxyProtocolOut {
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
}
