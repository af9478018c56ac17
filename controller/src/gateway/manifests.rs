//! Builds the objects of a Gateway. Pure.

use std::collections::BTreeSet;

use maglor_manifests::inject::INJECTED;
use serde_json::{Map, Value, json};

use super::SERVICE_TYPE;
use crate::crd::DRAIN_SECONDS;
use crate::index::facts::gateway::GATEWAY_NAME;
use crate::index::made_name;
use crate::proxy_pod::{self, Settings};
use crate::proxy_service::manifests::marked;

/// The label that distinguishes this mesh's objects from those of other controllers' Gateways.
pub(super) const PART_OF: &str = "app.kubernetes.io/part-of";
/// The allowed types of a Service.
const TYPES: [&str; 3] = maglor_manifests::inject::keys::SERVICE_TYPES;

/// Returns the ServiceAccount, Deployment, Service and PodDisruptionBudget of a Gateway as the API server formats
/// them. `service_type` is the type of the Service if the Gateway sets none.
#[must_use]
pub fn manifests(gateway: &Value, settings: &Settings, service_type: &str) -> [Value; 4] {
    let meta = Metadata::of(gateway);
    [
        meta.resource("v1", "ServiceAccount"),
        deployment(&meta, settings),
        service(gateway, &meta, service_type),
        budget(&meta),
    ]
    .map(marked)
}

/// The common metadata of a Gateway's objects.
struct Metadata {
    gateway: String,
    name: String,
    namespace: Value,
    uid: Value,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl Metadata {
    fn of(gateway: &Value) -> Self {
        let (meta, spec) = (&gateway["metadata"], &gateway["spec"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, class) = (text(&meta["name"]), text(&spec["gatewayClassName"]));
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let mut labels = map(&spec["infrastructure"]["labels"]);
        labels.insert(GATEWAY_NAME.to_owned(), json!(name));
        let class_name = "gateway.networking.k8s.io/gateway-class-name";
        labels.insert(class_name.to_owned(), json!(class));
        labels.insert(PART_OF.to_owned(), json!("maglor"));
        Self {
            name: made_name(&name, &class),
            gateway: name,
            namespace: meta["namespace"].clone(),
            uid: meta["uid"].clone(),
            labels,
            annotations: map(&spec["infrastructure"]["annotations"]),
        }
    }

    fn resource(&self, api_version: &str, kind: &str) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
                "ownerReferences": [{
                    "apiVersion": "gateway.networking.k8s.io/v1",
                    "kind": "Gateway",
                    "name": self.gateway,
                    "uid": self.uid,
                    "controller": true,
                }],
            },
        })
    }
}

fn ports(gateway: &Value) -> BTreeSet<u64> {
    let listeners = gateway["spec"]["listeners"].as_array();
    let ports = listeners.into_iter().flatten();
    ports.filter_map(|one| one["port"].as_u64()).collect()
}

fn service(gateway: &Value, meta: &Metadata, service_type: &str) -> Value {
    let wanted = gateway["metadata"]["annotations"][SERVICE_TYPE].as_str();
    let wanted = wanted.filter(|wanted| TYPES.contains(wanted));
    let port = |port: u64| json!({"name": format!("port-{port}"), "port": port, "targetPort": port, "protocol": "TCP"});
    let mut service = meta.resource("v1", "Service");
    service["spec"] = json!({
        "type": wanted.unwrap_or(service_type),
        "selector": {GATEWAY_NAME: meta.gateway},
        "ports": ports(gateway).into_iter().map(port).collect::<Vec<_>>(),
    });
    service
}

/// Returns the PodDisruptionBudget. It lets a drain of nodes evict one proxy at a time, and does not block the drain
/// if the Gateway was scaled to one proxy.
fn budget(meta: &Metadata) -> Value {
    let mut budget = meta.resource("policy/v1", "PodDisruptionBudget");
    budget["spec"] = json!({
        "maxUnavailable": 1,
        "selector": {"matchLabels": {GATEWAY_NAME: meta.gateway}},
    });
    budget
}

