//! The chart's life under load, with Helm: an older version is installed, upgraded, rolled back, upgraded again and
//! uninstalled, and no request fails; afterwards none of its objects is left.
//!
//! The older version is made of this one: another version of the chart, other tags of the images, and definitions
//! without a version and without a field. `MAGLOR_OLDER_PROGRAMS=DIR` has actual older programs for it.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes and Helm. It needs root, and reports when
//! it skips.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use maglor_testkit::cluster::{Image, Kubectl, static_program};
use serde_json::Value;

use crate::support::installed::{Installed, until};
use crate::support::load::{self, Load};
use crate::support::shop::rolled_out;

const SERVICE: &str = include_str!("mesh/service.yaml");
const BOOKINFO: &str = include_str!("mesh/bookinfo.yaml");

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {maglor.dev/inject: enabled}}
";

/// A pod without a controller that would restart it, so that it keeps its sidecar. Requests of the load enter the
/// mesh here, without a certificate.
const USERS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: users, namespace: shop, labels: {app: users}, annotations: {maglor.dev/skip-inbound-ports: '9080'}}
spec:
  containers:
  - name: app
    image: maglor-app:e2e
    imagePullPolicy: Never
    args: [--workmodel=/etc/shop/workmodel.json, --deployment=/etc/shop/users.json]
    ports: [{name: http, containerPort: 9080}]
    readinessProbe: {httpGet: {path: /api/v1, port: http}, periodSeconds: 1}
    volumeMounts: [{name: shop, mountPath: /etc/shop}]
  volumes: [{name: shop, configMap: {name: bookinfo}}]
";

const SERVICES: [(&str, &str); 4] = [
    ("productpage", "10.96.0.100"),
    ("details", "10.96.0.101"),
    ("reviews", "10.96.0.102"),
    ("ratings", "10.96.0.103"),
];

const STRICT: &str = "{apiVersion: maglor.dev/v1alpha1, kind: MeshConfig, metadata: {name: default}, spec: {mtls: strict}}";

/// Requests a second.
const RATE: u32 = 100;
/// The label of namespaces that a revision serves.
const REVISION: &str = "maglor.dev/revision";
/// The label with the version of a definition.
const VERSION: &str = "maglor.dev/definitions-version";
/// A field of TrafficPolicies that the older definitions do not have.
const FIELD: &str = "route";

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

/// A copy of the chart as an older version would be.
fn older(kubectl: &Kubectl, folder: &Path) -> PathBuf {
    let (from, to) = (chart(), folder.join("older"));
    for part in ["templates", "crds"] {
        std::fs::create_dir_all(to.join(part)).unwrap();
        for file in std::fs::read_dir(from.join(part)).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap();
            std::fs::copy(&file, to.join(part).join(name)).unwrap();
        }
    }
    for name in ["values.yaml", "values.schema.json"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let about = std::fs::read_to_string(from.join("Chart.yaml")).unwrap();
    let about = about.replace(env!("CARGO_PKG_VERSION"), "0.0.9");
    std::fs::write(to.join("Chart.yaml"), about).unwrap();
    for file in std::fs::read_dir(to.join("crds")).unwrap() {
        let file = file.unwrap().path();
        let name = file.to_str().unwrap();
        let mut definition = kubectl
            .json(&["create", "--dry-run=client", "-f", name])
            .unwrap();
        let metadata = definition["metadata"].as_object_mut().unwrap();
        metadata.remove("annotations");
        if definition["spec"]["names"]["kind"] == "TrafficPolicy" {
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let spec = schema["properties"]["spec"].as_object_mut().unwrap();
            // Rules about the field went with it.
            assert!(spec.remove("x-kubernetes-validations").is_some());
            let fields = spec["properties"].as_object_mut();
            assert!(fields.unwrap().remove(FIELD).is_some());
        }
        std::fs::write(&file, definition.to_string()).unwrap();
    }
    to
}

/// Helm, of this cluster.
struct Helm<'a> {
    program: PathBuf,
    kubectl: &'a Kubectl,
}

impl Helm<'_> {
    fn run(&self, words: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args(words)
            .args(["--namespace", "maglor", "--timeout", "8m"])
            .env("KUBECONFIG", self.kubectl.kubeconfig())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            let jobs = [
                "logs",
                "-n",
                "maglor",
                "-l",
                "app.kubernetes.io/part-of=maglor",
                "--tail=30",
            ];
            let logs = self.kubectl.run(&jobs).unwrap_or_default();
            panic!("helm {}: {said}\n{logs}", words.join(" "));
        }
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Installs or upgrades a chart with the images of a tag.
    fn upgrade(&self, chart: &Path, tag: &str) {
        let values = format!(
            "image=maglor-controller:{tag},imagePullPolicy=Never,sidecar.image=maglor-proxy:{tag},\
             sidecar.imagePullPolicy=Never,uninstall.patience=3m,proxyServices.enabled=true"
        );
        let chart = chart.to_str().unwrap();
        let words = ["upgrade", "--install", "maglor", chart, "--set", &values];
        self.run(&[&words[..], &["--create-namespace", "--wait"]].concat());
    }

    /// Installs the revision `canary` with the images of a tag.
    fn install_revision(&self, tag: &str) {
        let values = format!(
            "revision=canary,image=maglor-controller:{tag},imagePullPolicy=Never,sidecar.image=maglor-proxy:{tag},\
             sidecar.imagePullPolicy=Never,replicas=1,minAvailable=0,uninstall.patience=3m"
        );
        let chart = chart();
        let chart = chart.to_str().unwrap();
        self.run(&[
            "install",
            "maglor-canary",
            chart,
            "--set",
            &values,
            "--wait",
        ]);
    }
}

