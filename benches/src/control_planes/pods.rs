//! The application: five Services of simulated pods, injected by the control plane that is measured.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Kubectl, scale};
use serde_json::Value;

use crate::error::{Error, Result};

/// The number of Services: `s0`, `s1`, … of the namespace `scale`.
pub(super) const SERVICES: u8 = 5;
pub(super) const NAMESPACE: &str = "scale";
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(250);

/// A ready pod.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) ip: Ipv4Addr,
    /// As the API server has it, with the injected sidecar.
    pub(super) object: Value,
}

impl Pod {
    /// Returns whether it is behind the Service with this number.
    pub(super) fn is_of(&self, service: usize) -> bool {
        self.name.starts_with(&format!("s{service}-"))
    }

    /// Returns the container with this name.
    pub(super) fn container(&self, name: &str) -> Option<&Value> {
        container(&self.object, name)
    }
}

/// Creates the Services without pods. `mark` is `label` or `annotate`, and the value that requests sidecars.
pub(super) fn create(kubectl: &Kubectl, mark: [&str; 2]) -> Result<Vec<Ipv4Addr>> {
    kubectl.apply(&scale::services(SERVICES.into(), 0))?;
    let [how, value] = mark;
    kubectl.run(&[how, "namespace", NAMESPACE, value, "--overwrite"])?;
    let list = kubectl.json(&["get", "services", "--namespace", NAMESPACE])?;
    let items = list["items"].as_array().into_iter().flatten();
    let mut addresses: Vec<_> = items
        .filter_map(|item| {
            let name = item["metadata"]["name"].as_str()?.to_owned();
            let address = item["spec"]["clusterIP"].as_str()?.parse().ok()?;
            Some((name, address))
        })
        .collect();
    addresses.sort();
    Ok(addresses.into_iter().map(|(_, address)| address).collect())
}

/// Scales the Deployments to this number of pods together, and waits until all are ready. `sidecar` is the name of the
/// container that each must have.
pub(super) fn scale_to(kubectl: &Kubectl, count: u32, sidecar: &str) -> Result<Vec<Pod>> {
    let each = format!("--replicas={}", count / u32::from(SERVICES));
    let all = ["scale", "deployments", "--all", "--namespace", NAMESPACE];
    kubectl.run(&[&all[..], &[each.as_str()]].concat())?;
    let started = Instant::now();
    loop {
        let list = kubectl.json(&["get", "pods", "--namespace", NAMESPACE])?;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let ready: Option<Vec<_>> = items.iter().map(ready).collect();
        if let Some(mut ready) = ready
            && ready.len() == count as usize
        {
            if let Some(plain) = items.iter().find(|item| container(item, sidecar).is_none()) {
                let name = &plain["metadata"]["name"];
                return Err(Error::protocol(format!("pod {name} has no {sidecar}")));
            }
            // The order of creation, so that earlier pods are first.
            ready.sort_by(|(first, one), (second, other)| {
                (first, &one.name).cmp(&(second, &other.name))
            });
            return Ok(ready.into_iter().map(|(_, pod)| pod).collect());
        }
        if started.elapsed() > PATIENCE {
            let found = format!("{} of {count} pods exist", items.len());
            return Err(Error::late("pods that are ready", started, found));
        }
        std::thread::sleep(POLL);
    }
}

/// Deletes the namespace, if it exists, and waits until it is gone.
pub(super) fn delete(kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let delete = [
        "delete",
        "namespace",
        namespace,
        "--ignore-not-found",
        "--wait",
        "--timeout=120s",
    ];
    kubectl.run(&delete).map(drop).map_err(Error::from)
}

/// Returns the pod after its time of creation, if it is ready.
fn ready(pod: &Value) -> Option<(String, Pod)> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    conditions.iter().any(ready).then_some(())?;
    let metadata = &pod["metadata"];
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let created = text(&metadata["creationTimestamp"])?;
    let pod = Pod {
        name: text(&metadata["name"])?,
        ip: pod["status"]["podIP"].as_str()?.parse().ok()?,
        object: pod.clone(),
    };
    Some((created, pod))
}

fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = ["containers", "initContainers"].iter();
    let mut all = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    all.find(|one| one["name"] == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_without_an_address_are_not_ready() {
        let pod = |ip: Value| {
            json!({
                "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"containers": [{"name": "app"}], "initContainers": [{"name": "proxy"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIP": ip},
            })
        };
        assert!(ready(&pod(json!("10.233.0.1"))).is_some());
        assert!(ready(&pod(Value::Null)).is_none());
        assert!(container(&pod(Value::Null), "proxy").is_some());
        assert!(container(&pod(Value::Null), "other").is_none());
    }
}
