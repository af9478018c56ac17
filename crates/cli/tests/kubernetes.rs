//! Commands against a real Kubernetes: the output of `check` with and without a mesh, and admin ports
//! through the API server.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it
//! skips.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, Image, Kubectl, Options, static_program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

/// The controller has all permissions here: the tests of the chart cover the required ones.
const CONTROLLER: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: maglor-controller, namespace: maglor}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: maglor-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: maglor-controller, namespace: maglor}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: maglor-controller, namespace: maglor}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: maglor-controller}}
  template:
    metadata: {labels: {app.kubernetes.io/name: maglor-controller, app.kubernetes.io/part-of: maglor}}
    spec:
      serviceAccountName: maglor-controller
      containers:
      - name: controller
        image: maglor-controller:cli
        imagePullPolicy: Never
        args: [--listen=0.0.0.0:15010, --admin=0.0.0.0:15011, --namespace=maglor, --plain-text]
        readinessProbe: {httpGet: {path: /ready, port: 15011}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: maglor-controller, namespace: maglor}
spec:
  selector: {app.kubernetes.io/name: maglor-controller}
  ports: [{name: grpc-xds, port: 15010}]
";

/// A proxy that responds itself, and forwards all other requests to the controller.
const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data:
  maglor.yaml: |
    admin: {address: '0.0.0.0:15020'}
    control_plane: {cluster: control, node: {id: shop/web, cluster: test}}
    listeners:
    - name: in
      address: 0.0.0.0:8080
      traffic_direction: inbound
      http: {virtual_hosts: [{domains: ['*'], routes: [{direct_response: {status: 200, body: web}}]}]}
    - name: out
      address: 127.0.0.1:15001
      traffic_direction: outbound
      http: {discovery: {namespace: shop, host: 'web.shop:80', timeout: 5s}, virtual_hosts: []}
    clusters:
    - {name: control, endpoints: ['maglor-controller.maglor.svc.cluster.local:15010']}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: maglor-proxy
        image: maglor-proxy:cli
        imagePullPolicy: Never
        args: [--config=/etc/maglor/maglor.yaml]
        readinessProbe: {httpGet: {path: /ready, port: 15020}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /probed, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /etc/maglor}]
      volumes: [{name: config, configMap: {name: web}}]
";

/// A pod of a namespace whose pods should have proxies.
const BARE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: bare, labels: {maglor.dev/inject: enabled}}
---
apiVersion: v1
kind: Pod
metadata: {name: lonely, namespace: bare}
spec:
  containers: [{name: app, image: 'maglor-proxy:cli', imagePullPolicy: Never, args: [--listen, '127.0.0.1:1234', --upstream, '127.0.0.1:1235']}]
";

/// The command line, with a kubeconfig.
struct Maglor(String);

impl Maglor {
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_maglor"));
        command.args(arguments).args(["--kubeconfig", &self.0]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("$ maglor {}\n{text}{errors}", arguments.join(" "));
        output
    }

