//! A simulated mesh: known numbers that change every second, a replica that disappears, and a proxy with live requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use maglor_controller::dashboard::page::{
    About, AdminPort, Connecting, Connector, Denied, Details, Edge, Endpoint, Mesh, Move,
    Permissions, Permitted, Proxies, Proxy, Signals, Source, Taps, Vertex, View,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Replicas of each service.
const REPLICAS: usize = 3;
/// Nodes of the cluster.
const NODES: usize = 3;

/// A simulated mesh.
#[derive(Debug)]
pub(crate) struct Simulated {
    services: usize,
    edges: usize,
    /// Seconds of the simulation, from which all numbers follow.
    pub(crate) seconds: AtomicU64,
    /// Whether the first service has lost a replica.
    pub(crate) killed: AtomicBool,
    pub(crate) watched: AtomicBool,
    pub(crate) taps: Mutex<Vec<(String, SocketAddr)>>,
    /// Whether viewers use admin ports with their own permissions, as in a cluster. The token is `operator`.
    pub(crate) personal: AtomicBool,
}

/// Permissions for admin ports, which a connector opens.
struct Operator(Vec<(String, SocketAddr)>);

impl Permissions for Operator {
    fn proxies(&self, token: &str) -> Permitted {
        let result = match token {
            "operator" => {
                let connector: Arc<dyn Connector> = Arc::new(Forward(self.0.clone()));
                let names = self.0.iter().map(|(name, _)| name.clone());
                Ok(names
                    .map(|name| (name, AdminPort::Through(Arc::clone(&connector))))
                    .collect())
            }
            "other" => Err(Denied::Forbidden),
            _ => Err(Denied::Invalid),
        };
        Box::pin(async move { result })
    }
}

struct Forward(Vec<(String, SocketAddr)>);

impl Connector for Forward {
    fn connect(&self, proxy: &str) -> Connecting {
        let found = self.0.iter().find(|(name, _)| name == proxy);
        let address = found.map(|(_, address)| *address);
        Box::pin(async move {
            let address = address.ok_or_else(|| "no such pod".to_owned())?;
            let tcp = TcpStream::connect(address).await;
            Ok(Box::new(tcp.map_err(|error| error.to_string())?)
                as Box<dyn maglor_controller::dashboard::page::Io>)
        })
    }
}

impl Simulated {
    pub(crate) fn new(services: usize, edges: usize) -> Arc<Self> {
        Arc::new(Self {
            services,
            edges,
            seconds: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            taps: Mutex::default(),
            personal: AtomicBool::new(false),
        })
    }

    fn name(number: usize) -> String {
        const NAMES: [&str; 8] = [
            "productpage",
            "details",
            "reviews",
            "ratings",
            "cart",
            "checkout",
            "payment",
            "search",
        ];
        match number < NAMES.len() {
            true => format!("shop/{}", NAMES[number]),
            false => format!("shop/service-{number}"),
        }
    }

    /// Returns the calls of an edge at the present second.
    pub(crate) fn signals(&self, edge: usize) -> Signals {
        let second = self.seconds.load(Ordering::Relaxed);
        let wave = (second as f64 / 20.0 + edge as f64).sin();
        let rps = (20.0 + (edge % 17) as f64 * 5.0) * (1.0 + 0.3 * wave);
        let fails = if edge % 7 == 3 { 0.08 } else { 0.001 };
        let mean_ms = 3.0 + (edge % 5) as f64 + wave;
        Signals {
            rps,
            failures: rps * fails,
            mean_ms: Some(mean_ms),
            p50_ms: Some(mean_ms * 0.8),
            p99_ms: Some(mean_ms * 6.0),
            in_flight: (rps * mean_ms / 1000.0).round(),
        }
    }

    /// Returns the ends of all edges: a tree, and further edges from tiers to lower ones.
    fn ends(&self) -> Vec<(usize, usize)> {
        let tier = |number: usize| (2 * number + 1).ilog(3);
        let tree = (1..self.services).map(|to| ((to - 1) / 3, to));
        let mut ends: std::collections::BTreeSet<_> = tree.take(self.edges).collect();
        let more = (2..self.services).flat_map(|step| {
            let from = (0..self.services - step).filter(move |from| (from * 7 + step) % 3 != 0);
            from.map(move |from| (from, from + step))
        });
        for (from, to) in more.filter(|(from, to)| tier(*from) < tier(*to)) {
            if ends.len() >= self.edges {
                break;
            }
            ends.insert((from, to));
        }
        ends.into_iter().collect()
    }

