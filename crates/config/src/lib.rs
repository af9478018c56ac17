//! The configuration of the proxy: raw YAML and its validated types.
//!
//! Two layers. [`raw`] is the file as written: serde types whose unknown fields, duplicates and
//! invalid values are reported with file, line, column and path. Everything else here is used by
//! the program: a [`Config`] can only be obtained through validation, so the proxy never checks
//! again ("parse, don't validate").
//!
//! Reading a file touches no environment and no network: certificates and names are resolved later.
//!
//! The processing of a text, and the module of each step:
//!
//! ```text
//! text ──yaml──► tree with positions ──yaml::de──► raw::Document ──check──► Config
//! flags ───────────────flags──────────────────────────┘   │
//!                                           report, source └──► Diagnostic: file:line:col, path, help
//! ```
//!
//! ```
//! let text = "listeners: [{name: web, address: 127.0.0.1:8080, tcp: {cluster: bakend}}]
//! clusters: [{name: backend, endpoints: [127.0.0.1:9001]}]";
//! let errors = maglor_config::parse(text, "maglor.yaml").unwrap_err();
//! assert_eq!(errors.0[0].help.as_deref(), Some("did you mean `backend`?"));
//! ```

mod access_log;
mod address;
pub mod authorization;
pub mod bootstrap;
mod check;
pub mod cluster;
pub mod control_plane;
mod credentials;
mod diagnostic;
mod flags;
pub mod gateway;
pub mod header_format;
pub mod health;
mod hints;
mod identity;
pub mod listener;
mod load;
pub mod member;
pub mod mesh_tracing;
mod normal_path;
pub mod probe;
pub mod proxy_service;
pub mod raw;
mod report;
pub mod resource;
pub mod route;
mod schema;
pub mod sidecar;
mod source;
pub mod suggest;
pub mod tls;
mod tracing;
pub mod traffic;
pub mod workload;
mod yaml;

pub use access_log::{AccessLog, AccessLogField, AccessLogFormat, AccessLogKey, AccessLogPart};
pub use address::{Address, UnixAddress, UnixAddressError};
pub use authorization::Authorization;
pub use bootstrap::{Admin, Config, LogLevel};
pub use check::matches_empty;
pub use cluster::{Cluster, Endpoint, EndpointAddress, UpstreamProtocol};
pub use control_plane::{ControlPlane, Discovery};
pub use credentials::without_credentials;
pub use diagnostic::{Diagnostic, Errors, Origin, Severity, Snippet};
pub use flags::Flags;
pub use health::{HealthCheck, HealthCheckKind};
pub use identity::{Enrolment, Identity};
pub use listener::{Filter, FilterChain, FilterChainMatch, HttpFilter, Listener, TcpFilter};
pub use load::{Loaded, blame, load, parse};
pub use probe::{Probe, ProbeError, Question};
pub use route::{Domain, Route, RouteAction, RouteMatch, RouteTable, VirtualHost};
pub use schema::schema;
pub use tls::{DownstreamTls, Origination, Termination, UpstreamTls};
pub use tracing::{OtlpTransport, TraceSampling, Tracing};
pub use traffic::{Fault, Mirror, RateKey, RateLimit, Retry};
