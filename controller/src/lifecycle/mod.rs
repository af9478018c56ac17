//! One-off steps of an installation: [`definitions`] before an upgrade, [`uninject`] before the controller is
//! removed, [`clean_up`] afterwards.
//!
//! The chart runs them as hooks, with an account and rights that are deleted with the Job; `maglor` runs them with
//! the rights of its user.

pub mod clean_up;
pub mod definitions;
pub mod uninject;

use std::time::Duration;

use crate::revision::Revision;

/// Owner of the fields that are applied or patched.
pub const FIELD_MANAGER: &str = "maglor-lifecycle";

/// The output for progress, one line each.
pub type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// The API server refuses a request, or does not answer.
    #[error("{what}: {source}")]
    Api {
        /// What was asked.
        what: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// The definitions could not be made.
    #[error("{0}")]
    Definitions(#[from] crate::crd::DefinitionError),
    /// Namespaces are still served by a revision.
    #[error("namespaces {} have the label maglor.dev/revision; uninstall the revision first", .0.join(", "))]
    Revisions(Vec<String>),
    /// Something has not happened in time.
    #[error("{what}: timeout after {seconds} s")]
    TooLong {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
}

/// Removes a control plane from the pods that it serves: sidecars, for the default one; the namespaces of a named
/// revision return to the default one.
///
/// # Errors
/// The API server refuses something, or something does not end in time. It can be called again.
pub async fn uninject(
    client: &kube::Client,
    revision: &Revision,
    patience: Duration,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    match revision.name() {
        None => uninject::uninject(client, patience, say).await,
        Some(name) => uninject::leave_revision(client, name, patience, say).await,
    }
}

/// Names the request that has failed.
fn asked(what: impl Into<String>) -> impl FnOnce(kube::Error) -> LifecycleError {
    move |source| LifecycleError::Api {
        what: what.into(),
        source: Box::new(source),
    }
}

/// Passes over what is not there.
fn unless_missing<T>(outcome: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match outcome {
        Err(error) if crate::api_server::is(&error, 404) => Ok(None),
        other => other.map(Some),
    }
}
