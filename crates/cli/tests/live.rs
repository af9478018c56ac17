//! Commands against a controller with a folder and proxies that learn from it, at their addresses.
//!
//! Programs are in the directory of `maglor`, as built in the workspace; without them the tests are
//! built first.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maglor_testkit::process::Signal;
use maglor_testkit::pty::Terminal;
use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually, process, wait};
use serde_json::Value;

use crate::support::{MAGLOR, maglor, program, stdout};

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["-o", "json"]].concat())).unwrap()
}

/// The line of a table that has all of these.
#[track_caller]
fn line(text: &str, parts: &[&str]) -> String {
    let mut lines = text.lines();
    let found = lines.find(|line| parts.iter().all(|part| line.contains(part)));
    found
        .unwrap_or_else(|| panic!("no {parts:?} in\n{text}"))
        .to_owned()
}

/// A controller, its folder, two servers, and a proxy that learns where they are.
struct Mesh {
    controller: Child,
    admin: SocketAddr,
    folder: tempfile::TempDir,
    a: Upstream,
    b: Upstream,
    proxy: Proxy,
}

impl Drop for Mesh {
    fn drop(&mut self) {
        let _ = self.controller.kill();
        let _ = self.controller.wait();
    }
}

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: web, namespace: shop}
spec:
  targetRefs: [{name: web}]
  cluster: {policy: round-robin}
  route: {timeout: 2s, retry: {attempts: 2, retry_on: ['5xx']}}
";

/// A slice for each port.
fn slices(upstreams: &[&Upstream]) -> String {
    let slice = |(at, upstream): (usize, &&Upstream)| {
        format!(
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-{at}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: {}}}]
endpoints: [{{addresses: [127.0.0.1], zone: zone-{at}, nodeName: node-{at}}}]
",
            upstream.address().port()
        )
    };
    upstreams.iter().enumerate().map(slice).collect()
}

impl Mesh {
    fn start() -> Self {
        let (a, b) = (Upstream::start("a"), Upstream::start("b"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("resources")).unwrap();
        put(&folder, "web.yaml", SERVICE);
        put(&folder, "slices.yaml", &slices(&[&a, &b]));
        let ready = folder.path().join("ready.json");
        let mut command = Command::new(program("maglor-controller"));
        command
            .args([
                "--plain-text",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--folder",
            ])
            .arg(folder.path().join("resources"))
            .arg("--ready-file")
            .arg(&ready);
        let controller = process::spawn(command).unwrap();
        let addresses = wait::until(TIMEOUT, "the controller serves", || {
            let text = std::fs::read(&ready).ok()?;
            serde_json::from_slice::<Value>(&text).ok()
        });
        let address = |of: &str| addresses[of].as_str().unwrap().parse().unwrap();
        let (listen, admin): (SocketAddr, SocketAddr) = (address("listen"), address("admin"));
        let proxy = ProxyBuilder::new(program("maglor-proxy"))
            .config(format!(
                "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: shop/client, cluster: test}}}}
listeners:
- name: out
  address: 127.0.0.1:0
  traffic_direction: outbound
  http: {{discovery: {{namespace: shop, timeout: 5s}}, virtual_hosts: []}}
- name: in
  address: 127.0.0.1:0
  traffic_direction: inbound
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: application}}]}}]}}
clusters:
- {{name: control, endpoints: ['{listen}']}}
- {{name: application, endpoints: ['{}']}}
",
                a.address()
            ))
            .start();
        Self {
            controller,
            admin,
            folder,
            a,
            b,
            proxy,
        }
    }

    fn get(&self, path: &str) -> u16 {
        ask(self.proxy.listener("out"), path)
    }

    fn controller(&self) -> String {
        self.admin.to_string()
    }

    fn proxy(&self) -> String {
        format!("client={}", self.proxy.admin())
    }
}

/// As editors do: a whole file takes the place of the old one.
fn put(folder: &tempfile::TempDir, name: &str, text: &str) {
    let new = folder.path().join(name);
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, folder.path().join("resources").join(name)).unwrap();
}

fn ask(address: SocketAddr, path: &str) -> u16 {
    let mut client = RawHttp1::connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n");
    client.send(request);
    client.response().status
}