    /// The text of a check, and whether nothing is wrong.
    fn check(&self, arguments: &[&str]) -> (String, bool) {
        let output = self.run(&[&["check"], arguments].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        (text, output.status.success())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("{what} after {:?}", started.elapsed());
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn a_mesh_is_checked_and_asked_through_the_api_server() {
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return;
    }
    let images = ["maglor-proxy", "maglor-controller"].map(|program| {
        let binary = static_program(program, "dev").unwrap();
        Image::of_program(&format!("{program}:cli"), &binary)
    });
    let cluster = Cluster::start(Options {
        name: "cli".into(),
        nodes: 1,
        ..Options::default()
    })
    .unwrap();
    for image in &images {
        cluster.load(image).unwrap();
    }
    let kubectl = cluster.kubectl();
    let maglor = Maglor(cluster.kubeconfig().display().to_string());

    says_what_is_missing(&maglor);
    install(kubectl);
    finds_what_is_wrong(&maglor);
    finds_replicas_without_labels(&maglor, kubectl);
    asks_pods(&maglor);
    cluster.stop().unwrap();
}

fn says_what_is_missing(maglor: &Maglor) {
    let (text, good) = maglor.check(&["--pre"]);
    has(
        &text,
        &[
            "✓ API server v1.",
            "✓ the local clock",
            "✓ you have the required permissions",
            "! the Gateway API",
        ],
    );
    assert!(good);
    let (text, good) = maglor.check(&[]);
    has(
        &text,
        &[
            "✗ trafficpolicies.maglor.dev is not installed",
            "✗ Deployment",
        ],
    );
    has(
        &text,
        &[
            "maglor install | kubectl apply",
            "/docs/controller.md#running-it",
        ],
    );
    assert!(!good);
}

fn install(kubectl: &Kubectl) {
    for (_, definition) in maglor_controller::crd::yaml().unwrap() {
        kubectl.apply(&definition).unwrap();
    }
    for namespace in ["maglor", "shop"] {
        kubectl.run(&["create", "namespace", namespace]).unwrap();
    }
    kubectl.apply(CONTROLLER).unwrap();
    kubectl.apply(WEB).unwrap();
    kubectl.apply(BARE).unwrap();
    kubectl
        .apply("{apiVersion: maglor.dev/v1alpha1, kind: MeshConfig, metadata: {name: default}, spec: {mtls: strict}}")
        .unwrap();
}

fn finds_what_is_wrong(maglor: &Maglor) {
    until("the proxy is connected", || {
        let (text, _) = maglor.check(&[]);
        text.contains("1 proxies respond and are connected") && text.contains("serves 1 proxies")
    });
    until("the lonely pod is seen", || {
        let (text, _) = maglor.check(&[]);
        text.contains("no proxy although injection is enabled: bare/lonely")
    });
    let (text, _) = maglor.check(&[]);
    has(
        &text,
        &[
            "✓ trafficpolicies.maglor.dev is up to date",
            "✓ 1 of 1 replicas are ready",
            "✓ one replica is the leader",
            "! mTLS is strict: these pods cannot call the mesh: bare/lonely",
        ],
    );
}

fn finds_replicas_without_labels(maglor: &Maglor, kubectl: &Kubectl) {
    let label = |change: &str| {
        let pods = "app.kubernetes.io/name=maglor-controller";
        kubectl
            .run(&["label", "pods", "-n", "maglor", "-l", pods, change])
            .unwrap();
    };
    label("app.kubernetes.io/part-of-");
    let (text, good) = maglor.check(&[]);
    has(
        &text,
        &[
            "✗ no pod of Deployment maglor-controller has the labels of a controller replica",
            "`app.kubernetes.io/part-of=maglor`",
        ],
    );
    assert!(!good);
    label("app.kubernetes.io/part-of=maglor");
}

fn asks_pods(maglor: &Maglor) {
    // A proxy is connected before the kubelet has seen that its pod is ready, and only then is it an endpoint.
    until("the pod is an endpoint", || {
        maglor.json(&["endpoints", "web.shop"]) != Value::Array(Vec::new())
    });
    let found = maglor.json(&["endpoints", "web.shop"]);
    assert_eq!(found[0]["service"], "web.shop.svc.cluster.local:80");
    assert_eq!(
        found[0]["locality"]
            .as_str()
            .map(|text| text.contains("node-1")),
        Some(true)
    );
    let routes = maglor.json(&["routes", "--of", "deploy/web", "-n", "shop"]);
    assert_eq!(routes[0]["to"][0]["what"], "answer 200");
    let stat = maglor.json(&["stat", "-A", "--window", "3s"]);
    assert_eq!(
        (&stat[0]["namespace"], &stat[0]["workload"]),
        (&"shop".into(), &"web".into())
    );
    assert!(
        stat[0]["requests"].as_f64().unwrap() >= 1.0,
        "the kubelet asks every second"
    );
    let tapped = maglor.run(&[
        "tap", "web", "-n", "shop", "--path", "/probed", "--max", "2",
    ]);
    assert!(tapped.status.success());
    assert_eq!(String::from_utf8(tapped.stdout).unwrap().lines().count(), 2);
    assert!(maglor.run(&["receipts"]).status.success());
    let none = maglor.run(&["stat", "-n", "bare"]);
    assert_eq!(none.status.code(), Some(1));
    has(
        &String::from_utf8_lossy(&none.stderr),
        &["no pod with a proxy is running in namespace `bare`", "hint"],
    );
}
