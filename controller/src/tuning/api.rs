//! The watched objects of a namespace, and writes: to Deployments, generated policies and statuses.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;

use super::{FIELD_MANAGER, text};
use crate::api_server::is;
use crate::conditional_writes::{self, Manager, Precondition};
use crate::crd::{TuningPolicy, TuningPolicyStatus};
use crate::index::facts::{Key, Kind};
use crate::reconcile::policies::{pods, report};
use crate::reconcile::{Cache, Watch, Watches};
use crate::source::kubernetes::api_resource;

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// The write succeeded.
    Done,
    /// The object has changed since it was read, or the write was rejected, so it must be observed again.
    Stale,
}

/// The objects of a namespace from which a round is computed.
pub(super) struct Objects {
    pub(super) pods: Cache<Pod>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) horizontal: Cache<HorizontalPodAutoscaler>,
    pub(super) vertical: Cache<DynamicObject>,
    pub(super) traffic: Cache<DynamicObject>,
}

impl Objects {
    /// Opens the watches of a namespace. The units of `listed` are reconciled after each complete list.
    ///
    /// `may_apply` is whether Deployments may be changed in the namespace; only then may VerticalPodAutoscalers be
    /// read.
    pub(super) fn open<U: Send + 'static>(
        client: &Client,
        watches: &Watches<U>,
        namespace: &str,
        may_apply: bool,
        listed: impl Fn() -> Vec<U> + Clone + Send + Sync + 'static,
    ) -> Self {
        let of = |resource: ApiResource, read: bool| {
            let api = Api::namespaced_with(client.clone(), namespace, &resource);
            let apis = read.then_some(api).into_iter().collect();
            Watch::<DynamicObject>::of(apis, resource)
        };
        let vertical = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler");
        let vertical = ApiResource::from_gvk_with_plural(&vertical, "verticalpodautoscalers");
        let deployments = Watch::new(vec![Api::namespaced(client.clone(), namespace)]);
        let horizontal = Watch::new(vec![Api::namespaced(client.clone(), namespace)]);
        // The managers of the fields show whether another writer has changed a generated policy.
        let traffic = of(api_resource(Kind::TrafficPolicy), true).keep(|_| {});
        Self {
            pods: watches.hold(pods(client, namespace), listed.clone()),
            deployments: watches.hold(deployments, listed.clone()),
            horizontal: watches.hold(horizontal, listed.clone()),
            // An add-on's autoscalers that may not be read may not be written, either.
            vertical: watches.hold(of(vertical, may_apply).may_be_forbidden(), listed.clone()),
            traffic: watches.hold(traffic, listed),
        }
    }

    /// Returns whether all objects were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.pods.is_complete()
            && self.deployments.is_complete()
            && self.horizontal.is_complete()
            && self.vertical.is_complete()
            && self.traffic.is_complete()
    }
}

/// A client of the API server.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
}

impl Server {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    fn traffic(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = api_resource(Kind::TrafficPolicy);
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }

    /// Patches a Deployment, if it has not changed since it was read.
    pub(super) async fn patch(
        &self,
        key: &Key,
        patch: Value,
        seen: &Precondition,
    ) -> Result<Written, kube::Error> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &key.namespace);
        let merged = Manager(FIELD_MANAGER).merge_strategic(&api, &key.name, patch, seen);
        written(merged.await)
    }

    /// Writes a generated policy, unless another writer has changed it.
    pub(super) async fn apply(
        &self,
        namespace: &str,
        policy: Value,
        seen: Option<&Precondition>,
    ) -> Result<Written, kube::Error> {
        let name = text(&policy["metadata"]["name"]).to_owned();
        let api = self.traffic(namespace);
        let applied = Manager(FIELD_MANAGER).apply_beside(&api, &name, policy, seen);
        written(applied.await)
    }

    /// Deletes a generated policy, if it has not changed since it was read.
    pub(super) async fn delete(
        &self,
        namespace: &str,
        name: &str,
        seen: &Precondition,
    ) -> Result<Written, kube::Error> {
        written(conditional_writes::delete(&self.traffic(namespace), name, seen).await)
    }

    /// Writes a policy's status for the observed generation if it has changed; returns whether the status is now up
    /// to date.
    pub(super) async fn report(
        &self,
        policy: &TuningPolicy,
        status: &TuningPolicyStatus,
    ) -> Result<bool, kube::Error> {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<TuningPolicy> = Api::namespaced(self.client.clone(), namespace);
        report(&api, policy, policy.status.as_ref(), status).await
    }
}

fn written<T>(result: Result<T, kube::Error>) -> Result<Written, kube::Error> {
    match result {
        Ok(_) => Ok(Written::Done),
        Err(error) if [404, 409, 422].iter().any(|code| is(&error, *code)) => {
            tracing::info!(%error, "tuning: re-evaluating");
            Ok(Written::Stale)
        }
        Err(error) => Err(error),
    }
}
