//! A node: containerd, kubelet and kube-proxy on a machine of its own.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::cluster::addresses::{self, DNS};
use crate::cluster::cgroup;
use crate::cluster::control::{Server, words};
use crate::cluster::credentials::User;
use crate::cluster::error::{ClusterError, run};
use crate::cluster::machine::{HOME, Machine, enter};
use crate::cluster::process::Process;
use crate::cluster::programs;
use crate::cluster::wait::until;

/// The image of the container that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "maglor.dev/pause:1";

/// The timeout for the start of containerd.
const CONTAINERD_START: Duration = Duration::from_secs(60);

/// The maximum back-off of restarted containers; Kubernetes' default would be too long for tests.
const MOST_BACK_OFF: &str = "10s";

/// Starts containerd, and waits until it responds.
pub(crate) fn start_containerd(machine: &Machine, index: u8) -> Result<Process, ClusterError> {
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": addresses::pods(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    machine.write("cni/10-pods.conflist", &network.to_string())?;
    let config = machine.write(
        "containerd.toml",
        &format!(
            "version = 2\n\
             root = '{HOME}/containerd'\n\
             state = '/run/containerd'\n\
             [grpc]\n\
             address = '/run/containerd/containerd.sock'\n\
             [plugins.'io.containerd.grpc.v1.cri']\n\
             sandbox_image = '{PAUSE}'\n\
             # The kubelet asks for a smaller score than a container without CAP_SYS_RESOURCE may have.\n\
             restrict_oom_score_adj = true\n\
             [plugins.'io.containerd.grpc.v1.cri'.cni]\n\
             bin_dir = '{plugins}'\n\
             conf_dir = '{HOME}/cni'\n",
            plugins = programs::plugins(),
        ),
    )?;
    let program = programs::find("containerd").unwrap_or_else(|| "containerd".into());
    let mut process = machine.spawn(&program, words(&format!("--config {config}")))?;
    let log = machine.file("containerd.log");
    let hint = format!("see {}", log.display());
    until(CONTAINERD_START, "containerd answers", &hint, || {
        process.check()?;
        Ok(run(machine.command("ctr").arg("version")).ok())
    })?;
    Ok(process)
}

/// Imports an archive on the machine with this first process. Machines see the files of the host.
pub(crate) fn import(init: u32, archive: &Path) -> Result<(), ClusterError> {
    let mut command = enter(init, "ctr");
    command.args(["--namespace", "k8s.io", "images", "import"]);
    run(command.arg(archive)).map(drop)
}

/// Starts the kubelet and kube-proxy of a node.
pub(crate) fn start_kubelet(
    machine: &Machine,
    index: u8,
    cluster: &str,
    programs: &Path,
    server: &Server,
    users: (&User, &User),
) -> Result<Vec<Process>, ClusterError> {
    cgroup::make(cluster, machine.name())?;
    let address = addresses::node(index);
    machine.write("resolv.conf", "")?;
    let config = kubelet_config(&format!("/{}/{}", cgroup::group(cluster), machine.name()));
    let config = machine.write("kubelet.yaml", &config)?;
    let kubeconfig = server.admit(machine, users.0)?;
    let kubelet = machine.spawn(
        &programs.join("kubelet"),
        words(&format!(
            "--config={config} --kubeconfig={kubeconfig} --root-dir={HOME}/kubelet \
             --cert-dir={HOME}/kubelet/pki --node-ip={address} --hostname-override={name} \
             --node-labels=topology.kubernetes.io/region=local,topology.kubernetes.io/zone=zone-{index}",
            name = machine.name(),
        )),
    )?;
    let kubeconfig = server.admit(machine, users.1)?;
    // The mode is on by default since 1.31, which also brought `primary`.
    let version = match programs::is_oldest() {
        true => "--feature-gates=NFTablesProxyMode=true",
        false => "--nodeport-addresses=primary",
    };
    let kube_proxy = machine.spawn(
        &programs.join("kube-proxy"),
        words(&format!(
            "--kubeconfig={kubeconfig} --hostname-override={name} --proxy-mode=nftables \
             --conntrack-max-per-core=0 --cluster-cidr={inside} {version}",
            name = machine.name(),
            inside = addresses::PODS,
        )),
    )?;
    Ok(vec![kubelet, kube_proxy])
}

/// Returns the configuration of the kubelet as JSON, which is valid YAML.
fn kubelet_config(group: &str) -> String {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "clusterDNS": [DNS.to_string()],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "enforceNodeAllocatable": [],
        // The disk is the host's; if it is full, pods and images should be kept.
        "evictionHard": {"memory.available": "50Mi"},
        "failCgroupV1": false,
        "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "localStorageCapacityIsolation": false,
        "nodeStatusUpdateFrequency": "4s",
        "podLogsDir": format!("{HOME}/pods"),
        "resolvConf": format!("{HOME}/resolv.conf"),
        "serializeImagePulls": false,
        "volumePluginDir": format!("{HOME}/volume-plugins"),
    });
    // Since 1.32; older kubelets do not start with it.
    if !programs::is_oldest() {
        config["crashLoopBackOff"] = json!({"maxContainerRestartPeriod": MOST_BACK_OFF});
        config["featureGates"] = json!({"KubeletCrashLoopBackOffMax": true});
    }
    config.to_string()
}
