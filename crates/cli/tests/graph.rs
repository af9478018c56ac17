//! `maglor graph`: from a controller's answer, from a file, and from a real Prometheus that scrapes Istio's
//! metrics of Bookinfo.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::{Answer, RawHttp1, TIMEOUT, Upstream, eventually};
use serde_json::{Value, json};

use crate::support::{maglor, stdout};

fn snapshot(at: &str, rps: f64) -> Value {
    let service = |name: &str, replicas: u32| {
        json!({"name": name, "replicas": replicas, "cpu_millis": 100, "memory_mib": 64,
               "pending": 1.0, "rps": rps, "nodes": {"n1": replicas}})
    };
    json!({
        "at": at,
        "window_seconds": 60,
        "services": [service("other/db", 1), service("shop/cart", 2), service("shop/queue", 1),
                     service("shop/web", 1)],
        "edges": [
            {"from": "shop/web", "to": "other/db", "rps": 1.0, "latency_ms": 9.0, "failures": 0.5,
             "bytes_per_second": 2000.0, "connections_per_second": 0.0, "in_flight": 0.0},
            {"from": "shop/web", "to": "shop/cart", "rps": rps, "latency_ms": 3.5, "p50_ms": 2.75,
             "p99_ms": 12.25, "failures": 0.0, "bytes_per_second": 0.0, "connections_per_second": 0.5,
             "in_flight": 2.0},
            {"from": "shop/web", "to": "shop/queue", "rps": 0.0, "latency_ms": 0.0, "failures": 0.0,
             "bytes_per_second": 7500.0, "connections_per_second": 0.0, "in_flight": 1.0},
        ],
        "nodes": [{"name": "n1", "cpu_millis": 1900, "memory_mib": 900, "pods": 100, "zone": "z"}],
        "delays": [{"from": "n1", "to": "n2", "ms": 1.625}],
    })
}

/// A controller that has only a graph.
fn controller() -> Upstream {
    let upstream = Upstream::start("controller");
    upstream.set_answer(|request| {
        let body = match (request.uri.path(), request.uri.query()) {
            ("/graph", None) => snapshot("2026-01-01T12:05:00Z", 40.0),
            ("/graph", Some("history")) => json!({"snapshots": [
                snapshot("2026-01-01T12:00:00Z", 10.0),
                snapshot("2026-01-01T12:01:00Z", 20.0),
                snapshot("2026-01-01T12:02:00Z", 30.0),
            ]}),
            _ => return None,
        };
        Some(Answer::text(body.to_string()))
    });
    upstream
}

#[test]
fn the_controllers_graph_is_shown_in_every_form() {
    let controller = controller();
    let address = controller.address().to_string();
    let graph = |more: &[&str]| stdout(&[&["graph", "--controller", &address], more].concat());
    let table = graph(&[]);
    for part in [
        "shop/cart",
        "40.0",
        "3.50",
        "50.0 %",
        "2.75",
        "12.25",
        "7.5",
        "1.625",
        "averages over 60 s",
    ] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    assert!(!graph(&["-n", "shop"]).contains("other/db"));
    let json: Value = serde_json::from_str(&graph(&["-o", "json"])).unwrap();
    assert_eq!(json, snapshot("2026-01-01T12:05:00Z", 40.0));
    assert!(
        graph(&["-o", "dot"]).contains("\"shop/web\" -> \"shop/cart\" [label=\"40/s · 3.50 ms\"")
    );
    assert!(graph(&["-o", "svg"]).contains(">40/s · 3.50 ms</text>"));
    assert!(graph(&["-o", "dot"]).contains("\"shop/queue\" [label=\"7.5 kB/s\""));
    let before = graph(&["--at", "2026-01-01T12:01:30Z"]);
    assert!(
        before.contains("2026-01-01T12:01:00Z") && before.contains("20.0"),
        "{before}"
    );
    let since: Value = serde_json::from_str(&graph(&["--since", "2026-01-01T12:01:00Z"])).unwrap();
    assert_eq!(since["snapshots"].as_array().unwrap().len(), 2);
}

