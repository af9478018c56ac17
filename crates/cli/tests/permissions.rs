//! A controller with exactly the permissions that the chart grants, on a real API server: with everything off, and
//! with each feature.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root and a built
//! `maglor-controller`, and reports when it skips.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, Kubectl, Options};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "--as=system:serviceaccount:maglor:maglor-controller";

const SHOP: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, name: http}]}
---
apiVersion: maglor.dev/v1alpha1
kind: ProxyService
metadata: {name: web, namespace: shop}
spec: {targetRef: {name: web}}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: other}
spec: {selector: {app: web}, ports: [{port: 80, name: http}]}
---
apiVersion: maglor.dev/v1alpha1
kind: ProxyService
metadata: {name: web, namespace: other}
spec: {targetRef: {name: web}}
---
apiVersion: maglor.dev/v1alpha1
kind: TuningPolicy
metadata: {name: shop, namespace: shop}
spec: {mode: Recommend}
---
apiVersion: maglor.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: shop}
spec: {namespaces: [shop], mode: Recommend}
";

/// The controller that was built together with this test.
fn controller() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let binary = own
        .parent()
        .and_then(Path::parent)?
        .join("maglor-controller");
    if !binary.exists() {
        println!(
            "skipped: there is no maglor-controller; cargo build -p maglor-controller makes it"
        );
        return None;
    }
    Some(binary)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{what} after {:?}", started.elapsed());
}

/// Applies the account and permissions of the chart, and no workloads.
fn grant(kubectl: &Kubectl, sets: &[&str]) {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let output = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .arg("install")
        .args(sets)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let kinds = [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ];
    for document in maglor_manifests::inject::yaml::documents(&text).unwrap() {
        let value = document.value;
        if value["kind"]
            .as_str()
            .is_some_and(|kind| kinds.contains(&kind))
        {
            kubectl.apply(&value.to_string()).unwrap();
        }
    }
}

