//! Clusters: where requests go and how an endpoint is chosen.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance as balance;
use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::budget::BudgetParams;
use maglor_balance::guard::concurrency::ConcurrencyParams;
use maglor_balance::guard::fault::Distance;
use maglor_balance::guard::limits::LimitParams;
use maglor_balance::guard::outlier::OutlierParams;

use crate::{HealthCheck, Origination, UnixAddress};

/// A set of endpoints that answer the same requests.
///
/// # Defaults
/// `policy: lor(choices=2)`, `protocol: http1`, `connect_timeout: 5s`, `idle_timeout: 60s`,
/// `panic_threshold: 50`, `max_idle_connections: 1024` a worker and endpoint, `outlier_ejection` and
/// `retry_budget` with theirs.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Unique; label `cluster` in metrics.
    pub name: Arc<str>,
    /// How an endpoint is chosen.
    pub policy: balance::Spec,
    /// Panic threshold, priorities, localities, slow start.
    pub view: balance::ViewParams,
    /// The endpoint is where the client's connection was going, and `endpoints` is empty; `None` =
    /// `endpoints`.
    pub original_destination: Option<DestinationAddress>,
    /// May be empty: requests are then answered with 503.
    pub endpoints: Vec<Endpoint>,
    /// HTTP version towards the endpoints.
    pub protocol: UpstreamProtocol,
    /// Whether gRPC calls go by HTTP/2 although other requests go by HTTP/1.1: where HTTP/1.1 was not chosen.
    pub grpc_by_http2: bool,
    /// TLS towards the endpoints.
    pub tls: Option<Origination>,
    /// PROXY protocol header sent on each new connection.
    pub proxy_protocol: Option<ProxyProtocolOut>,
    /// TCP (and TLS) handshake together.
    pub connect_timeout: Duration,
    /// A pooled connection without request is closed after this.
    pub idle_timeout: Duration,
    /// A connection is closed after so many requests; `None` = no limit.
    pub max_requests_per_connection: Option<NonZeroU32>,
    /// HTTP/1.1 connections kept idle, for each worker and endpoint.
    pub max_idle_connections: usize,
    /// HTTP/2: streams at once on a connection before another is opened.
    pub max_concurrent_streams: u32,
    /// Bounds of the time after which a DNS name is resolved again (the record's TTL in between).
    pub dns_refresh: DnsRefresh,
    /// Only the first address of a DNS name is an endpoint, as long as answers have it.
    pub first_address_only: bool,
    /// Active health checks; `None` = none.
    pub health_check: Option<HealthCheck>,
    /// Ejection of failing endpoints; `None` if disabled.
    pub outlier: Option<OutlierParams>,
    /// How much at once, and how much may wait.
    pub limits: LimitParams,
    /// Share of the traffic that may be retries and hedged attempts.
    pub retry_budget: BudgetParams,
    /// Fails requests at once while the cluster fails; `None` = never.
    pub circuit_breaker: Option<BreakerParams>,
    /// An adaptive limit on requests in progress; `None` = none.
    pub concurrency_limit: Option<ConcurrencyParams>,
    /// Delays every request, to emulate a distance; `None` = not at all.
    pub delay: Option<Distance>,
}

/// Which host stands for the destination of a connection; the port is always the destination's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DestinationAddress {
    /// The destination's own.
    AsIs,
    /// This one.
    Ip(IpAddr),
    /// The loopback address of the destination's family.
    Loopback,
}

impl DestinationAddress {
    /// Where a connection to `destination` goes.
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

/// Bounds of the re-resolution interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DnsRefresh {
    /// A smaller TTL is raised to this. Default 1 s.
    pub min: Duration,
    /// A larger TTL is lowered to this. Default 5 min.
    pub max: Duration,
}

/// One server, or a name that stands for several.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Where it listens.
    pub address: EndpointAddress,
    /// Relative share of requests.
    pub weight: NonZeroU32,
    /// 0 is used first; higher ones when lower ones are not healthy enough.
    pub priority: u8,
    /// `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE`; the unit of locality weights, see [`locality`].
    pub locality: Option<Arc<str>>,
}

/// The locality that `REGION`, `REGION/ZONE` or `REGION/ZONE/NODE` stands for.
#[must_use]
pub fn locality(text: &str) -> balance::Locality {
    let mut parts = text.splitn(3, '/');
    let mut next = || parts.next().unwrap_or_default();
    balance::Locality::new(next(), next(), next())
}

/// `HOST:PORT` or `unix:/PATH`, as an operator would write it.
impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(address) => address.fmt(f),
            Self::Unix(address) => address.fmt(f),
        }
    }
}

/// Where an endpoint listens.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum EndpointAddress {
    /// A DNS name: each of its addresses is an endpoint.
    Dns {
        /// Name, lower case.
        host: Arc<str>,
        /// Port of all its addresses.
        port: u16,
    },
    /// An address.
    Socket(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

/// HTTP version towards a cluster.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UpstreamProtocol {
    /// By ALPN under TLS, otherwise HTTP/1.1.
    Auto,
    /// HTTP/1.1.
    #[default]
    Http1,
    /// The version of the client's request.
    Downstream,
    /// HTTP/2, in plain text with prior knowledge.
    Http2,
}

/// Version of the PROXY protocol header that is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxyProtocolOut {
    /// Text.
    V1,
    /// Binary.
    V2,
}
