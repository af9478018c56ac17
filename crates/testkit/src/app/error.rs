//! Errors of an application.

use std::io;

use super::workmodel::WorkModelError;

/// An error of starting or running an application. One line each.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The deployment is invalid for the work model.
    #[error("{file}: {detail}")]
    Deployment {
        /// The file's name.
        file: String,
        /// The field, and the error.
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
    /// Adds the operation to an error.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