    fn replicas(&self, number: usize) -> usize {
        match number == 0 && self.killed.load(Ordering::Relaxed) {
            true => REPLICAS - 1,
            false => REPLICAS,
        }
    }

    fn services_mesh(&self) -> Mesh {
        let mut mesh = Mesh {
            window: Duration::from_secs(60),
            receipts: self.seconds.load(Ordering::Relaxed) / 10,
            decisions: 1,
            moves: Some(vec![Move {
                vertex: Self::name(1),
                from: "node-1".to_owned(),
                to: "node-0".to_owned(),
                reason: "it calls services on node-0".to_owned(),
            }]),
            ..Mesh::default()
        };
        for (at, (from, to)) in self.ends().into_iter().enumerate() {
            let tcp = at % 11 == 10;
            let signals = match tcp {
                true => Signals {
                    in_flight: 4.0,
                    ..Signals::default()
                },
                false => self.signals(at),
            };
            mesh.edges.push(Edge {
                from: Self::name(from),
                to: Self::name(to),
                signals,
                retries: (at % 4 == 0).then_some(signals.rps * 0.01),
                bytes_per_second: Some(signals.rps * 1200.0),
                connections_per_second: Some(0.2),
                tcp,
                mtls: Some(to % 5 != 4),
                // Calls to one service are partly by mutual TLS, as during a migration.
                mtls_share: (!tcp).then_some(match to % 5 {
                    4 => 0.0,
                    3 => 0.625,
                    _ => 1.0,
                }),
                policy: Some("lor(choices=2)".to_owned()),
                ..Edge::default()
            });
        }
        for number in 0..self.services {
            let name = Self::name(number);
            let mut sum = Signals::default();
            for edge in mesh.edges.iter().filter(|edge| edge.to == name) {
                sum.rps += edge.signals.rps;
                sum.failures += edge.signals.failures;
                sum.in_flight += edge.signals.in_flight;
                sum.p50_ms = edge.signals.p50_ms.or(sum.p50_ms);
                sum.p99_ms = edge.signals.p99_ms.or(sum.p99_ms);
            }
            let replicas = u32::try_from(self.replicas(number)).unwrap();
            let nodes =
                (0..self.replicas(number)).map(|replica| (format!("node-{}", replica % NODES), 1));
            mesh.vertices.insert(
                name,
                Vertex {
                    kind: View::Service,
                    meshed: true,
                    signals: Some(sum),
                    replicas: Some(replicas),
                    ready: Some(replicas),
                    mtls: Some(number % 5 != 4),
                    policy: Some("lor(choices=2)".to_owned()),
                    cpu_used_millis: Some(12.0),
                    memory_used_mib: Some(40.0),
                    nodes: nodes.collect(),
                    ..Vertex::default()
                },
            );
        }
        mesh
    }
}

impl Source for Simulated {
    fn about(&self) -> About {
        About {
            version: "0.1.0",
            source: "folder",
            replica: None,
        }
    }

    fn mesh(&self, view: View) -> Mesh {
        let mut mesh = self.services_mesh();
        match view {
            View::Service => {}
            View::Workload => {
                for vertex in mesh.vertices.values_mut() {
                    vertex.kind = View::Workload;
                }
            }
            View::Node => {
                let services: Vec<String> = mesh.vertices.keys().cloned().collect();
                mesh.vertices = (0..NODES)
                    .map(|node| {
                        let vertex = Vertex {
                            kind: View::Node,
                            meshed: true,
                            zone: Some("a".to_owned()),
                            capacity: Some((4000, 8192)),
                            vertices: services.clone(),
                            ..Vertex::default()
                        };
                        (format!("node-{node}"), vertex)
                    })
                    .collect();
                mesh.edges = (0..NODES - 1)
                    .map(|node| Edge {
                        from: format!("node-{node}"),
                        to: format!("node-{}", node + 1),
                        delay_ms: Some(0.2 + node as f64),
                        ..Edge::default()
                    })
                    .collect();
            }
        }
        mesh
    }

