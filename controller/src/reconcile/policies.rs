//! Common parts of the operators of policies: the order of policies, their statuses, and the pods and nodes that are
//! needed to evaluate them.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;

use super::cache::{Cache, Watch, Watched};
use crate::api_server::is;
use crate::conditional_writes::{Manager, Precondition};
use crate::events::Events;
use crate::graph::Graphs;
use crate::graph::replicas::Replicas;
use crate::lease::Term;
use crate::scope::Scope;
use crate::status_writer::{FIELD_MANAGER, patch_of};

/// The dependencies and permissions of an operator of policies.
#[derive(Clone)]
pub(crate) struct Options<M> {
    /// Client of the API server. Requests are not retried, because the operator first observes the state again.
    pub(crate) client: Client,
    pub(crate) replicas: Replicas,
    pub(crate) graphs: Arc<Graphs>,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) events: Events,
    pub(crate) metrics: M,
    /// The namespaces where the installation permits changes.
    pub(crate) permitted: Scope,
}

/// Returns the policies that are not being deleted, oldest first.
pub(crate) fn by_age<K: Watched>(cache: &Cache<K>) -> Vec<Arc<K>> {
    let mut policies = cache.filter(|policy| policy.meta().deletion_timestamp.is_none());
    policies.sort_by_key(|policy| {
        let meta = policy.meta();
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        (created, meta.namespace.clone(), meta.name.clone())
    });
    policies
}

/// Writes a policy's status for the observed generation if it differs from `before`. Returns whether the status is
/// now up to date, which it is not if the policy has changed in the meantime.
pub(crate) async fn report<K, S>(
    api: &Api<K>,
    policy: &K,
    before: Option<&S>,
    status: &S,
) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    S: Clone + Default + Serialize,
{
    let meta = policy.meta();
    let name = meta.name.clone().unwrap_or_default();
    let before = json!(before.cloned().unwrap_or_default());
    let Some(patch) = patch_of(&K::kind(&()), &name, &before, json!(status)) else {
        return Ok(true);
    };
    let (by, seen) = (Manager(FIELD_MANAGER), Precondition::of(meta));
    match by.apply_status(api, &name, patch, &seen).await {
        Err(error) if is(&error, 404) || is(&error, 409) => Ok(false),
        written => written.map(|_| true),
    }
}

/// Returns the watch of a namespace's pods, with the fields that determine their node and their resources.
pub(crate) fn pods(client: &Client, namespace: &str) -> Watch<Pod> {
    let api = Api::namespaced(client.clone(), namespace);
    Watch::new(vec![api]).keep(keep)
}

fn keep(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if let Some(status) = pod.status.take() {
        let kept = pod.status.insert(Default::default());
        (kept.phase, kept.conditions) = (status.phase, status.conditions);
    }
    let Some(spec) = &mut pod.spec else { return };
    let of_init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(of_init) {
        let whole = std::mem::take(container);
        container.name = whole.name;
        container.resources = whole.resources;
        container.restart_policy = whole.restart_policy;
    }
}

/// Returns the watch of all nodes, with the fields that determine which pods they accept.
pub(crate) fn nodes(client: &Client) -> Watch<Node> {
    Watch::new(vec![Api::all(client.clone())]).keep(|node| {
        node.metadata.managed_fields = None;
        if let Some(status) = node.status.take() {
            node.status.insert(Default::default()).conditions = status.conditions;
        }
    })
}