#[test]
fn its_files_are_what_plan_placement_reads() {
    let controller = controller();
    let address = controller.address().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for name in ["graph", "nodes", "placement", "json"] {
        let text = stdout(&["graph", "--controller", &address, "-o", name]);
        std::fs::write(path(name), text).unwrap();
    }
    let plan = stdout(&[
        "plan",
        "placement",
        "--graph",
        &path("graph"),
        "--nodes",
        &path("nodes"),
        "--current",
        &path("placement"),
    ]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(
        (&plan["feasible"], &plan["moves"]),
        (&json!(true), &json!(0)),
        "{plan}"
    );
    // The printed snapshot is shown again.
    let again = stdout(&["graph", "--file", &path("json"), "-o", "graph"]);
    assert_eq!(again, std::fs::read_to_string(path("graph")).unwrap());
}

/// The graph of one namespace can be placed and tuned separately, within the capacity that the others leave.
#[test]
fn a_namespace_has_the_room_that_others_leave() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut all = snapshot("2026-01-01T12:05:00Z", 40.0);
    let version = |name: &str| {
        json!({"name": name, "cluster": name, "weight": 1, "replicas": 1, "rps": 1.0, "latency_ms": 1.0,
               "failures": 0.0})
    };
    let split = |service: &str| json!({"service": service, "port": 80, "versions": [version("v1"), version("v2")]});
    all["splits"] = json!([split("other/db"), split("shop/cart")]);
    // As Windows writes it, and the last of several.
    let several = json!({"snapshots": [snapshot("2026-01-01T12:00:00Z", 1.0), all]});
    std::fs::write(path("all"), format!("\u{feff}{several}")).unwrap();
    let shown = |form: &str| -> Value {
        let text = stdout(&["graph", "--file", &path("all"), "-n", "shop", "-o", form]);
        std::fs::write(path(form), &text).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let node = &shown("nodes")["nodes"][0];
    assert_eq!(
        *node,
        json!({"name": "n1", "cpu_millis": 1800, "memory_mib": 836, "pods": 99})
    );
    let splits = &shown("json")["splits"];
    assert_eq!(*splits, json!([split("shop/cart")]));
    let advice = maglor(&["plan", "tuning", "--observed", &path("json")]);
    assert!(advice.status.success(), "{advice:?}");
}

#[test]
fn what_cannot_be_had_is_said_in_a_line() {
    let controller = controller();
    let address = controller.address().to_string();
    let prometheus = format!("http://{address}");
    for (arguments, needle) in [
        (
            vec!["--controller", &address, "--at", "noon"],
            "--at `noon`: a time such as",
        ),
        (
            vec!["--controller", &address, "--at", "2026-01-01T11:00:00Z"],
            "no snapshot at or before this time",
        ),
        (
            vec!["--file", "/nowhere/graph.json"],
            "/nowhere/graph.json: ",
        ),
        (
            vec!["--prometheus", &prometheus],
            "not a Prometheus response",
        ),
    ] {
        let output = maglor(&[&["graph"], &arguments[..]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.lines().next().unwrap().contains(needle), "{said}");
    }
    let bad = maglor(&["graph", "--prometheus", "https://a:1"]);
    assert_eq!(bad.status.code(), Some(2));
}

/// Three nodes; web and cart are apart, and cart's node has room for one more only.
fn apart() -> Value {
    let service = |name: &str, node: &str| {
        json!({"name": name, "replicas": 1, "cpu_millis": 500, "memory_mib": 64,
               "pending": 0.0, "rps": 0.0, "nodes": {node: 1}})
    };
    let node = |name: &str| json!({"name": name, "cpu_millis": 1000, "memory_mib": 512});
    json!({
        "at": "2026-01-01T12:05:00Z",
        "window_seconds": 60,
        "services": [service("shop/cart", "n2"), service("shop/web", "n1")],
        "edges": [{"from": "shop/web", "to": "shop/cart", "rps": 40.0, "latency_ms": 3.5, "failures": 0.0,
                   "bytes_per_second": 0.0, "in_flight": 0.0}],
        "nodes": [node("n1"), node("n2")],
    })
}

#[test]
fn a_plan_says_what_it_wins_and_what_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    std::fs::write(&path, apart().to_string()).unwrap();
    let file = path.display().to_string();
    let plan = |more: &[&str]| maglor(&[&["plan", "moves", "--file", &file], more].concat());
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let together = plan(&[]);
    let said = text(&together);
    assert!(
        together.status.success() && said.contains("worth it"),
        "{together:?}"
    );
    assert!(
        said.contains("40.0/s now (100 %), 0.0/s by the plan (0 %)"),
        "{said}"
    );
    let json: Value = serde_json::from_str(&text(&plan(&["-o", "json"]))).unwrap();
    assert_eq!(
        (&json["feasible"], &json["cut_planned"]),
        (&json!(true), &json!(0.0))
    );
    assert_eq!(json["moves"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["routing"], "even", "the default");
    let csv = text(&plan(&["-o", "csv"]));
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("service,node,before,after"));
    assert_eq!(lines.count(), 2, "{csv}");
    // One node is enough for both, not for a third.
    assert!(plan(&["--without", "n2"]).status.success());
    let full = plan(&["--without", "n2", "--replicas", "shop/cart=2"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full).contains("not everything fits"), "{full:?}");
    for (arguments, needle) in [
        (["--without", "n3"], "--without `n3`: unknown node"),
        (["--load", "cart=2"], "--load `cart`: unknown service"),
        (
            ["--replicas", "shop/cart=200000"],
            "snapshot.json: services[0].replicas of `shop/cart` is 200000",
        ),
    ] {
        let output = plan(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && said.contains(needle),
            "{said}"
        );
    }
}

#[test]
fn a_plan_uses_the_current_routing_and_measured_delays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let file = path.display().to_string();
    let plan = |snapshot: &Value, more: &[&str]| -> Value {
        std::fs::write(&path, snapshot.to_string()).unwrap();
        let arguments = ["plan", "moves", "--file", &*file, "-o", "json"];
        serde_json::from_str(&stdout(&[&arguments, more].concat())).unwrap()
    };
    // Halves of both on two nodes: half of all calls leave theirs unless they go to local replicas first.
    let mut spread = apart();
    for service in spread["services"].as_array_mut().unwrap() {
        service["replicas"] = json!(2);
        service["cpu_millis"] = json!(400);
        service["nodes"] = json!({"n1": 1, "n2": 1});
    }
    let even = plan(&spread, &[]);
    assert_eq!(
        (&even["routing"], &even["cut_now"]),
        (&json!("even"), &json!(20.0))
    );
    spread["services"][0]["local_first"] = json!(true);
    let local = plan(&spread, &[]);
    assert_eq!(
        (&local["routing"], &local["cut_now"], &local["moves"]),
        (&json!("local-first"), &json!(0.0), &json!([]))
    );
    let said = plan(&spread, &["--routing", "even"]);
    assert_eq!(said["cut_now"], 20.0);
    // If they do not fit on one node, they should be on nearby nodes.
    let mut far = apart();
    far["services"][0]["cpu_millis"] = json!(800);
    far["services"][1]["cpu_millis"] = json!(800);
    let third = json!({"name": "n3", "cpu_millis": 1000, "memory_mib": 512});
    far["nodes"].as_array_mut().unwrap().push(third);
    far["delays"] = json!([
        {"from": "n1", "to": "n2", "ms": 10.0},
        {"from": "n1", "to": "n3", "ms": 0.5},
    ]);
    assert_eq!(plan(&far, &[])["moves"], json!([]), "a call is a call");
    let near = plan(&far, &["--objective", "latency"]);
    assert_eq!(
        (&near["worth_it"], &near["cut_now"]),
        (&json!(true), &json!(40.0))
    );
    let moves = near["moves"].as_array().unwrap();
    assert!(
        moves
            .iter()
            .any(|one| one["node"] == "n3" && one["after"] == 1),
        "{near}"
    );
}