/// A controller that shows the token of its account.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(binary: &Path, kubectl: &Kubectl, folder: &Path, arguments: &[&str]) -> Self {
        let token = ["create", "token", "-n", "maglor", "maglor-controller"];
        let token = kubectl.run(&token).unwrap();
        let view = ["config", "view", "--raw", "--minify"];
        let mut config = kubectl.json(&view).unwrap();
        config["users"][0]["user"] = json!({"token": token.trim()});
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let log = folder.join("log");
        let ready = folder.join("ready");
        let _ = std::fs::remove_file(&ready);
        let child = Command::new(binary)
            .args([
                "--listen=127.0.0.1:0",
                "--admin=127.0.0.1:0",
                "--webhook=127.0.0.1:0",
            ])
            .args([
                "--namespace=maglor",
                "--replica=one",
                "--log-level=info,maglor_controller=debug",
            ])
            .arg(format!("--ready-file={}", ready.display()))
            .args(arguments)
            .env("KUBECONFIG", &kubeconfig)
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let started = Self { child, log };
        until("the controller serves", || ready.exists());
        until("it writes", || {
            let lease = kubectl.json(&["get", "lease", "maglor-controller", "-n", "maglor"]);
            lease.is_ok_and(|lease| lease["spec"]["holderIdentity"] == "one")
        });
        started
    }

    /// The rejected requests.
    fn refusals(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let refused = log.lines().filter(|line| line.contains("orbidden"));
        refused.map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ready_reason(kubectl: &Kubectl, namespace: &str) -> Option<String> {
    let seen = kubectl.json(&["get", "proxyservice", "web", "-n", namespace]);
    let conditions = seen.ok()?["status"]["conditions"].clone();
    let conditions: Vec<Value> = serde_json::from_value(conditions).ok()?;
    let ready = conditions.into_iter().find(|one| one["type"] == "Ready")?;
    ready["reason"].as_str().map(str::to_owned)
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn each_feature_works_with_exactly_its_role() {
    let Some(binary) = controller() else { return };
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return;
    }
    let cluster = Cluster::start(Options {
        name: "rights".into(),
        nodes: 1,
        ..Options::default()
    });
    let cluster = cluster.unwrap();
    let kubectl = cluster.kubectl();
    let folder = std::env::temp_dir().join(format!("maglor-permissions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();

    grant(kubectl, &[]);
    kubectl
        .run(&["wait", "--for=condition=Established", "crd", "--all"])
        .unwrap();
    let process = Process::start(&binary, kubectl, &folder, &["--proxy-services=false"]);
    kubectl.apply(SHOP).unwrap();
    until("the ProxyService says that they are off", || {
        ready_reason(kubectl, "shop").as_deref() == Some("SwitchedOff")
    });
    until("the new namespace has the roots", || {
        let roots = ["get", "configmap", "maglor-trust-bundle", "-n", "shop"];
        kubectl.run(&roots).is_ok()
    });
    until("the webhook has its certificate", || {
        kubectl
            .run(&["get", "secret", "maglor-webhook", "-n", "maglor"])
            .is_ok()
    });
    assert_eq!(process.refusals(), [""; 0]);
    drop(process);
    a_stolen_token_gets_nothing(kubectl);
    keep(kubectl);

    features_in_one_namespace(&binary, kubectl, &folder);

    grant(
        kubectl,
        &[
            "proxyServices.enabled=true",
            "gateway.enabled=true,gateway.allCertificates=true",
            "placement.enabled=true",
            "tuning.enabled=true",
        ],
    );
    let all = [
        "--gateways",
        "--gateway-all-certificates",
        "--placement",
        "--tuning",
    ];
    let process = Process::start(&binary, kubectl, &folder, &all);
    until("the proxies are made", || {
        ready_reason(kubectl, "other").as_deref() == Some("Starting")
    });
    for namespace in ["shop", "other"] {
        let gone = ["delete", "proxyservice", "web", "--timeout=60s", "-n"];
        kubectl.run(&[&gone[..], &[namespace]].concat()).unwrap();
    }
    assert_eq!(process.refusals(), [""; 0]);
    drop(process);
    cluster.stop().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The permissions of the account in a namespace as reported by the API server, in the folder `MAGLOR_RIGHTS`, if
/// there is one.
fn keep(kubectl: &Kubectl) {
    for namespace in ["maglor", "shop"] {
        let list = ["auth", "can-i", "--list", ACCOUNT, "-n", namespace];
        let list = kubectl.run(&list).unwrap();
        println!("{namespace}:\n{list}");
        if let Some(folder) = std::env::var_os("MAGLOR_RIGHTS") {
            let file = Path::new(&folder).join(format!("can-i-{namespace}.txt"));
            std::fs::write(file, list).unwrap();
        }
    }
}

/// Features that are on for the namespace `shop`: they work there, and nothing is attempted, or permitted, elsewhere.
fn features_in_one_namespace(binary: &Path, kubectl: &Kubectl, folder: &Path) {
    grant(
        kubectl,
        &[
            "proxyServices.enabled=true,proxyServices.namespaces={shop}",
            "gateway.enabled=true,gateway.namespaces={shop}",
            "gateway.certificates[0].namespace=shop,gateway.certificates[0].name=tls",
            "placement.enabled=true,placement.namespaces={shop}",
            "tuning.enabled=true,tuning.namespaces={shop}",
        ],
    );
    let arguments = [
        "--proxy-services-in=shop",
        "--gateways",
        "--gateways-in=shop",
        "--gateway-certificates=shop/tls",
        "--placement",
        "--placement-in=shop",
        "--tuning",
        "--tuning-in=shop",
    ];
    let process = Process::start(binary, kubectl, folder, &arguments);
    until("the proxies of the one namespace are made", || {
        ready_reason(kubectl, "shop").as_deref() == Some("Starting")
    });
    until("the other ProxyService says that they are off", || {
        ready_reason(kubectl, "other").as_deref() == Some("SwitchedOff")
    });
    assert_eq!(process.refusals(), [""; 0]);
    for (verb, what) in WRITES {
        assert!(!may(kubectl, verb, what, "other"), "{verb} {what}");
        assert!(!may(kubectl, verb, what, "kube-system"), "{verb} {what}");
    }
    assert!(may(kubectl, "create", "deployments.apps", "shop"));
    assert!(!may(kubectl, "create", "pods", "shop"));
    assert!(may(kubectl, "get", "secrets/tls", "shop"));
    assert!(!may(kubectl, "get", "secrets/other", "shop"));
}

/// Attacks with a stolen token: reading objects of others, and running code.
const WRITES: [(&str, &str); 11] = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("create", "deployments.apps"),
    ("patch", "deployments.apps"),
    ("patch", "services"),
    ("create", "pods"),
    ("patch", "pods"),
    ("create", "pods/eviction"),
    ("patch", "configmaps"),
    ("delete", "configmaps"),
    ("create", "serviceaccounts"),
];

fn may(kubectl: &Kubectl, verb: &str, what: &str, namespace: &str) -> bool {
    // It fails where the answer is no.
    let asked = kubectl.run(&["auth", "can-i", verb, what, "-n", namespace, ACCOUNT]);
    asked.is_ok_and(|answer| answer.trim() == "yes")
}

/// With everything off that is off by default.
fn a_stolen_token_gets_nothing(kubectl: &Kubectl) {
    for (verb, what) in WRITES {
        assert!(!may(kubectl, verb, what, "shop"), "{verb} {what}");
    }
    let own = may(kubectl, "get", "secrets", "maglor");
    assert!(!own, "any Secret of its own namespace");
    assert!(may(kubectl, "get", "secrets/maglor-ca", "maglor"));
    assert!(may(
        kubectl,
        "patch",
        "configmaps/maglor-trust-bundle",
        "shop"
    ));
}
