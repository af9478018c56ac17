//! The observed state of a Service and of its created objects in the API server.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use maglor_service_graph::rule::Choice;
use serde_json::Value;

use super::auto::{Advice, Wide};
use super::selector::{Selected, selected};
use super::sidecars;
use super::{FINALIZER, Front, Group, LABEL, Settings};
use crate::crd::{ProxyServiceSpec, check};
use crate::index::facts::Key;

/// A `ProxyService` for the Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name.
    pub key: Key,
    /// The Service that it names; empty for one that is for many.
    pub service: String,
    /// It names no Service: it is for all of a namespace, or of the mesh.
    pub is_wide: bool,
    /// `metadata.uid`.
    pub uid: String,
    /// Which version of it this is.
    pub generation: Option<i64>,
    /// It is to be deleted.
    pub deleting: bool,
    /// It has our finalizer.
    pub held: bool,
    /// What it says, or why that cannot be used.
    pub spec: Result<ProxyServiceSpec, String>,
}

/// Observations of a Service. Objects are as returned by the API server.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The resources that name it, the oldest first; then those for many Services that hold for it, the first of
    /// which is in force where there is no other.
    pub claims: Vec<Claim>,
    /// The Service.
    pub service: Option<Value>,
    /// The Service of its endpoints, or whatever else has that name.
    pub target: Option<Value>,
    /// The policy of that Service.
    pub policy: Option<Value>,
    /// The policy of callers' sidecars that takes the place of proxies.
    pub sidecar_policy: Option<Value>,
    /// All of the Service's own pods have sidecars that report their queues, and no other policy sets how it
    /// is called.
    pub collaborative: bool,
    /// The account of the proxies.
    pub account: Option<Value>,
    /// What decides how many proxies there are.
    pub autoscaler: Option<Value>,
    /// The Deployment of the proxies.
    pub deployment: Option<Value>,
    /// Addresses of ready endpoints of the Service.
    pub endpoints: BTreeSet<String>,
    /// Addresses of ready endpoints of the target.
    pub target_endpoints: BTreeSet<String>,
    /// Addresses of the pods of proxies, those that end included; the name of one without an address.
    pub proxies: BTreeSet<String>,
    /// Why one of those pods is not ready, where that will not pass by itself.
    pub waiting: Option<String>,
    /// The recommendation, with `mode: Auto`; `None` if there is none yet.
    pub advice: Option<Advice>,
    /// Whose proxies they are that this says: those that are there, else those that are wanted.
    pub front: Front,
    /// The group that shares them, where one does.
    pub group: Option<Group>,
    /// When it was looked.
    pub now: Timestamp,
    /// What holds for all of them.
    pub settings: Settings,
}

impl Claim {
    /// The ProxyService for many Services, which configures the decision rule.
    pub(super) fn wide(&self) -> Option<Wide> {
        let spec = self.spec.as_ref().ok().filter(|_| self.is_wide)?;
        Some(Wide {
            name: self.key.clone(),
            most: spec.max_services(),
        })
    }

    /// Whether policies of the callers' sidecars may take the place of proxies.
    pub(super) fn asks_for_sidecars(&self) -> bool {
        let asks = |spec: &ProxyServiceSpec| spec.is_auto() && spec.sidecar_policies();
        self.spec.as_ref().is_ok_and(asks)
    }

    /// Reads a `ProxyService`.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        let meta = &value["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap_or_default().to_owned();
        let read = check::spec::<ProxyServiceSpec>(value);
        let checked = read.and_then(|spec| spec.check().map(|()| spec));
        let finalizers = meta["finalizers"].as_array().into_iter().flatten();
        let target = &value["spec"]["targetRef"];
        Self {
            key: Key::new(&text("namespace"), &text("name")),
            service: target["name"].as_str().unwrap_or_default().to_owned(),
            is_wide: target.is_null(),
            uid: text("uid"),
            generation: meta["generation"].as_i64(),
            deleting: meta["deletionTimestamp"].is_string(),
            held: finalizers.into_iter().any(|one| one == FINALIZER),
            spec: checked.map_err(|error| error.to_string()),
        }
    }
}

