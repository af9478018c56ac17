//! Removes the mesh from all pods while its controller still runs. Afterwards no pod depends on the controller.
//!
//! The order avoids failed requests: new pods get no sidecars; all servers accept plain text; the selectors of
//! Services with ProxyServices are restored; workloads are restarted, as `kubectl rollout restart` does, a few at a
//! time.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt};
use maglor_manifests::inject::keys::{MTLS, REVISION};
use maglor_manifests::inject::{INJECTED, INJECTED_BY};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FIELD_MANAGER, LifecycleError, Say, asked, unless_missing};
use crate::conditional_writes::{self, Manager, Precondition};
use crate::crd::{AuthorizationPolicy, MESH_CONFIG_NAME, MeshConfig, ProxyService};
use crate::webhook::{INJECT, VALIDATE};

/// Delay between accepting plain text everywhere and restarting the first client without a sidecar. Changes reach
/// proxies within a second, but a replica that has just become the leader needs longer.
const SPREAD: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(500);
/// Maximum number of workloads that are restarted at the same time.
const AT_ONCE: usize = 4;
/// The annotation that `kubectl rollout restart` also writes.
const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

/// A workload to restart: kind, namespace, name.
type Workload = (String, String, String);

/// Removes the mesh from all pods. Each rollout, and the removal of ProxyServices, must end within `patience`.
///
/// # Errors
/// If the API server rejects a request, or if a step does not end in time. The function can then be called again and
/// continues where it ended.
pub async fn uninject(
    client: &Client,
    patience: Duration,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    without_revisions(client).await?;
    without_webhooks(client, say).await?;
    if permit_plain_text(client, say).await? {
        tokio::time::sleep(SPREAD).await;
    }
    without_proxy_services(client, patience, say).await?;
    let (workloads, others) = injected(client, |_| true).await?;
    for pod in others {
        say(&format!(
            "Pod {pod}: no controller restarts it; it keeps its sidecar until it is deleted"
        ));
    }
    restart_all(client, workloads, patience, say, "without sidecars").await
}

/// Fails if any namespace is assigned to a revision, whose webhook would inject its pods again.
async fn without_revisions(client: &Client) -> Result<(), LifecycleError> {
    let all: Api<Namespace> = Api::all(client.clone());
    let named = all
        .list_metadata(&ListParams::default().labels(REVISION))
        .await;
    let named = named.map_err(asked("namespaces"))?.items;
    match named.is_empty() {
        true => Ok(()),
        false => Err(LifecycleError::Revisions(
            named.iter().map(ResourceExt::name_any).collect(),
        )),
    }
}

async fn without_webhooks(client: &Client, say: Say<'_>) -> Result<(), LifecycleError> {
    let any = Precondition::default();
    let inject: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validate: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let deleted = conditional_writes::delete(&inject, INJECT, &any).await;
    let deleted = unless_missing(deleted).map_err(asked(INJECT))?;
    if deleted.is_some() {
        say("webhooks deleted: new pods get no sidecars");
    }
    let deleted = conditional_writes::delete(&validate, VALIDATE, &any).await;
    unless_missing(deleted).map_err(asked(VALIDATE))?;
    Ok(())
}

