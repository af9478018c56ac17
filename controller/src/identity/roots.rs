//! The trusted roots of an external signer, which operators or the signer write to `ca.crt` of a Secret.
//!
//! The roots are always those of the Secret: a change takes effect immediately. If the Secret cannot be used, the
//! last roots continue to be used. No key is read, and nothing is written.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use maglor_identity::{Error, TrustBundle};
use tokio::sync::watch;

use super::authority::{InForce, Issuer};
use super::rotation::{BUNDLE, Phase, Progress};
use super::signer::RemoteSigner;

/// Pause after a failure.
const REST: Duration = Duration::from_secs(2);

/// The Secret with the roots.
#[derive(Clone, Debug)]
pub struct Place {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

/// Reason why a Secret has no usable roots.
#[derive(Debug, thiserror::Error)]
enum RootsError {
    #[error(
        "Secret {namespace}/{name} does not exist; create it with the signer's roots in `{BUNDLE}` (PEM)"
    )]
    NoSecret { namespace: String, name: String },
    #[error("Secret {namespace}/{name} has no `{BUNDLE}`; add the signer's roots (PEM)")]
    NoRoots { namespace: String, name: String },
    #[error("`{BUNDLE}` of Secret {namespace}/{name}: {source}")]
    Unusable {
        namespace: String,
        name: String,
        source: Error,
    },
}

/// Applies the roots of the Secret together with the signer, until all receivers are dropped.
pub async fn follow(
    client: Client,
    place: Place,
    signer: Arc<dyn RemoteSigner>,
    in_force: watch::Sender<Option<Arc<InForce>>>,
    progress: watch::Sender<Option<Progress>>,
) {
    let api: Api<Secret> = Api::namespaced(client, &place.namespace);
    let mut stream = pin!(watch_object(api, &place.name));
    let mut roots = Roots {
        place,
        signer,
        in_force,
        progress,
    };
    loop {
        tokio::select! {
            Some(watched) = stream.next() => match watched {
                Ok(secret) => roots.take(secret.as_ref()),
                Err(error) => {
                    tracing::warn!(%error, "watch of the signer's Secret failed; retrying");
                    tokio::time::sleep(REST).await;
                }
            },
            () = roots.in_force.closed() => return,
        }
    }
}

struct Roots {
    place: Place,
    signer: Arc<dyn RemoteSigner>,
    in_force: watch::Sender<Option<Arc<InForce>>>,
    progress: watch::Sender<Option<Progress>>,
}

impl Roots {
    /// Applies the roots of a Secret; `None` if there is no such Secret.
    fn take(&mut self, secret: Option<&Secret>) {
        match self.read(secret) {
            Ok(bundle) => {
                let is_new = self.put_in_force(bundle);
                self.show(is_new, None);
            }
            Err(error) => {
                let refused = error.to_string();
                let has_roots = self.in_force.borrow().is_some();
                tracing::error!(
                    error = refused,
                    keeping_last = has_roots,
                    "root certificates of the external signer are missing or invalid"
                );
                self.show(false, Some(refused));
            }
        }
    }

    fn read(&self, secret: Option<&Secret>) -> Result<TrustBundle, RootsError> {
        let Place { namespace, name } = self.place.clone();
        let Some(secret) = secret else {
            return Err(RootsError::NoSecret { namespace, name });
        };
        let roots = secret.data.as_ref().and_then(|data| data.get(BUNDLE));
        let Some(roots) = roots else {
            return Err(RootsError::NoRoots { namespace, name });
        };
        TrustBundle::from_pem(&roots.0).map_err(|source| RootsError::Unusable {
            namespace,
            name,
            source,
        })
    }

    /// Applies roots; returns whether they differ from the previous ones.
    fn put_in_force(&self, bundle: TrustBundle) -> bool {
        let is_new = match &*self.in_force.borrow() {
            Some(before) => !before.bundle.is_same(&bundle),
            None => true,
        };
        if !is_new {
            return false;
        }
        let roots = bundle.certificates().len();
        tracing::info!(
            signer = self.signer.name(),
            roots,
            "roots of the signer loaded"
        );
        self.in_force.send_replace(Some(Arc::new(InForce {
            issuer: Issuer::Signer(Arc::clone(&self.signer)),
            bundle,
        })));
        true
    }

    /// Publishes the state for operators.
    fn show(&self, is_new: bool, refused: Option<String>) {
        let before = self.progress.borrow().as_ref().map(|before| before.since);
        let before = before.filter(|_| !is_new);
        self.progress.send_replace(Some(Progress {
            phase: Phase::Steady,
            since: before.unwrap_or_else(Timestamp::now),
            missing: Vec::new(),
            refused,
        }));
    }
}

#[cfg(test)]
mod tests;
