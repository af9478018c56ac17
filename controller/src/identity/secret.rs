//! The authority in a Secret: read by every replica, made and replaced by the one that writes.
//!
//! A Secret that is not labelled as the controller's own (cert-manager's, say) is read and never written. Where it is
//! replaced by another authority, the old one stays in force until members trust the new one
//! ([`super::succession`]): what is in force meanwhile is in a Secret of the controller's own, `NAME-in-force`, which
//! all replicas follow.

mod succeed;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use maglor_identity::TrustDomain;
use tokio::sync::watch;
use tokio::time::Instant;

use super::authority::Ca;
use super::replicas::Replicas;
use super::rotation::{Circumstances, Phase, RotationError, Spread, Stored};
use super::succession::{Signer, Succession, SuccessionError};
use crate::api_server;
use crate::lease::Term;
use crate::status::FIELD_MANAGER;
use crate::writes::Manager;

/// The label of what the controller has made itself.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub(crate) const CONTROLLER: &str = "maglor-controller";
/// The label of everything that belongs to the mesh.
pub(crate) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "maglor");

/// Poll interval for the next step of a rotation.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure.
const REST: Duration = Duration::from_secs(2);

/// Which Secret, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the controller.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
    /// Whom the authority vouches for.
    pub trust_domain: TrustDomain,
    /// How long leaves live.
    pub ttl: Duration,
    /// How long a new root is announced at most.
    pub deadline: Duration,
}

/// Where a rotation is, for operators.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// Who does not trust the new root yet, as far as this replica has asked.
    pub missing: Vec<String>,
    /// Why what the source says now is not used; what was used before is in force.
    pub refused: Option<String>,
}

/// Keeps an authority in force.
pub struct Keeper {
    settings: Settings,
    api: Api<Secret>,
    replicas: Replicas,
    term: watch::Receiver<Term>,
    ca: watch::Sender<Option<Arc<Ca>>>,
    progress: watch::Sender<Option<Progress>>,
    /// What the API server has; `None` = there is no such Secret.
    known: Option<Secret>,
    /// Whether that was said.
    listed: bool,
    /// The last that could be used: what is put back where the Secret is deleted.
    last: Option<Secret>,
    /// What it says.
    source: Option<Signer>,
    /// Why it is not used.
    refused: Option<String>,
    /// What is in force.
    succession: Option<Succession>,
    /// Where it is written down; `None` = there is no such Secret.
    kept: Option<Secret>,
    /// Whether that was said.
    kept_listed: bool,
}

/// Why the Secret was not written.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    #[error(transparent)]
    Rotation(#[from] RotationError),
    #[error(transparent)]
    Succession(#[from] SuccessionError),
}

/// A Secret as a watch says it.
enum Seen {
    /// It is this; `None` = there is none.
    Now(Box<Option<Secret>>),
    /// Nothing new.
    Nothing,
    /// The watch has failed.
    Failed,
    Ended,
}

/// Reads the watch of one Secret.
fn seen(found: &mut Option<Secret>, event: Option<Result<Event<Secret>, watcher::Error>>) -> Seen {
    match event {
        Some(Ok(Event::Init)) => *found = None,
        Some(Ok(Event::InitApply(secret))) => *found = Some(secret),
        Some(Ok(Event::InitDone)) => return Seen::Now(found.take().into()),
        Some(Ok(Event::Apply(secret))) => return Seen::Now(Some(secret).into()),
        Some(Ok(Event::Delete(_))) => return Seen::Now(None.into()),
        Some(Err(error)) => {
            tracing::warn!(%error, "watch of the authority's Secret failed; retrying");
            return Seen::Failed;
        }
        None => return Seen::Ended,
    }
    Seen::Nothing
}

impl Keeper {
    /// Puts what the Secret says into `ca`; writes while `term` holds.
    #[must_use]
    pub fn new(
        client: Client,
        settings: Settings,
        term: watch::Receiver<Term>,
        ca: watch::Sender<Option<Arc<Ca>>>,
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
        let named = |name: &str| api_server::watch().fields(&format!("metadata.name={name}"));
        let mut stream = pin!(watcher(self.api.clone(), named(&self.settings.name)));
        let mut kept = pin!(watcher(self.api.clone(), named(&self.kept_name())));
        let mut look = tokio::time::interval(LOOK);
        let (mut found, mut found_kept) = (None, None);
        loop {
            let (heard, is_source) = tokio::select! {
                event = stream.next() => (seen(&mut found, event), true),
                event = kept.next() => (seen(&mut found_kept, event), false),
                _ = look.tick() => (Seen::Nothing, true),
                () = self.ca.closed() => return,
            };
            match heard {
                Seen::Now(secret) if is_source => {
                    self.listed = true;
                    self.take(*secret);
                }
                Seen::Now(secret) => {
                    self.kept_listed = true;
                    self.take_kept(*secret);
                }
                Seen::Nothing => {}
                Seen::Failed => tokio::time::sleep(REST).await,
                Seen::Ended => return,
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
            tracing::warn!(secret = self.settings.name, %error, "cannot write the authority");
            tokio::time::sleep(REST).await;
        }
    }

    fn writes(&self) -> bool {
        self.term.borrow().holds(Instant::now())
    }

    /// What the API server has now. What cannot be used leaves the last good one in force, as does a
    /// Secret that is deleted, so that an accidental deletion does not break trust.
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

    /// Shows where a replacement is: of an authority that others write, or of the controller's own.
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

    /// Does the next step, if there is one to do.
    async fn write(&mut self) -> Result<(), KeepError> {
        match self.known.clone() {
            None => self.create().await,
            Some(secret) if is_ours(&secret) => self.advance(secret).await,
            Some(_) => Ok(()),
        }
    }

    /// Makes the Secret, or puts it back.
    async fn create(&mut self) -> Result<(), KeepError> {
        let stored = match &self.last {
            // Its creator creates it again.
            Some(last) if !is_ours(last) => return Ok(()),
            Some(last) => stored(last),
            None => Stored::create(&self.settings.trust_domain, Timestamp::now())?,
        };
        let secret = with(Secret::default(), stored, &self.settings.name);
        let created = Manager(FIELD_MANAGER).create(&self.api, &secret).await;
        self.written(created, "authority written")
    }

    /// Takes a rotation one step on.
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
        // The lease may have been lost while the others were asked.
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
        self.written(replaced, "root rotation continues")
    }

    /// What became of a write; where another replica was faster, the watch brings what it has written.
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

/// The Secret with other contents.
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