fn older_images(installed: &Installed) {
    for program in ["maglor-proxy", "maglor-controller"] {
        let folder = std::env::var_os("MAGLOR_OLDER_PROGRAMS");
        let other = std::env::var_os("MAGLOR_PROGRAMS");
        let binary = match folder.or(other) {
            Some(folder) => PathBuf::from(folder).join(program),
            None => static_program(program, "dev").unwrap(),
        };
        let image = Image::of_linked_program(&format!("{program}:older"), &binary).unwrap();
        installed.cluster.load(&image).unwrap();
    }
}

fn deploy(kubectl: &Kubectl) -> Ipv4Addr {
    kubectl.apply(SHOP).unwrap();
    kubectl.apply(BOOKINFO).unwrap();
    for (name, address) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        kubectl.apply(&service.replace("REPLICAS", "2")).unwrap();
    }
    for (name, _) in SERVICES {
        rolled_out(kubectl, name);
    }
    kubectl.apply(USERS).unwrap();
    let ready = [
        "wait",
        "--for=condition=Ready",
        "pod/users",
        "-n",
        "shop",
        "--timeout=120s",
    ];
    kubectl.run(&ready).unwrap();
    let pod = kubectl
        .json(&["get", "pod", "users", "-n", "shop"])
        .unwrap();
    pod["status"]["podIP"].as_str().unwrap().parse().unwrap()
}

/// Images of the sidecars of all pods that do not end, by pod; none if there is none.
fn sidecars(kubectl: &Kubectl) -> Vec<(String, Option<String>)> {
    let pods = kubectl.json(&["get", "pods", "-n", "shop"]).unwrap();
    let pods = pods["items"].as_array().unwrap().iter();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let sidecar = |pod: &Value| {
        let lists =
            ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().cloned());
        let mut all = lists.into_iter().flatten().flatten();
        let proxy = all.find(|one| one["name"] == "maglor-proxy");
        let image = proxy.and_then(|one| one["image"].as_str().map(str::to_owned));
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), image)
    };
    pods.map(sidecar).collect()
}

/// The version of a definition, and whether it has the field.
fn definition(kubectl: &Kubectl) -> (Option<String>, bool) {
    let there = kubectl
        .json(&["get", "crd", "trafficpolicies.maglor.dev"])
        .unwrap();
    let version = there["metadata"]["annotations"][VERSION].as_str();
    let schema = &there["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let field = &schema["properties"]["spec"]["properties"][FIELD];
    (version.map(str::to_owned), field.is_object())
}

fn under_load(installed: &Installed, users: Ipv4Addr, what: &str, happens: impl FnOnce()) {
    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);
    load.go_on(u64::from(RATE));
    happens();
    load.go_on(2 * u64::from(RATE));
    let (sent, failed) = load.stop();
    println!("{what}: {sent} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{what}: {failed:?}");
}

fn restart(kubectl: &Kubectl) {
    for (name, _) in SERVICES {
        let deployment = format!("deployment/{name}");
        kubectl
            .run(&["rollout", "restart", &deployment, "-n", "shop"])
            .unwrap();
    }
    for (name, _) in SERVICES {
        rolled_out(kubectl, name);
    }
}

