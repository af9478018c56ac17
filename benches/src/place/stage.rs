//! A cluster of three nodes with the mesh and the application in it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use maglor_testkit::cluster::{Cluster, Kubectl};
use serde_json::Value;

use super::bookinfo::{self, ENTRY, NAMESPACE, PORT, SERVICES};
use super::options::Options;
use crate::error::{Error, Result};
use crate::kubernetes::{Programs, rolled_out, until};

const NODES: u8 = 3;
// T and the interval of reports are shorter than by default, so that the graph reflects current
// traffic sooner.
const VALUES: &[&str] = &["--set=extraArgs={--graph-window=20s,--load-interval=4s}"];

/// The number of replicas of each service on each node.
pub(super) type Placement = BTreeMap<String, BTreeMap<String, u32>>;

/// A pod that serves.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) service: String,
    pub(super) node: String,
    pub(super) address: Ipv4Addr,
}

/// See the module's documentation.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    programs: Programs,
    /// The CPU of a node, in thousandths of a core.
    pub(super) node_millis: u64,
}

impl Stage {
    /// Starts a cluster with `delay` between its nodes, and installs the mesh, with mutual TLS for
    /// all workloads.
    pub(super) fn start(options: &Options, delay: Duration) -> Result<Self> {
        let folder = options.programs.as_deref();
        let programs = Programs::new(folder, &options.profile, &["maglor-app"])?;
        let cluster = Cluster::start(maglor_testkit::cluster::Options {
            name: "place".into(),
            nodes: NODES,
            delay,
            say: |line| eprintln!("{line}"),
            ..maglor_testkit::cluster::Options::default()
        })?;
        programs.load(&cluster)?;
        let mut stage = Self {
            cluster,
            programs,
            node_millis: 0,
        };
        stage.node_millis = stage.look_at_nodes()?;
        stage.programs.install(&stage.cluster, VALUES)?;
        stage.set_mesh(false)?;
        stage.apply(&bookinfo::surroundings())?;
        Ok(stage)
    }

    pub(super) fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    fn look_at_nodes(&self) -> Result<u64> {
        let nodes = self.kubectl().json(&["get", "nodes"])?;
        let cpu = nodes["items"][0]["status"]["allocatable"]["cpu"].as_str();
        let cores = cpu.and_then(|cpu| cpu.parse::<u64>().ok());
        let cores = cores.ok_or_else(|| Error::parse("a node's CPU", nodes.to_string()))?;
        Ok(cores * 1000)
    }

    /// Applies the configuration of the whole mesh.
    pub(super) fn set_mesh(&self, local_first: bool) -> Result<()> {
        let mut config = serde_json::json!({
            "apiVersion": "maglor.dev/v1alpha1",
            "kind": "MeshConfig",
            "metadata": {"name": "default"},
            "spec": {"mtls": "strict"},
        });
        if local_first {
            config["spec"]["localFirst"] = serde_json::json!({"slackPercent": 20});
        }
        self.apply(&config)
    }

    /// Applies a manifest.
    pub(super) fn apply(&self, manifest: &Value) -> Result<()> {
        let applied = self.kubectl().apply(&manifest.to_string());
        Ok(applied?)
    }

    /// Runs `maglor` and returns its output.
    pub(super) fn maglor(&self, arguments: &[&str]) -> Result<String> {
        self.programs.maglor(&self.cluster, arguments)
    }

    /// Deploys the application from scratch, placed by the scheduler.
    pub(super) fn deploy_anew(&self) -> Result<()> {
        let delete = ["delete", "deployments", "--all", "-n", NAMESPACE];
        self.kubectl().run(&delete)?;
        until("the application has gone", || {
            Ok(self.all_pods()?.as_array().is_some_and(Vec::is_empty))
        })?;
        self.apply(&bookinfo::deployments(self.node_millis))?;
        self.settled()
    }

    /// Waits until all of the application's pods serve, and no earlier pods are left.
    pub(super) fn settled(&self) -> Result<()> {
        self.settled_with(bookinfo::replicas())
    }

    /// Does the same as [`Stage::settled`] for a total of `replicas` pods.
    pub(super) fn settled_with(&self, replicas: u32) -> Result<()> {
        for service in &SERVICES {
            rolled_out(self.kubectl(), NAMESPACE, service.name)?;
        }
        let wanted = replicas as usize;
        until("all pods serve and no others are there", || {
            let all = self.all_pods()?.as_array().map_or(0, Vec::len);
            Ok(all == wanted && self.pods()?.len() == wanted)
        })
    }

    fn all_pods(&self) -> Result<Value> {
        let get = ["get", "pods", "-n", NAMESPACE];
        let mut pods = self.kubectl().json(&get)?;
        Ok(pods["items"].take())
    }

    /// Returns the pods that are ready and not terminating.
    pub(super) fn pods(&self) -> Result<Vec<Pod>> {
        let all = self.all_pods()?;
        let all = all.as_array().map_or(&[][..], Vec::as_slice);
        Ok(all.iter().filter_map(pod).collect())
    }

    /// Returns the placement of replicas.
    pub(super) fn placement(&self) -> Result<Placement> {
        let mut placement = Placement::new();
        for pod in self.pods()? {
            let nodes = placement.entry(pod.service).or_default();
            *nodes.entry(pod.node).or_default() += 1;
        }
        Ok(placement)
    }

    /// Returns the address that clients connect to.
    pub(super) fn entry(&self) -> Result<SocketAddr> {
        let mut pods = self.pods()?.into_iter();
        let entry = pods.find(|pod| pod.service == ENTRY);
        let entry = entry.ok_or_else(|| Error::protocol("the application has no way in"))?;
        Ok(SocketAddr::from((entry.address, PORT)))
    }

    /// Returns the pods whose arrivals are calls within the mesh.
    pub(super) fn called(&self) -> Result<Vec<Ipv4Addr>> {
        let pods = self.pods()?.into_iter();
        let called = pods.filter(|pod| pod.service != ENTRY);
        Ok(called.map(|pod| pod.address).collect())
    }

    /// Returns a local folder for files that `maglor` reads.
    pub(super) fn folder(&self) -> &Path {
        // Beside the kubeconfig, so that it is removed with the cluster.
        let kubeconfig = self.cluster.kubeconfig();
        kubeconfig.parent().unwrap_or(kubeconfig)
    }
}

fn pod(pod: &Value) -> Option<Pod> {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let conditions = status["conditions"].as_array()?;
    let ready = conditions
        .iter()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    if !ready || metadata.get("deletionTimestamp").is_some() {
        return None;
    }
    Some(Pod {
        service: metadata["labels"]["app"].as_str()?.to_owned(),
        node: pod["spec"]["nodeName"].as_str()?.to_owned(),
        address: status["podIP"].as_str()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_leave_or_are_not_ready_do_not_count() {
        let described = json!({
            "metadata": {"labels": {"app": "details"}},
            "spec": {"nodeName": "node-2"},
            "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let serving = pod(&described).unwrap();
        assert_eq!((&*serving.service, &*serving.node), ("details", "node-2"));
        let mut leaving = described.clone();
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(pod(&leaving).is_none());
        let mut starting = described;
        starting["status"]["conditions"][0]["status"] = json!("False");
        assert!(pod(&starting).is_none());
    }
}
