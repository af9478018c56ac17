//! Common parts of the pods of standalone proxies, for Proxy-Services and Gateways.

use kube::Client;
use maglor_manifests::inject::{ADMIN_PORT, PROXY};
use serde_json::{Value, json};

use crate::api_server;

/// Time for which a terminating proxy continues to accept connections, in seconds: by its end, every node has stopped
/// sending to the proxy.
pub(crate) const FAREWELL_SECONDS: u32 = 5;

/// Returns the grace period after which a pod is killed, in seconds. `drain` is as for [`pod`].
pub(crate) fn grace_seconds(drain: u32) -> u32 {
    FAREWELL_SECONDS + drain + 5
}

/// Settings of all standalone proxies.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Image of the proxies.
    pub image: String,
    /// Image pull policy: `Always`, `IfNotPresent` or `Never`; `None` for the default of Kubernetes.
    pub pull_policy: Option<String>,
    /// The address of this control plane, as `NAME:PORT`.
    pub control_plane: String,
    /// The domain of Service names.
    pub cluster_domain: String,
    /// The trust domain of issued certificates; `None` if TLS is off.
    pub trust_domain: Option<String>,
    /// Whether the cluster supports `preStop.sleep`. Without it, a terminating proxy refuses requests of nodes that
    /// still send to it.
    pub sleeps: bool,
    /// Whether pods are annotated for Prometheus.
    pub prometheus_annotations: bool,
}

/// The minor version of Kubernetes (1.x) from which `preStop.sleep` is supported by default (KEP-3960). Older
/// versions reject it.
const SLEEP: u32 = 30;

impl Settings {
    /// Returns the settings for the version of the cluster.
    pub(crate) async fn for_cluster(self, client: &Client) -> Self {
        let minor = api_server::minor_version(client).await;
        Self {
            sleeps: minor.is_none_or(|minor| minor >= SLEEP),
            ..self
        }
    }
}

/// Returns the arguments of a proxy that all roles (`maglor-proxy ROLE`) have in common. `drain` is as for [`pod`].
pub(crate) fn arguments(role: &str, drain: u32, settings: &Settings) -> Vec<String> {
    let mut arguments = vec![
        role.to_owned(),
        format!("--control-plane={}", settings.control_plane),
        format!("--cluster-domain={}", settings.cluster_domain),
        format!("--admin-port={ADMIN_PORT}"),
        format!("--drain-timeout={drain}s"),
    ];
    match &settings.trust_domain {
        Some(domain) => {
            arguments.push(format!("--trust-domain={domain}"));
            arguments.extend(maglor_manifests::inject::credentials());
        }
        None => arguments.push("--plain-text".to_owned()),
    }
    arguments
}

/// Returns the container of a proxy.
pub(crate) fn container(arguments: &[String], resources: &Value, settings: &Settings) -> Value {
    let variable = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": ADMIN_PORT},
            "periodSeconds": period,
            "failureThreshold": failures,
        })
    };
    let mut container = json!({
        "name": PROXY,
        "image": settings.image,
        "args": arguments,
        "env": [
            variable("POD_NAME", "metadata.name"),
            variable("POD_NAMESPACE", "metadata.namespace"),
            variable("POD_IPS", "status.podIPs"),
        ],
        "resources": resources,
        // Monitoring finds the proxies by this name.
        "ports": [{"name": maglor_manifests::inject::ADMIN_PORT_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"}],
        "readinessProbe": probe("/ready", 1, 2),
        "livenessProbe": probe("/live", 10, 3),
        "securityContext": maglor_manifests::inject::security_context(),
    });
    if settings.sleeps {
        container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": FAREWELL_SECONDS}}});
    }
    if let Some(policy) = &settings.pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}

/// Returns a pod with one proxy, which gets `drain` seconds to finish its requests on termination. Pods with the same
/// labels are spread over nodes; `own` is the subset of labels that identifies them.
pub(crate) fn pod(own: &Value, drain: u32, container: &Value) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": grace_seconds(drain),
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": own},
        }],
        "containers": [container],
    })
}

/// Returns the security context that allows ports below 1024 without any capability, with a "safe" sysctl.
pub(crate) fn low_ports() -> Value {
    json!({"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]})
}

/// Returns the rollout settings of a Deployment of proxies: a new pod must be ready before an old one is removed.
/// `metadata` is that of the pods.
pub(crate) fn rollout(own: &Value, metadata: &Value, pod: &Value, settings: &Settings) -> Value {
    let mut metadata = metadata.clone();
    if settings.prometheus_annotations {
        for (name, value) in maglor_manifests::inject::prometheus_annotations() {
            metadata["annotations"][name] = value;
        }
    }
    json!({
        "selector": {"matchLabels": own},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": metadata, "spec": pod},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API server that does not know `sleep` rejects a hook that contains nothing else.
    #[test]
    fn a_proxy_waits_before_it_ends_only_where_the_cluster_can() {
        let hook = |sleeps| {
            let settings = Settings {
                sleeps,
                ..Settings::default()
            };
            container(&[], &json!({}), &settings)["lifecycle"].clone()
        };
        assert_eq!(hook(true)["preStop"]["sleep"]["seconds"], FAREWELL_SECONDS);
        assert!(hook(false).is_null());
    }
}
