//! The control plane: etcd, the API server, the controllers and the scheduler, which are processes of one machine.

use std::path::Path;
use std::time::Duration;

use crate::cluster::addresses::{CONTROL, SERVICES};
use crate::cluster::credentials::{Certificates, FRONT, User, token_file};
use crate::cluster::error::ClusterError;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::machine::{HOME, Machine};
use crate::cluster::process::Process;
use crate::cluster::wait::until;

/// The timeout for the start of the API server, which takes about twenty seconds on two busy cores.
const API_START: Duration = Duration::from_secs(120);

/// The time without a heartbeat after which a node is considered lost: half of Kubernetes' default, for tests that lose
/// a node.
const SILENCE: Duration = Duration::from_secs(20);

/// The time without a heartbeat after which a node is considered lost, if one busy process simulates a hundred nodes.
const SIMULATED_SILENCE: Duration = Duration::from_secs(300);

/// Settings only for simulated clusters. Many pods change, and nothing reads the `Endpoints` that would be written in
/// addition to every EndpointSlice.
const SIMULATED: &str = "--concurrent-service-endpoint-syncs=20 \
     --controllers=*,-endpoints-controller,-endpointslice-mirroring-controller";

/// The maximum number of requests per second of a component, which is so high that scale tests measure the mesh and not
/// this limit.
const REQUESTS: u32 = 500;

/// The address of the API server, with the credentials to verify it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) authority: String,
}

impl Server {
    /// Returns the URL of the API server inside the cluster.
    pub(crate) fn url(&self) -> String {
        format!("https://{CONTROL}:{}", self.port)
    }

    /// Writes the kubeconfig of a user into a machine, and returns the path of the file there.
    pub(crate) fn admit(&self, machine: &Machine, user: &User) -> Result<String, ClusterError> {
        let authority = machine.write("authority.pem", &self.authority)?;
        let text = user.kubeconfig(&self.url(), &authority);
        machine.write(
            &format!("{}.kubeconfig", user.name.replace(':', "-")),
            &text,
        )
    }
}

/// Starts etcd and the API server, which listens on `port` of all addresses.
pub(crate) fn start_api(
    machine: &Machine,
    programs: &Path,
    certificates: &Certificates,
    users: &[User],
    port: u16,
) -> Result<Vec<Process>, ClusterError> {
    let etcd = machine.spawn(
        &programs.join("etcd"),
        words(
            // In memory: the cluster does not outlive its machines.
            "--name etcd --data-dir /var/lib/etcd --unsafe-no-fsync --log-level warn \
             --listen-client-urls http://127.0.0.1:2379 \
             --advertise-client-urls http://127.0.0.1:2379 \
             --listen-peer-urls http://127.0.0.1:2380",
        ),
    )?;
    for (name, text) in [
        ("authority.pem", &certificates.authority),
        ("authority.key", &certificates.authority_key),
        ("server.pem", &certificates.server),
        ("server.key", &certificates.server_key),
        ("accounts.key", &certificates.accounts_key),
        ("accounts.pub", &certificates.accounts_public_key),
        ("front-authority.pem", &certificates.front_authority),
        ("front.pem", &certificates.front),
        ("front.key", &certificates.front_key),
        ("tokens.csv", &token_file(users)),
    ] {
        machine.write(name, text)?;
    }
    let api = machine.spawn(
        &programs.join("kube-apiserver"),
        words(&format!(
            "--advertise-address={CONTROL} --secure-port={port} --bind-address=0.0.0.0 \
             --etcd-servers=http://127.0.0.1:2379 \
             --token-auth-file={HOME}/tokens.csv --authorization-mode=Node,RBAC \
             --client-ca-file={HOME}/authority.pem \
             --tls-cert-file={HOME}/server.pem --tls-private-key-file={HOME}/server.key \
             --service-account-issuer=https://kubernetes.default.svc.cluster.local \
             --service-account-key-file={HOME}/accounts.pub \
             --service-account-signing-key-file={HOME}/accounts.key \
             --service-cluster-ip-range={SERVICES} --allow-privileged=true \
             --kubelet-preferred-address-types=InternalIP \
             --proxy-client-cert-file={HOME}/front.pem --proxy-client-key-file={HOME}/front.key \
             --requestheader-client-ca-file={HOME}/front-authority.pem \
             --requestheader-allowed-names={FRONT} \
             --requestheader-username-headers=X-Remote-User \
             --requestheader-group-headers=X-Remote-Group \
             --requestheader-extra-headers-prefix=X-Remote-Extra- \
             --enable-aggregator-routing=true --profiling=false \
             --max-requests-inflight=1200 --max-mutating-requests-inflight=600"
        )),
    )?;
    Ok(vec![etcd, api])
}

