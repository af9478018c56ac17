//! Reads from the API server, and writes to it: Deployments and their other managers, generated policies, statuses.

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;

use super::{FIELD_MANAGER, text};
use crate::api_server::is;
use crate::crd::{GROUP, TuningPolicy, TuningPolicyStatus, VERSION};
use crate::index::facts::Key;
use crate::operate;
use crate::writes::{self, Manager, Seen};

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    /// The write succeeded.
    Done,
    /// The resource has changed since it was read, or the write was rejected: observe it again.
    Stale,
}

/// The kinds that are read in a namespace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Deployment,
    HorizontalPodAutoscaler,
    TrafficPolicy,
    VerticalPodAutoscaler,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::HorizontalPodAutoscaler => (
                "autoscaling",
                "v2",
                "HorizontalPodAutoscaler",
                "horizontalpodautoscalers",
            ),
            Self::TrafficPolicy => (GROUP, VERSION, "TrafficPolicy", "trafficpolicies"),
            Self::VerticalPodAutoscaler => (
                "autoscaling.k8s.io",
                "v1",
                "VerticalPodAutoscaler",
                "verticalpodautoscalers",
            ),
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        ApiResource::from_gvk_with_plural(&kind, plural)
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

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    /// Returns the policies, the oldest first; none if the kind is not defined.
    pub(super) async fn policies(&self) -> Result<Vec<TuningPolicy>, kube::Error> {
        operate::policies(&self.client).await
    }

    /// Lists the current resources of a kind in a namespace. Returns none if the kind is not defined or, as for
    /// autoscalers of an add-on, may not be read: then it may not be written, either.
    pub(super) async fn list(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> Result<Vec<Value>, kube::Error> {
        let list = self.api(kind, namespace).list(&ListParams::default()).await;
        match list {
            Ok(list) => Ok(list.items.iter().map(value).collect()),
            Err(error) if is(&error, 404) => Ok(Vec::new()),
            Err(error) if kind == Kind::VerticalPodAutoscaler && is(&error, 403) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Patches a Deployment, if it has not changed since it was read.
    pub(super) async fn patch(
        &self,
        key: &Key,
        patch: Value,
        seen: &Seen,
    ) -> Result<Written, kube::Error> {
        let api = self.api(Kind::Deployment, &key.namespace);
        let merged = Manager(FIELD_MANAGER).merge_strategic(&api, &key.name, patch, seen);
        written(merged.await)
    }

    /// Writes a generated policy, unless another writer has changed it.
    pub(super) async fn apply(
        &self,
        namespace: &str,
        policy: Value,
        seen: Option<&Seen>,
    ) -> Result<Written, kube::Error> {
        let api = self.api(Kind::TrafficPolicy, namespace);
        let name = text(&policy["metadata"]["name"]).to_owned();
        let applied = Manager(FIELD_MANAGER).apply_beside(&api, &name, policy, seen);
        written(applied.await)
    }

    /// Deletes a generated policy, if it has not changed since it was read.
    pub(super) async fn delete(
        &self,
        namespace: &str,
        name: &str,
        seen: &Seen,
    ) -> Result<Written, kube::Error> {
        let api = self.api(Kind::TrafficPolicy, namespace);
        written(writes::delete(&api, name, seen).await)
    }

    /// Writes a policy's status if it has changed, for the generation that was observed.
    pub(super) async fn report(
        &self,
        policy: &TuningPolicy,
        status: &TuningPolicyStatus,
    ) -> Result<(), kube::Error> {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<TuningPolicy> = Api::namespaced(self.client.clone(), namespace);
        operate::report(&api, policy, policy.status.as_ref(), status).await
    }
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
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
