//! Rows of the outage matrix (docs/outages.md) that need a real API server: it, its TokenReviews, the controller and
//! and the node of the proxies are unavailable for hours and days, and recover in several orders. `outage_matrix.rs`
//! has the others.
//!
//! Controller and proxies are processes outside of the cluster, so that their clocks can jump; the API server's does
//! not. Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it
//! skips.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use maglor_testkit::cluster::{Cluster, Kubectl, Options};
use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, RawHttp1, Upstream, eventually};
use serde_json::json;

use crate::support::clock::Clock;
use crate::support::members::{Load, Member, binary, proxy, ready};
use crate::support::process::Controller;

const LIMIT: Duration = Duration::from_secs(60);
/// Everything is back so long after the last return at the latest.
const BACK: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    /// The process of the API server, killed.
    ApiServer,
    /// The controller's process, killed.
    Controller,
    /// The node of the proxies, suspended.
    Node,
    /// Revokes the permission for TokenReviews: each is rejected with 403.
    Reviews,
}

use Part::{ApiServer, Controller as Mesh, Node, Reviews};

/// The unavailable parts, in the order of recovery, and the duration.
const ROWS: [(&[Part], u64); 9] = [
    (&[ApiServer], HOUR),
    (&[ApiServer], DAY),
    (&[ApiServer], 3 * DAY),
    (&[Reviews], 3 * DAY),
    (&[ApiServer, Mesh], 3 * DAY),
    (&[Mesh, ApiServer], 3 * DAY),
    (&[Mesh, Reviews], 3 * DAY),
    (&[Node, ApiServer], 3 * DAY),
    (&[Mesh, Node, ApiServer], 3 * DAY),
];

/// Accounts, and what the controller may do; its right to TokenReviews is apart.
const RESOURCES: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: maglor}}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: maglor-controller, namespace: maglor}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: cart, namespace: shop}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: shop}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: all-but-reviews}
  rules:
  - apiGroups: ['', admissionregistration.k8s.io, apiextensions.k8s.io, apiregistration.k8s.io, apps, autoscaling,
      coordination.k8s.io, discovery.k8s.io, events.k8s.io, gateway.networking.k8s.io, maglor.dev, metrics.k8s.io,
      networking.istio.io, security.istio.io, telemetry.istio.io]
    resources: ['*']
    verbs: ['*']
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: reviews}
  rules: [{apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}]
";

/// Binds a role to the controller's account.
fn binding(role: &str) -> String {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "maglor-controller", "namespace": "maglor"}],
    })
    .to_string()
}

struct Fixture {
    cluster: Cluster,
    folder: tempfile::TempDir,
    clock: Clock,
    ahead: u64,
    controller: Controller,
    cart: Proxy,
    web: Proxy,
    _application: Upstream,
}

/// Starts a controller with the token of its account.
fn controller(folder: &Path, listen: &str, clock: &Clock) -> Controller {
    let ready = folder.join("ready.json");
    let _ = std::fs::remove_file(&ready);
    let kubeconfig = folder.join("kubeconfig").display().to_string();
    let mut variables = clock.environment();
    variables.push(("KUBECONFIG".to_owned(), kubeconfig));
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let arguments = ["--replica=one", "--leaf-ttl=24h", "--listen", listen];
    Controller::spawn(&ready, &arguments, &variables)
}

fn write_kubeconfig(kubectl: &Kubectl, folder: &Path) {
    let token = ["create", "token", "-n", "maglor", "maglor-controller"];
    let token = kubectl.run(&token).unwrap();
    let mut config = kubectl
        .json(&["config", "view", "--raw", "--minify"])
        .unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    std::fs::write(folder.join("kubeconfig"), config.to_string()).unwrap();
}

/// The flags of a proxy; its token is in a file, as written by the kubelet.
fn member(kubectl: &Kubectl, folder: &Path, account: &str, controller: &str) -> String {
    let token = ["create", "token", "-n", "shop", account];
    let token = kubectl
        .run(&[&token[..], &["--audience", "maglor.dev/identity"]].concat())
        .unwrap();
    let file = |name: &str| -> PathBuf { folder.join(format!("{account}-{name}")) };
    std::fs::write(file("token"), token.trim()).unwrap();
    Member {
        account,
        token: &file("token"),
        roots: &folder.join("ca.pem"),
        cache: &file("cache"),
        domain: "cluster.local",
        controller,
    }
    .yaml()
}

