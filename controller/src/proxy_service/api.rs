//! Reads the state of a Service from the API server, and writes steps and statuses.

mod group;
mod land;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::try_join;
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::fields::text;
use super::kind::Kind;
use super::observed::{Claim, Observed};
use super::progress::{Progress, auto_status, conditions, proxies};
use super::sidecars::{is_about, policy_name};
use super::steps::Step;
use super::waiting;
use super::watched::Watched;
use super::{FIELD_MANAGER, FINALIZER, Settings};
use crate::api_server::is;
use crate::conditional_writes::{self, Manager, Precondition};
use crate::index::facts::Key;
use crate::index::target_name;
use crate::status_writer::patch_of;
pub(super) use land::land;
use write::{is_stale, released};

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// The write succeeded.
    Done,
    /// The object has changed since it was read and must be observed again.
    Stale,
}

/// A client of the API server.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    /// The watches from which single objects are read; `None` if they are read from the API server.
    objects: Option<Arc<Watched>>,
    /// The same for lists. A current list takes the API server up to 100 ms, in which it waits for its own watch of
    /// etcd.
    lists: Option<Arc<Watched>>,
    recorder: Recorder,
    settings: Settings,
    /// The controller's namespace, whose `ProxyService`s may apply to the whole mesh.
    root: String,
}

