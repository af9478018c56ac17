//! Failures during which requests continue.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use maglor_testkit::cluster::Kubectl;

use super::{RATE, rolled_out};
use crate::support::installed::{Installed, until};
use crate::support::load::Load;

/// The duration of an outage: long enough for every watch to end and every client to detect it.
const AWAY: Duration = Duration::from_secs(5);

/// A partitioned node does not respond, so that a request to it must be abandoned and retried elsewhere.
/// All that are on their way there are abandoned at the same time, and as many may be repeated.
const RETRIES: &str = "
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: retries, namespace: shop}
spec:
  cluster: {connect_timeout: 500ms, retry_budget: {min_concurrency: 100}}
  route: {retry: {attempts: 3, retry_on: [connect-failure, reset, gateway-error], per_try_timeout: 1s}}
";

/// The replica of the controller that writes, all of them during a rollout, the API server, etcd, a node.
pub(crate) fn requests_go_on(installed: &mut Installed, users: Ipv4Addr) {
    under_load(installed, users, "the writer is killed", |installed| {
        let kubectl = installed.kubectl();
        let writer = holder(kubectl);
        kill(kubectl, &["pod", &writer]);
        until("another replica is the leader", || {
            let now = holder(kubectl);
            !now.is_empty() && now != writer
        });
    });
    let what = "all controllers are killed during a rollout";
    under_load(installed, users, what, |installed| {
        let kubectl = installed.kubectl();
        let restart = ["rollout", "restart", "deployment/details", "-n", "shop"];
        kubectl.run(&restart).unwrap();
        let controllers = "app.kubernetes.io/name=maglor-controller";
        kill(kubectl, &["pods", "-l", controllers]);
        rolled_out(kubectl, "details");
    });
    // Right after a rollout: pods are gone that EndpointSlices still list, and cannot be corrected.
    for program in ["kube-apiserver", "etcd"] {
        let what = format!("{program} is killed");
        under_load(installed, users, &what, |installed| {
            let cluster = &mut installed.cluster;
            cluster.kill("control", program).unwrap();
            std::thread::sleep(AWAY);
            cluster.restart("control", program).unwrap();
            until("the API server serves again", || {
                let ready = ["get", "--raw", "/readyz", "--request-timeout=2s"];
                installed.kubectl().run(&ready).is_ok()
            });
        });
    }
    installed.kubectl().apply(RETRIES).unwrap();
    under_load(installed, users, "a node is cut off", |installed| {
        let stays = node(installed.kubectl());
        let mut others = ["node-1", "node-2"].into_iter();
        let cut = others.find(|one| *one != stays).unwrap();
        installed.cluster.cut(cut).unwrap();
        std::thread::sleep(AWAY);
        installed.cluster.mend(cut).unwrap();
    });
    let kubectl = installed.kubectl();
    kubectl
        .run(&["delete", "trafficpolicy", "retries", "-n", "shop"])
        .unwrap();
}

fn under_load(
    installed: &mut Installed,
    users: Ipv4Addr,
    what: &str,
    happens: impl FnOnce(&mut Installed),
) {
    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);
    load.go_on(100);
    happens(installed);
    // Its effects may be delayed.
    load.go_on(u64::from(RATE));
    let (sent, failed) = load.stop();
    println!("{what}: {sent} requests, {} failed", failed.len());
    if !failed.is_empty() {
        println!("{}", logs(installed.kubectl()));
    }
    assert!(failed.is_empty(), "{what}: {failed:?}");
}

/// The last log lines of the client's sidecar and the controllers.
fn logs(kubectl: &Kubectl) -> String {
    let of = |namespace, selector, container| {
        let logs = [
            "logs",
            "-n",
            namespace,
            "-l",
            selector,
            "-c",
            container,
            "--tail=30",
        ];
        kubectl.run(&logs).unwrap_or_else(|error| error.to_string())
    };
    let controllers = "app.kubernetes.io/name=maglor-controller";
    [
        of("shop", "app=users", "maglor-proxy"),
        of("maglor", controllers, "controller"),
    ]
    .join("\n")
}

/// The replica that holds the Lease.
fn holder(kubectl: &Kubectl) -> String {
    let path = "jsonpath={.spec.holderIdentity}";
    let lease = ["get", "lease", "maglor-controller", "-n", "maglor"];
    kubectl.run(&[&lease[..], &["-o", path]].concat()).unwrap()
}

/// Without notifying it.
fn kill(kubectl: &Kubectl, which: &[&str]) {
    let at_once = ["-n", "maglor", "--grace-period=0", "--force"];
    kubectl
        .run(&[&["delete"], which, &at_once].concat())
        .unwrap();
}

/// The node of the client of details.
fn node(kubectl: &Kubectl) -> String {
    let path = "jsonpath={.items[0].spec.nodeName}";
    kubectl
        .run(&["get", "pods", "-n", "shop", "-l", "app=users", "-o", path])
        .unwrap()
}