    fn details(&self, service: &str) -> Option<Details> {
        let number = (0..self.services).find(|number| Self::name(*number) == service)?;
        let second = self.seconds.load(Ordering::Relaxed);
        let pod = |replica: usize| format!("{service}-{replica}");
        let endpoints = (0..self.replicas(number)).map(|replica| Endpoint {
            address: format!("10.0.{number}.{}:8080", replica + 1),
            pod: Some(pod(replica)),
            node: Some(format!("node-{}", replica % NODES)),
            zone: Some("a".to_owned()),
            health: "healthy",
            weight: 1,
            signals: Some(Signals {
                in_flight: ((second as usize + replica) % 4) as f64,
                ..self.signals(number)
            }),
            age: Some(Duration::from_millis(800)),
        });
        let proxies = (0..self.replicas(number)).map(|replica| Proxy {
            pod: pod(replica),
            node: Some(format!("node-{}", replica % NODES)),
            memory_bytes: Some(9_000_000),
            age: Some(Duration::from_millis(800)),
        });
        Some(Details {
            endpoints: endpoints.collect(),
            routes: vec![(
                "host".to_owned(),
                json!({"virtual_hosts": [{"domains": ["*"]}]}),
            )],
            clusters: vec![("cluster".to_owned(), json!({"policy": "lor(choices=2)"}))],
            policies: Some(vec![("TrafficPolicy".to_owned(), "shop/near".to_owned())]),
            proxies: proxies.collect(),
        })
    }

    fn receipts(&self) -> Vec<Value> {
        let last = self.seconds.load(Ordering::Relaxed) / 10;
        let changes = (0..=last).rev().take(100);
        changes
            .map(|change| {
                json!({"change": change, "kind": "endpoints", "name": "productpage.shop", "at": 1_764_200_000 + change * 10,
                    "complete": true, "took_ms": 3.2, "deliveries": [
                        {"node": "shop/details-0", "sent_ms": 0.4, "answered_ms": 1.9},
                        {"node": "shop/reviews-0", "sent_ms": 0.5, "answered_ms": 3.2}]})
            })
            .collect()
    }

    fn decisions(&self) -> Vec<Value> {
        vec![
            json!({"kind": "PlacementPolicy", "name": "shop/all", "at": 1_764_200_000,
            "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "in force"}],
            "summary": "1 of 12 pods would move"}),
        ]
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(2))
    }

    fn taps(&self) -> Result<Taps, &'static str> {
        let taps = self.taps.lock().unwrap().clone();
        if self.personal.load(Ordering::Relaxed) {
            return Ok(Taps::Personal(Arc::new(Operator(taps))));
        }
        let open = taps
            .into_iter()
            .map(|(name, address)| (name, AdminPort::At(address)));
        let open: Proxies = open.collect();
        match open.is_empty() {
            true => Err("no admin port of a proxy can be reached"),
            false => Ok(Taps::Open(open)),
        }
    }

    fn vertex_of_proxy(&self, proxy: &str) -> Option<String> {
        Some(proxy.rsplit_once('-')?.0.to_owned())
    }

    fn vertex_of_cluster(&self, cluster: &str) -> Option<String> {
        Some(format!("shop/{cluster}"))
    }

    fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }
}

