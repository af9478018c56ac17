//! A `ProxyService` on a real Kubernetes, under load: proxies come and go, endpoints come and go, the
//! operator is killed at any moment, the definition is deleted; no request fails, and the Service is in
//! the end as it was.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports
//! when it skips.

mod load;
mod streams;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use maglor_controller::index::facts::Key;
use maglor_controller::proxy_service::run::step;
use maglor_controller::proxy_service::{Settings, Step};
use maglor_testkit::cluster::{Cluster, Image, Kubectl, Options, static_program};
use serde_json::{Value, json};

use load::Load;
use streams::Streams;

const LIMIT: Duration = Duration::from_secs(90);
/// How often the operator is killed on the way in, and on the way out.
const KILLS: u32 = 2;
/// Of the way out there is one more, after which nothing is left.
const STEPS: usize = 5;
/// During insertion the next step waits for ready proxies, and so for a control plane, which is unavailable with the
/// operator.
const STEPS_ALONE: usize = 4;
/// The address of the controller for pods.
const CONTROLLER: &str = "10.231.0.1:15010";
const DEFINITION: &str = "proxyservices.maglor.dev";

const PROXY_SERVICE: &str = "
apiVersion: maglor.dev/v1alpha1
kind: ProxyService
metadata: {name: web, namespace: shop}
spec: {targetRef: {name: web}}
";

/// The load, in a process that sees the network of a node; see [`load`].
#[test]
#[ignore = "run by the test below"]
fn load() {
    load::run();
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn no_request_fails_when_proxies_come_and_go() {
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return;
    }
    let images = ["maglor-proxy", "maglor-app"].map(|program| {
        let binary = static_program(program, "dev").unwrap();
        Image::of_program(&format!("{program}:e2e"), &binary)
    });
    let program = maglor_testkit::cluster::streams().unwrap();
    let cluster = Cluster::start(Options {
        name: "insertion".into(),
        ..Options::default()
    })
    .unwrap();
    for image in &images {
        cluster.load(image).unwrap();
    }
    let served = Image::of_program("maglor-streams:e2e", &program);
    cluster.load(&served).unwrap();
    let kubectl = cluster.kubectl();
    for (_, definition) in maglor_controller::crd::yaml().unwrap() {
        kubectl.apply(&definition).unwrap();
    }
    kubectl.apply(include_str!("insertion/shop.yaml")).unwrap();
    let wait = [
        "rollout",
        "status",
        "deployment/web",
        "--namespace=shop",
        "--timeout=60s",
    ];
    kubectl.run(&wait).unwrap();
    let before = service(kubectl);
    let mut controller = Controller::start(&cluster);
    let address = before["spec"]["clusterIP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let load = Load::start(&cluster.nodes()[1], address);
    let streams = Streams::start(&program, &cluster.nodes()[1], address);
    let phase = |name: &str| {
        load.phase(name);
        streams.phase(name);
    };

    phase("directly");
    until("it is inserted", || {
        kubectl.apply(PROXY_SERVICE).is_ok() && ready(kubectl)
    });
    phase("inserted");
    requests_go_through_proxies(&cluster);
    endpoints_come_and_go(kubectl);
    phase("endpoints came and went");
    kubectl
        .run(&["delete", "proxyservice", "web", "--namespace=shop"])
        .unwrap();
    is_as_before(kubectl, &before);
    phase("withdrawn");
    // Each withdrawal would wait for them; the others continue.
    streams.finish();

    it_survives_crashes(kubectl, &mut controller, &before);
    phase("crashes");
    it_goes_on_after_any_step(kubectl, &mut controller, &before);
    phase("a crash after each step");

    kubectl.apply(PROXY_SERVICE).unwrap();
    until("it is inserted again", || ready(kubectl));
    kubectl
        .run(&["delete", "crd", DEFINITION, "--timeout=60s"])
        .unwrap();
    is_as_before(kubectl, &before);
    phase("without a definition");
    load.end();
    drop(controller);
    cluster.stop().unwrap();
}

fn it_survives_crashes(kubectl: &Kubectl, controller: &mut Controller<'_>, before: &Value) {
    for _ in 0..KILLS {
        kubectl.apply(PROXY_SERVICE).unwrap();
        controller.kill_within(Duration::from_millis(2500));
        until("it is inserted after a crash", || ready(kubectl));
        kubectl
            .run(&[
                "delete",
                "proxyservice",
                "web",
                "--namespace=shop",
                "--wait=false",
            ])
            .unwrap();
        controller.kill_within(Duration::from_millis(1500));
        until("it is gone after a crash", || claim(kubectl).is_none());
        is_as_before(kubectl, before);
    }
}

/// An operator stops after this many steps; the next one continues, for insertion and removal.
fn it_goes_on_after_any_step(kubectl: &Kubectl, controller: &mut Controller<'_>, before: &Value) {
    for most in 1..=STEPS {
        controller.end();
        kubectl.apply(PROXY_SERVICE).unwrap();
        let last = controller.take(most.min(STEPS_ALONE));
        controller.begin();
        until("it is inserted", || ready(kubectl));
        controller.end();
        let gone = [
            "delete",
            "proxyservice",
            "web",
            "--namespace=shop",
            "--wait=false",
        ];
        kubectl.run(&gone).unwrap();
        let left = controller.take(most);
        println!("an operator was gone after {last}, and after {left}");
        controller.begin();
        until("it is gone", || claim(kubectl).is_none());
        is_as_before(kubectl, before);
    }
}

fn reported(step: &Step) -> String {
    let named = |what: &str, resource: &Value| {
        let (kind, name) = (&resource["kind"], &resource["metadata"]["name"]);
        format!(
            "{what} {} {}",
            kind.as_str().unwrap(),
            name.as_str().unwrap()
        )
    };
    match step {
        Step::Apply(resource) => named("applying", resource),
        Step::Delete(resource) => named("deleting", resource),
        Step::Hold(_) => "holding the ProxyService".into(),
        Step::Release(_) => "releasing the ProxyService".into(),
        Step::Restore(_) => "restoring the Service".into(),
        Step::Switch(_) => "switching the Service".into(),
    }
}

/// The operator, which takes up where it was killed.
struct Controller<'a> {
    cluster: &'a Cluster,
    child: Child,
    random: u64,
}

