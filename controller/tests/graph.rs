//! The communication graph of Bookinfo (Fig. 4 of the paper in docs/placement.md), from the reports of real
//! proxies, compared with the measurements of the applications.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use maglor_testkit::{RawHttp1, TIMEOUT, eventually, wait};
use serde_json::Value;

use crate::support::mesh::{Mesh, Pod};

/// T, and how often proxies report.
const WINDOW: Duration = Duration::from_secs(8);
const INTERVAL: Duration = Duration::from_millis(500);
/// Clients that share an edge's calls.
const CLIENTS: u32 = 8;

/// When a call ended, and how long it took.
type Ended = (Instant, Duration);

/// Calls at even times, and what the caller has measured of them.
struct Calls {
    stop: Arc<AtomicBool>,
    ended: Arc<Mutex<Vec<Ended>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Calls {
    /// `per_second` calls of a service, each of which takes the server about `ms`.
    fn start(from: &Pod, service: &str, ms: u64, per_second: f64) -> Self {
        let (stop, ended) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<Ended>>>::default(),
        );
        let address = from.sidecar.listener("outbound");
        let request = format!("GET /delay/{ms}ms HTTP/1.1\r\nhost: {service}\r\n\r\n");
        let each = Duration::from_secs_f64(f64::from(CLIENTS) / per_second);
        let begun = Instant::now();
        let client = |number| {
            let (stop, ended, request) = (Arc::clone(&stop), Arc::clone(&ended), request.clone());
            let first = begun + each * number / CLIENTS;
            std::thread::spawn(move || call(address, &request, first, each, &stop, &ended))
        };
        let threads = (0..CLIENTS).map(client).collect();
        Self {
            stop,
            ended,
            threads,
        }
    }

