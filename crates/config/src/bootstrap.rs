//! The whole configuration of one proxy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::probe::Probe;
use crate::{AccessLog, Cluster, ControlPlane, Identity, Listener};

/// A validated configuration: every name resolves, every number is in range.
#[derive(Clone, Debug)]
pub struct Config {
    /// Worker threads; each has its own listeners (`SO_REUSEPORT`), connections and pools.
    pub workers: usize,
    /// The admin server; `None` = no admin port.
    pub admin: Option<Admin>,
    /// Level of the proxy's own log at start; the admin port changes it at run time.
    pub log_level: LogLevel,
    /// Where requests are logged; `None` = no access log.
    pub access_log: Option<AccessLog>,
    /// Where the proxy's identity comes from; `None` = it has none, and no chain or cluster needs one.
    pub identity: Option<Identity>,
    /// The control plane for services that are not in the file; `None` if no chain uses one.
    pub control_plane: Option<ControlPlane>,
    /// How long open connections may finish after SIGTERM or removal of their listener.
    pub drain_timeout: Duration,
    /// How long outbound listeners continue after SIGTERM at least; at most `drain_timeout`.
    pub outbound_grace: Duration,
    /// Memory that the proxy may use, in bytes; `None` = as much as it needs.
    pub memory_budget: Option<u64>,
    /// In the order of the file.
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the file; routes and TCP filters refer to them by name.
    pub clusters: Vec<Arc<Cluster>>,
}

impl Config {
    /// The smallest memory budget, in bytes.
    pub const LEAST_MEMORY_BUDGET: u64 = 8 << 20;
    /// The largest.
    pub const MOST_MEMORY_BUDGET: u64 = 1 << 40;
}

/// The admin server: `/metrics /ready /live /config /clusters /drain /logging`.
///
/// Pages for operators (all but `/ready`, `/live`, `/metrics` and probes) are answered over loopback only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admin {
    /// Listening address; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Pages for operators are answered to every peer (`remote_access: full`).
    pub opened: bool,
    /// What `/probe/NAME` asks the application, by name.
    pub probes: BTreeMap<String, Probe>,
}

/// Verbosity of the proxy's own log.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum LogLevel {
    /// Only what needs an operator now.
    Error,
    /// Also what may need one soon.
    Warn,
    /// Also starts, stops, reloads.
    #[default]
    Info,
    /// Also each connection's fate.
    Debug,
    /// Also each request's steps.
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