/// Changes `mtls: strict` to permissive; returns whether anything was changed. AuthorizationPolicies that may require
/// an identity are only reported, because only their author can decide whether they are still correct without
/// sidecars.
async fn permit_plain_text(client: &Client, say: Say<'_>) -> Result<bool, LifecycleError> {
    let (by, any) = (Manager(FIELD_MANAGER), Precondition::default());
    let mut changed = false;
    let configs: Api<MeshConfig> = Api::all(client.clone());
    let config = unless_missing(configs.get(MESH_CONFIG_NAME).await);
    let config = config.map_err(asked("MeshConfig"))?;
    let strict = |config: &MeshConfig| json!(config.spec)["mtls"] == "strict";
    if config.as_ref().is_some_and(strict) {
        let patch = json!({"spec": {"mtls": "permissive"}});
        let patched = by.merge(&configs, MESH_CONFIG_NAME, patch, &any).await;
        patched.map_err(asked("MeshConfig"))?;
        say("MeshConfig: mtls is permissive");
        changed = true;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let all = namespaces.list(&ListParams::default()).await;
    for namespace in all.map_err(asked("namespaces"))?.items {
        if namespace.annotations().get(MTLS).map(String::as_str) != Some("strict") {
            continue;
        }
        let name = namespace.name_any();
        let patch = json!({"metadata": {"annotations": {(MTLS): "permissive"}}});
        let patched = by.merge(&namespaces, &name, patch, &any).await;
        patched.map_err(asked(format!("Namespace {name}")))?;
        say(&format!("Namespace {name}: {MTLS} is permissive"));
        changed = true;
    }
    let policies: Api<AuthorizationPolicy> = Api::all(client.clone());
    let policies = unless_missing(policies.list(&ListParams::default()).await);
    for policy in policies
        .map_err(asked("AuthorizationPolicies"))?
        .into_iter()
        .flatten()
    {
        let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
        say(&format!(
            "AuthorizationPolicy {namespace}/{name}: clients without a sidecar have no identity; delete the policy if it allows by identity"
        ));
    }
    Ok(changed)
}

/// Deletes ProxyServices and waits until they are gone, because the controller first restores their Services.
async fn without_proxy_services(
    client: &Client,
    patience: Duration,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    let all: Api<ProxyService> = Api::all(client.clone());
    let begun = Instant::now();
    let mut reported = BTreeSet::new();
    loop {
        let there = unless_missing(all.list(&ListParams::default()).await);
        let there = there.map_err(asked("ProxyServices"))?;
        let there = there.map(|list| list.items).unwrap_or_default();
        if there.is_empty() {
            return Ok(());
        }
        for one in there {
            let (namespace, name) = (one.namespace().unwrap_or_default(), one.name_any());
            let own: Api<ProxyService> = Api::namespaced(client.clone(), &namespace);
            let what = format!("ProxyService {namespace}/{name}");
            let deleted = conditional_writes::delete(&own, &name, &Precondition::default()).await;
            unless_missing(deleted).map_err(asked(&what))?;
            if reported.insert(what.clone()) {
                say(&format!("{what}: deleted; its Service is restored"));
            }
        }
        in_time(begun, patience, "ProxyServices are gone")?;
        tokio::time::sleep(POLL).await;
    }
}

/// Returns the namespaces of a revision to the default control plane, and restarts their workloads, whose new pods
/// get sidecars of the default control plane. Each rollout must end within `patience`.
///
/// # Errors
/// As [`uninject`].
pub async fn leave_revision(
    client: &Client,
    revision: &str,
    patience: Duration,
    say: Say<'_>,
) -> Result<(), LifecycleError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labels = format!("{REVISION}={revision}");
    let named = namespaces
        .list_metadata(&ListParams::default().labels(&labels))
        .await;
    for namespace in named.map_err(asked("namespaces"))?.items {
        let name = namespace.name_any();
        let patch = json!({"metadata": {"labels": {(REVISION): null}}});
        let any = Precondition::default();
        let patched = Manager(FIELD_MANAGER).merge(&namespaces, &name, patch, &any);
        patched.await.map_err(asked(format!("Namespace {name}")))?;
        say(&format!(
            "Namespace {name}: served by the default control plane"
        ));
    }
    let of_revision = |pod: &Pod| {
        pod.annotations()
            .get(INJECTED_BY)
            .is_some_and(|by| by == revision)
    };
    let (workloads, others) = injected(client, of_revision).await?;
    for pod in others {
        say(&format!(
            "Pod {pod}: no controller restarts it; it keeps its sidecar, without a control plane, until it is deleted"
        ));
    }
    let how = "with sidecars of the default control plane";
    restart_all(client, workloads, patience, say, how).await
}

/// Restarts workloads, a few at a time. `how` describes the new pods in messages.
async fn restart_all(
    client: &Client,
    workloads: BTreeSet<Workload>,
    patience: Duration,
    say: Say<'_>,
    how: &str,
) -> Result<(), LifecycleError> {
    let workloads: Vec<_> = workloads.into_iter().collect();
    for some in workloads.chunks(AT_ONCE) {
        let restarts = some
            .iter()
            .map(|one| restart(client, one, patience, say, how));
        futures_util::future::try_join_all(restarts).await?;
    }
    Ok(())
}

/// Returns the workloads that have a pod with a sidecar, and the pods with a sidecar but without a workload.
async fn injected(
    client: &Client,
    is_meant: impl Fn(&Pod) -> bool,
) -> Result<(BTreeSet<Workload>, BTreeSet<String>), LifecycleError> {
    let everything = ListParams::default();
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = pods.list(&everything).await.map_err(asked("pods"))?;
    let sets: Api<ReplicaSet> = Api::all(client.clone());
    let sets = sets.list(&everything).await.map_err(asked("ReplicaSets"))?;
    let (mut workloads, mut others) = (BTreeSet::new(), BTreeSet::new());
    for pod in &pods.items {
        let ends = pod.metadata.deletion_timestamp.is_some();
        if ends
            || !is_meant(pod)
            || pod.annotations().get(INJECTED).map(String::as_str) != Some("true")
        {
            continue;
        }
        let namespace = pod.namespace().unwrap_or_default();
        let owner = controller(pod.owner_references());
        let owner = owner.map(|(kind, name)| match kind.as_str() {
            "ReplicaSet" => {
                let same = |set: &&ReplicaSet| {
                    set.name_any() == name && set.namespace().as_ref() == Some(&namespace)
                };
                let set = sets.items.iter().find(same);
                let above = set.and_then(|set| controller(set.owner_references()));
                above.unwrap_or((kind, name))
            }
            _ => (kind, name),
        });
        match owner {
            Some((kind, name)) if KINDS.contains(&kind.as_str()) => {
                workloads.insert((kind, namespace, name));
            }
            _ => drop(others.insert(format!("{namespace}/{}", pod.name_any()))),
        }
    }
    Ok((workloads, others))
}

