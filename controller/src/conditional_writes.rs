//! Conditional writes to the API server.
//!
//! A write names the UID and the version of the object that the decision was based on, and the API server rejects it
//! if the object has changed. Therefore a late request of a replica that has lost the Lease (because the replica was
//! suspended or the request was slow) does not undo a write of the next leader. Objects are created under a field
//! manager: an object that another client has created differently is a conflict. All writes of the controller are in
//! this module, except those to its own Leases, TokenReviews and events; a test detects others.
//!
//! `fenced` returns the client for all leader-only writes: it sends nothing once the term of this replica is over,
//! and no request outlasts the Lease.

use std::fmt::Debug;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::client::Body;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::lease::{self, Term};
use crate::metrics::writes::{WriteMetrics, WriteResult};

/// The field manager of writes that have no specific one.
pub const FIELD_MANAGER: &str = "maglor-controller";

/// The object, and its version, on which a decision was based; a part that is `None` is not checked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Precondition {
    uid: Option<String>,
    version: Option<String>,
}

impl Precondition {
    /// Returns the identity and version of an object that was read.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone(),
            version: meta.resource_version.clone(),
        }
    }

    /// Returns the identity of an object that was read, regardless of its version, to delete an object that is no
    /// longer needed.
    #[must_use]
    pub fn in_any_version(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone(),
            version: None,
        }
    }

    /// Returns the identity and version of an object that was read as JSON.
    #[must_use]
    pub fn of_value(object: &Value) -> Self {
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        Self {
            uid: text("uid"),
            version: text("resourceVersion"),
        }
    }

    /// Returns the identity for a UID and a version.
    #[must_use]
    pub fn new(uid: &str, version: &str) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            version: Some(version.to_owned()),
        }
    }

    fn preconditions(&self) -> Preconditions {
        Preconditions {
            uid: self.uid.clone(),
            resource_version: self.version.clone(),
        }
    }
}

/// An object as returned by the API server.
pub trait Stored: Clone + DeserializeOwned + Debug {}

impl<K: Clone + DeserializeOwned + Debug> Stored for K {}

/// The field manager of a write, as in `managedFields`.
#[derive(Clone, Copy, Debug)]
pub struct Manager(pub &'static str);

impl Manager {
    /// Applies an object that was read and takes over fields of other managers, or creates an object that did not
    /// exist.
    ///
    /// # Errors
    /// 409 if the object has changed, or if another client has created it in the meantime.
    pub async fn apply<K: Stored>(
        self,
        api: &Api<K>,
        name: &str,
        wanted: Value,
        seen: Option<&Precondition>,
    ) -> Result<K, kube::Error> {
        let params = self.applies(seen.is_some());
        let wanted = Patch::Apply(stamped(wanted, seen));
        api.patch(name, &params, &wanted).await
    }

    /// Like [`Manager::apply`], but fields of other managers are a conflict even if the object was read.
    ///
    /// # Errors
    /// As [`Manager::apply`].
    pub async fn apply_beside<K: Stored>(
        self,
        api: &Api<K>,
        name: &str,
        wanted: Value,
        seen: Option<&Precondition>,
    ) -> Result<K, kube::Error> {
        let wanted = Patch::Apply(stamped(wanted, seen));
        api.patch(name, &self.applies(false), &wanted).await
    }

    /// Applies the status of an object that was read.
    ///
    /// # Errors
    /// 409 if the object has changed.
    pub async fn apply_status<K: Stored>(
        self,
        api: &Api<K>,
        name: &str,
        wanted: Value,
        seen: &Precondition,
    ) -> Result<K, kube::Error> {
        let wanted = Patch::Apply(stamped(wanted, Some(seen)));
        api.patch_status(name, &self.applies(true), &wanted).await
    }

    /// Merges a status into that of an object that was read, for lists that several controllers share.
    ///
    /// # Errors
    /// As [`Manager::apply_status`].
    pub async fn merge_status<K: Stored>(
        self,
        api: &Api<K>,
        name: &str,
        patch: Value,
        seen: &Precondition,
    ) -> Result<K, kube::Error> {
        let patch = Patch::Merge(stamped(patch, Some(seen)));
        api.patch_status(name, &self.patches(), &patch).await
    }

    /// Merges fields into an object that was read.
    ///
    /// # Errors
    /// As [`Manager::apply_status`].
    pub async fn merge<K: Stored>(
        self,
        api: &Api<K>,
        name: &str,
        patch: Value,
        seen: &Precondition,
    ) -> Result<K, kube::Error> {
        let patch = Patch::Merge(stamped(patch, Some(seen)));
        api.patch(name, &self.patches(), &patch).await
    }

    /// Like [`Manager::merge`], with lists merged by the names of their items.
    ///
    /// # Errors
    /// As [`Manager::apply_status`].
    pub async fn merge_strategic<K: Stored>(
        self,
        api: &Api<K>,
        name: &str,
        patch: Value,
        seen: &Precondition,
    ) -> Result<K, kube::Error> {
        let patch = Patch::Strategic(stamped(patch, Some(seen)));
        api.patch(name, &self.patches(), &patch).await
    }

    /// Replaces an object that was read, if it still has the version that `object` contains.
    ///
    /// # Errors
    /// 409 if the object has changed.
    pub async fn replace<K: Stored + Serialize>(
        self,
        api: &Api<K>,
        name: &str,
        object: &K,
    ) -> Result<K, kube::Error> {
        api.replace(name, &self.posts(), object).await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// 409 if an object of this name exists.
    pub async fn create<K: Stored + Serialize>(
        self,
        api: &Api<K>,
        object: &K,
    ) -> Result<K, kube::Error> {
        api.create(&self.posts(), object).await
    }

    /// Replaces the conditions of a signing request by those of the object, which include an approval. The object
    /// also contains the version that was read.
    ///
    /// # Errors
    /// 409 if the object has changed.
    pub async fn approve(
        self,
        api: &Api<CertificateSigningRequest>,
        name: &str,
        object: &CertificateSigningRequest,
    ) -> Result<CertificateSigningRequest, kube::Error> {
        let params = self.posts();
        api.replace_subresource("approval", name, &params, object)
            .await
    }

    /// Returns the parameters of an apply; `force` takes over fields of other managers.
    fn applies(self, force: bool) -> PatchParams {
        PatchParams {
            force,
            ..PatchParams::apply(self.0)
        }
    }

    fn patches(self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.0.to_owned()),
            ..PatchParams::default()
        }
    }

    fn posts(self) -> PostParams {
        PostParams {
            field_manager: Some(self.0.to_owned()),
            ..PostParams::default()
        }
    }
}