impl Fixture {
    async fn start(binary: &Path) -> Self {
        let cluster = Cluster::start(Options {
            name: "outages".into(),
            nodes: 1,
            ..Options::default()
        })
        .unwrap();
        let kubectl = cluster.kubectl();
        // A machine that does much else answers its first questions late.
        let apply = |what: &str, text: &str| {
            eventually(LIMIT * 2, what, || kubectl.apply(text).is_ok());
        };
        for (name, definition) in maglor_controller::crd::yaml().unwrap() {
            apply(&name, &definition);
        }
        apply("accounts and roles", RESOURCES);
        for role in ["all-but-reviews", "reviews"] {
            kubectl.apply(&binding(role)).unwrap();
        }
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::new());
        write_kubeconfig(kubectl, folder.path());
        let mut controller = controller(folder.path(), "127.0.0.1:0", &clock);
        controller.serves(&folder.path().join("ready.json")).await;
        let map = ["get", "configmap", "maglor-trust-bundle", "-n", "shop"];
        let map = [&map[..], &["-o", "jsonpath={.data.ca\\.pem}"]].concat();
        let mut roots = String::new();
        eventually(LIMIT, "the namespace has the roots", || {
            roots = kubectl.run(&map).unwrap_or_default();
            !roots.is_empty()
        });
        std::fs::write(folder.path().join("ca.pem"), roots).unwrap();
        let application = Upstream::start("cart");
        let member = |account| member(kubectl, folder.path(), account, &controller.listen);
        let config = format!(
            "{}- {{name: application, endpoints: ['{}']}}
listeners:
- {{name: inbound, address: '127.0.0.1:0', tls: mesh, http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: application}}]}}]}}}}
",
            member("cart"),
            application.address()
        );
        let cart = proxy(binary, config, &clock.environment());
        let config = format!(
            "{}- {{name: cart, tls: mesh, max_requests_per_connection: 5, endpoints: ['{}']}}
listeners:
- {{name: outbound, address: '127.0.0.1:0', http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: cart}}]}}]}}}}
",
            member("web"),
            cart.listener("inbound")
        );
        let web = proxy(binary, config, &clock.environment());
        Self {
            cluster,
            folder,
            clock,
            ahead: 0,
            controller,
            cart,
            web,
            _application: application,
        }
    }

    fn proxies(&self) -> [&Proxy; 2] {
        [&self.cart, &self.web]
    }

    fn pass(&mut self, seconds: u64) {
        self.ahead += seconds;
        self.clock.set_seconds(self.ahead.try_into().unwrap());
    }

    /// Seconds until the first identity of a proxy ends, by the set clock.
    fn remaining(&self) -> f64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let ends = self
            .proxies()
            .map(|proxy| proxy.metric("maglor_identity_expiry_seconds", &[]));
        ends[0].min(ends[1]) - now.as_secs_f64() - self.ahead as f64
    }

    fn away(&mut self, part: Part) {
        match part {
            ApiServer => self.cluster.kill("control", "kube-apiserver").unwrap(),
            Mesh => self.controller.kill(),
            Node => self
                .proxies()
                .into_iter()
                .for_each(|proxy| proxy.signal(Signal::Stop)),
            Reviews => {
                let delete = ["delete", "clusterrolebinding", "reviews"];
                self.cluster.kubectl().run(&delete).unwrap();
            }
        }
    }

    fn back(&mut self, part: Part) {
        match part {
            ApiServer => {
                self.cluster.restart("control", "kube-apiserver").unwrap();
                let kubectl = self.cluster.kubectl();
                eventually(LIMIT * 3, "the API server serves", || {
                    let ready = ["get", "--raw", "/readyz", "--request-timeout=2s"];
                    kubectl.run(&ready).is_ok()
                });
            }
            Mesh => {
                let listen = self.controller.listen.clone();
                self.controller = controller(self.folder.path(), &listen, &self.clock);
                self.controller.listen = listen;
            }
            Node => self
                .proxies()
                .into_iter()
                .for_each(|proxy| proxy.signal(Signal::Continue)),
            Reviews => self.cluster.kubectl().apply(&binding("reviews")).unwrap(),
        }
    }

    fn call(&self) -> u16 {
        let mut client = RawHttp1::connect(self.web.listener("outbound"));
        client
            .request("GET / HTTP/1.1\r\nhost: cart\r\n\r\n")
            .status
    }

    fn is_back(&self, what: &str) -> Duration {
        let began = Instant::now();
        eventually(BACK, what, || {
            let gauge = |proxy: &Proxy, name| proxy.metric(name, &[]) == 1.0;
            let good = |proxy: &Proxy| {
                gauge(proxy, "maglor_identity_usable")
                    && gauge(proxy, "maglor_xds_connected")
                    && ready(proxy).0 == 200
            };
            self.proxies().into_iter().all(good)
                && (0..6).all(|_| self.call() == 200)
                && self.remaining() > HOUR as f64
        });
        began.elapsed()
    }

    /// Sends calls while time passes and identities are valid; returns the number of calls, and the elapsed seconds.
    fn calls_while_identities_live(&mut self, outage: u64) -> (u64, u64) {
        let lives = (self.remaining() - 60.0).max(0.0) as u64;
        let step = outage.min(lives) / 4;
        let load = Load::with_pauses(self.web.listener("outbound"), PAUSE);
        for _ in 0..4 {
            self.pass(step);
            let before = load.answered();
            eventually(BACK, "calls go on", || load.answered() > before + 50);
        }
        let (answered, failed) = load.end();
        assert!(failed.is_empty(), "{failed:?}");
        (answered, 4 * step)
    }

    fn try_row(&mut self, order: &[Part], outage: u64) {
        self.is_back("before");
        let suspended = order.contains(&Node);
        for part in order.iter().filter(|part| **part != Node) {
            self.away(*part);
        }
        let (mut calls, mut passed) = (0, 0);
        if suspended {
            self.away(Node);
        } else {
            (calls, passed) = self.calls_while_identities_live(outage);
        }
        self.pass(outage - passed);
        if outage >= DAY && !suspended {
            eventually(BACK, "the proxies say that they have expired", || {
                let says = |proxy: &Proxy| ready(proxy).1.contains("the certificate expired at");
                self.proxies().into_iter().all(says)
            });
        }
        for (at, part) in order.iter().enumerate() {
            if at > 0 {
                std::thread::sleep(BETWEEN);
            }
            self.back(*part);
        }
        let hours = outage / HOUR;
        let took = self.is_back(&format!("{order:?} after {hours} h"));
        let took = took.as_secs_f64();
        println!("| {order:?} | {hours} h | {calls} | 0 | {took:.1} s |");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn what_was_away_returns_in_any_order() {
    let Some(binary) = binary() else { return };
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return;
    }
    let mut fixture = Fixture::start(&binary).await;
    for (order, outage) in ROWS {
        fixture.try_row(order, outage);
    }
    fixture.controller.kill();
    fixture.cluster.stop().unwrap();
}
