//! Errors of a comparison: the failure, its place, and a hint.

use std::fmt;
use std::io;
use std::time::Instant;

use maglor_testkit::cluster::ClusterError;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command that the harness ran failed.
    #[error("{command} failed: {detail}")]
    Command {
        /// The command as typed.
        command: String,
        /// Its exit status or the end of its standard error.
        detail: String,
    },
    /// An operating system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program that the comparison needs is not installed.
    #[error("{program} is not installed: {remedy}")]
    Missing {
        /// The program.
        program: String,
        /// The command that installs it.
        remedy: String,
    },
    /// A process started but did not respond in time.
    #[error("{name} did not answer within {seconds} s; last: {detail}")]
    NotReady {
        /// The name of the process.
        name: String,
        /// The time limit in seconds.
        seconds: u64,
        /// The last observation, with the end of its log.
        detail: String,
    },
    /// A text could not be parsed.
    #[error("cannot read {what}: {detail}")]
    Parse {
        /// The text.
        what: String,
        /// The unexpected content.
        detail: String,
    },
    /// A peer violated HTTP or the scenario.
    #[error("unexpected answer: {0}")]
    Protocol(String),
    /// A peer does not do the same work as the others.
    #[error("{name} does not do equal work: {detail}")]
    Unequal {
        /// The name of the peer.
        name: String,
        /// The missing work.
        detail: String,
    },
}

impl From<ClusterError> for Error {
    fn from(error: ClusterError) -> Self {
        Self::Command {
            command: "cluster".into(),
            detail: error.to_string(),
        }
    }
}

impl Error {
    /// Creates the error of a text that could not be parsed.
    pub fn parse(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Parse {
            what: what.into(),
            detail: detail.into(),
        }
    }

    /// Creates the error of something that has not happened since `began`.
    pub fn late(name: impl Into<String>, began: Instant, detail: impl Into<String>) -> Self {
        Self::NotReady {
            name: name.into(),
            seconds: began.elapsed().as_secs(),
            detail: detail.into(),
        }
    }

    /// Creates the error of a response that violates the protocol or the scenario.
    pub fn protocol(detail: impl fmt::Display) -> Self {
        Self::Protocol(detail.to_string())
    }
}

/// Adds the operation to the failure of a system call.
pub(crate) trait Doing<T> {
    /// Attaches `what` to the failure.
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io {
            what: what.into(),
            source,
        })
    }
}
