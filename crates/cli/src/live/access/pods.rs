//! Pods of a cluster: the controller's, and those that have a proxy.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use maglor_controller::revision::{PODS, is_replica};

use super::super::LiveError;
use super::ask::Admin;
use super::{Address, CONTROLLER_PORT, Pods, SIDECAR_PORT, Where};

/// The name of the container that makes a pod a workload of the mesh.
pub(crate) const PROXY_CONTAINER: &str = "maglor-proxy";
/// The label that distinguishes the pods of a ReplicaSet; its value is the suffix of the ReplicaSet's name.
const HASH: &str = "pod-template-hash";

/// A running program of the mesh.
#[derive(Clone)]
pub(crate) struct Instance {
    /// Name of the pod, or the name given on the command line.
    pub(crate) name: String,
    /// Namespace of the pod; `None` if it is not a pod.
    pub(crate) namespace: Option<String>,
    /// Name of the Deployment, StatefulSet, DaemonSet or Job of which the program is a replica, otherwise its own
    /// name.
    pub(crate) workload: String,
    /// Admin port of the program.
    pub(crate) admin: Admin,
}

impl Instance {
    /// Returns the same program at another port.
    pub(crate) fn at_port(&self, port: u16) -> Self {
        let admin = match &self.admin {
            Admin::Pod { pods, name, .. } => Admin::Pod {
                pods: pods.clone(),
                name: name.clone(),
                port,
            },
            direct @ Admin::Direct(_) => direct.clone(),
        };
        Self {
            admin,
            ..self.clone()
        }
    }

    pub(super) fn direct(name: &str, address: &Address) -> Self {
        Self {
            name: name.to_owned(),
            namespace: None,
            workload: name.to_owned(),
            admin: Admin::Direct(address.clone()),
        }
    }
}

/// A target on the command line: `POD` or `WORKLOAD`, optionally with its kind, such as `pod/web-0` or `deploy/web`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    kind: Option<String>,
    name: String,
}

impl FromStr for Target {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (Some(kind.to_owned()), name),
            None => (None, text),
        };
        let name = name.to_owned();
        Ok(Self { kind, name })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = &self.kind {
            write!(f, "{kind}/")?;
        }
        f.write_str(&self.name)
    }
}

impl Target {
    /// Returns whether an instance is this pod or a replica of this workload.
    pub(crate) fn is(&self, instance: &Instance) -> bool {
        match self.kind.as_deref() {
            Some("pod" | "pods" | "po") => instance.name == self.name,
            Some(_) => instance.workload == self.name,
            None => instance.name == self.name || instance.workload == self.name,
        }
    }
}

/// A cluster to query.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The namespace of the mesh itself.
    pub(crate) mesh_namespace: String,
    /// The namespace of the kubeconfig's context.
    namespace: String,
}

impl Cluster {
    /// Reads the kubeconfig. Sends no request.
    pub(crate) async fn open(place: &Where) -> Result<Self, LiveError> {
        let failed = |error| LiveError::Kubeconfig(Box::new(error));
        let options = KubeConfigOptions {
            context: place.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &place.kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file).map_err(failed)?;
                Config::from_custom_kubeconfig(read, &options).await
            }
            None => Config::from_kubeconfig(&options).await,
        };
        let config = config.map_err(failed)?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(asked("a client"))?;
        Ok(Self {
            client,
            mesh_namespace: place.mesh_namespace.clone(),
            namespace,
        })
    }

    /// Returns the selected namespace.
    pub(crate) fn namespace<'a>(&'a self, pods: &'a Pods) -> &'a str {
        pods.namespace.as_deref().unwrap_or(&self.namespace)
    }

    /// Returns the running pods of the controller.
    pub(crate) async fn controllers(&self) -> Result<Vec<Instance>, LiveError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.mesh_namespace);
        let list = pods.list(&ListParams::default().labels(PODS)).await;
        let list = list.map_err(asked("pods of the controller"))?;
        let running = list
            .items
            .iter()
            .filter(|pod| is_running(pod) && is_replica(pod.labels()));
        Ok(running
            .filter_map(|pod| self.instance(pod, CONTROLLER_PORT))
            .collect())
    }

    /// Returns the running pods that have a proxy, ordered by name.
    pub(crate) async fn proxies(
        &self,
        of: &Pods,
        target: Option<&Target>,
    ) -> Result<Vec<Instance>, LiveError> {
        let pods: Api<Pod> = match of.all_namespaces {
            true => Api::all(self.client.clone()),
            false => Api::namespaced(self.client.clone(), self.namespace(of)),
        };
        let list = pods.list(&ListParams::default()).await;
        let list = list.map_err(asked("pods"))?;
        let members = list
            .items
            .iter()
            .filter(|pod| is_running(pod) && has_proxy(pod));
        let mut found: Vec<_> = members
            .filter_map(|pod| self.instance(pod, SIDECAR_PORT))
            .filter(|one| target.is_none_or(|target| target.is(one)))
            .collect();
        found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(found)
    }

    fn instance(&self, pod: &Pod, port: u16) -> Option<Instance> {
        let name = pod.metadata.name.clone()?;
        let namespace = pod.metadata.namespace.clone()?;
        Some(Instance {
            workload: workload(pod).unwrap_or_else(|| name.clone()),
            admin: Admin::Pod {
                pods: Box::new(Api::namespaced(self.client.clone(), &namespace)),
                name: name.clone(),
                port,
            },
            namespace: Some(namespace),
            name,
        })
    }
}