/// Waits until the API server reports that it is ready.
pub(crate) fn wait_for_api(
    kubectl: &Kubectl,
    processes: &mut [Process],
    log: &str,
) -> Result<(), ClusterError> {
    until(API_START, "the API server is ready", log, || {
        for process in processes.iter_mut() {
            process.check()?;
        }
        Ok(kubectl.run(&["get", "--raw", "/readyz"]).ok())
    })
    .map(drop)
}

/// Starts the controllers and the scheduler.
pub(crate) fn start_controllers(
    machine: &Machine,
    programs: &Path,
    server: &Server,
    (controllers, scheduler): (&User, &User),
    simulated: bool,
) -> Result<Vec<Process>, ClusterError> {
    // Pods of a node that is silent for longer are not ready, and kwok does not make them ready
    // again.
    let (silence, more) = match simulated {
        true => (SIMULATED_SILENCE, SIMULATED),
        false => (SILENCE, ""),
    };
    let kubeconfig = server.admit(machine, controllers)?;
    let manager = machine.spawn(
        &programs.join("kube-controller-manager"),
        words(&format!(
            "--kubeconfig={kubeconfig} --leader-elect=false --bind-address=127.0.0.1 \
             --use-service-account-credentials=true --profiling=false \
             --service-account-private-key-file={HOME}/accounts.key \
             --root-ca-file={HOME}/authority.pem \
             --cluster-signing-cert-file={HOME}/authority.pem \
             --cluster-signing-key-file={HOME}/authority.key \
             --node-monitor-period=2s --node-monitor-grace-period={}s \
             --horizontal-pod-autoscaler-sync-period=2s \
             --concurrent-replicaset-syncs=20 --concurrent-deployment-syncs=10 \
             --kube-api-qps={REQUESTS} --kube-api-burst={REQUESTS} {more}",
            silence.as_secs(),
        )),
    )?;
    let kubeconfig = server.admit(machine, scheduler)?;
    let config = machine.write(
        "scheduler.yaml",
        &format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\n\
             kind: KubeSchedulerConfiguration\n\
             clientConnection: {{kubeconfig: {kubeconfig}, qps: {REQUESTS}, burst: {REQUESTS}}}\n\
             leaderElection: {{leaderElect: false}}\n"
        ),
    )?;
    let scheduler = machine.spawn(
        &programs.join("kube-scheduler"),
        words(&format!("--config={config} --bind-address=127.0.0.1")),
    )?;
    Ok(vec![manager, scheduler])
}

/// Starts kwok, for the nodes and pods that exist only in the API.
pub(crate) fn start_kwok(
    machine: &Machine,
    programs: &Path,
    server: &Server,
    admin: &User,
) -> Result<Process, ClusterError> {
    let kubeconfig = server.admit(machine, admin)?;
    let stages = machine.write(
        "stages.yaml",
        include_str!("../../cluster/manifests/stages.yaml"),
    )?;
    machine.spawn(
        &programs.join("kwok"),
        words(&format!(
            "--kubeconfig={kubeconfig} --config={stages} --cidr={} --node-ip={CONTROL} \
             --manage-nodes-with-annotation-selector={}=fake \
             --node-lease-duration-seconds=40 --v=WARN",
            crate::cluster::addresses::SIMULATED_PODS,
            crate::cluster::scale::ANNOTATION,
        )),
    )
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