/// Kinds of workloads whose pods are replaced when the template changes.
const KINDS: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

/// Returns the kind and name of an object's controller.
fn controller(
    owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
) -> Option<(String, String)> {
    let owner = owners.iter().find(|one| one.controller == Some(true))?;
    Some((owner.kind.clone(), owner.name.clone()))
}

/// Restarts a workload, and waits until all of its pods are replaced.
async fn restart(
    client: &Client,
    (kind, namespace, name): &Workload,
    patience: Duration,
    say: Say<'_>,
    how: &str,
) -> Result<(), LifecycleError> {
    let what = format!("{kind} {namespace}/{name}");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let now = Timestamp::now().to_string();
    let template = json!({"metadata": {"annotations": {(RESTARTED): now}}});
    let patch = json!({"spec": {"template": template}});
    let any = Precondition::default();
    let patched = Manager(FIELD_MANAGER).merge(&api, name, patch, &any);
    patched.await.map_err(asked(&what))?;
    let begun = Instant::now();
    loop {
        let seen = unless_missing(api.get(name).await).map_err(asked(&what))?;
        let Some(seen) = seen else { return Ok(()) };
        let seen = serde_json::to_value(seen).unwrap_or_default();
        match progress(kind, &seen) {
            Progress::Done => {
                say(&format!("{what}: restarted {how}"));
                return Ok(());
            }
            Progress::ByHand => {
                say(&format!(
                    "{what}: update strategy OnDelete; delete its pods to remove their sidecars"
                ));
                return Ok(());
            }
            Progress::UnderWay => {}
        }
        in_time(begun, patience, &format!("{what} is restarted"))?;
        tokio::time::sleep(POLL).await;
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Progress {
    ByHand,
    Done,
    UnderWay,
}

/// Returns the progress of a workload's rollout, as in `kubectl rollout status`.
fn progress(kind: &str, seen: &Value) -> Progress {
    let (spec, status) = (&seen["spec"], &seen["status"]);
    if spec["updateStrategy"]["type"] == "OnDelete" {
        return Progress::ByHand;
    }
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let observed = count(&status["observedGeneration"]) >= count(&seen["metadata"]["generation"]);
    let (wanted, updated, ready, all) = match kind {
        "DaemonSet" => (
            count(&status["desiredNumberScheduled"]),
            count(&status["updatedNumberScheduled"]),
            count(&status["numberAvailable"]),
            count(&status["desiredNumberScheduled"]),
        ),
        _ => {
            let wanted = spec["replicas"].as_u64().unwrap_or(1);
            let updated = count(&status["updatedReplicas"]);
            let ready = match kind {
                "StatefulSet" => count(&status["readyReplicas"]),
                _ => count(&status["availableReplicas"]),
            };
            (wanted, updated, ready, count(&status["replicas"]))
        }
    };
    match observed && updated >= wanted && ready >= wanted && all <= wanted {
        true => Progress::Done,
        false => Progress::UnderWay,
    }
}

fn in_time(begun: Instant, patience: Duration, what: &str) -> Result<(), LifecycleError> {
    match begun.elapsed() > patience {
        true => Err(LifecycleError::TooLong {
            what: what.to_owned(),
            seconds: patience.as_secs(),
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_done_when_every_pod_is_a_new_one() {
        let deployment = |status: Value| json!({"metadata": {"generation": 3}, "spec": {"replicas": 2}, "status": status});
        for (status, expected) in [
            (json!({}), Progress::UnderWay),
            (
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                Progress::UnderWay,
            ),
            (
                json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2}),
                Progress::UnderWay,
            ),
            (
                json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}),
                Progress::UnderWay,
            ),
            (
                json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                Progress::Done,
            ),
        ] {
            assert_eq!(
                progress("Deployment", &deployment(status.clone())),
                expected,
                "{status}"
            );
        }
        let by_hand = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert_eq!(progress("DaemonSet", &by_hand), Progress::ByHand);
        let daemons = json!({"metadata": {"generation": 1}, "status": {
            "observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 2,
        }});
        assert_eq!(progress("DaemonSet", &daemons), Progress::UnderWay);
        let none = json!({"metadata": {"generation": 1}, "spec": {"replicas": 0}, "status": {"observedGeneration": 1}});
        assert_eq!(progress("StatefulSet", &none), Progress::Done);
    }
}
