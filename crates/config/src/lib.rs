//! What an operator may ask for: raw YAML and its validated types.
//!
//! Two layers. `raw` is what the user typed: serde types whose unknown fields, duplicates and bad
//! values are reported with file, line, column and path. Everything else here is what the program
//! needs: a [`Config`] can only be obtained through validation, so the proxy never checks again
//! ("parse, don't validate").
//!
//! Reading a file touches no environment and no network: certificates and names are resolved later.

pub mod bootstrap;
pub mod cluster;
pub mod listener;
pub mod route;
pub mod tls;

pub use bootstrap::{AccessLog, AccessLogFormat, Admin, Config, LogLevel};
pub use cluster::{Cluster, Endpoint, EndpointAddress, UpstreamProtocol};
pub use listener::{Filter, FilterChain, FilterChainMatch, HttpFilter, Listener, TcpFilter};
pub use route::{Route, RouteAction, RouteMatch, RouteTable, VirtualHost};
pub use tls::{DownstreamTls, UpstreamTls};
