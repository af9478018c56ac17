//! A real Prometheus scrapes a mesh with traffic: the controller, sidecars and a Gateway. Every query of the dashboards
//! returns data, every alert can be evaluated, and promtool has no complaint about metrics and alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::{Proxy, RawHttp1, TIMEOUT, eventually};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::mesh::{Mesh, Pod};

/// Panels without data in this mesh, by dashboard and title, with the reason.
const EMPTY_PANELS: [(&str, &str, &str); 5] = [
    (
        "controller",
        "Age of the state of the cluster",
        "there is no API server with --folder",
    ),
    (
        "proxy",
        "Rejected because of the memory budget",
        "nothing is rejected in a healthy mesh, and there is no budget",
    ),
    (
        "resources",
        "Share of the memory budget",
        "there is no budget",
    ),
    (
        "service",
        "Requests rejected because of a limit",
        "the series begins with the first rejected request",
    ),
    (
        "workload",
        "Decisions of authorization",
        "there is no policy",
    ),
];

/// Metrics of alerts that do not exist in this mesh, with the reason.
const ABSENT_METRICS: [(&str, &str); 1] = [(
    "maglor_controller_watch_age_seconds",
    "there is no API server with --folder",
)];

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A started mesh, whose proxy is built if it is missing.
fn start() -> Mesh {
    Mesh::start().unwrap_or_else(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "-p", "maglor-proxy"]);
        assert!(cargo.status().unwrap().success());
        Mesh::start().unwrap()
    })
}

struct Fixture {
    mesh: Mesh,
    carts: Vec<Pod>,
    web: Pod,
    gateway: Proxy,
    /// The address of the Gateway's listener.
    front: SocketAddr,
}

impl Fixture {
    fn start() -> Self {
        let mesh = start();
        mesh.mtls("strict");
        mesh.service("cart", "10.96.0.10");
        let cart = |i: usize| {
            let pod = mesh.pod(&format!("cart-7d9f8b6c4-x2xl{i}"), "cart");
            mesh.endpoint("cart", &pod.name, pod.inbound(), "");
            pod
        };
        let carts = [2, 4].map(cart).into();
        let web = mesh.pod("web-0", "web");
        web.reaches("cart");
        let front = free();
        for (name, text) in [
            (
                "class",
                "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: maglor}, \
                 spec: {controllerName: maglor.dev/gateway}}"
                    .to_owned(),
            ),
            (
                "gateway",
                format!(
                    "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: web, namespace: shop}}, \
                     spec: {{gatewayClassName: maglor, listeners: [{{name: http, port: {}, protocol: HTTP}}]}}}}",
                    front.port()
                ),
            ),
            (
                "route",
                "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web, namespace: shop}, \
                 spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: cart, port: 80}]}]}}"
                    .to_owned(),
            ),
        ] {
            mesh.put(name, &text);
        }
        let gateway = mesh.gateway();
        Self {
            mesh,
            carts,
            web,
            gateway,
            front,
        }
    }

    fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        let sidecars = self.carts.iter().chain([&self.web]);
        sidecars.map(|pod| &pod.sidecar).chain([&self.gateway])
    }

    /// A request by the gateway.
    fn enter(&self) -> u16 {
        let mut client = RawHttp1::connect(self.front);
        client
            .request("GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n")
            .status
    }
}

/// A running Prometheus.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    fn start(programs: &Path, fixture: &Fixture) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let targets = |all: &[SocketAddr]| {
            let all: Vec<_> = all.iter().map(|address| format!("'{address}'")).collect();
            all.join(", ")
        };
        let proxies: Vec<_> = fixture.proxies().map(Proxy::admin).collect();
        let rules = root().join("deploy/alerts/maglor.rules.yaml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - {{job_name: proxy, static_configs: [{{targets: [{}]}}]}}\n\
             - {{job_name: controller, static_configs: [{{targets: [{}]}}]}}\n",
            rules.display(),
            targets(&proxies),
            targets(&[fixture.mesh.admin_address()]),
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let address = free();
        let process = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=error"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let prometheus = Self {
            process,
            address,
            _folder: folder,
        };
        eventually(4 * TIMEOUT, "Prometheus is ready", || {
            let connected = std::net::TcpStream::connect(address).is_ok();
            connected && RawHttp1::connect(address).get("/-/ready").status == 200
        });
        prometheus
    }

    fn get(&self, path: &str) -> Value {
        let answer = RawHttp1::connect(self.address).get(path).json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// Returns the values of a query at present.
    fn query(&self, query: &str) -> Vec<f64> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(query)));
        let value = |one: &Value| one["value"][1].as_str()?.parse::<f64>().ok();
        let all = data["result"].as_array().unwrap().iter();
        all.filter_map(value).collect()
    }

    /// Returns whether a query has a value that can be shown.
    fn has_data(&self, query: &str) -> bool {
        self.query(query).iter().any(|value| value.is_finite())
    }
}