    /// Calls a second over the window until `now`, and their mean time in milliseconds.
    fn measured(&self, now: Instant) -> (f64, f64) {
        let ended = self.ended.lock().unwrap();
        let within = ended
            .iter()
            .filter(|(at, _)| *at <= now && *at > now - WINDOW);
        let (count, sum) = within.fold((0_u32, Duration::ZERO), |(count, sum), (_, took)| {
            (count + 1, sum + *took)
        });
        let mean = sum.as_secs_f64() * 1000.0 / f64::from(count);
        (f64::from(count) / WINDOW.as_secs_f64(), mean)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn call(
    address: SocketAddr,
    request: &str,
    first: Instant,
    each: Duration,
    stop: &AtomicBool,
    ended: &Mutex<Vec<Ended>>,
) {
    let mut client = RawHttp1::connect(address);
    let mut due = first;
    while !stop.load(SeqCst) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let begun = Instant::now();
        let response = client.request(request);
        assert_eq!(response.status, 200);
        ended
            .lock()
            .unwrap()
            .push((Instant::now(), begun.elapsed()));
        due += each;
    }
}

fn pods(mesh: &Mesh, service: &str, address: &str, names: &[&str]) -> Vec<Pod> {
    mesh.service(service, address);
    let pod = |name: &&str| {
        let pod = mesh.pod(name, service);
        mesh.endpoint(service, name, pod.inbound(), "");
        pod
    };
    names.iter().map(pod).collect()
}

fn close(one: f64, other: f64, part: f64) -> bool {
    (one - other).abs() <= part * other
}

/// The pods of Bookinfo: productpage, details, reviews, ratings.
fn bookinfo(mesh: &Mesh) -> [Vec<Pod>; 4] {
    let versions = ["reviews-v1", "reviews-v2", "reviews-v3"];
    let ratings = pods(mesh, "ratings", "10.96.0.13", &["ratings-v1"]);
    let reviews = pods(mesh, "reviews", "10.96.0.12", &versions);
    let details = pods(mesh, "details", "10.96.0.11", &["details-v1"]);
    let productpage = pods(mesh, "productpage", "10.96.0.10", &["productpage-v1"]);
    productpage[0].reaches("details");
    productpage[0].reaches("reviews");
    reviews[1].reaches("ratings");
    reviews[2].reaches("ratings");
    [productpage, details, reviews, ratings]
}

/// λ and r by caller and called service; nothing has failed.
fn edges(graph: &Value) -> BTreeMap<(String, String), (f64, f64)> {
    let mut edges = BTreeMap::new();
    for edge in graph["edges"].as_array().unwrap() {
        let text = |name: &str| edge[name].as_str().unwrap().to_owned();
        let number = |name: &str| edge[name].as_f64().unwrap();
        assert_eq!(number("failures"), 0.0, "{edge}");
        let traffic = (number("rps"), number("latency_ms"));
        edges.insert((text("from"), text("to")), traffic);
    }
    edges
}

/// Every call of an edge takes about as long as every other: so the median is r, nearly, and p99 in the range, as
/// proxies count times, in which that is, or in the next one.
fn quantiles(graph: &Value) {
    for edge in graph["edges"].as_array().unwrap() {
        let number = |name: &str| edge[name].as_f64().unwrap();
        let (mean, p50, p99) = (number("latency_ms"), number("p50_ms"), number("p99_ms"));
        println!("r {mean:.2} ms, p50 {p50:.2}, p99 {p99:.2}");
        assert!(p50 <= p99, "{edge}");
        assert!(close(p50, mean, 0.15), "{edge}");
        assert!((mean / 2.5..=mean * 6.3).contains(&p99), "{edge}");
    }
}

/// An edge compared with the measurements of its callers.
fn compare(edge: (f64, f64), calls: &[Calls], now: Instant, what: &str) {
    let measured: Vec<_> = calls.iter().map(|calls| calls.measured(now)).collect();
    let rate: f64 = measured.iter().map(|(rate, _)| rate).sum();
    let mean = measured.iter().map(|(rate, mean)| rate * mean).sum::<f64>() / rate;
    let (rps, latency) = edge;
    println!("{what}: λ {rps:.2}/s, measured {rate:.2}; r {latency:.2} ms, measured {mean:.2}");
    assert!(close(rps, rate, 0.02), "{what}: λ {rps}, measured {rate}");
    assert!(
        close(latency, mean, 0.05),
        "{what}: r {latency}, measured {mean}"
    );
}

#[test]
fn bookinfo_is_seen_as_it_is() {
    let window = format!("{}s", WINDOW.as_secs());
    let interval = format!("{}ms", INTERVAL.as_millis());
    let arguments = [
        ["--load-interval", &interval],
        ["--graph-window", &window],
        ["--graph-average", "plain"],
    ];
    let Some(mesh) = Mesh::start_with(arguments.as_flattened()) else {
        return;
    };
    let [productpage, _details, reviews, _ratings] = bookinfo(&mesh);
    let start = |from: &Pod, to: &str, ms, rate| Calls::start(from, to, ms, rate);
    let calls = [
        vec![start(&productpage[0], "details", 60, 24.0)],
        vec![start(&productpage[0], "reviews", 120, 20.0)],
        // The first version of reviews shows no stars.
        vec![
            start(&reviews[1], "ratings", 80, 8.0),
            start(&reviews[2], "ratings", 80, 12.0),
        ],
    ];
    let (begun, enough) = (Instant::now(), WINDOW + 6 * INTERVAL);
    eventually(TIMEOUT.max(2 * enough), "the window is full", || {
        begun.elapsed() > enough
    });
    let graph = mesh.graph();
    // Reports are up to an interval old.
    let now = Instant::now() - INTERVAL / 2;
    quantiles(&graph);
    let edges = edges(&graph);
    let wanted = [
        ("shop/productpage", "shop/details"),
        ("shop/productpage", "shop/reviews"),
        ("shop/reviews", "shop/ratings"),
    ]
    .map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert!(edges.keys().eq(&wanted), "{graph}");
    for (ends, calls) in wanted.iter().zip(&calls) {
        compare(edges[ends], calls, now, &format!("{} → {}", ends.0, ends.1));
    }
    let services = graph["services"].as_array().unwrap();
    let reviews = services.iter().find(|one| one["name"] == "shop/reviews");
    let reviews = reviews.unwrap();
    assert_eq!(reviews["replicas"], 3);
    let taken = reviews["rps"].as_f64().unwrap();
    let sent = edges[&wanted[1]].0;
    assert!(
        close(taken, sent, 0.05),
        "what is sent is taken: {taken} {sent}"
    );
    drop(calls);
    let calm = "no calls any more";
    eventually(TIMEOUT.max(3 * WINDOW), calm, || {
        mesh.graph()["edges"].as_array().unwrap().is_empty()
    });
}

#[test]
fn bytes_of_requests_count_too() {
    let arguments = [["--load-interval", "200ms"], ["--graph-window", "60s"]];
    let Some(mesh) = Mesh::start_with(arguments.as_flattened()) else {
        return;
    };
    mesh.service("cart", "10.96.0.10");
    // Reports are accepted only for known pods.
    let cart = pod_on(&mesh, "cart-0", "cart", "n1");
    let web = pod_on(&mesh, "web-0", "web", "n1");
    web.reaches("cart");
    // Long before the window is full, rates are correct relative to each other.
    let mut client = RawHttp1::connect(web.sidecar.listener("outbound"));
    let body = "x".repeat(100_000);
    let bytes = |edge: &Value| edge["bytes_per_second"].as_f64().unwrap();
    let rps = |edge: &Value| edge["rps"].as_f64().unwrap();
    // Reports of a pod that is not known yet are ignored.
    wait::until(TIMEOUT, "requests have bytes", || {
        let head = "POST /delay/1ms HTTP/1.1\r\nhost: cart\r\ncontent-length: 100000\r\n\r\n";
        assert_eq!(client.request(format!("{head}{body}")).status, 200);
        let graph = mesh.graph();
        let edges = graph["edges"].as_array()?;
        let edge = edges.iter().find(|edge| edge["to"] == "shop/cart")?;
        (rps(edge) > 0.0 && bytes(edge) > 50_000.0 * rps(edge)).then_some(())
    });
    drop((cart, client));
}

/// A pod that runs on a node, as an endpoint of its Service.
fn pod_on(mesh: &Mesh, name: &str, service: &str, node: &str) -> Pod {
    let pod = mesh.pod(name, service);
    mesh.put(
        &format!("pod-{name}"),
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, labels: {{app: {service}}}, \
             annotations: {{maglor.dev/injected: 'true'}}}}, \
             spec: {{serviceAccountName: {service}, nodeName: {node}, containers: []}}}}"
        ),
    );
    let at = pod.inbound();
    mesh.put(
        &format!("slice-{service}-{name}"),
        &format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: {service}-{name}, namespace: shop, labels: {{kubernetes.io/service-name: {service}}}}}, \
             ports: [{{name: http, port: {}}}], endpoints: [{{addresses: [{}], nodeName: {node}, \
             targetRef: {{kind: Pod, name: {name}, namespace: shop}}}}]}}",
            at.port(),
            at.ip()
        ),
    );
    pod
}

