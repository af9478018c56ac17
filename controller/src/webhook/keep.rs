//! Renews the webhook's certificate: stores it in a Secret that all replicas read, and registers its root with the
//! API server.
//!
//! Only the leader writes. A new root is first registered with the API server, and then the certificate is stored, so
//! that replicas never use a certificate that the API server cannot verify. If the leader dies in between, an unused
//! root is left; the next leader starts from the stored state.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::ObjectMeta;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use rustls::ServerConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::certificate::Certificate;
use super::{INJECT, SECRET, VALIDATE};
use crate::conditional_writes::Manager;
use crate::external_metrics::API_SERVICE;
use crate::lease::Term;
use crate::metrics::on_call::Expiries;
use crate::revision::Revision;
use crate::status_writer::FIELD_MANAGER;

/// Interval at which the age of the certificate is checked. Changes of objects are watched.
const PERIOD: Duration = Duration::from_secs(60);
/// Pause after a failure and between two checks.
const REST: Duration = Duration::from_secs(1);
/// Timeout of a check.
const LONGEST: Duration = Duration::from_secs(20);

/// Reason why the certificate could not be stored, which will be retried.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Certificate(#[from] super::certificate::CertificateError),
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    #[error("the API server has not responded in time")]
    Slow,
}

/// Renews and stores the webhook's certificate.
pub(super) struct Keeper {
    secrets: Api<Secret>,
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    registered: Api<APIService>,
    namespace: String,
    objects: Objects,
    names: Vec<String>,
    term: watch::Receiver<Term>,
}

/// Names of the objects that belong to this control plane only.
struct Objects {
    inject: String,
    secret: String,
    service: String,
    /// Whether this is the default control plane, which alone validates resources and serves external metrics.
    is_default: bool,
}

impl Objects {
    fn new(revision: &Revision) -> Self {
        Self {
            inject: revision.object(INJECT),
            secret: revision.object(SECRET),
            service: revision.service(),
            is_default: revision.is_default(),
        }
    }
}

/// The TLS configuration for new connections; `None` until there is a certificate.
type Serving = watch::Sender<Option<Arc<ServerConfig>>>;