fn deployment(meta: &Metadata, settings: &Settings) -> Value {
    let mut labels = meta.labels.clone();
    labels.insert("maglor.dev/inject".to_owned(), json!("disabled"));
    let mut annotations = meta.annotations.clone();
    // The proxy accepts the clients' protocols and terminates mutual TLS itself.
    annotations.insert(INJECTED.to_owned(), json!("outbound"));
    let [identity, _] = maglor_manifests::inject::volumes();
    let [identity_mount, cache_mount] = maglor_manifests::inject::mounts();
    // The cache contains private keys.
    let cache =
        json!({"name": cache_mount["name"], "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}});
    let (mut volumes, mut mounts) = (vec![cache], vec![cache_mount]);
    if settings.trust_domain.is_some() {
        volumes.insert(0, identity);
        mounts.insert(0, identity_mount);
    }
    let mut container = container(settings);
    container["volumeMounts"] = json!(mounts);
    let own = json!({GATEWAY_NAME: meta.gateway});
    let mut pod = proxy_pod::pod(&own, DRAIN_SECONDS, &container);
    pod["serviceAccountName"] = json!(meta.name);
    pod["securityContext"] = proxy_pod::low_ports();
    pod["volumes"] = json!(volumes);
    let metadata = json!({"labels": labels, "annotations": annotations});
    let mut deployment = meta.resource("apps/v1", "Deployment");
    // `replicas` is set only once, at creation, so that a later apply does not undo scaling.
    deployment["spec"] = proxy_pod::rollout(&own, &metadata, &pod, settings);
    deployment
}

/// Returns the container. Its ports are not listed, because they change without replacing pods.
fn container(settings: &Settings) -> Value {
    let mut arguments = proxy_pod::arguments("gateway", DRAIN_SECONDS, settings);
    if settings.trust_domain.is_none() {
        let [_, _, cache] = maglor_manifests::inject::credentials();
        arguments.push(cache);
    }
    let resources = json!({
        "requests": {"cpu": "100m", "memory": "32Mi"},
        "limits": {"memory": "256Mi"},
    });
    proxy_pod::container(&arguments, &resources, settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(listeners: &Value, annotations: &Value) -> [Value; 4] {
        let gateway = json!({
            "metadata": {"name": "web", "namespace": "edge", "uid": "u1", "annotations": annotations},
            "spec": {
                "gatewayClassName": "maglor",
                "listeners": listeners,
                "infrastructure": {"labels": {"team": "a"}},
            },
        });
        let settings = Settings {
            image: "maglor-proxy:dev".into(),
            pull_policy: None,
            control_plane: "maglor-controller.maglor.svc:15010".into(),
            cluster_domain: "cluster.local".into(),
            trust_domain: Some("cluster.local".into()),
            sleeps: true,
            prometheus_annotations: false,
        };
        manifests(&gateway, &settings, "LoadBalancer")
    }

    #[test]
    fn a_gateway_has_an_account_proxies_and_a_service() {
        let listeners = json!([{"port": 80}, {"port": 443}, {"port": 443}]);
        let [account, deployment, service, budget] = made(&listeners, &json!({}));
        for one in [&account, &deployment, &service, &budget] {
            assert_eq!(one["metadata"]["name"], "web-maglor");
            assert_eq!(one["metadata"]["labels"][GATEWAY_NAME], "web");
            assert_eq!(one["metadata"]["labels"]["team"], "a");
            assert_eq!(one["metadata"]["ownerReferences"][0]["uid"], "u1");
        }
        assert_eq!(service["spec"]["type"], "LoadBalancer");
        assert_eq!(service["spec"]["ports"].as_array().unwrap().len(), 2);
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"][INJECTED], "outbound");
        assert_eq!(pod["spec"]["serviceAccountName"], "web-maglor");
        assert_eq!(pod["spec"]["volumes"][1]["emptyDir"]["medium"], "Memory");
        assert!(deployment["spec"]["replicas"].is_null());
        assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    }

    #[test]
    fn ports_change_no_pod_and_the_service_may_be_of_another_type() {
        let before = made(&json!([{"port": 80}]), &json!({}));
        let annotations = json!({SERVICE_TYPE: "ClusterIP"});
        let after = made(&json!([{"port": 80}, {"port": 81}]), &annotations);
        assert_eq!(before[1], after[1]);
        assert_eq!(after[2]["spec"]["type"], "ClusterIP");
        let odd = made(&json!([{"port": 80}]), &json!({SERVICE_TYPE: "Moon"}));
        assert_eq!(odd[2]["spec"]["type"], "LoadBalancer");
    }
}