/// The number of calls by answering pod.
fn answers(from: &Pod, service: &str, calls: usize) -> BTreeMap<String, usize> {
    let mut by = BTreeMap::new();
    for _ in 0..calls {
        let (status, name) = from.get(service, "/");
        assert_eq!(status, 200);
        *by.entry(name).or_default() += 1;
    }
    by
}

#[test]
fn calls_stay_on_their_node_as_far_as_there_is_room() {
    let arguments = [["--load-interval", "200ms"], ["--graph-window", "2s"]];
    let Some(mesh) = Mesh::start_with(arguments.as_flattened()) else {
        return;
    };
    mesh.service("cart", "10.96.0.10");
    let on = |name: &str, node: &str| pod_on(&mesh, name, "cart", node);
    let (near, far) = (on("cart-0", "n1"), on("cart-1", "n2"));
    let web = ["n1", "n2"].map(|node| pod_on(&mesh, &format!("web-{node}"), "web", node));
    web.iter().for_each(|web| web.reaches("cart"));
    assert_eq!(
        answers(&web[0], "cart", 60).len(),
        2,
        "everywhere, unless a policy says otherwise"
    );
    let local_first = |slack: u8| {
        let first = format!("localFirst: {{slackPercent: {slack}}}");
        let spec = format!("{{targetRefs: [{{kind: Service, name: cart}}], {first}}}");
        mesh.policy("TrafficPolicy", "local", &spec);
    };
    // Clients that do not wait call at rates of their own: each endpoint may have them all.
    local_first(100);
    let load = web.each_ref().map(|web| web.load("cart", 1));
    let own = |web: &Pod, name: &str| answers(web, "cart", 20).get(name) == Some(&20);
    eventually(TIMEOUT, "both call what is on their node", || {
        own(&web[0], "cart-0") && own(&web[1], "cart-1")
    });
    // A client that loses the endpoint on its node calls the other one, without a failure.
    mesh.without_endpoint("cart", "cart-1");
    eventually(TIMEOUT, "there is one left", || own(&web[1], "cart-0"));
    let [first, second] = load;
    second.stop();
    let _far = pod_on(&mesh, "cart-2", "cart", "n2");
    local_first(0);
    // All calls come from the first node now: calls beyond its endpoint's half go to the other one.
    eventually(TIMEOUT, "calls leave the node that has too many", || {
        let by = answers(&web[0], "cart", 100);
        (30..=70).contains(&by.get("cart-2").copied().unwrap_or(0))
    });
    println!("{} requests, none failed", first.stop());
    drop((near, far));
}
