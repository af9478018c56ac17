//! Errors of an application.

use std::io;

use super::workmodel::WorkModelError;

/// Why an application could not be started or has ended. One line each.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The deployment is invalid beside the work model.
    #[error("{file}: {detail}")]
    Deployment {
        /// The file's name.
        file: String,
        /// Which field, and the error.
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
    /// The work model is invalid.
    #[error("{file}: {source}")]
    WorkModel {
        /// The file's name.
        file: String,
        /// The error, with its line.
        source: WorkModelError,
    },
}

impl AppError {
    /// Attaches what was being done.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