/// The stories of the admin port, the first of which is slow, and the second failed.
pub(crate) fn stories() -> [Value; 2] {
    let candidate =
        |endpoint: &str, in_flight: u32| json!({"endpoint": endpoint, "in_flight": in_flight});
    let attempt = |number: u32, endpoint: &str, in_flight: u32| {
        json!({"number": number, "cluster": "reviews", "policy": "lor(choices=2)", "endpoint": endpoint,
            "tls": "mesh", "in_flight": in_flight, "candidates_total": 3,
            "candidates": [candidate(endpoint, in_flight), candidate("10.0.2.3:8080", 2)],
            "began_ms": 0.1, "took_ms": 405.0, "outcome": "status", "status": 200, "answered": true})
    };
    let request = |target: &str, status: u16| {
        json!({"method": "GET", "target": target, "host": "reviews.shop", "status": status,
            "response_bytes": 120})
    };
    let mut slow = json!({"id": "5e1c0f7a-2b64-4a0e-9d6e-5a4c1f0b7d21", "time": "2026-11-27T01:11:16.103Z",
        "listener": "outbound", "direction": "outbound", "client": "127.0.0.1:51234", "flag": "-",
        "request": request("/reviews/7", 200), "attempts": [attempt(1, "10.0.2.1:8080", 9)],
        "route": {"virtual_host": "reviews.shop", "name": "reviews/0", "path": "/*"},
        "times": {"total_ms": 432.0, "queued_ms": 12.0, "fault_ms": 0.0, "first_byte_ms": 405.0,
            "body_ms": 21.0, "client_ms": 1.5}});
    slow["attempts"][0]["connect_ms"] = json!(6.0);
    slow["attempts"][0]["connected"] = json!(true);
    let mut failed = json!({"id": "9d6e5a4c-0000-4000-8000-00000000002a", "time": "2026-11-27T01:11:15.001Z",
        "listener": "outbound", "direction": "outbound", "client": "127.0.0.1:51240", "flag": "UF",
        "request": request("/reviews/8", 503), "error": "connect failed: Connection refused",
        "route": {"virtual_host": "reviews.shop", "name": "reviews/0", "path": "/*"},
        "attempts": [attempt(1, "10.0.2.1:8080", 3), attempt(2, "10.0.2.2:8080", 1)],
        "times": {"total_ms": 8.0, "queued_ms": 0.0, "fault_ms": 0.0}});
    for (at, began) in [(0, 0.1), (1, 4.0)] {
        let attempt = &mut failed["attempts"][at];
        attempt["began_ms"] = json!(began);
        attempt["took_ms"] = json!(3.5);
        attempt["outcome"] = json!("error");
        attempt["flag"] = json!("UF");
        attempt["error"] = json!("connect failed: Connection refused");
        attempt["connected"] = json!(false);
        attempt["answered"] = json!(false);
        attempt["status"] = Value::Null;
        attempt["tls"] = Value::Null;
    }
    [slow, failed]
}

/// Returns the page of stories for a request.
fn why(head: &str) -> String {
    let target = head.split(' ').nth(1).unwrap_or_default();
    let mut pairs = target
        .split(['?', '&'])
        .filter_map(|pair| pair.split_once('='));
    let id = pairs.find(|(name, _)| *name == "id");
    let id = id.map(|(_, id)| percent_decode_str(id).decode_utf8_lossy().into_owned());
    let mut stories = stories().to_vec();
    stories.retain(|story| id.as_ref().is_none_or(|id| story["id"] == **id));
    let body = json!({"on": true, "dropped": 0, "stories": stories}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Starts an admin port that shows a request every 100 ms, and stories; returns its address.
pub(crate) async fn tapped_proxy() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = socket.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 1024];
                let length = tcp.read(&mut head).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&head[..length]);
                if text.starts_with("GET /why") {
                    let _ = tcp.write_all(why(&text).as_bytes()).await;
                    return;
                }
                let only_errors = head[..length].windows(10).any(|part| part == b"status=5xx");
                let _ = tcp
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
                    .await;
                for number in 0_u64.. {
                    let fails = only_errors || number % 5 == 4;
                    let status = if fails { 503 } else { 200 };
                    let line = json!({"time": format!("2026-11-21T18:01:{:02}.{}23Z", number / 10 % 60, number % 10), "direction": "outbound", "client": "10.1.0.9:4000",
                        "peer": "spiffe://cluster.local/ns/shop/sa/productpage", "method": "GET", "target": format!("/reviews/{number}"),
                        "host": "reviews", "protocol": "HTTP/1.1", "status": status, "flag": "-", "duration_ms": 3.1,
                        "response_bytes": 120, "cluster": "reviews", "upstream": "10.0.2.1:8080", "tries": 1});
                    if tcp.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
    });
    address
}
