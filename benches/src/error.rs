//! Errors of a comparison: what failed, where, and what to check.

use std::io;

use maglor_cluster::ClusterError;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command that the harness ran failed.
    #[error("{command} failed: {detail}")]
    Command {
        /// The command, as a person would type it.
        command: String,
        /// Its exit status or the end of its standard error.
        detail: String,
    },
    /// An operating system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program that the comparison needs is not installed.
    #[error("{program} is not installed: {remedy}")]
    Missing {
        /// The program.
        program: String,
        /// The one line that installs it.
        remedy: String,
    },
    /// A process started but did not answer in time.
    #[error("{name} did not answer within {seconds} s; last: {detail}")]
    NotReady {
        /// Who.
        name: String,
        /// How long it was given.
        seconds: u64,
        /// The last thing seen, with the end of its log.
        detail: String,
    },
    /// Text that should be machine readable was not.
    #[error("cannot read {what}: {detail}")]
    Parse {
        /// Which text.
        what: String,
        /// What was found instead.
        detail: String,
    },
    /// A peer spoke HTTP otherwise than expected.
    #[error("unexpected answer: {0}")]
    Protocol(String),
    /// A peer does not do the work that the others do.
    #[error("{name} does not do equal work: {detail}")]
    Unequal {
        /// Who.
        name: String,
        /// What is missing.
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
    /// An unreadable text.
    pub fn parse(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Parse {
            what: what.into(),
            detail: detail.into(),
        }
    }

    /// An answer that breaks the protocol or the scenario.
    pub fn protocol(detail: impl Into<String>) -> Self {
        Self::Protocol(detail.into())
    }
}

/// Says what was being done when an operating system call failed.
pub trait Doing<T> {
    /// Attaches `what` to the failure.
    ///
    /// # Errors
    /// The same failure, as [`Error::Io`].
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