/// Requests until it is dropped.
struct Load(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Load {
    fn on(addresses: [SocketAddr; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for address in addresses {
                    ask(address, "/load");
                }
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn routes_and_endpoints_are_shown_as_configured_and_as_seen() {
    let mesh = Mesh::start();
    assert_eq!(mesh.get("/"), 200);
    let (controller, proxy) = (mesh.controller(), mesh.proxy());

    let reported = stdout(&["routes", "web", "--controller", &controller]);
    line(&reported, &["HOST", "MATCH", "TO", "TIMEOUT"]);
    line(
        &reported,
        &[
            "web.shop:80",
            "path /*",
            "2000 ms",
            "2",
            "all",
            "controller",
        ],
    );
    let seen = json(&["routes", "web", "--proxy", &proxy]);
    let route = &seen[0];
    assert_eq!(
        (&route["host"], &route["seen_by"], &route["timeout_ms"]),
        (&"web:80".into(), &"client".into(), &2000.into()),
        "{seen}"
    );
    assert_eq!(route["to"][0]["what"], "web.shop.svc.cluster.local:80");

    let endpoint = |upstream: &Upstream| upstream.address().to_string();
    let reported = json(&["endpoints", "web.shop:80", "--controller", &controller]);
    let addresses = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        let mut all: Vec<String> = list
            .map(|one| one["address"].as_str().unwrap().to_owned())
            .collect();
        all.sort();
        all
    };
    let mut both = vec![endpoint(&mesh.a), endpoint(&mesh.b)];
    both.sort();
    assert_eq!(addresses(&reported), both);
    let seen = json(&["endpoints", "web", "--proxy", &proxy]);
    assert_eq!(addresses(&seen), both);
    assert_eq!(
        (&seen[0]["state"], &seen[0]["outstanding"]),
        (&"healthy".into(), &0.into())
    );
    let locality = |list: &Value| {
        let mut all = list.as_array().unwrap().iter();
        let found = all.find(|one| one["address"] == endpoint(&mesh.b));
        found.unwrap()["locality"].clone()
    };
    assert!(
        locality(&reported)
            .as_str()
            .unwrap()
            .contains("zone-1/node-1"),
        "{reported}"
    );
    assert_eq!(locality(&seen), locality(&reported), "{seen}");
    let table = stdout(&["endpoints", "web", "--proxy", &proxy, "-o", "wide"]);
    line(&table, &["SERVICE", "OUTSTANDING", "POLICY"]);
    line(
        &table,
        &[
            "web.shop:80",
            &endpoint(&mesh.a),
            "healthy",
            "round-robin",
            "client",
        ],
    );
    let yaml = stdout(&[
        "endpoints",
        "web",
        "--controller",
        &controller,
        "-o",
        "yaml",
    ]);
    assert!(
        yaml.contains("- service: web.shop.svc.cluster.local:80\n"),
        "{yaml}"
    );

    let none = maglor(&["endpoints", "absent", "--controller", &controller]);
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
}

#[test]
fn a_change_has_a_receipt() {
    let mesh = Mesh::start();
    let controller = mesh.controller();
    assert_eq!(mesh.get("/"), 200);
    put(&mesh.folder, "slices.yaml", &slices(&[&mesh.b]));
    let receipt = wait::until(TIMEOUT, "the proxy has the change", || {
        let all = json(&["receipts", "web", "--controller", &controller]);
        let all = all.as_array().unwrap().iter();
        let mut taken = all.filter(|one| one["deliveries"][0]["answered"] == true);
        taken.next().cloned()
    });
    assert_eq!(receipt["kind"], "endpoints", "{receipt}");
    assert_eq!(receipt["deliveries"][0]["node"], "shop/client");
    assert!(receipt["took_ms"].as_f64().unwrap() < 5000.0);
    let change = receipt["change"].to_string();
    let table = stdout(&["receipts", "--change", &change, "--controller", &controller]);
    line(&table, &[&change, "endpoints", "web.shop:80", "1 of 1"]);
    let open = maglor(&["receipts", "--open", "--controller", &controller]);
    assert!(open.stdout.is_empty(), "all have acknowledged: {open:?}");
}

#[test]
fn traffic_is_counted_shown_and_tapped() {
    let mesh = Mesh::start();
    let proxy = mesh.proxy();
    let ends = [mesh.proxy.listener("in"), mesh.proxy.listener("out")];
    let load = Load::on(ends);
    eventually(TIMEOUT, "requests go by", || mesh.a.requests() > 10);

    let asked = json(&["stat", "--proxy", &proxy, "--window", "500ms"]);
    let number = |value: &Value, field: &str| value[field].as_f64().unwrap_or(-1.0);
    assert_eq!(asked[0]["workload"], "client", "{asked}");
    assert!(number(&asked[0], "rps") > 1.0, "{asked}");
    assert_eq!(number(&asked[0], "success"), 1.0);
    assert!(number(&asked[0], "p50_ms") > 0.0 && number(&asked[0], "p99_ms") < 10_000.0);
    assert_eq!(number(&asked[0], "mtls"), 0.0, "not used here");
    let called = json(&["stat", "services", "--proxy", &proxy, "--since-start"]);
    assert_eq!(
        called.as_array().unwrap().len(),
        1,
        "the application is no service: {called}"
    );
    assert_eq!(called[0]["service"], "web.shop.svc.cluster.local:80");
    assert!(
        called[0]["rps"].is_null() && number(&called[0], "requests") > 5.0,
        "{called}"
    );
    let table = stdout(&["stat", "services", "--proxy", &proxy, "--window", "200ms"]);
    line(&table, &["CALLS", "SUCCESS", "RETRIES", "EJECTED"]);
    line(&table, &["client", "web.shop:80", "100.00 %", " ms"]);

    let top = stdout(&["top", "--count", "2", "--every", "200ms", "--proxy", &proxy]);
    assert_eq!(top.matches("WORKLOAD").count(), 2, "{top}");
    assert!(!top.contains('\x1b'), "a pipe is no terminal: {top}");

    let tap = [
        "tap",
        "--proxy",
        &proxy,
        "--direction",
        "outbound",
        "--max",
        "3",
    ];
    let lines = stdout(&tap);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    line(&lines, &["client out GET web/load 200"]);
    let objects = stdout(&[&tap[..], &["-o", "json", "--path", "/load"]].concat());
    for object in objects.lines() {
        let object: Value = serde_json::from_str(object).unwrap();
        assert_eq!(
            (&object["pod"], &object["direction"]),
            (&"client".into(), &"outbound".into())
        );
    }
    // If the reader of the output closes it after one line, the command exits instead of waiting.
    for command in [&["tap"][..], &["top", "--every", "200ms"]] {
        let mut child = Command::new(MAGLOR)
            .args([command, &["--proxy", &proxy]].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut read = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(read.next().unwrap().is_ok(), "{command:?}");
        drop(read);
        eventually(TIMEOUT, "it ends", || child.try_wait().unwrap().is_some());
        assert!(child.wait().unwrap().success(), "{command:?}");
    }
    drop(load);

    // Absent values are not shown.
    let mut child = Command::new(MAGLOR)
        .args([
            "tap", "--proxy", &proxy, "--status", "5xx", "--for", "10s", "--max", "1",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(ready.next().unwrap().unwrap().contains("1 proxies"));
    assert_eq!(ask(ends[0], "/status/204"), 204);
    assert_eq!(ask(ends[0], "/status/503"), 503);
    let shown = child.wait_with_output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    line(&shown, &["client in ", "web/status/503 503"]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
}

#[test]
fn top_is_a_screen_on_a_terminal() {
    let mesh = Mesh::start();
    let load = Load::on([mesh.proxy.listener("in"), mesh.proxy.listener("out")]);
    for quit in ["q", "\x03"] {
        let mut terminal = Terminal::open(100, 20);
        let mut command = Command::new(MAGLOR);
        command
            .args(["top", "--every", "200ms", "--proxy", &mesh.proxy()])
            .env_remove("NO_COLOR");
        let mut child = terminal.spawn(command);
        terminal.expect("\x1b[?1049h");
        terminal.expect("100.00 %");
        assert!(terminal.is_raw());
        assert!(terminal.output().contains("\x1b[38;5;6"), "in colours");
        terminal.send("\t");
        terminal.expect("web.shop:80");
        terminal.send("/nothing\r");
        terminal.expect("no row matches");
        terminal.send(quit);
        assert!(child.wait().unwrap().success(), "{quit:?}");
        terminal.expect("\x1b[?1049l");
        assert!(!terminal.is_raw());
    }
    // Without colours; and what it showed last stays if the proxy is gone.
    let mut terminal = Terminal::open(100, 20);
    let mut command = Command::new(MAGLOR);
    command
        .args(["top", "--every", "100ms", "--proxy", &mesh.proxy()])
        .env("NO_COLOR", "1");
    let mut child = terminal.spawn(command);
    terminal.expect("100.00 %");
    drop(load);
    mesh.proxy.signal(Signal::Terminate);
    terminal.expect("✗ ");
    assert!(
        !terminal.output().contains("\x1b[38"),
        "{}",
        terminal.output()
    );
    terminal.send("q");
    assert!(child.wait().unwrap().success());
}

#[test]
fn rows_are_records_of_csv() {
    let mesh = Mesh::start();
    assert_eq!(mesh.get("/"), 200);
    let (controller, proxy) = (mesh.controller(), mesh.proxy());
    let first = |arguments: &[&str]| -> (String, String) {
        let text = stdout(&[arguments, &["-o", "csv"]].concat());
        let mut lines = text.lines().map(str::to_owned);
        (lines.next().unwrap(), lines.next().unwrap_or_default())
    };
    let (header, route) = first(&["routes", "web", "--controller", &controller]);
    assert_eq!(
        header,
        "host,match,to,timeout_ms,retries,clients,route,listener,seen_by"
    );
    assert!(
        route.starts_with("web.shop.svc.cluster.local:80,path /*,\"[{"),
        "{route}"
    );
    let (header, endpoint) = first(&["endpoints", "web", "--proxy", &proxy]);
    assert!(
        header.starts_with("service,address,state,weight,"),
        "{header}"
    );
    assert!(endpoint.contains(",healthy,1,0,"), "{endpoint}");
    let (header, _) = first(&["receipts", "--controller", &controller]);
    assert!(
        header.starts_with("change,kind,name,age_seconds,"),
        "{header}"
    );
    let (header, total) = first(&["stat", "services", "--since-start", "--proxy", &proxy]);
    assert!(
        header.starts_with("namespace,workload,service,success,rps,"),
        "{header}"
    );
    assert!(
        total.starts_with(",client,web.shop.svc.cluster.local:80,1.0,,"),
        "{total}"
    );
    let top = ["top", "--count", "2", "--every", "100ms", "--proxy", &proxy];
    let text = stdout(&[&top[..], &["-o", "csv"]].concat());
    assert_eq!(
        text.matches("time,namespace,workload,").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("Z,,client,").count(), 2, "{text}");
    let text = stdout(&[&top[..], &["-o", "json"]].concat());
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert!(
            row["time"].is_string() && row["workload"] == "client",
            "{row}"
        );
    }
    let load = Load::on([mesh.proxy.listener("in"), mesh.proxy.listener("out")]);
    let tap = ["tap", "--proxy", &proxy, "--max", "2", "-o", "csv"];
    let text = stdout(&tap);
    assert!(
        text.starts_with("time,pod,listener,direction,client,"),
        "{text}"
    );
    assert_eq!(
        text.lines()
            .filter(|line| line.contains(",client,"))
            .count(),
        3,
        "{text}"
    );
    drop(load);
}

#[test]
fn what_cannot_be_asked_is_one_line_and_a_hint() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let fails = |arguments: &[&str], code: i32, parts: &[&str]| {
        let output = maglor(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in parts {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(text.lines().count() <= 2, "{text}");
    };
    fails(&["stat", "--proxy", &address], 1, &[&address, "refused"]);
    fails(
        &["routes", "--proxy", &address],
        1,
        &[&address, "refused", "hint: "],
    );
    fails(
        &["receipts", "--proxy", &address],
        1,
        &["this command queries the controller", "hint: "],
    );
    fails(&["receipts"], 1, &["kubeconfig", "hint: "]);
    fails(&["check"], 1, &["kubeconfig", "hint: "]);
    fails(&["tap", "--proxy", "nowhere"], 2, &["HOST:PORT"]);
}

/// A foreign server.
#[test]
fn responses_of_other_servers_are_detected() {
    let upstream = Upstream::start("a");
    let address = upstream.address().to_string();
    let output = maglor(&["routes", "--proxy", &address]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("/routes: invalid response"), "{text}");
}