/// Adds the UID and the version of the object that was read to a patch.
fn stamped(mut patch: Value, seen: Option<&Precondition>) -> Value {
    let parts = seen.map(|seen| [("uid", &seen.uid), ("resourceVersion", &seen.version)]);
    for (name, part) in parts.into_iter().flatten() {
        if let Some(part) = part {
            patch["metadata"][name] = Value::from(part.as_str());
        }
    }
    patch
}

/// Deletes an object that was read; its dependents are deleted in the background.
///
/// # Errors
/// 409 if the object has changed.
pub async fn delete<K: Stored>(
    api: &Api<K>,
    name: &str,
    seen: &Precondition,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(seen.preconditions()),
        ..DeleteParams::default()
    };
    api.delete(name, &params).await.map(drop)
}

/// Evicts a pod that was read, if its PodDisruptionBudget allows the eviction.
///
/// # Errors
/// 409 if the pod has changed, 429 if the budget does not currently allow the eviction.
pub async fn evict(api: &Api<Pod>, name: &str, seen: &Precondition) -> Result<(), kube::Error> {
    // kube (5.0.0) writes `delete_options`, which API servers ignore, so the preconditions would not be checked.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": {"preconditions": seen.preconditions()},
    });
    let params = PostParams::default();
    let evicted = api.create_subresource::<_, Value>("eviction", name, &params, &eviction);
    evicted.await.map(drop)
}

/// Reason why a write was not sent, or why its result is unknown.
#[derive(Debug, thiserror::Error)]
enum FenceError {
    #[error("this replica is no longer the leader")]
    Over,
    #[error("timeout after {0:?}")]
    Slow(Duration),
    #[error("invalid request path")]
    Path(#[from] http::Error),
}

/// Returns the result of a write request for the metrics.
fn result(sent: &Result<Sent, FenceError>) -> WriteResult {
    match sent {
        Ok(Ok(response)) if response.status().is_success() => WriteResult::Done,
        Ok(Ok(response)) if response.status() == StatusCode::CONFLICT => WriteResult::Conflict,
        Err(FenceError::Over) => WriteResult::Late,
        _ => WriteResult::Failed,
    }
}

/// Returns a client of the same API server whose writes do not outlast the term.
pub(crate) fn fenced(
    client: &Client,
    term: watch::Receiver<Term>,
    metrics: WriteMetrics,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let send = move |request: Request<Body>| {
        let (client, term, metrics) = (client.clone(), term.clone(), metrics.clone());
        async move {
            if matches!(*request.method(), Method::GET | Method::HEAD) {
                return Ok(client.send(request).await?);
            }
            let sent = send_in_term(&client, request, &term).await;
            metrics.count(result(&sent));
            Ok::<_, BoxError>(sent??)
        }
    };
    Client::new(tower::service_fn(send), namespace)
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Sent = Result<http::Response<Body>, kube::Error>;

async fn send_in_term(
    client: &Client,
    request: Request<Body>,
    term: &watch::Receiver<Term>,
) -> Result<Sent, FenceError> {
    if !term.borrow().holds(Instant::now()) {
        return Err(FenceError::Over);
    }
    let (mut parts, body) = request.into_parts();
    parts.uri = limited(&parts.uri)?;
    let request = Request::from_parts(parts, body);
    let sent = timeout(lease::REQUEST, client.send(request)).await;
    sent.map_err(|_| FenceError::Slow(lease::REQUEST))
}

/// Adds a timeout parameter, after which the API server aborts the request, too.
fn limited(uri: &Uri) -> Result<Uri, http::Error> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.trim_end_matches(['?', '&']);
    let separator = if path.contains('?') { '&' } else { '?' };
    let limit = lease::REQUEST.as_secs();
    let mut parts = uri.clone().into_parts();
    let path = format!("{path}{separator}timeout={limit}s");
    parts.path_and_query = Some(path.parse::<PathAndQuery>()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests;