impl Server {
    pub(super) fn new(client: Client, settings: Settings, root: &str) -> Self {
        let reporter = Reporter {
            controller: "maglor.dev/proxy-service".to_owned(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            objects: None,
            lists: None,
            settings,
            root: root.to_owned(),
        }
    }

    /// Returns the same server, which reads from these watches.
    pub(super) fn with(&self, watched: &Arc<Watched>) -> Self {
        Self {
            objects: Some(Arc::clone(watched)),
            ..self.with_lists(watched)
        }
    }

    /// Returns the same server, which reads lists from these watches.
    pub(super) fn with_lists(&self, watched: &Arc<Watched>) -> Self {
        Self {
            lists: Some(Arc::clone(watched)),
            ..self.clone()
        }
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        match kind {
            Kind::Namespace => Api::all_with(self.client.clone(), &kind.resource()),
            _ => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
        }
    }

    async fn get(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, kube::Error> {
        if let Some(watched) = &self.objects {
            let found = watched.get(kind, &Key::new(namespace, name));
            return Ok(found.map(|object| kinded(kind, object)));
        }
        match self.api(kind, namespace).get_opt(name).await {
            Ok(found) => Ok(found.map(|object| value(kind, &object))),
            // The kind is not defined.
            Err(error) if is(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        labels: Option<&str>,
    ) -> Result<Vec<Value>, kube::Error> {
        if let Some(watched) = &self.lists {
            let found = watched.list(kind, Some(namespace), labels).into_iter();
            return Ok(found.map(|object| kinded(kind, object)).collect());
        }
        let parameters = ListParams {
            label_selector: labels.map(ToOwned::to_owned),
            ..ListParams::default()
        };
        match self.api(kind, namespace).list(&parameters).await {
            Ok(list) => Ok(list
                .items
                .iter()
                .map(|object| value(kind, object))
                .collect()),
            Err(error) if is(&error, 404) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Observes a Service. Objects that do not depend on each other are read at the same time.
    pub(super) async fn observe(&self, key: &Key) -> Result<Observed, kube::Error> {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        let (target, of_sidecars) = (target_name(name), policy_name(name));
        let (service, behind, all, policy, sidecar_policy, endpoints, target_endpoints) = try_join!(
            self.get(Kind::Service, namespace, name),
            self.get(Kind::Service, namespace, &target),
            self.all_claims(namespace),
            self.get(Kind::TrafficPolicy, namespace, &target),
            self.get(Kind::TrafficPolicy, namespace, &of_sidecars),
            self.endpoints(namespace, name),
            self.endpoints(namespace, &target),
        )?;
        let claims = self.claims(key, service.as_ref(), all).await?;
        let front = self
            .front(key, &claims, service.as_ref(), behind.as_ref())
            .await?;
        let (label, whose) = front.label();
        let (selector, made) = (format!("{label}={whose}"), front.name());
        let (pods, account, autoscaler, deployment) = try_join!(
            self.list(Kind::Pod, namespace, Some(&selector)),
            self.get(Kind::ServiceAccount, namespace, &made),
            self.get(Kind::HorizontalPodAutoscaler, namespace, &made),
            self.get(Kind::Deployment, namespace, &made),
        )?;
        let mut seen = Observed {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            group: self.group(key, &front, &pods).await?,
            claims,
            service,
            policy,
            account,
            autoscaler,
            deployment,
            endpoints,
            target_endpoints,
            target: behind,
            sidecar_policy,
            collaborative: false,
            proxies: pods.iter().flat_map(addresses).collect(),
            waiting: waiting::why(&pods),
            advice: None,
            front,
            now: Timestamp::now(),
            settings: self.settings.clone(),
        };
        if seen.claims.iter().any(Claim::asks_for_sidecars) {
            seen.collaborative = self.collaborative(&seen).await?;
        }
        Ok(seen)
    }

    /// Returns whether all pods of a Service have sidecars, and no other policy sets its load balancing.
    async fn collaborative(&self, seen: &Observed) -> Result<bool, kube::Error> {
        let own = seen.selected().unwrap_or_default().own;
        let labels: Vec<_> = own
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let namespace = &seen.namespace;
        let policies = self.list(Kind::TrafficPolicy, namespace, None).await?;
        if policies.iter().any(|policy| is_about(policy, &seen.name)) {
            return Ok(false);
        }
        if let Some(watched) = &self.lists {
            // Only pods of proxies are watched.
            return Ok(watched.is_meshed(&Key::new(namespace, &seen.name)));
        }
        let pods = self
            .list(Kind::Pod, namespace, Some(&labels.join(",")))
            .await?;
        let reports = |pod: &Value| {
            pod["metadata"]["annotations"][maglor_manifests::inject::INJECTED] == "true"
        };
        Ok(!pods.is_empty() && pods.iter().all(reports))
    }

    /// Returns the addresses of the ready endpoints of a Service.
    async fn endpoints(
        &self,
        namespace: &str,
        service: &str,
    ) -> Result<BTreeSet<String>, kube::Error> {
        let labels = format!("kubernetes.io/service-name={service}");
        let slices = self
            .list(Kind::EndpointSlice, namespace, Some(&labels))
            .await?;
        let mut found = BTreeSet::new();
        for slice in &slices {
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            for endpoint in endpoints.filter(|one| one["conditions"]["ready"] != false) {
                let addresses = endpoint["addresses"].as_array().into_iter().flatten();
                found.extend(addresses.filter_map(Value::as_str).map(ToOwned::to_owned));
            }
        }
        Ok(found)
    }

    /// Executes a step for a Service, if the objects to be changed have not changed since they were read.
    pub(super) async fn take(&self, seen: &Observed, step: &Step) -> Result<Written, kube::Error> {
        let namespace = seen.namespace.as_str();
        let outcome = match step {
            Step::Apply(resource) | Step::Switch(resource) => {
                let there = seen.there(resource).map(Precondition::of_value);
                self.apply(namespace, resource, there.as_ref()).await
            }
            Step::Delete(resource) => self.delete(namespace, resource).await,
            Step::Hold(claim) => self.hold(claim).await,
            Step::Release(claim) => return self.release(claim).await,
            Step::Restore(service) => self.replace(namespace, service).await,
        };
        match outcome {
            Ok(()) => Ok(Written::Done),
            Err(error) if is_stale(step, &error) => Ok(Written::Stale),
            Err(error) => Err(error),
        }
    }

    async fn apply(
        &self,
        namespace: &str,
        resource: &Value,
        there: Option<&Precondition>,
    ) -> Result<(), kube::Error> {
        let Some(kind) = Kind::of(resource) else {
            return Ok(());
        };
        let name = text(&resource["metadata"]["name"]);
        let api = self.api(kind, namespace);
        let applied = Manager(FIELD_MANAGER).apply(&api, name, resource.clone(), there);
        applied.await.map(drop)
    }

    async fn delete(&self, namespace: &str, resource: &Value) -> Result<(), kube::Error> {
        let Some(kind) = Kind::of(resource) else {
            return Ok(());
        };
        let name = text(&resource["metadata"]["name"]);
        conditional_writes::delete(
            &self.api(kind, namespace),
            name,
            &Precondition::of_value(resource),
        )
        .await
    }

    /// Adds the finalizer of this controller to a `ProxyService`. Other finalizers are kept.
    async fn hold(&self, claim: &Key) -> Result<(), kube::Error> {
        let (namespace, name) = (claim.namespace.as_str(), claim.name.as_str());
        let Some(there) = self.get(Kind::ProxyService, namespace, name).await? else {
            return Ok(());
        };
        let patch = json!({
            "apiVersion": "maglor.dev/v1alpha1",
            "kind": "ProxyService",
            "metadata": {"name": name, "finalizers": [FINALIZER]},
        });
        let (api, seen) = (
            self.api(Kind::ProxyService, namespace),
            Precondition::of_value(&there),
        );
        let applied = Manager(FIELD_MANAGER).apply(&api, name, patch, Some(&seen));
        applied.await.map(drop)
    }

    /// Removes the finalizer of this controller from a `ProxyService`, and foreign owners: both
    /// can be part of a restored backup, or of a manifest that was exported from a cluster.
    pub(super) async fn release(&self, claim: &Key) -> Result<Written, kube::Error> {
        let (namespace, name) = (claim.namespace.as_str(), claim.name.as_str());
        let Some(there) = self.get(Kind::ProxyService, namespace, name).await? else {
            return Ok(Written::Done);
        };
        let (api, seen) = (
            self.api(Kind::ProxyService, namespace),
            Precondition::of_value(&there),
        );
        let merged = Manager(FIELD_MANAGER).merge(&api, name, released(&there), &seen);
        match merged.await {
            Ok(_) => Ok(Written::Done),
            Err(error) if is(&error, 404) || is(&error, 409) => Ok(Written::Stale),
            Err(error) => Err(error),
        }
    }

    async fn replace(&self, namespace: &str, service: &Value) -> Result<(), kube::Error> {
        let name = text(&service["metadata"]["name"]);
        let object: DynamicObject =
            serde_json::from_value(service.clone()).map_err(kube::Error::SerdeError)?;
        let api = self.api(Kind::Service, namespace);
        let replaced = Manager(FIELD_MANAGER).replace(&api, name, &object);
        replaced.await.map(drop)
    }

    /// Writes the statuses of all `ProxyService`s that name a Service, if they have changed.
    pub(super) async fn report(
        &self,
        seen: &Observed,
        progress: &Progress,
    ) -> Result<(), kube::Error> {
        let holder = seen.claims.iter().find(|claim| !claim.deleting);
        let waiting = seen.waiting.as_deref();
        for claim in seen.claims.iter().filter(|claim| !claim.is_wide) {
            let mut status = json!({"conditions": conditions(claim, holder, progress, waiting)});
            if holder.is_none_or(|holder| holder.uid == claim.uid)
                && let Some(proxies) = proxies(progress)
            {
                status["proxies"] = json!(proxies);
            }
            if let Some(seen) = auto_status(claim, seen) {
                status["auto"] = json!(seen);
            }
            self.write_status(claim, status).await?;
        }
        Ok(())
    }

    /// Writes the status of one `ProxyService`, if it has changed.
    pub(super) async fn write_status(
        &self,
        claim: &Claim,
        status: Value,
    ) -> Result<(), kube::Error> {
        let (namespace, name) = (&*claim.key.namespace, &*claim.key.name);
        let Some(there) = self.get(Kind::ProxyService, namespace, name).await? else {
            return Ok(());
        };
        // The object was recreated under the same name and has a different status.
        if there["metadata"]["uid"] != claim.uid.as_str() {
            return Ok(());
        }
        let Some(patch) = patch_of("ProxyService", name, &there["status"], status) else {
            return Ok(());
        };
        let (api, seen) = (
            self.api(Kind::ProxyService, namespace),
            Precondition::of_value(&there),
        );
        let written = Manager(FIELD_MANAGER).apply_status(&api, name, patch, &seen);
        match written.await {
            Err(error) if is(&error, 409) || is(&error, 404) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Reports a step that changes the target of requests as an event of the Service.
    pub(super) async fn announce(&self, seen: &Observed, step: &Step, progress: &Progress) {
        let (reason, type_, note) = match (step, progress) {
            (Step::Switch(_), _) => {
                let note = "requests now go through the proxies".to_owned();
                ("ProxiesInserted", EventType::Normal, note)
            }
            (Step::Restore(_), Progress::Refused(refusal)) => {
                ("ProxiesRefused", EventType::Warning, refusal.to_string())
            }
            (Step::Restore(_), Progress::Failing(_)) => {
                let note = "no proxy is available; requests go to the endpoints".to_owned();
                ("ProxiesUnavailable", EventType::Warning, note)
            }
            (Step::Restore(_), _) => {
                let note = "requests now go to the endpoints directly".to_owned();
                ("ProxiesBypassed", EventType::Normal, note)
            }
            (Step::Apply(_), Progress::Collaborating(choice)) => {
                let note = format!("callers' sidecars now use {}", choice.policy());
                ("SidecarPolicyApplied", EventType::Normal, note)
            }
            _ => return,
        };
        let Some(service) = &seen.service else { return };
        let meta = &service["metadata"];
        let owned = |name: &str| meta[name].as_str().map(ToOwned::to_owned);
        let reference = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            name: owned("name"),
            namespace: owned("namespace"),
            uid: owned("uid"),
            ..Default::default()
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Select".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &reference).await {
            tracing::debug!(%error, reason, "cannot write an event");
        }
    }
}

/// Returns the addresses of a pod, or its name if it has none yet.
fn addresses(pod: &Value) -> Vec<String> {
    let known = pod["status"]["podIPs"].as_array().into_iter().flatten();
    let known = known.filter_map(|one| one["ip"].as_str());
    let mut found: Vec<String> = known.map(ToOwned::to_owned).collect();
    if found.is_empty() {
        found.push(text(&pod["metadata"]["name"]).to_owned());
    }
    found
}

/// Returns a resource as JSON with its kind, which lists omit.
fn value(kind: Kind, object: &DynamicObject) -> Value {
    kinded(kind, serde_json::to_value(object).unwrap_or_default())
}

fn kinded(kind: Kind, mut value: Value) -> Value {
    let resource = kind.resource();
    value["apiVersion"] = json!(resource.api_version);
    value["kind"] = json!(resource.kind);
    value
}
