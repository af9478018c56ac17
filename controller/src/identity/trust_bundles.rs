//! Maintains the ConfigMap `maglor-trust-bundle` in every namespace. Pods read the roots from it before they have
//! received a configuration from the control plane. The leader writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::authority::Watched;
use super::labels::{CONTROLLER, MANAGED_BY, PART_OF};
use crate::conditional_writes::{Manager, Precondition};
use crate::lease::Term;
use crate::status_writer::FIELD_MANAGER;

/// The name of the ConfigMap in every namespace.
pub const NAME: &str = "maglor-trust-bundle";
/// The key of the roots, as PEM.
pub const KEY: &str = "ca.pem";

/// Maximum delay until a ConfigMap with wrong content is rewritten.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failure.
const REST: Duration = Duration::from_secs(1);

/// The observed state of the API server.
#[derive(Default)]
struct Known {
    namespaces: BTreeSet<String>,
    /// The content and version of the ConfigMap of each namespace that has one.
    written: BTreeMap<String, (String, Precondition)>,
    /// Whether namespaces and ConfigMaps have been listed.
    listed: (bool, bool),
}

impl Known {
    fn is_whole(&self) -> bool {
        self.listed == (true, true)
    }

    /// Returns the namespaces whose ConfigMap has different content.
    fn wrong(&self, wanted: &str) -> Vec<String> {
        let says = |namespace: &&String| {
            self.written
                .get(*namespace)
                .is_some_and(|(is, _)| is == wanted)
        };
        self.namespaces
            .iter()
            .filter(|namespace| !says(namespace))
            .cloned()
            .collect()
    }

    fn namespace(&mut self, event: Event<Namespace>) {
        let name = |object: &Namespace| object.meta().name.clone().unwrap_or_default();
        match event {
            Event::Init => self.namespaces.clear(),
            Event::InitDone => self.listed.0 = true,
            // Objects cannot be created in a terminating namespace.
            Event::Apply(one) | Event::InitApply(one)
                if one.meta().deletion_timestamp.is_some() =>
            {
                self.namespaces.remove(&name(&one));
            }
            Event::Apply(one) | Event::InitApply(one) => drop(self.namespaces.insert(name(&one))),
            Event::Delete(one) => drop(self.namespaces.remove(&name(&one))),
        }
    }

    fn config_map(&mut self, event: Event<ConfigMap>) {
        let namespace = |object: &ConfigMap| object.meta().namespace.clone().unwrap_or_default();
        match event {
            Event::Init => self.written.clear(),
            Event::InitDone => self.listed.1 = true,
            Event::Apply(one) | Event::InitApply(one) => {
                let text = one.data.as_ref().and_then(|data| data.get(KEY)).cloned();
                let says = (text.unwrap_or_default(), Precondition::of(one.meta()));
                self.written.insert(namespace(&one), says);
            }
            Event::Delete(one) => drop(self.written.remove(&namespace(&one))),
        }
    }
}

/// Maintains the ConfigMaps while this replica has the `term`. Returns when there is no certificate authority any
/// more.
pub async fn keep(client: Client, mut ca: Watched, term: watch::Receiver<Term>) {
    let all = watcher::Config::default;
    let named = all().fields(&format!("metadata.name={NAME}"));
    let mut namespaces = pin!(watcher(Api::<Namespace>::all(client.clone()), all()));
    let mut config_maps = pin!(watcher(Api::<ConfigMap>::all(client.clone()), named));
    let mut known = Known::default();
    // When to check the ConfigMaps, after events and while some have to be written; `None` otherwise.
    let mut check: Option<Instant> = None;
    loop {
        tokio::select! {
            event = namespaces.next() => match event {
                Some(Ok(event)) => {
                    known.namespace(event);
                    check.get_or_insert_with(soon);
                    continue;
                }
                failed => rest(failed.map(Result::err)).await,
            },
            event = config_maps.next() => match event {
                Some(Ok(event)) => {
                    known.config_map(event);
                    check.get_or_insert_with(soon);
                    continue;
                }
                failed => rest(failed.map(Result::err)).await,
            },
            () = tokio::time::sleep_until(check.unwrap_or_else(soon)), if check.is_some() => {}
            changed = ca.changed() => if changed.is_err() { return },
        }
        check = None;
        let text = ca.borrow().as_ref().map(|ca| ca.bundle.to_pem());
        let Some(text) = text.filter(|_| known.is_whole()) else {
            continue;
        };
        let mut failed = false;
        for namespace in known.wrong(&text) {
            if !term.borrow().holds(Instant::now()) {
                check = Some(soon());
                break;
            }
            let there = known.written.get(&namespace).map(|(_, seen)| seen);
            match write(&client, &namespace, &text, there).await {
                // The watch delivers the same ConfigMap a little later.
                Ok(seen) => drop(known.written.insert(namespace, (text.clone(), seen))),
                Err(error) => {
                    tracing::warn!(namespace, %error, "cannot write the trust bundle; retrying");
                    check = Some(soon());
                    failed = true;
                }
            }
        }
        if failed {
            tokio::time::sleep(REST).await;
        }
    }
}

/// Returns the time of the next check.
fn soon() -> Instant {
    Instant::now() + POLL_INTERVAL
}

async fn rest(failed: Option<Option<watcher::Error>>) {
    if let Some(Some(error)) = failed {
        tracing::warn!(%error, "watch of namespaces or trust bundles failed; retrying");
    }
    tokio::time::sleep(REST).await;
}

/// Writes the ConfigMap; returns its new version.
async fn write(
    client: &Client,
    namespace: &str,
    text: &str,
    there: Option<&Precondition>,
) -> Result<Precondition, kube::Error> {
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "labels": {MANAGED_BY: CONTROLLER, PART_OF.0: PART_OF.1},
        },
        "data": {KEY: text},
    });
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match Manager(FIELD_MANAGER).apply(&api, NAME, map, there).await {
        Ok(written) => Ok(Precondition::of(written.meta())),
        // The namespace is deleted or terminating.
        Err(kube::Error::Api(status)) if status.code == 404 || ends(&status.message) => {
            tracing::debug!(
                namespace,
                status.message,
                "trust bundle not written: the namespace is being deleted"
            );
            Ok(Precondition::default())
        }
        Err(error) => Err(error),
    }
}

/// Returns whether an error means that the namespace is terminating (admission plugin NamespaceLifecycle).
fn ends(message: &str) -> bool {
    message.contains("because it is being terminated")
}
