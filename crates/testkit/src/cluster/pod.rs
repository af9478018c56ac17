//! The processes and the network of a pod, for tests that act from inside a pod.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cluster::error::{At as _, ClusterError};
use crate::cluster::lifecycle::{Cluster, joined};
use crate::cluster::relay;

impl Cluster {
    /// Runs a closure on a thread in the network of a pod, with the pod's addresses and redirection rules.
    ///
    /// # Errors
    ///
    /// There is no such pod, none of its containers is running, or the thread panicked.
    pub fn in_pod<T: Send + 'static>(
        &self,
        namespace: &str,
        pod: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ClusterError> {
        let network = format!("/proc/{}/ns/net", self.pod_process(namespace, pod)?);
        joined(relay::in_network(Path::new(&network), work)?)
    }

    /// Returns the id of a process of a pod's first running container, as seen from the host.
    ///
    /// # Errors
    ///
    /// There is no such pod, or none of its containers is running.
    pub fn pod_process(&self, namespace: &str, pod: &str) -> Result<u32, ClusterError> {
        let found = self.kubectl().json(&["get", "pod", pod, "-n", namespace])?;
        let process = running(&found).map(process_of).transpose()?;
        process.flatten().ok_or_else(|| ClusterError::Invalid {
            field: "pod",
            reason: format!("{namespace}/{pod} has no running container"),
        })
    }
}

/// Returns the id of a running container of a pod, without the prefix of its runtime; `None` if none is running.
fn running(pod: &Value) -> Option<&str> {
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    let mut running = statuses
        .iter()
        .filter(|one| one["state"]["running"].is_object());
    let (_, id) = running.next()?["containerID"].as_str()?.split_once("://")?;
    Some(id)
}

/// Returns a process of a container. The processes of all machines are visible on the host, and the control group of
/// each contains the id of its container.
fn process_of(container: &str) -> Result<Option<u32>, ClusterError> {
    let processes = Path::new("/proc");
    let processes = fs::read_dir(processes).at(processes)?.flatten();
    let mut ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    // A process that has terminated has none.
    let groups = |id: &u32| fs::read_to_string(format!("/proc/{id}/cgroup")).unwrap_or_default();
    Ok(ids.find(|id| groups(id).contains(container)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_running_container_is_found() {
        let waiting = json!({"containerID": "containerd://a", "state": {"waiting": {}}});
        let runs = json!({"containerID": "containerd://b", "state": {"running": {}}});
        let pod = json!({"status": {"containerStatuses": [waiting, runs]}});
        assert_eq!(running(&pod), Some("b"));
        assert_eq!(
            running(&json!({"status": {"containerStatuses": [waiting]}})),
            None
        );
    }
}
