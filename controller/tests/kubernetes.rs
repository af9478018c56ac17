//! Two replicas on a real API server: definitions, statuses, leadership, and behaviour when the
//! writer is killed.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports
//! when it skips.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::support;

const LIMIT: Duration = Duration::from_secs(60);

/// Routes without their real schema: the test covers that they are read and reported.
const HTTP_ROUTES: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: httproutes.gateway.networking.k8s.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes-sigs/gateway-api}
spec:
  group: gateway.networking.k8s.io
  names: {kind: HTTPRoute, plural: httproutes}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const RESOURCES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80, name: http}]}
---
apiVersion: maglor.dev/v1alpha1
kind: MeshConfig
metadata: {name: default}
spec: {mtls: strict}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: good, namespace: shop}
spec:
  targetRefs: [{name: web}]
  cluster: {policy: bounce(tries=3), limits: {max_requests: 10}}
  route: {timeout: 2s, retry: {attempts: 3, retry_on: ['5xx']}}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: wrong, namespace: shop}
spec: {cluster: {policy: nonsense}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: split, namespace: shop}
spec:
  parentRefs: [{group: '', kind: Service, name: web, port: 80}]
  rules: [{backendRefs: [{name: web, port: 80}, {name: gone, port: 80}]}]
";

/// Objects that the API server itself rejects, with their messages.
const REFUSED: [(&str, &str); 3] = [
    (
        "{apiVersion: maglor.dev/v1alpha1, kind: MeshConfig, metadata: {name: other}, spec: {}}",
        "is named `default`",
    ),
    (
        "{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {name: e, namespace: shop}, spec: {}}",
        "set at least one of `cluster`, `route` and `localFirst`",
    ),
    (
        "{apiVersion: maglor.dev/v1alpha1, kind: TrafficPolicy, metadata: {name: e, namespace: shop},
          spec: {route: {timeout: 5 s}}}",
        "spec.route.timeout",
    ),
];

/// A controller, ended when it is dropped.
struct Replica {
    name: &'static str,
    child: Child,
    admin: SocketAddr,
}

impl Replica {
    fn start(name: &'static str, kubectl: &Kubectl, folder: &Path) -> Self {
        let ready = folder.join(format!("{name}.json"));
        let child = Command::new(env!("CARGO_BIN_EXE_maglor-controller"))
            .env("KUBECONFIG", kubectl.kubeconfig())
            .args([
                "--plain-text",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--replica",
                name,
            ])
            .arg("--ready-file")
            .arg(&ready)
            .spawn()
            .unwrap();
        until("the replica serves", || ready.exists());
        let text = std::fs::read_to_string(&ready).unwrap();
        let addresses: Value = serde_json::from_str(&text).unwrap();
        let admin = addresses["admin"].as_str().unwrap().parse().unwrap();
        Self { name, child, admin }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn writes(&self) -> bool {
        self.get("/metrics")
            .contains("\nmaglor_controller_leader 1\n")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{what} after {:?}", started.elapsed());
}

/// `STATUS REASON GENERATION` of the first condition of a resource.
fn accepted(kubectl: &Kubectl, kind: &str, name: &str) -> String {
    let resource = kubectl.json(&["get", kind, name, "-n", "shop"]);
    let resource = resource.unwrap_or_default();
    let status = &resource["status"];
    let conditions = match status["parents"].as_array() {
        Some(parents) => &parents[0]["conditions"],
        None => &status["conditions"],
    };
    let condition = &conditions[0];
    let text = |field: &str| condition[field].as_str().unwrap_or("-").to_owned();
    let generation = &condition["observedGeneration"];
    format!("{} {} {generation}", text("status"), text("reason"))
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn one_of_two_replicas_writes_what_both_know() {
    let Some(cluster) = support::on_cluster::cluster("controller") else {
        return;
    };
    let kubectl = cluster.kubectl();
    let folder = tempfile::tempdir().unwrap();
    kubectl.run(&["create", "namespace", "maglor"]).unwrap();
    let first = Replica::start("first", kubectl, folder.path());
    until("the first replica writes", || first.writes());
    let second = Replica::start("second", kubectl, folder.path());
    // A kind that comes later is found.
    kubectl.apply(HTTP_ROUTES).unwrap();
    until("resources are taken", || kubectl.apply(RESOURCES).is_ok());
    for (text, expected) in REFUSED {
        let error = kubectl.apply(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let reported = |kind: &str, name: &str, expected: &str| {
        until(&format!("{kind} {name} has `{expected}`"), || {
            accepted(kubectl, kind, name) == expected
        });
    };
    reported("trafficpolicy", "good", "True Accepted 1");
    reported("trafficpolicy", "wrong", "False Invalid 1");
    reported("meshconfig", "default", "True Accepted 1");
    reported("httproute", "split", "True Accepted 1");
    assert!(first.writes() && !second.writes(), "one of them writes");

    // The leader is killed: the other replica takes over, and no change is lost.
    println!("killing {}", first.name);
    drop(first);
    let longer = RESOURCES.replace("timeout: 2s", "timeout: 0ms");
    kubectl
        .apply(&longer.replace("nonsense", "random"))
        .unwrap();
    until("the second replica writes", || second.writes());
    reported("trafficpolicy", "good", "True Accepted 2");
    reported("trafficpolicy", "wrong", "True Accepted 2");

    until("the writer shows the communication graph", || {
        let graph = kubectl.json(&["get", "communicationgraph", "default"]);
        graph.is_ok_and(|graph| graph["status"]["windowSeconds"] == 60)
    });

    // A graceful shutdown releases the lease immediately.
    let pid = i32::try_from(second.child.id()).unwrap();
    Command::new("kill").arg(pid.to_string()).status().unwrap();
    until("the lease has no holder", || {
        let lease = kubectl.json(&["get", "lease", "maglor-controller", "-n", "maglor"]);
        lease.unwrap()["spec"]["holderIdentity"] == ""
    });
    drop(second);
    cluster.stop().unwrap();
}
