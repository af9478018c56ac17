//! The certificate authority in a Secret: read by every replica, created and rotated by the leader.
//!
//! A Secret without the controller's label (cert-manager's, for example) is read and never written. If it is replaced
//! by another authority, the old one stays in force until members trust the new one ([`super::succession`]). Until
//! then, the state in force is stored in a Secret of the controller, `NAME-in-force`, which all replicas follow.

mod succeed;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use maglor_identity::TrustDomain;
use tokio::sync::watch;
use tokio::time::Instant;

use super::authority::{InForce, Signer};
use super::labels::{CONTROLLER, MANAGED_BY, PART_OF};
use super::replicas::Replicas;
use super::rotation::{Circumstances, Phase, Progress, RotationError, Spread, Stored};
use super::succession::{Succession, SuccessionError};
use crate::conditional_writes::Manager;
use crate::lease::Term;
use crate::status_writer::FIELD_MANAGER;

/// Poll interval for the next step of a rotation.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval while no step can follow without an event, except on a new leader.
const STEADY_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failure.
const REST: Duration = Duration::from_secs(2);

/// The Secret of a certificate authority, and parameters of its certificates.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the controller.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
    /// The trust domain of the authority.
    pub trust_domain: TrustDomain,
    /// Lifetime of leaf certificates.
    pub ttl: Duration,
    /// Maximum time for which a new root is announced.
    pub deadline: Duration,
}

/// Maintains the certificate authority of a Secret.
pub struct Keeper {
    settings: Settings,
    api: Api<Secret>,
    replicas: Replicas,
    term: watch::Receiver<Term>,
    ca: watch::Sender<Option<Arc<InForce>>>,
    progress: watch::Sender<Option<Progress>>,
    /// The Secret in the API server; `None` if there is none.
    known: Option<Secret>,
    /// Whether `known` has been listed.
    listed: bool,
    /// The last valid Secret, which is restored if the Secret is deleted.
    last: Option<Secret>,
    /// The authority in the Secret.
    source: Option<Signer>,
    /// Why the authority in the Secret is not used; `None` if it is.
    refused: Option<String>,
    /// The current authority and its successor.
    succession: Option<Succession>,
    /// The Secret with the state in force; `None` if there is none.
    kept: Option<Secret>,
    /// Whether `kept` has been listed.
    kept_listed: bool,
}