impl Observed {
    /// The resource of this kind and name, as it was seen.
    pub(super) fn there(&self, wanted: &Value) -> Option<&Value> {
        let all = [
            &self.service,
            &self.target,
            &self.policy,
            &self.sidecar_policy,
            &self.account,
            &self.autoscaler,
            &self.deployment,
        ];
        let is_it = |one: &&Value| {
            one["kind"] == wanted["kind"] && one["metadata"]["name"] == wanted["metadata"]["name"]
        };
        all.into_iter().flatten().find(is_it)
    }

    /// The selector of the Service; `None` = there is no Service.
    #[must_use]
    pub fn selected(&self) -> Option<Selected> {
        let target = self.ours(self.target.as_ref());
        Some(selected(self.service.as_ref()?, target))
    }

    /// Whether clients of the Service may still be sent to proxies. What has become a name of something outside has
    /// no endpoints, but Kubernetes leaves those lists as they were.
    pub(super) fn sends_to_proxies(&self) -> bool {
        let service = self.service.as_ref();
        let there = service.is_some_and(|service| service["spec"]["type"] != "ExternalName");
        there && !self.endpoints.is_disjoint(&self.proxies)
    }

    /// What balances its requests.
    #[must_use]
    pub fn current(&self) -> Choice {
        if self.selected().is_some_and(|selected| selected.proxied) {
            return Choice::ProxyService;
        }
        let policy = self.ours(self.sidecar_policy.as_ref());
        policy.and_then(sidecars::choice).unwrap_or(Choice::Local)
    }

    /// A resource, if it was made for this Service.
    pub(super) fn ours<'a>(&self, resource: Option<&'a Value>) -> Option<&'a Value> {
        resource.filter(|value| value["metadata"]["labels"][LABEL] == self.name.as_str())
    }

    /// A resource, if it was made for the proxies.
    pub(super) fn made<'a>(&self, resource: Option<&'a Value>) -> Option<&'a Value> {
        let (label, whose) = self.front.label();
        resource.filter(|value| value["metadata"]["labels"][label] == whose)
    }

    /// What an API server says to pods of proxies that it does not take, because of a quota, for example.
    pub(super) fn refused_pods(&self) -> Option<String> {
        let deployment = self.made(self.deployment.as_ref())?;
        let conditions = deployment["status"]["conditions"].as_array()?;
        let failure = |one: &&Value| one["type"] == "ReplicaFailure" && one["status"] == "True";
        let said = conditions.iter().find(failure)?["message"].as_str()?;
        Some(format!("pods of Deployment {}: {said}", self.front.name()))
    }

    /// How far the Deployment is.
    pub(super) fn rollout(&self) -> Rollout {
        let Some(deployment) = self.made(self.deployment.as_ref()) else {
            return Rollout::default();
        };
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let status = &deployment["status"];
        let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
        let available = count(&status["availableReplicas"]);
        let seen = status["observedGeneration"] == deployment["metadata"]["generation"];
        let all_new = count(&status["updatedReplicas"]) == count(&status["replicas"]);
        Rollout {
            wanted,
            available,
            complete: seen && all_new && wanted > 0 && available >= wanted,
        }
    }
}

/// How far a Deployment is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rollout {
    /// How many proxies there are to be.
    pub wanted: u64,
    /// How many of them are available.
    pub available: u64,
    /// All are of the last version, and available.
    pub complete: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_cannot_start_are_reported() {
        let seen = |status: &str| Observed {
            front: Front::Service("web".into()),
            deployment: Some(json!({
                "metadata": {"labels": {LABEL: "web"}},
                "status": {"conditions": [
                    {"type": "Available", "status": "False", "message": "none"},
                    {"type": "ReplicaFailure", "status": status, "message": "exceeded quota"},
                ]},
            })),
            ..Observed::default()
        };
        let expected = "pods of Deployment web-proxy-service: exceeded quota";
        assert_eq!(seen("True").refused_pods().as_deref(), Some(expected));
        assert_eq!(seen("False").refused_pods(), None);
        assert_eq!(Observed::default().refused_pods(), None);
    }
}
