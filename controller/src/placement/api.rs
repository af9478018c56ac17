//! The objects on which a move depends, from watches or from the API server, and writes to moving pods.

use std::sync::Arc;

use futures_util::try_join;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;

use super::moving::{self, Deployment, Seen, Step, Ticket};
use super::pod::{Pod, ReplicaSet};
use super::{HASH, MOVING};
use crate::api_server::is;
use crate::conditional_writes::{self, Manager, Precondition as Version};
use crate::reconcile::{Cache, Watch, Watches};
use crate::status_writer::FIELD_MANAGER;

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// A PodDisruptionBudget does not currently allow the eviction.
    Blocked,
    /// The write succeeded.
    Done,
    /// The object has changed since it was read and must be observed again.
    Stale,
}

/// The watched Deployments and ReplicaSets of a namespace with moving pods.
pub(super) struct Workloads {
    deployments: Cache<apps::Deployment>,
    sets: Cache<apps::ReplicaSet>,
}

impl Workloads {
    /// Opens the watches of a namespace. The units of `moving` are reconciled after each change.
    pub(super) fn open<U: Send + 'static>(
        client: &Client,
        watches: &Watches<U>,
        namespace: &str,
        moving: impl Fn() -> Vec<U> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (of_deployment, of_set) = (moving.clone(), moving.clone());
        let deployments = Watch::new(vec![Api::namespaced(client.clone(), namespace)]);
        let sets = Watch::new(vec![Api::namespaced(client.clone(), namespace)]);
        Self {
            deployments: watches.open(deployments, move |_| of_deployment(), moving.clone()),
            sets: watches.open(sets, move |_| of_set(), moving),
        }
    }

    /// Returns whether all objects were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.deployments.is_complete() && self.sets.is_complete()
    }

    /// Returns the objects of the namespace.
    pub(super) fn objects(&self, pods: &Cache<core::Pod>) -> Objects {
        Objects {
            pods: pods.json().iter().map(Pod::read).collect(),
            deployments: self.deployments.all(),
            sets: self.sets.all(),
        }
    }
}

/// The objects of a namespace on which the next step of a move depends.
pub(super) struct Objects {
    pods: Vec<Pod>,
    deployments: Vec<Arc<apps::Deployment>>,
    sets: Vec<Arc<apps::ReplicaSet>>,
}

impl Objects {
    /// Returns the state of a moving pod; `None` if the pod no longer exists.
    pub(super) fn seen(&self, pod: &Pod, ticket: &Ticket) -> Option<Seen> {
        let pod = self.pods.iter().find(|one| one.uid == pod.uid)?;
        let (set, hash) = (&ticket.replica_set, &ticket.hash);
        let name = set.strip_suffix(hash.as_str()).unwrap_or_default();
        let name = name.strip_suffix('-').unwrap_or_default();
        let found = self
            .sets
            .iter()
            .find(|one| is_named(&one.metadata.name, set));
        let mut siblings: Vec<Pod> = self.pods.clone();
        siblings.retain(|pod| is_sibling(pod, set, hash));
        Some(Seen {
            set: found.and_then(|one| ReplicaSet::read(&json(&**one))),
            deployment: self.deployment(name),
            siblings,
            pod: pod.clone(),
        })
    }

    /// Returns a Deployment with the pods of all its ReplicaSets; `None` if it is being deleted.
    fn deployment(&self, name: &str) -> Option<Deployment> {
        let mut all = self.deployments.iter();
        let found = all.find(|one| is_named(&one.metadata.name, name))?;
        if found.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
        let own = |set: &&Arc<apps::ReplicaSet>| {
            let mut owners = set.metadata.owner_references.iter().flatten();
            owners.any(|one| one.kind == "Deployment" && one.name == name)
        };
        let (mut ready, mut versions) = (0, 0);
        for set in self.sets.iter().filter(own) {
            let Some(wanted) = ReplicaSet::read(&json(&**set)) else {
                continue;
            };
            let serving = |pod: &&Pod| pod.ready && !pod.ends && !pod.is_moving();
            let of_set = |pod: &&Pod| pod.replica_set() == set.metadata.name.as_deref();
            let serving = self.pods.iter().filter(serving).filter(of_set).count();
            // The ReplicaSet is about to remove pods beyond its wanted number.
            ready += u32::try_from(serving)
                .unwrap_or(u32::MAX)
                .min(wanted.replicas);
            versions += u32::from(wanted.replicas > 0);
        }
        Some(Deployment {
            replicas: u32::try_from(replicas.unwrap_or(1)).unwrap_or(0),
            ready,
            rolling: versions > 1,
        })
    }
}

