//! The kinds of objects that Services with proxies depend on.

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;

/// The kinds that are read or written.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Deployment,
    EndpointSlice,
    HorizontalPodAutoscaler,
    Namespace,
    Pod,
    ProxyService,
    Service,
    ServiceAccount,
    TrafficPolicy,
}

impl Kind {
    const WRITTEN: [Self; 5] = [
        Self::Deployment,
        Self::HorizontalPodAutoscaler,
        Self::Service,
        Self::ServiceAccount,
        Self::TrafficPolicy,
    ];

    /// Returns the API resource.
    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Self::HorizontalPodAutoscaler => (
                "autoscaling",
                "v2",
                "HorizontalPodAutoscaler",
                "horizontalpodautoscalers",
            ),
            Self::Namespace => ("", "v1", "Namespace", "namespaces"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::ProxyService => ("maglor.dev", "v1alpha1", "ProxyService", "proxyservices"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::TrafficPolicy => ("maglor.dev", "v1alpha1", "TrafficPolicy", "trafficpolicies"),
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        ApiResource::from_gvk_with_plural(&kind, plural)
    }

    /// Returns the kind of an object that is written.
    pub(super) fn of(resource: &Value) -> Option<Self> {
        let kind = resource["kind"].as_str()?;
        let mut written = Self::WRITTEN.into_iter();
        written.find(|one| one.resource().kind == kind)
    }
}