/// Percent-encodes a parameter.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The queries of all dashboards, by dashboard and title.
fn panels() -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for file in fs::read_dir(root().join("deploy/dashboards")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let name = dashboard["uid"].as_str().unwrap();
        let name = name.strip_prefix("maglor-").unwrap();
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().unwrap() {
                let mut query = target["expr"].as_str().unwrap().to_owned();
                query = query.replace("$__rate_interval", "10s");
                for variable in variables {
                    let name = variable["name"].as_str().unwrap();
                    query = query.replace(&format!("${name}"), ".*");
                }
                all.insert((name.to_owned(), title.to_owned()), query);
            }
        }
    }
    all
}

/// The expressions of all alerts.
fn alerts() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("deploy/alerts/maglor.rules.yaml")).unwrap();
    let rules: Value = serde_yaml::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, field: &str| rule[field].as_str().unwrap().to_owned();
    rules
        .map(|rule| (text(rule, "alert"), text(rule, "expr")))
        .collect()
}

/// The metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("maglor_") || word.starts_with("process_"))
        .collect()
}

/// Runs promtool, which must print no complaint.
fn promtool(programs: &Path, arguments: &[&str], input: &str) {
    let mut child = Command::new(programs.join("promtool"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, failed) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {printed}{failed}");
    if arguments == ["check", "metrics"] {
        assert_eq!((printed.as_str(), failed.as_str()), ("", ""));
    }
}

#[test]
#[ignore = "builds Prometheus the first time, for five minutes: cargo xtask e2e"]
fn prometheus_has_what_dashboards_and_alerts_show() {
    let programs = maglor_testkit::cluster::prometheus().unwrap();
    promtool(
        &programs,
        &[
            "check",
            "rules",
            "--lint=all",
            "--lint-fatal",
            "deploy/alerts/maglor.rules.yaml",
        ],
        "",
    );
    promtool(
        &programs,
        &["test", "rules", "deploy/alerts/tests/maglor.tests.yaml"],
        "",
    );
    let fixture = Fixture::start();
    eventually(TIMEOUT, "the gateway serves", || fixture.enter() == 200);
    let load = fixture.web.load("cart", 2);
    for proxy in fixture.proxies() {
        promtool(
            &programs,
            &["check", "metrics"],
            proxy.admin_get("/metrics").text(),
        );
    }
    let controller = RawHttp1::connect(fixture.mesh.admin_address()).get_local("/metrics");
    promtool(&programs, &["check", "metrics"], controller.text());

    let prometheus = Prometheus::start(&programs, &fixture);
    let up = fixture.proxies().count() + 1;
    eventually(4 * TIMEOUT, "all targets are up", || {
        prometheus.query("sum(up)") == [up as f64]
    });
    // Units exist only in OpenMetrics, which Prometheus has negotiated.
    for family in [
        "maglor_http_request_duration_seconds",
        "maglor_controller_push_seconds",
    ] {
        let metadata = prometheus.get(&format!("/api/v1/metadata?metric={family}"));
        assert_eq!(metadata[family][0]["unit"], "seconds", "{metadata}");
    }

    // Its certificates and resources are among what is counted from now on.
    let joined = fixture.mesh.pod("cart-7d9f8b6c4-x2xl5", "cart");
    fixture
        .mesh
        .endpoint("cart", &joined.name, joined.inbound(), "");
    shown(&prometheus, &fixture);
    raised(&prometheus);
    load.stop();
}

/// Checks every panel; those that have no data yet are queried again while requests go on.
fn shown(prometheus: &Prometheus, fixture: &Fixture) {
    let mut missing = panels();
    assert!(missing.len() > 80, "{}", missing.len());
    let is_excused = |name: &str, title: &str| {
        let mut known = EMPTY_PANELS.iter();
        known.any(|(dashboard, panel, _)| (*dashboard, *panel) == (name, title))
    };
    missing.retain(|(name, title), query| {
        // Excused ones must be valid, too.
        let found = prometheus.has_data(query);
        !found && !is_excused(name, title)
    });
    let end = Instant::now() + Duration::from_secs(60);
    while !missing.is_empty() && Instant::now() < end {
        assert_eq!(fixture.enter(), 200);
        missing.retain(|_, query| !prometheus.has_data(query));
    }
    assert!(missing.is_empty(), "without data: {missing:#?}");
    for (dashboard, title, reason) in EMPTY_PANELS {
        assert!(!reason.is_empty());
        let key = (dashboard.to_owned(), title.to_owned());
        assert!(panels().contains_key(&key), "no such panel: {key:?}");
    }
}

/// Checks that every alert can be evaluated, and that its metrics exist.
fn raised(prometheus: &Prometheus) {
    let health = prometheus.get("/api/v1/rules");
    for group in health["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            assert_eq!(rule["health"], "ok", "{rule}");
        }
    }
    for (name, expression) in alerts() {
        prometheus.query(&expression);
        for metric in metrics(&expression) {
            let is_absent = ABSENT_METRICS.iter().any(|(absent, _)| *absent == metric);
            let found = !prometheus.query(&format!("count({metric})")).is_empty();
            assert!(found || is_absent, "{name}: there is no {metric}");
        }
    }
}
