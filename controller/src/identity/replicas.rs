//! Reports between controller replicas about which clients trust the current bundle.
//!
//! Each replica renews its own Lease as long as it runs. Annotations of the Lease name the bundle that the replica
//! serves, and its clients that do not have this bundle yet. The leader thus knows when all clients of all replicas
//! trust a new root.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use maglor_identity::TrustBundle;
use maglor_xds::encode;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::authority::{InForce, Watched};
use super::labels::{CONTROLLER, MANAGED_BY, PART_OF};
use super::rotation::Spread;
use crate::conditional_writes::{self, Precondition};
use crate::resource_server::Table;
use crate::status_writer::FIELD_MANAGER;

/// Interval at which a replica compares its state with its last report.
const PERIOD: Duration = Duration::from_secs(2);
/// Interval of reports without a change.
const REPORTED: Duration = Duration::from_secs(10);
/// Time without a change of its Lease after which a replica is considered gone.
const GONE: Duration = Duration::from_secs(30);
/// Time without a change after which a Lease is deleted.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Maximum number of clients that are named.
const NAMED: usize = 20;

/// The label of replicas' Leases.
const REPLICA: &str = maglor_manifests::inject::keys::REPLICA;
/// The annotation with the version of the bundle that a replica serves.
const BUNDLE: &str = maglor_manifests::inject::keys::TRUST_BUNDLE;
/// The annotation with the clients that do not have the bundle yet: names, followed by the number of further clients.
const MISSING: &str = maglor_manifests::inject::keys::MISSING;

fn lease_name(replica: &str) -> String {
    format!("maglor-replica-{replica}")
}

/// Returns the version of a bundle, which is the same at every replica.
fn version(bundle: &TrustBundle) -> String {
    encode::bundle(bundle).version()
}

/// Reports what this replica's clients trust, within two seconds after a change and at least every ten seconds, and sets
/// `registered` after the first report. Returns only when serving has ended.
pub async fn report(
    client: Client,
    namespace: String,
    replica: String,
    mut ca: Watched,
    table: Table,
    registered: watch::Sender<bool>,
) {
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    // The last report, and when it was written.
    let mut reported: Option<(Report, Instant)> = None;
    loop {
        let now = ca.borrow_and_update().clone();
        if let Some(ca) = now {
            let report = Report::new(&ca.bundle, &table);
            let known = reported.as_ref();
            if known.is_none_or(|(last, at)| *last != report || at.elapsed() >= REPORTED) {
                match say(&api, &replica, &report).await {
                    Ok(()) => {
                        reported = Some((report, Instant::now()));
                        registered.send_replace(true);
                    }
                    Err(error) => {
                        reported = None;
                        tracing::warn!(%error, "cannot report which roots the clients of this replica trust; retrying");
                    }
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            changed = ca.changed() => if changed.is_err() { return },
        }
    }
}

/// What a replica reports.
#[derive(Debug, PartialEq)]
struct Report {
    /// The version of the bundle that it serves.
    bundle: String,
    /// Its clients that do not have the bundle yet.
    missing: String,
}

impl Report {
    fn new(bundle: &TrustBundle, table: &Table) -> Self {
        let missing = table.distrusting();
        let mut named: Vec<String> = missing
            .iter()
            .take(NAMED)
            .map(ToString::to_string)
            .collect();
        if missing.len() > NAMED {
            named.push(format!("and {} others", missing.len() - NAMED));
        }
        Self {
            bundle: version(bundle),
            missing: named.join(", "),
        }
    }
}

async fn say(api: &Api<Lease>, replica: &str, report: &Report) -> Result<(), kube::Error> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(replica),
            "labels": {REPLICA: "true", MANAGED_BY: CONTROLLER, PART_OF.0: PART_OF.1},
            "annotations": {BUNDLE: report.bundle, MISSING: report.missing},
        },
        "spec": {
            "holderIdentity": replica,
            "leaseDurationSeconds": GONE.as_secs(),
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&lease_name(replica), &params, &Patch::Apply(lease))
        .await?;
    Ok(())
}

/// The reports of all replicas, as read by the leader.
pub(super) struct Replicas {
    api: Api<Lease>,
    /// For each Lease its version, and since when this version has been observed.
    observed: Mutex<HashMap<String, (String, Instant)>>,
}

impl Replicas {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            observed: Mutex::default(),
        }
    }

    /// Returns whether every live replica serves this bundle and all of its clients have it.
    pub(super) async fn spread(
        &self,
        ca: &watch::Sender<Option<Arc<InForce>>>,
    ) -> Result<Spread, kube::Error> {
        let Some(wanted) = ca.borrow().as_ref().map(|ca| version(&ca.bundle)) else {
            return Ok(Spread::Missing(vec!["this replica".to_owned()]));
        };
        let params = ListParams::default().labels(&format!("{REPLICA}=true"));
        let leases = self.api.list(&params).await?.items;
        let now = Instant::now();
        let (mut missing, mut forgotten) = (Vec::new(), Vec::new());
        let mut any = false;
        for lease in &leases {
            let name = lease.metadata.name.clone().unwrap_or_default();
            let age = self.age(lease, &name, now);
            if age > FORGOTTEN {
                forgotten.push((name, Precondition::of(&lease.metadata)));
            } else if age <= GONE {
                any = true;
                missing.extend(missing_of(&name, &lease.metadata.annotations, &wanted));
            }
        }
        for (name, seen) in forgotten {
            // A failed deletion is repeated in the next round. A Lease that was renewed in the meantime is not
            // deleted.
            let _ = conditional_writes::delete(&self.api, &name, &seen).await;
        }
        if !any {
            missing.push("no replica has reported yet".to_owned());
        }
        Ok(match missing.is_empty() {
            true => Spread::Everywhere,
            false => Spread::Missing(missing),
        })
    }

    /// Returns for how long a Lease has not changed, by this replica's own clock.
    fn age(&self, lease: &Lease, name: &str, now: Instant) -> Duration {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = observed
            .entry(name.to_owned())
            .or_insert_with(|| (version.clone(), now));
        if seen.0 != version {
            *seen = (version, now);
        }
        now.duration_since(seen.1)
    }
}

/// Returns the clients without the bundle in a replica's report.
fn missing_of(
    name: &str,
    annotations: &Option<BTreeMap<String, String>>,
    wanted: &str,
) -> Option<String> {
    let text = |key: &str| annotations.as_ref()?.get(key).map(String::as_str);
    if text(BUNDLE) != Some(wanted) {
        return Some(name.to_owned());
    }
    let missing = text(MISSING).unwrap_or_default();
    (!missing.is_empty()).then(|| missing.to_owned())
}