impl<'a> Controller<'a> {
    fn start(cluster: &'a Cluster) -> Self {
        let random = std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let random = random.unwrap_or_else(|| u64::from(std::process::id()));
        println!("SEED={random}");
        Self {
            cluster,
            child: Self::spawn(cluster),
            random,
        }
    }

    fn spawn(cluster: &Cluster) -> Child {
        let mut command = cluster
            .network_command(env!("CARGO_BIN_EXE_maglor-controller"))
            .unwrap();
        command
            .env("KUBECONFIG", cluster.kubeconfig())
            .args([
                "--listen",
                CONTROLLER,
                "--replica",
                "only",
                "--namespace",
                "maglor",
                "--plain-text",
            ])
            .args([
                "--proxy-image",
                "maglor-proxy:e2e",
                "--proxy-pull-policy",
                "Never",
            ])
            .args(["--proxy-control-plane", CONTROLLER]);
        command.spawn().unwrap()
    }

    /// At a random moment of the given time.
    fn kill_within(&mut self, time: Duration) {
        // SplitMix64's increment is enough for a few moments.
        self.random = self
            .random
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(17)
            + 1;
        let moment = time.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64);
        sleep(moment);
        println!("killing the operator after {moment:?}");
        self.end();
        self.child = Self::spawn(self.cluster);
    }

    fn begin(&mut self) {
        self.child = Self::spawn(self.cluster);
    }

    /// Takes this many steps in its place, each as soon as possible; returns the last one.
    fn take(&self, most: usize) -> String {
        let kubeconfig = self.cluster.kubeconfig().to_owned();
        let taken = self.cluster.in_network(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(steps(&kubeconfig, most))
        });
        taken.unwrap()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Controller<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

async fn steps(kubeconfig: &Path, most: usize) -> String {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let settings = Settings {
        image: "maglor-proxy:e2e".into(),
        pull_policy: Some("Never".into()),
        control_plane: CONTROLLER.into(),
        cluster_domain: "cluster.local".into(),
        trust_domain: None,
        sleeps: true,
        prometheus_annotations: false,
    };
    let (mut taken, deadline) = (Vec::new(), Instant::now() + LIMIT);
    while taken.len() < most {
        assert!(
            Instant::now() < deadline,
            "after {taken:?} there is no step"
        );
        let key = Key::new("shop", "web");
        match step(client.clone(), settings.clone(), "maglor", &key)
            .await
            .unwrap()
        {
            Some(step) => taken.push(reported(&step)),
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    taken.pop().unwrap_or_default()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(50));
    }
    println!("{what} after {:?}", started.elapsed());
}

fn service(kubectl: &Kubectl) -> Value {
    let service = kubectl.as_kept(&["service", "web", "-n", "shop"], "maglor-proxy-service");
    service.unwrap()
}

fn claim(kubectl: &Kubectl) -> Option<Value> {
    kubectl
        .json(&["get", "proxyservice", "web", "--namespace=shop"])
        .ok()
}

fn ready(kubectl: &Kubectl) -> bool {
    let status = claim(kubectl).unwrap_or_default();
    let conditions = status["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Byte for byte, and nothing is left.
fn is_as_before(kubectl: &Kubectl, before: &Value) {
    assert_eq!(service(kubectl).to_string(), before.to_string());
    for kind in ["services", "deployments", "trafficpolicies"] {
        let label = "--selector=maglor.dev/proxy-service";
        let left = kubectl
            .json(&["get", kind, "--namespace=shop", label])
            .unwrap();
        assert_eq!(left["items"], json!([]), "{kind}");
    }
}

fn requests_go_through_proxies(cluster: &Cluster) {
    let label = "--selector=maglor.dev/proxy-service=web";
    let pods = cluster
        .kubectl()
        .json(&["get", "pods", "--namespace=shop", label])
        .unwrap();
    let address: Ipv4Addr = pods["items"][0]["status"]["podIP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    until("requests go through the proxy", || {
        let metrics = cluster
            .in_network(move || get(address, "/metrics"))
            .unwrap();
        let counts = metrics.lines().filter(|line| {
            line.starts_with("maglor_http_requests_total{") && line.contains("status=\"2xx\"")
        });
        let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>() > 1000.0
    });
}

fn endpoints_come_and_go(kubectl: &Kubectl) {
    for replicas in [4, 2] {
        let replicas = format!("--replicas={replicas}");
        let scale = ["scale", "deployment/web", "--namespace=shop", &replicas];
        kubectl.run(&scale).unwrap();
        let wait = [
            "rollout",
            "status",
            "deployment/web",
            "--namespace=shop",
            "--timeout=60s",
        ];
        kubectl.run(&wait).unwrap();
        // Terminating pods continue for a while.
        sleep(Duration::from_secs(4));
    }
}

fn get(address: Ipv4Addr, path: &str) -> String {
    let mut stream = TcpStream::connect(SocketAddr::from((address, 15020))).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