#[test]
#[ignore = "builds Kubernetes and Helm the first time, for a quarter of an hour: cargo xtask e2e"]
fn a_version_is_upgraded_rolled_back_and_uninstalled_under_load() {
    let Some(installed) = Installed::bare("lifecycle", 2, Duration::ZERO) else {
        return;
    };
    let kubectl = &installed.kubectl().clone();
    let program = maglor_testkit::cluster::helm(true).unwrap();
    let helm = Helm { program, kubectl };
    let folder = tempfile::tempdir().unwrap();
    let before = everything(kubectl);
    older_images(&installed);
    helm.upgrade(&older(kubectl, folder.path()), "older");
    assert_eq!(definition(kubectl), (None, false));
    let users = deploy(kubectl);
    kubectl.apply(STRICT).unwrap();
    let direct = move || load::get(SocketAddr::from((users, 9080)), "users");
    until("requests pass", || {
        installed.cluster.in_network(direct).unwrap() == Some(200)
    });

    let load = |what: &str, happens: &dyn Fn()| under_load(&installed, users, what, happens);
    load("upgrade of the chart", &|| helm.upgrade(&chart(), "e2e"));
    let version = env!("CARGO_PKG_VERSION").to_owned();
    assert_eq!(definition(kubectl), (Some(version.clone()), true));
    load("proxies of the new version", &|| restart(kubectl));
    let of = |tag: &str| {
        let image = format!("maglor-proxy:{tag}");
        let all = sidecars(kubectl).into_iter();
        all.filter(|(name, _)| name != "users")
            .all(|(_, one)| one.as_deref() == Some(&image))
    };
    assert!(of("e2e"), "{:?}", sidecars(kubectl));
    load("rollback of the chart", &|| {
        drop(helm.run(&["rollback", "maglor", "1", "--wait"]));
    });
    assert_eq!(
        definition(kubectl),
        (Some(version), true),
        "definitions are not rolled back"
    );
    load("proxies of the old version", &|| restart(kubectl));
    assert!(of("older"), "{:?}", sidecars(kubectl));
    load("upgrade again", &|| helm.upgrade(&chart(), "e2e"));
    load("proxies of the new version again", &|| restart(kubectl));

    load("installation of a revision", &|| {
        helm.install_revision("older");
    });
    assert!(of("e2e"), "a revision without namespaces");
    load("the revision serves the namespace", &|| {
        let label = format!("{REVISION}=canary");
        kubectl
            .run(&["label", "namespace", "shop", &label])
            .unwrap();
        restart(kubectl);
    });
    assert!(of("older"), "{:?}", sidecars(kubectl));
    connects_to_the_revision(kubectl);
    load("uninstallation of the revision", &|| {
        drop(helm.run(&["uninstall", "maglor-canary", "--wait"]));
    });
    assert!(of("e2e"), "{:?}", sidecars(kubectl));
    let named = kubectl.run(&["get", "namespaces", "-l", REVISION, "-o", "name"]);
    assert_eq!(named.unwrap(), "");

    load("uninstallation", &|| {
        drop(helm.run(&["uninstall", "maglor", "--wait"]));
    });
    for (name, sidecar) in sidecars(kubectl) {
        assert_eq!(sidecar.is_some(), name == "users", "{name}: {sidecar:?}");
    }
    load("without a controller", &|| {});
    nothing_is_left(kubectl, &before);
    installed.stop();
}

/// Waits until the replica of the revision serves the proxies that it has injected.
fn connects_to_the_revision(kubectl: &Kubectl) {
    let page = "/api/v1/namespaces/maglor/services/maglor-controller-canary:15011/proxy/metrics";
    until("proxies are connected to the revision", || {
        let metrics = kubectl.run(&["get", "--raw", page]).unwrap_or_default();
        let sessions = metrics
            .lines()
            .find_map(|line| line.strip_prefix("maglor_controller_sessions{protocol=\"delta\"} "));
        sessions.and_then(|count| count.trim().parse::<f64>().ok()) >= Some(8.0)
    });
}

/// Kinds that the chart, or the controller, makes outside of the application.
const KINDS: &str = "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
                     validatingwebhookconfigurations,apiservices,roles,rolebindings,serviceaccounts,services,deployments,\
                     secrets,configmaps,leases,poddisruptionbudgets,networkpolicies,jobs";

fn everything(kubectl: &Kubectl) -> Vec<String> {
    let words = [
        "get",
        KINDS,
        "-A",
        "-o",
        "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name",
        "--no-headers",
    ];
    let text = kubectl.run(&words).unwrap();
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect()
}

/// Objects that did not exist before, except the application, the Leases of nodes, the mesh's namespace,
/// which Helm keeps, and what Kubernetes makes in it.
fn nothing_is_left(kubectl: &Kubectl, before: &[String]) {
    let is_left = |line: &String| {
        let of_kubernetes = [
            "ServiceAccount maglor default",
            "ConfigMap maglor kube-root-ca.crt",
            // Of the definitions, which stay with all policies.
            "APIService <none> v1alpha1.maglor.dev",
        ];
        // Each node keeps a Lease of its own, which appears when its kubelet first renews it.
        let of_others = ["shop", "kube-node-lease"];
        !before.contains(line)
            && line
                .split(' ')
                .nth(1)
                .is_none_or(|namespace| !of_others.contains(&namespace))
            && !["Namespace <none> maglor", "Namespace <none> shop"].contains(&line.as_str())
            && !of_kubernetes.contains(&line.as_str())
    };
    until("nothing is left", || {
        let left: Vec<_> = everything(kubectl).into_iter().filter(is_left).collect();
        if !left.is_empty() {
            println!("left: {left:?}");
        }
        left.is_empty()
    });
    let roots = ["get", "configmap", "maglor-trust-bundle", "-n", "shop"];
    assert!(kubectl.run(&roots).is_err(), "the roots are gone");
}
