//! Objects that exist only in the API: nodes that kwok keeps ready, and Services with as many endpoints as a scale test
//! needs.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::error::ClusterError;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::wait::until;

/// The timeout for simulated pods, about 100 of which become ready per second on two cores.
const PODS: Duration = Duration::from_secs(900);

/// The interval between polls of the pods.
const LOOK: Duration = Duration::from_secs(3);

/// The annotation by which kwok recognizes its nodes.
pub(crate) const ANNOTATION: &str = "kwok.x-k8s.io/node";

/// The label and taint that keep real pods off simulated nodes, and simulated pods on them.
const LABEL: &str = "maglor.dev/simulated";

/// The maximum number of Services or endpoints, which is limited by the address ranges.
pub const MOST: u32 = 50_000;

/// Returns the simulated nodes as a manifest.
pub(crate) fn nodes(count: u16) -> String {
    let node = |index: u16| {
        let name = format!("simulated-{index}");
        let room = json!({"cpu": "1000", "memory": "1Ti", "pods": "2000"});
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {(ANNOTATION): "fake"},
                "labels": {
                    (LABEL): "true",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": format!("zone-{}", index % 3 + 1),
                },
            },
            "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
            "status": {"allocatable": room, "capacity": room},
        })
    };
    list((1..=count).map(node))
}

/// Returns, as a manifest, a namespace `scale` with `services` Services `s0`, `s1`, …, each with `endpoints` simulated
/// pods.
///
/// Every Service has a Deployment, so that scaling the Deployment changes the Service's EndpointSlices as in a real
/// cluster.
#[must_use]
pub fn services(services: u32, endpoints: u32) -> String {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "scale"},
    });
    let pair = |index: u32| {
        let name = format!("s{index}");
        let labels = json!({"app": name});
        let metadata = json!({"name": name, "namespace": "scale", "labels": labels});
        // There are no servers at these addresses, so kube-proxy need not write thousands of rules
        // for them.
        let mut of_service = metadata.clone();
        of_service["labels"]["service.kubernetes.io/service-proxy-name"] = "none".into();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": of_service,
            "spec": {
                "selector": labels,
                "ports": [{"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http"}],
            },
        });
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": endpoints,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "automountServiceAccountToken": false,
                        "nodeSelector": {(LABEL): "true"},
                        "tolerations": [{"key": LABEL, "operator": "Exists"}],
                        "containers": [{"name": "app", "image": "simulated"}],
                    },
                },
            },
        });
        [service, deployment]
    };
    list(std::iter::once(namespace).chain((0..services).flat_map(pair)))
}

/// Creates the Services of [`services`], and waits until all of their pods are ready; returns the number of pods.
///
/// # Errors
///
/// The Services cannot be created, or their pods are not ready in time.
pub fn fill(kubectl: &Kubectl, services: u32, endpoints: u32) -> Result<u64, ClusterError> {
    kubectl.apply(&self::services(services, endpoints))?;
    wait(kubectl, u64::from(services) * u64::from(endpoints))
}

/// Waits until the Deployments of the namespace `scale` have `wanted` ready pods; returns the number.
///
/// # Errors
///
/// The pods are not ready in time.
fn wait(kubectl: &Kubectl, wanted: u64) -> Result<u64, ClusterError> {
    let what = format!("{wanted} simulated pods are ready");
    until(
        PODS,
        &what,
        "check that the cluster was started with `up --kwok`",
        || {
            // A poll costs the API server as much as some hundred pods do.
            thread::sleep(LOOK);
            let counts = "jsonpath={.items[*].status.readyReplicas}";
            let arguments = [
                "get",
                "deployments",
                "--namespace=scale",
                "--output",
                counts,
            ];
            let counts = kubectl.run(&arguments)?;
            let ready = counts.split_whitespace();
            let ready = ready.filter_map(|count| count.parse::<u64>().ok());
            let ready = ready.sum();
            Ok((ready >= wanted).then_some(ready))
        },
    )
}

fn list(items: impl Iterator<Item = Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_selects_its_own_pods() {
        let list: Value = serde_json::from_str(&services(3, 2)).unwrap();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1 + 3 * 2);
        for pair in items[1..].chunks(2) {
            let template = &pair[1]["spec"]["template"];
            assert_eq!(pair[0]["spec"]["selector"], template["metadata"]["labels"]);
            assert_eq!(pair[1]["spec"]["replicas"], 2);
        }
    }
}
