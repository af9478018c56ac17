//! The observed state of a Service and of its created objects in the API server.

use std::collections::BTreeSet;

use jiff::Timestamp;
use maglor_service_graph::policy_choice::Choice;
use serde_json::Value;

use super::auto::Advice;
pub(super) use super::claim::Claim;
use super::front::Front;
use super::group::Group;
use super::selector::{Selected, selected};
use super::sidecars;
use super::{LABEL, Settings};

/// Observations of a Service. Objects are in the form that the API server returns.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// The `ProxyService`s that name the Service, oldest first, followed by those without a `targetRef` that apply to
    /// it. The first of the latter is in force if there are none of the former.
    pub claims: Vec<Claim>,
    /// The Service; `None` if it does not exist.
    pub service: Option<Value>,
    /// The target Service, or another object of this name; `None` if there is none.
    pub target: Option<Value>,
    /// The policy of the target Service; `None` if there is none.
    pub policy: Option<Value>,
    /// The policy of callers' sidecars that is used instead of proxies; `None` if there is none.
    pub sidecar_policy: Option<Value>,
    /// Whether all of the Service's own pods have sidecars that report their queues, and no other policy sets the
    /// Service's load balancing.
    pub collaborative: bool,
    /// The service account of the proxies; `None` if there is none.
    pub account: Option<Value>,
    /// The autoscaler of the proxies; `None` if there is none.
    pub autoscaler: Option<Value>,
    /// The Deployment of the proxies; `None` if there is none.
    pub deployment: Option<Value>,
    /// Addresses of the Service's ready endpoints.
    pub endpoints: BTreeSet<String>,
    /// Addresses of the target Service's ready endpoints.
    pub target_endpoints: BTreeSet<String>,
    /// Addresses of the proxy pods, including terminating ones. A pod without an address is included by its name.
    pub proxies: BTreeSet<String>,
    /// Why a proxy pod is not ready, if this will not resolve by itself; otherwise `None`.
    pub waiting: Option<String>,
    /// The recommendation, with `mode: Auto`; `None` if there is none yet.
    pub advice: Option<Advice>,
    /// The owner of the existing proxies or, if there are none, of the wanted ones.
    pub front: Front,
    /// The group that shares the proxies; `None` if they are dedicated.
    pub group: Option<Group>,
    /// The time of the observation.
    pub now: Timestamp,
    /// The settings of all proxies.
    pub settings: Settings,
}

impl Observed {
    /// Returns the observed resource of this kind and name.
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

    /// Returns the selector of the Service; `None` if there is no Service.
    #[must_use]
    pub fn selected(&self) -> Option<Selected> {
        let target = self.ours(self.target.as_ref());
        Some(selected(self.service.as_ref()?, target))
    }

    /// Returns whether clients of the Service may still be sent to proxies. Kubernetes does not update the endpoints
    /// of a Service that was changed to `ExternalName`, so these do not count.
    pub(super) fn sends_to_proxies(&self) -> bool {
        let service = self.service.as_ref();
        let there = service.is_some_and(|service| service["spec"]["type"] != "ExternalName");
        there && !self.endpoints.is_disjoint(&self.proxies)
    }

    /// Returns the current balancing mode.
    #[must_use]
    pub fn current(&self) -> Choice {
        if self.selected().is_some_and(|selected| selected.proxied) {
            return Choice::ProxyService;
        }
        let policy = self.ours(self.sidecar_policy.as_ref());
        policy.and_then(sidecars::choice).unwrap_or(Choice::Local)
    }

    /// Returns a resource if it was created for this Service.
    pub(super) fn ours<'a>(&self, resource: Option<&'a Value>) -> Option<&'a Value> {
        resource.filter(|value| value["metadata"]["labels"][LABEL] == self.name.as_str())
    }

    /// Returns a resource if it was created for the proxies.
    pub(super) fn made<'a>(&self, resource: Option<&'a Value>) -> Option<&'a Value> {
        let (label, whose) = self.front.label();
        resource.filter(|value| value["metadata"]["labels"][label] == whose)
    }

    /// Returns the error of an API server that rejects proxy pods, for example because of a quota; `None` if it does
    /// not.
    pub(super) fn refused_pods(&self) -> Option<String> {
        let deployment = self.made(self.deployment.as_ref())?;
        let conditions = deployment["status"]["conditions"].as_array()?;
        let failure = |one: &&Value| one["type"] == "ReplicaFailure" && one["status"] == "True";
        let said = conditions.iter().find(failure)?["message"].as_str()?;
        Some(format!("pods of Deployment {}: {said}", self.front.name()))
    }

    /// Returns the progress of the Deployment.
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

/// The progress of a Deployment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rollout {
    /// The wanted number of proxies.
    pub wanted: u64,
    /// The number of available proxies.
    pub available: u64,
    /// Whether all proxies are of the latest version and available.
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