fn is_named(name: &Option<String>, wanted: &str) -> bool {
    name.as_deref() == Some(wanted)
}

fn is_sibling(pod: &Pod, set: &str, hash: &str) -> bool {
    let labelled = pod.labels.get(HASH).is_some_and(|label| label == hash);
    labelled && pod.replica_set() == Some(set) && !pod.ends
}

fn json<K: Serialize>(object: &K) -> Value {
    serde_json::to_value(object).unwrap_or_default()
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

    fn pods(&self, namespace: &str) -> Api<core::Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns the current objects of a namespace.
    pub(super) async fn objects(&self, namespace: &str) -> Result<Objects, kube::Error> {
        let (all, client) = (ListParams::default(), &self.client);
        let deployments: Api<apps::Deployment> = Api::namespaced(client.clone(), namespace);
        let sets: Api<apps::ReplicaSet> = Api::namespaced(client.clone(), namespace);
        let (deployments, sets, pods) = try_join!(
            deployments.list(&all),
            sets.list(&all),
            self.list(namespace, None),
        )?;
        Ok(Objects {
            deployments: deployments.items.into_iter().map(Arc::new).collect(),
            sets: sets.items.into_iter().map(Arc::new).collect(),
            pods,
        })
    }

    async fn list(&self, namespace: &str, labels: Option<&str>) -> Result<Vec<Pod>, kube::Error> {
        let params = ListParams {
            label_selector: labels.map(str::to_owned),
            ..ListParams::default()
        };
        let list = self.pods(namespace).list(&params).await?;
        Ok(list.items.iter().map(|pod| Pod::read(&json(pod))).collect())
    }

    /// Returns the current pods of a ReplicaSet, except terminating ones.
    pub(crate) async fn siblings(
        &self,
        namespace: &str,
        set: &str,
        hash: &str,
    ) -> Result<Vec<Pod>, kube::Error> {
        let labels = format!("{HASH}={hash}");
        let mut pods = self.list(namespace, Some(&labels)).await?;
        pods.retain(|pod| is_sibling(pod, set, hash));
        Ok(pods)
    }

    /// Returns the ticket of a ReplicaSet's moving pod; `None` if no pod is moving.
    pub(crate) async fn ticket(
        &self,
        namespace: &str,
        set: &str,
    ) -> Result<Option<Ticket>, kube::Error> {
        let pods = self.list(namespace, Some(MOVING)).await?;
        let pods = pods.iter().filter(|pod| !pod.ends);
        let mut tickets = pods.filter_map(Pod::ticket);
        Ok(tickets.find(|ticket| ticket.replica_set == set && !ticket.returned))
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

    /// Evicts a pod with the Eviction API, which respects PodDisruptionBudgets.
    async fn evict(&self, pod: &Pod) -> Result<Written, kube::Error> {
        let api = self.pods(&pod.key.namespace);
        written(conditional_writes::evict(&api, &pod.key.name, &version(pod)).await)
    }
}

fn version(pod: &Pod) -> Version {
    Version::new(&pod.uid, &pod.version)
}

fn written<T>(result: Result<T, kube::Error>) -> Result<Written, kube::Error> {
    match result {
        Ok(_) => Ok(Written::Done),
        Err(error) if is(&error, 404) || is(&error, 409) => Ok(Written::Stale),
        Err(error) if is(&error, 429) => Ok(Written::Blocked),
        Err(error) => Err(error),
    }
}