/// Reason why the Secret was not written.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    #[error(transparent)]
    Rotation(#[from] RotationError),
    #[error(transparent)]
    Succession(#[from] SuccessionError),
}

impl Keeper {
    /// Creates a keeper that publishes the Secret's authority in `ca`, and writes while this replica has the `term`.
    #[must_use]
    pub fn new(
        client: Client,
        settings: Settings,
        term: watch::Receiver<Term>,
        ca: watch::Sender<Option<Arc<InForce>>>,
        progress: watch::Sender<Option<Progress>>,
    ) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &settings.namespace),
            replicas: Replicas::new(client, &settings.namespace),
            settings,
            term,
            ca,
            progress,
            known: None,
            listed: false,
            last: None,
            source: None,
            refused: None,
            succession: None,
            kept: None,
            kept_listed: false,
        }
    }

    /// Runs until all receivers are dropped.
    pub async fn keep(mut self) {
        let mut source = pin!(watch_object(self.api.clone(), &self.settings.name));
        let mut kept = pin!(watch_object(self.api.clone(), &self.kept_name()));
        let mut term = self.term.clone();
        loop {
            let watched = tokio::select! {
                Some(watched) = source.next() => watched.map(|secret| {
                    self.listed = true;
                    self.take(secret);
                }),
                Some(watched) = kept.next() => watched.map(|secret| {
                    self.kept_listed = true;
                    self.take_kept(secret);
                }),
                () = tokio::time::sleep(self.pause()) => Ok(()),
                () = begun(&mut term), if !self.writes() => Ok(()),
                () = self.ca.closed() => return,
            };
            if let Err(error) = watched {
                tracing::warn!(%error, "watch of the authority's Secret failed; retrying");
                tokio::time::sleep(REST).await;
            }
            if self.listed && self.kept_listed {
                self.go_on().await;
            }
        }
    }

    async fn go_on(&mut self) {
        let succeeded = self.succeed().await;
        let written = match succeeded {
            Ok(()) if self.writes() => self.write().await,
            other => other,
        };
        if let Err(error) = written {
            tracing::warn!(secret = self.settings.name, %error, "cannot write the Secret of the authority; retrying");
            tokio::time::sleep(REST).await;
        }
    }

    /// Returns the time until the next step is considered without an event.
    fn pause(&self) -> Duration {
        let (known, succession) = (self.known.as_ref(), self.succession.as_ref());
        let steady = self.refused.is_none()
            && known.is_some_and(|secret| stored(secret).phase() == Phase::Steady)
            && succession.is_some_and(|one| one.phase() == Phase::Steady);
        match steady {
            true => STEADY_INTERVAL,
            false => POLL_INTERVAL,
        }
    }

    fn writes(&self) -> bool {
        self.term.borrow().holds(Instant::now())
    }

    /// Handles the current Secret. If it is invalid or was deleted, the last valid authority continues to be used, so
    /// that an accidental deletion does not break trust.
    fn take(&mut self, secret: Option<Secret>) {
        let version =
            |secret: &Option<Secret>| Some(secret.as_ref()?.metadata.resource_version.clone());
        let differs = version(&secret) != version(&self.known);
        self.known = secret;
        let Some(secret) = self.known.as_ref().filter(|_| differs) else {
            return;
        };
        let secret = secret.clone();
        let stored = stored(&secret);
        let usable = stored.ca(&self.settings.trust_domain);
        match usable.and_then(|_| stored.signer()) {
            Ok(source) => {
                self.source = Some(source);
                self.last = Some(secret);
            }
            Err(error) => {
                self.source = None;
                self.refuse(&error);
            }
        }
    }

    fn refuse(&mut self, error: &dyn std::fmt::Display) {
        let why = error.to_string();
        if self.refused.as_ref() != Some(&why) {
            let secret = &self.settings.name;
            tracing::error!(
                secret,
                error = why,
                "invalid authority; keeping the last valid one"
            );
            self.refused = Some(why);
            self.show(Vec::new());
        }
    }

    /// Publishes the progress of a replacement of an externally managed authority, or of a rotation of the
    /// controller's own.
    fn show(&self, missing: Vec<String>) {
        let now = Timestamp::now();
        let own = self.last.as_ref().map(stored).unwrap_or_default();
        let own = (own.phase(), own.since(now));
        let staged = self.succession.as_ref();
        let staged = staged.and_then(|one| Some((one.phase(), one.since()?)));
        let (phase, since) = staged.unwrap_or(own);
        self.progress.send_replace(Some(Progress {
            phase,
            since,
            missing,
            refused: self.refused.clone(),
        }));
    }

    /// Takes the next step if one is due.
    async fn write(&mut self) -> Result<(), KeepError> {
        match self.known.clone() {
            None => self.create().await,
            Some(secret) if is_ours(&secret) => self.advance(secret).await,
            Some(_) => Ok(()),
        }
    }

    /// Creates or restores the Secret.
    async fn create(&mut self) -> Result<(), KeepError> {
        let stored = match &self.last {
            // Its external manager will create it again.
            Some(last) if !is_ours(last) => return Ok(()),
            Some(last) => stored(last),
            None => Stored::create(&self.settings.trust_domain, Timestamp::now())?,
        };
        let secret = with(Secret::default(), stored, &self.settings.name);
        let created = Manager(FIELD_MANAGER).create(&self.api, &secret).await;
        self.written(created, "authority written")
    }

    /// Takes the next step of a rotation.
    async fn advance(&mut self, secret: Secret) -> Result<(), KeepError> {
        let stored = stored(&secret);
        let missing = match stored.phase() {
            Phase::Announcing => match self.replicas.spread(&self.ca).await? {
                Spread::Everywhere => Vec::new(),
                Spread::Missing(missing) => missing,
            },
            Phase::Retiring | Phase::Steady => Vec::new(),
        };
        if stored.phase() == Phase::Announcing {
            self.show(missing.clone());
        }
        let spread = match missing.is_empty() {
            true => Spread::Everywhere,
            false => Spread::Missing(missing),
        };
        let circumstances = Circumstances {
            now: Timestamp::now(),
            spread: &spread,
            ttl: self.settings.ttl,
            deadline: self.settings.deadline,
        };
        let next = stored.step(&self.settings.trust_domain, &circumstances)?;
        // The Lease may have been lost during the requests.
        let Some(next) = next.filter(|_| self.writes()) else {
            return Ok(());
        };
        if let Spread::Missing(missing) = &spread {
            tracing::warn!(
                ?missing,
                "rotation deadline passed; signing with the new root before all clients acknowledged it"
            );
        }
        let secret = with(secret, next, &self.settings.name);
        let by = Manager(FIELD_MANAGER);
        let replaced = by.replace(&self.api, &self.settings.name, &secret).await;
        self.written(replaced, "CA rotation: next phase stored")
    }

    /// Handles the result of a write. If another replica was faster, the watch delivers what it has written.
    fn written(
        &mut self,
        outcome: Result<Secret, kube::Error>,
        what: &str,
    ) -> Result<(), KeepError> {
        match outcome {
            Ok(secret) => {
                tracing::info!(secret = self.settings.name, "{what}");
                self.take(Some(secret));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until this replica may write.
async fn begun(term: &mut watch::Receiver<Term>) {
    let ended = term
        .wait_for(|term| term.holds(Instant::now()))
        .await
        .is_err();
    if ended {
        // The process is about to end.
        std::future::pending::<()>().await;
    }
}

fn is_ours(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    let managed = labels.and_then(|labels| labels.get(MANAGED_BY));
    managed.is_some_and(|by| by == CONTROLLER)
}

fn stored(secret: &Secret) -> Stored {
    let data = secret.data.clone().unwrap_or_default().into_iter();
    Stored {
        data: data.map(|(key, value)| (key, value.0)).collect(),
        annotations: secret.metadata.annotations.clone().unwrap_or_default(),
    }
}

/// Returns the Secret with other content.
fn with(secret: Secret, stored: Stored, name: &str) -> Secret {
    let labels = || {
        let labels = [(MANAGED_BY, CONTROLLER), PART_OF];
        let owned = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        BTreeMap::from(owned)
    };
    let data = stored.data.into_iter();
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(secret.metadata.labels.clone().unwrap_or_else(labels)),
            annotations: Some(stored.annotations),
            managed_fields: None,
            ..secret.metadata
        },
        data: Some(data.map(|(key, value)| (key, ByteString(value))).collect()),
        type_: secret
            .type_
            .or_else(|| Some("kubernetes.io/tls".to_owned())),
        ..secret
    }
}
