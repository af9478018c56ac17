//! Reads from the API server, and writes to it: moving pods, their ReplicaSets and Deployments, statuses.

use k8s_openapi::api::core::v1 as core;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;

use super::moving::{self, Deployment, Seen, Step, Ticket};
use super::pod::{Node, Pod, ReplicaSet};
use super::{HASH, MOVING};
use crate::api_server::is;
use crate::crd::{PlacementPolicy, PlacementPolicyStatus};
use crate::operate;
use crate::status::FIELD_MANAGER;
use crate::writes::{self, Manager, Seen as Version};

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// A PodDisruptionBudget does not allow the eviction now.
    Blocked,
    /// The write succeeded.
    Done,
    /// The resource has changed since it was read: observe it again.
    Stale,
}

/// A client of the API server.
#[derive(Clone)]
pub(crate) struct Server {
    client: Client,
}

impl Server {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    fn pods(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource("", "Pod", "pods"))
    }

    /// Returns the policies, the oldest first; none if the kind is not defined.
    pub(super) async fn policies(&self) -> Result<Vec<PlacementPolicy>, kube::Error> {
        operate::policies(&self.client).await
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<Node>, kube::Error> {
        let kind = resource("", "Node", "nodes");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        // From the API server's cache: this check is repeated periodically.
        let list = api.list(&ListParams::default().match_any()).await?;
        Ok(list
            .items
            .iter()
            .map(|one| Node::read(&value(one)))
            .collect())
    }

    /// Returns the pods of a namespace, from the API server's cache.
    pub(crate) async fn pods_of(&self, namespace: &str) -> Result<Vec<Pod>, kube::Error> {
        let list = self
            .pods(namespace)
            .list(&ListParams::default().match_any())
            .await?;
        Ok(list
            .items
            .iter()
            .map(|one| Pod::read(&value(one)))
            .collect())
    }

    /// Returns the moving pods of all namespaces.
    pub(super) async fn moving(&self) -> Result<Vec<Pod>, kube::Error> {
        let kind = resource("", "Pod", "pods");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let list = api.list(&ListParams::default().labels(MOVING)).await?;
        Ok(list
            .items
            .iter()
            .map(|one| Pod::read(&value(one)))
            .collect())
    }

    /// Returns the current pods of a ReplicaSet, without terminating ones.
    pub(crate) async fn siblings(
        &self,
        namespace: &str,
        set: &str,
        hash: &str,
    ) -> Result<Vec<Pod>, kube::Error> {
        let params = ListParams::default().labels(&format!("{HASH}={hash}"));
        let list = self.pods(namespace).list(&params).await?;
        let mut pods: Vec<Pod> = list
            .items
            .iter()
            .map(|one| Pod::read(&value(one)))
            .collect();
        pods.retain(|pod| pod.replica_set() == Some(set) && !pod.ends);
        Ok(pods)
    }

    /// Returns the ticket of a ReplicaSet's moving pod, if there is one.
    pub(crate) async fn ticket(
        &self,
        namespace: &str,
        set: &str,
    ) -> Result<Option<Ticket>, kube::Error> {
        let list = self
            .pods(namespace)
            .list(&ListParams::default().labels(MOVING))
            .await?;
        let pods = list.items.iter().map(|one| Pod::read(&value(one)));
        let mut tickets = pods.filter(|pod| !pod.ends).filter_map(|pod| pod.ticket());
        Ok(tickets.find(|ticket| ticket.replica_set == set && !ticket.returned))
    }

    /// Observes a moving pod.
    pub(super) async fn observe(&self, pod: Pod, ticket: &Ticket) -> Result<Seen, kube::Error> {
        let namespace = pod.key.namespace.clone();
        let (set, hash) = (&ticket.replica_set, &ticket.hash);
        let name = set.strip_suffix(hash.as_str()).unwrap_or_default();
        let name = name.strip_suffix('-').unwrap_or_default();
        let found = self
            .get(&namespace, "ReplicaSet", "replicasets", set)
            .await?;
        let deployment = self
            .get(&namespace, "Deployment", "deployments", name)
            .await?;
        let deployment = match &deployment {
            Some(found) if found["metadata"]["deletionTimestamp"].is_null() => {
                let replicas = found["spec"]["replicas"].as_u64().unwrap_or(1);
                let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
                Some(self.whole(&namespace, name, replicas).await?)
            }
            _ => None,
        };
        let siblings = self.siblings(&namespace, set, hash).await?;
        Ok(Seen {
            set: found.as_ref().and_then(ReplicaSet::read),
            deployment,
            siblings,
            pod,
        })
    }

    async fn get(
        &self,
        namespace: &str,
        kind: &str,
        plural: &str,
        name: &str,
    ) -> Result<Option<Value>, kube::Error> {
        let kind = resource("apps", kind, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        Ok(api.get_opt(name).await?.map(|found| value(&found)))
    }

    /// Observes a Deployment with the wanted number of pods, across all its ReplicaSets.
    async fn whole(
        &self,
        namespace: &str,
        deployment: &str,
        replicas: u32,
    ) -> Result<Deployment, kube::Error> {
        let kind = resource("apps", "ReplicaSet", "replicasets");
        let sets: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let sets = sets.list(&ListParams::default()).await?;
        let list = self.pods(namespace).list(&ListParams::default()).await?;
        let pods: Vec<Pod> = list
            .items
            .iter()
            .map(|one| Pod::read(&value(one)))
            .collect();
        let own = |set: &&DynamicObject| {
            let mut owners = set.metadata.owner_references.iter().flatten();
            owners.any(|one| one.kind == "Deployment" && one.name == deployment)
        };
        let (mut ready, mut versions) = (0, 0);
        for set in sets.items.iter().filter(own) {
            let Some(wanted) = ReplicaSet::read(&value(set)) else {
                continue;
            };
            let serving = |pod: &&Pod| pod.ready && !pod.ends && !pod.is_moving();
            let of_set = |pod: &&Pod| pod.replica_set() == set.metadata.name.as_deref();
            let serving = pods.iter().filter(serving).filter(of_set).count();
            // The ReplicaSet is about to remove pods above its wanted number.
            ready += u32::try_from(serving)
                .unwrap_or(u32::MAX)
                .min(wanted.replicas);
            versions += u32::from(wanted.replicas > 0);
        }
        Ok(Deployment {
            replicas,
            ready,
            rolling: versions > 1,
        })
    }

    /// Executes a step.
    pub(super) async fn take(
        &self,
        seen: &Seen,
        ticket: &Ticket,
        step: &Step,
    ) -> Result<Written, kube::Error> {
        let pod = &seen.pod;
        match step {
            Step::Clear => self.patch(pod, moving::clear()).await,
            Step::Evict => self.evict(pod).await,
            Step::GiveBack(_) => self.patch(pod, moving::revert(ticket)).await,
            Step::Mark(other) => self.patch(other, moving::mark()).await,
            Step::Wait => Ok(Written::Done),
        }
    }

    /// Removes a pod from its ReplicaSet.
    pub(super) async fn begin(&self, pod: &Pod, ticket: &Ticket) -> Result<Written, kube::Error> {
        self.patch(pod, moving::begin(ticket)).await
    }

    async fn patch(&self, pod: &Pod, patch: Value) -> Result<Written, kube::Error> {
        let api = self.pods(&pod.key.namespace);
        let (by, seen) = (Manager(FIELD_MANAGER), version(pod));
        written(by.merge(&api, &pod.key.name, patch, &seen).await)
    }

    /// Evicts a pod by the Eviction API, which respects PodDisruptionBudgets.
    async fn evict(&self, pod: &Pod) -> Result<Written, kube::Error> {
        let api: Api<core::Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        written(writes::evict(&api, &pod.key.name, &version(pod)).await)
    }

    /// Writes a policy's status if it has changed, for the generation that was observed.
    pub(super) async fn report(
        &self,
        policy: &PlacementPolicy,
        status: &PlacementPolicyStatus,
    ) -> Result<(), kube::Error> {
        let api: Api<PlacementPolicy> = Api::all(self.client.clone());
        operate::report(&api, policy, policy.status.as_ref(), status).await
    }
}

fn version(pod: &Pod) -> Version {
    Version::new(&pod.uid, &pod.version)
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn written<T>(result: Result<T, kube::Error>) -> Result<Written, kube::Error> {
    match result {
        Ok(_) => Ok(Written::Done),
        Err(error) if is(&error, 404) || is(&error, 409) => Ok(Written::Stale),
        Err(error) if is(&error, 429) => Ok(Written::Blocked),
        Err(error) => Err(error),
    }
}