/// Creates an error about a failed request to the API server.
pub(crate) fn asked(what: &str) -> impl FnOnce(kube::Error) -> LiveError {
    let what = what.to_owned();
    |source| LiveError::Kube {
        what,
        source: Box::new(source),
    }
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// Returns whether a pod has a proxy of this mesh, as a container or as a native sidecar.
pub(crate) fn has_proxy(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let sidecars = spec.init_containers.iter().flatten();
    let mut all = spec.containers.iter().chain(sidecars);
    all.any(|container| container.name == PROXY_CONTAINER)
}

/// Returns the workload of which a pod is a replica; `None` if it has none.
pub(crate) fn workload(pod: &Pod) -> Option<String> {
    let owner = pod.metadata.owner_references.as_ref()?.first()?;
    if owner.kind != "ReplicaSet" {
        return Some(owner.name.clone());
    }
    let hash = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(HASH));
    let of_deployment = hash.and_then(|hash| {
        let rest = owner.name.strip_suffix(hash.as_str())?;
        rest.strip_suffix('-')
    });
    Some(of_deployment.unwrap_or(&owner.name).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(text: serde_json::Value) -> Pod {
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_workload_is_what_makes_pods() {
        let of = |kind: &str, name: &str| {
            pod(json!({"metadata": {
                "name": "web-7d9f-x2x", "labels": {"pod-template-hash": "7d9f"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1"}],
            }}))
        };
        assert_eq!(
            workload(&of("ReplicaSet", "web-7d9f")).as_deref(),
            Some("web")
        );
        assert_eq!(workload(&of("ReplicaSet", "own")).as_deref(), Some("own"));
        assert_eq!(workload(&of("StatefulSet", "db")).as_deref(), Some("db"));
        assert_eq!(workload(&pod(json!({"metadata": {"name": "bare"}}))), None);
    }

    #[test]
    fn a_native_sidecar_is_a_proxy_too() {
        let with = |field: &str, name: &str| {
            pod(json!({"metadata": {}, "spec": {
                "containers": if field == "containers" { json!([{"name": name}]) } else { json!([{"name": "app"}]) },
                "initContainers": if field == "initContainers" { json!([{"name": name}]) } else { json!([]) },
            }}))
        };
        assert!(has_proxy(&with("containers", "maglor-proxy")));
        assert!(has_proxy(&with("initContainers", "maglor-proxy")));
        assert!(!has_proxy(&with("initContainers", "maglor-init")));
    }

    #[test]
    fn targets_name_pods_or_workloads() {
        let address: Address = "127.0.0.1:1".parse().unwrap();
        let instance = Instance {
            workload: "web".into(),
            ..Instance::direct("web-0", &address)
        };
        let is = |text: &str| text.parse::<Target>().unwrap().is(&instance);
        assert!(is("web") && is("web-0") && is("pod/web-0") && is("deploy/web"));
        assert!(!is("pod/web") && !is("deploy/web-0") && !is("other"));
    }
}