impl Keeper {
    pub(super) fn new(
        client: &Client,
        (namespace, revision): (&str, &Revision),
        names: Vec<String>,
        term: watch::Receiver<Term>,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            mutating: Api::all(client.clone()),
            validating: Api::all(client.clone()),
            registered: Api::all(client.clone()),
            namespace: namespace.to_owned(),
            objects: Objects::new(revision),
            names,
            term,
        }
    }

    /// Maintains the certificate for as long as the future is polled. Sets `ready` if the API server can verify the
    /// certificate in use.
    pub(super) async fn run(&self, serving: &Serving, ready: &AtomicBool, expiries: &Expiries) {
        let changed = Notify::new();
        tokio::join!(
            watch_changes(self.secrets.clone(), &self.objects.secret, &changed),
            watch_changes(self.mutating.clone(), &self.objects.inject, &changed),
            self.watch_shared(&changed),
            async {
                let mut served = None;
                let mut term = self.term.clone();
                loop {
                    let reconciled =
                        timeout(LONGEST, self.reconcile((serving, expiries), &mut served)).await;
                    let rest = match reconciled.unwrap_or(Err(KeepError::Slow)) {
                        Ok(known) => {
                            ready.store(known, Ordering::Relaxed);
                            PERIOD
                        }
                        Err(error) => {
                            tracing::warn!(%error, "cannot store the webhook's certificate; retrying");
                            REST
                        }
                    };
                    tokio::select! {
                        () = self.due(rest, served.as_ref()) => {}
                        () = changed.notified() => {}
                        () = began(&mut term) => {}
                    }
                    sleep(REST.min(rest) / 10).await;
                }
            },
        );
    }

    /// Waits until the certificate in use is to be renewed, which is checked in this interval, or once if there is none.
    async fn due(&self, interval: Duration, served: Option<&Certificate>) {
        loop {
            sleep(interval).await;
            let due = |one: &Certificate| one.is_due(&self.names, SystemTime::now());
            if interval < PERIOD || served.is_none_or(due) {
                return;
            }
        }
    }

    /// Notifies of changes of the objects that only the default control plane registers.
    async fn watch_shared(&self, changed: &Notify) {
        if self.objects.is_default {
            tokio::join!(
                watch_changes(self.validating.clone(), VALIDATE, changed),
                watch_changes(self.registered.clone(), API_SERVICE, changed),
            );
        }
    }

    /// Performs one check and all necessary steps; returns whether the API server can verify the certificate in use.
    async fn reconcile(
        &self,
        (serving, expiries): (&Serving, &Expiries),
        served: &mut Option<Certificate>,
    ) -> Result<bool, KeepError> {
        let secret = self.secrets.get_opt(&self.objects.secret).await?;
        let mut stored = secret.as_ref().and_then(read);
        let now = SystemTime::now();
        let due = stored
            .as_ref()
            .is_none_or(|one| one.is_due(&self.names, now));
        if due && self.writes() {
            let previous = stored.as_ref().map(|one| one.bundle.as_str());
            let new = Certificate::make(&self.names, previous, now)?;
            self.report(&new.bundle).await?;
            if self.writes() && self.store(secret, &new).await? {
                tracing::info!("webhook certificate renewed");
                stored = Some(new);
            }
        }
        let Some(stored) = stored else {
            return Ok(false);
        };
        if served.as_ref() != Some(&stored) {
            serving.send_replace(Some(stored.server()?));
            if let Some(expires) = stored.expires() {
                expiries.of_webhook(expires);
            }
            *served = Some(stored.clone());
        }
        self.report(&stored.bundle).await
    }

    fn writes(&self) -> bool {
        self.term.borrow().holds(Instant::now())
    }

    /// Stores a certificate; returns false on a conflict.
    async fn store(&self, old: Option<Secret>, new: &Certificate) -> Result<bool, KeepError> {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = [
            ("ca.crt", bytes(&new.bundle)),
            ("tls.crt", bytes(&new.chain)),
            ("tls.key", bytes(&new.key)),
        ];
        let data = data.map(|(name, value)| (name.to_owned(), value)).into();
        let secret = Secret {
            metadata: match &old {
                Some(old) => old.metadata.clone(),
                None => ObjectMeta {
                    name: Some(self.objects.secret.clone()),
                    labels: Some(
                        [("app.kubernetes.io/part-of".to_owned(), "maglor".to_owned())].into(),
                    ),
                    ..ObjectMeta::default()
                },
            },
            data: Some(data),
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        };
        let by = Manager(FIELD_MANAGER);
        let written = match old {
            Some(_) => {
                by.replace(&self.secrets, &self.objects.secret, &secret)
                    .await
            }
            None => by.create(&self.secrets, &secret).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Registers a bundle with the API server; returns whether it is registered. Configurations that are not
    /// installed or were removed are not written.
    async fn report(&self, bundle: &str) -> Result<bool, KeepError> {
        let mutating = self.report_to(&self.mutating, &self.objects.inject, bundle, |one| {
            let webhooks = one.webhooks.iter_mut().flatten();
            webhooks
                .map(|webhook| &mut webhook.client_config.ca_bundle)
                .collect()
        });
        let mutating = mutating.await?;
        if !self.objects.is_default {
            return Ok(mutating);
        }
        let validating = self.report_to(&self.validating, VALIDATE, bundle, |one| {
            let webhooks = one.webhooks.iter_mut().flatten();
            webhooks
                .map(|webhook| &mut webhook.client_config.ca_bundle)
                .collect()
        });
        let registered = self.report_to(&self.registered, API_SERVICE, bundle, |one| {
            // Another server may serve external metrics in this cluster.
            let ours = one.spec.as_mut().filter(|spec| {
                let by = spec.service.as_ref();
                by.is_some_and(|by| {
                    by.name.as_deref() == Some(&*self.objects.service)
                        && by.namespace.as_deref() == Some(&*self.namespace)
                })
            });
            ours.map(|spec| &mut spec.ca_bundle).into_iter().collect()
        });
        Ok(registered.await? && validating.await? && mutating)
    }

    /// Registers a bundle in one configuration; `places` returns its bundle fields.
    async fn report_to<K>(
        &self,
        api: &Api<K>,
        name: &str,
        bundle: &str,
        places: impl Fn(&mut K) -> Vec<&mut Option<ByteString>>,
    ) -> Result<bool, KeepError>
    where
        K: Clone + fmt::Debug + Serialize + DeserializeOwned,
    {
        let Some(mut one) = api.get_opt(name).await? else {
            return Ok(true);
        };
        if !differs(places(&mut one), &ByteString(bundle.as_bytes().to_vec())) {
            return Ok(true);
        }
        if !self.writes() {
            return Ok(false);
        }
        Ok(written(
            Manager(FIELD_MANAGER).replace(api, name, &one).await,
        )?)
    }
}

/// Waits until the leader changes.
async fn began(term: &mut watch::Receiver<Term>) {
    let number = term.borrow().number();
    let ended = term.wait_for(|term| term.number() != number).await.is_err();
    if ended {
        std::future::pending::<()>().await;
    }
}

/// Sets a bundle in all places; returns whether this has changed anything.
fn differs(places: Vec<&mut Option<ByteString>>, bundle: &ByteString) -> bool {
    let mut differs = false;
    for place in places
        .into_iter()
        .filter(|place| place.as_ref() != Some(bundle))
    {
        *place = Some(bundle.clone());
        differs = true;
    }
    differs
}

fn written<T>(result: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        // The object was changed or removed in the meantime; the next check reads it again.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

fn read(secret: &Secret) -> Option<Certificate> {
    let data: &BTreeMap<_, ByteString> = secret.data.as_ref()?;
    let text = |name: &str| String::from_utf8(data.get(name)?.0.clone()).ok();
    Some(Certificate {
        bundle: text("ca.crt")?,
        chain: text("tls.crt")?,
        key: text("tls.key")?,
    })
}

/// Sends a notification for each change of an object; never returns.
async fn watch_changes<K>(api: Api<K>, name: &str, changed: &Notify)
where
    K: kube::Resource<DynamicType = ()> + Clone + fmt::Debug + Send + DeserializeOwned + 'static,
{
    let mut stream = pin!(watch_object(api, name));
    while let Some(event) = stream.next().await {
        match event {
            Ok(_) => changed.notify_one(),
            Err(error) => {
                tracing::debug!(name, %error, "watch of the webhook's objects failed; retrying");
                sleep(REST).await;
            }
        }
    }
}
