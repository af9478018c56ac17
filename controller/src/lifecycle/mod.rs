//! One-off steps of an installation: [`definitions`] before an upgrade, [`mod@uninject`] before the controller is
//! removed, [`clean_up`] afterwards.
//!
//! The chart runs them as hooks, with a service account and permissions that are deleted with the Job; the `maglor`
//! command runs them with the permissions of its user.

pub mod clean_up;
pub mod definitions;
pub mod uninject;

use std::time::Duration;

use crate::revision::Revision;

/// The field manager of applied and patched fields.
pub const FIELD_MANAGER: &str = "maglor-lifecycle";

/// The output for progress messages, one line each.
pub type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Reason why a step has failed.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// The API server rejected a request or did not respond.
    #[error("{what}: {source}")]
    Api {
        /// Description of the request.
        what: String,
        /// Error of the API server.
        source: Box<kube::Error>,
    },
    /// The definitions could not be created.
    #[error("{0}")]
    Definitions(#[from] crate::crd::DefinitionError),
    /// Namespaces are still served by a revision.
    #[error("namespaces {} have the label maglor.dev/revision; uninstall the revision first", .0.join(", "))]
    Revisions(Vec<String>),
    /// A condition was not met in time.
    #[error("{what}: timeout after {seconds} s")]
    TooLong {
        /// Description of the condition.
        what: String,
        /// The timeout in seconds.
        seconds: u64,
    },
}

/// Removes a control plane from the pods that it serves. For the default control plane, sidecars are removed; the
/// namespaces of a named revision are returned to the default control plane.
///
/// # Errors
/// If the API server rejects a request, or if a step does not end in time. The function can then be called again.
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

/// Adds the name of the failed request to an error.
fn asked(what: impl Into<String>) -> impl FnOnce(kube::Error) -> LifecycleError {
    move |source| LifecycleError::Api {
        what: what.into(),
        source: Box::new(source),
    }
}

/// Converts the error for a missing object into `None`.
fn unless_missing<T>(outcome: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match outcome {
        Err(error) if crate::api_server::is(&error, 404) => Ok(None),
        other => other.map(Some),
    }
}