/// Calls a second and milliseconds each, by caller and called service.
const BOOKINFO: [(&str, &str, &str, f64, f64); 4] = [
    ("productpage", "productpage-v1", "details", 400.0, 4.5),
    ("productpage", "productpage-v1", "reviews", 380.0, 31.0),
    ("reviews", "reviews-v2", "ratings", 150.0, 8.0),
    ("reviews", "reviews-v3", "ratings", 90.0, 13.0),
];

/// Istio's metrics, as if the sidecars had been there for this long.
fn istio(age: Duration) -> String {
    let mut text = String::new();
    for (service, workload, called, rps, ms) in BOOKINFO {
        let count = (rps * age.as_secs_f64()).floor();
        for reporter in ["source", "destination"] {
            let labels = format!(
                "reporter=\"{reporter}\",source_workload=\"{workload}\",source_canonical_service=\"{service}\",\
                 source_workload_namespace=\"default\",destination_service_name=\"{called}\",\
                 destination_canonical_service=\"{called}\",destination_service_namespace=\"default\""
            );
            let times = "istio_request_duration_milliseconds";
            let failed = (count / 50.0).floor();
            let _ = writeln!(
                text,
                "istio_requests_total{{{labels},response_code=\"200\"}} {}\n\
                 istio_requests_total{{{labels},response_code=\"503\"}} {failed}\n\
                 {times}_sum{{{labels}}} {}\n{times}_count{{{labels}}} {count}\n\
                 istio_response_bytes_sum{{{labels}}} {}",
                count - failed,
                count * ms,
                count * 100.0,
            );
        }
    }
    text
}

struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// A Prometheus that scrapes this target; `None`, and a message, if there is none.
    fn start(target: &str) -> Option<Self> {
        let passed = std::env::var_os("MAGLOR_PROMETHEUS").map(PathBuf::from);
        let in_path = || {
            let path = std::env::var_os("PATH")?;
            let mut all = std::env::split_paths(&path).map(|folder| folder.join("prometheus"));
            all.find(|path| path.is_file())
        };
        let Some(program) = passed.or_else(in_path) else {
            println!("skipped: there is no prometheus; MAGLOR_PROMETHEUS=FILE says where one is");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yaml");
        let text = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: istio, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let child = Command::new(&program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=error"])
            .stdin(Stdio::null())
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        Some(Self {
            child,
            address,
            _folder: folder,
        })
    }
}

fn istios_exporter(since: Instant) -> Upstream {
    let exporter = Upstream::start("istio");
    exporter.set_answer(move |_| Some(Answer::text(istio(since.elapsed()))));
    exporter
}

#[test]
fn istios_metrics_in_a_prometheus_are_the_same_graph() {
    let begun = Instant::now();
    let exporter = istios_exporter(begun);
    let Some(prometheus) = Prometheus::start(&exporter.address().to_string()) else {
        return;
    };
    let window = Duration::from_secs(6);
    eventually(TIMEOUT, "Prometheus is ready", || {
        let socket = std::net::TcpStream::connect(&prometheus.address);
        let client = socket.ok().and_then(RawHttp1::try_over);
        client.is_some_and(|mut client| client.get("/-/ready").status == 200)
    });
    let first = exporter.requests();
    let scraped = || exporter.requests() > first + 1 && begun.elapsed() > window * 2;
    eventually(
        TIMEOUT.max(window * 4),
        "it has scraped for a window",
        scraped,
    );
    let url = format!("http://{}", prometheus.address);
    let arguments = [
        "graph",
        "--prometheus",
        &url,
        "--mesh",
        "istio",
        "--window",
        "6s",
        "-o",
        "json",
    ];
    let graph: Value = serde_json::from_str(&stdout(&arguments)).unwrap();
    let edges = graph["edges"].as_array().unwrap();
    let found: Vec<_> = edges
        .iter()
        .map(|edge| (edge["from"].as_str().unwrap(), edge["to"].as_str().unwrap()))
        .collect();
    let (page, reviews) = ("default/productpage", "default/reviews");
    let wanted = [
        (page, "default/details"),
        (page, reviews),
        (reviews, "default/ratings"),
    ];
    assert_eq!(found, wanted, "{graph}");
    for edge in edges {
        let to = edge["to"].as_str().unwrap();
        let of = || BOOKINFO.iter().filter(|row| to.ends_with(row.2));
        let rps: f64 = of().map(|row| row.3).sum();
        let ms = of().map(|row| row.3 * row.4).sum::<f64>() / rps;
        let number = |name: &str| edge[name].as_f64().unwrap();
        println!(
            "{to}: λ {:.1} of {rps}, r {:.3} of {ms:.3}",
            number("rps"),
            number("latency_ms")
        );
        assert!((number("rps") / rps - 1.0).abs() < 0.02, "{edge}, λ {rps}");
        assert!(
            (number("latency_ms") / ms - 1.0).abs() < 0.05,
            "{edge}, r {ms}"
        );
        assert!((number("failures") / rps - 0.02).abs() < 0.002, "{edge}");
    }
    let files = stdout(&[&arguments[..arguments.len() - 1], &["graph"]].concat());
    assert!(files.contains("default/ratings"), "{files}");
}
