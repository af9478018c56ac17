//! The whole configuration of one proxy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::probe::Probe;
use crate::{AccessLog, Cluster, ControlPlane, Identity, Listener, Tracing};

/// A validated configuration: every name resolves, every number is in range.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of worker threads. Each has its own listening sockets (`SO_REUSEPORT`), connections and pools.
    pub workers: usize,
    /// The admin server; `None` = no admin port.
    pub admin: Option<Admin>,
    /// The initial level of the proxy's own log; the admin port changes it at run time.
    pub log_level: LogLevel,
    /// The access log; `None` = no access log.
    pub access_log: Option<AccessLog>,
    /// The export of spans; `None` = no export, and trace headers are forwarded unchanged.
    pub tracing: Option<Tracing>,
    /// Whether the stories of failed and slow requests are kept.
    pub stories: bool,
    /// The source of the proxy's identity; `None` = no identity, and no chain or cluster needs one.
    pub identity: Option<Identity>,
    /// The control plane for services that are not in the file; `None` = no chain uses one.
    pub control_plane: Option<ControlPlane>,
    /// The time for open connections to finish after SIGTERM or removal of their listener.
    pub drain_timeout: Duration,
    /// The minimum time for which outbound listeners continue after SIGTERM; at most
    /// `drain_timeout`.
    pub outbound_grace: Duration,
    /// The memory budget of the proxy in bytes; `None` = unlimited.
    pub memory_budget: Option<u64>,
    /// The listeners in the order of the file.
    pub listeners: Vec<Arc<Listener>>,
    /// The clusters in the order of the file; routes and TCP filters refer to them by name.
    pub clusters: Vec<Arc<Cluster>>,
}

impl Config {
    /// The smallest memory budget, in bytes.
    pub const LEAST_MEMORY_BUDGET: u64 = 8 << 20;
    /// The largest memory budget, in bytes.
    pub const MOST_MEMORY_BUDGET: u64 = 1 << 40;
}

/// The admin server: `/metrics /ready /live /config /clusters /drain /logging`.
///
/// Pages for operators (all but `/ready`, `/live`, `/metrics` and probes) are served only over loopback.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admin {
    /// The listening address; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Whether pages for operators are served to non-loopback clients, too (`remote_access: full`).
    pub opened: bool,
    /// The probes of the application that `/probe/NAME` forwards, by name.
    pub probes: BTreeMap<String, Probe>,
}

/// The verbosity of the proxy's own log.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum LogLevel {
    /// Only events that an operator must handle now.
    Error,
    /// Also events that an operator may have to handle soon.
    Warn,
    /// Also starts, stops and reloads.
    #[default]
    Info,
    /// Also events of each connection.
    Debug,
    /// Also the steps of each request.
    Trace,
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        })
    }
}
