//! The dashboard of a mesh with real proxies, without Kubernetes: the graph while traffic changes, a killed replica, the
//! true queues of endpoints, receipts, live requests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maglor_testkit::{RawHttp1, TIMEOUT, eventually};
use serde_json::Value;

use crate::support::mesh::{Mesh, Pod};

/// The response time of the called service, in milliseconds.
const MILLIS: u64 = 50;

fn page(address: SocketAddr, path: &str) -> Value {
    RawHttp1::connect(address).get_local(path).json()
}

/// A document that is followed.
struct Followed(Arc<Mutex<Value>>);

impl Followed {
    fn new(address: SocketAddr, path: &str) -> Self {
        let mut tcp = TcpStream::connect(address).unwrap();
        write!(
            tcp,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        )
        .unwrap();
        let document = Arc::new(Mutex::new(Value::Null));
        let own = Arc::clone(&document);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(tcp).lines().map_while(Result::ok);
            while let Some(line) = lines.next() {
                let Some(kind) = line.strip_prefix("event: ") else {
                    continue;
                };
                let data = lines.next().unwrap();
                let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                let mut document = own.lock().unwrap();
                match kind {
                    "snapshot" => *document = data,
                    _ => json_patch::merge(&mut document, &data),
                }
            }
        });
        Self(document)
    }

    fn number(&self, pointer: &str) -> Option<f64> {
        self.0.lock().unwrap().pointer(pointer)?.as_f64()
    }
}

/// Calls at an even rate that can be changed.
struct Calls {
    /// Calls per second; 0 ends them.
    rate: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Calls {
    fn start(from: &Pod, service: &str) -> Self {
        const CLIENTS: u64 = 16;
        let rate = Arc::new(AtomicU64::new(20));
        let (address, service) = (from.sidecar.listener("outbound"), service.to_owned());
        let client = |number: u64| {
            let (rate, service) = (Arc::clone(&rate), service.clone());
            std::thread::spawn(move || {
                let mut client = RawHttp1::connect(address);
                let mut due = Instant::now() + Duration::from_millis(number * 10);
                loop {
                    let rate = rate.load(Ordering::SeqCst);
                    if rate == 0 {
                        return;
                    }
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let request =
                        format!("GET /delay/{MILLIS}ms HTTP/1.1\r\nhost: {service}\r\n\r\n");
                    assert_eq!(client.request(request).status, 200);
                    due = (due + Duration::from_secs_f64(CLIENTS as f64 / rate as f64))
                        .max(Instant::now());
                }
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        Self { rate, threads }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.rate.store(0, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn start() -> Option<(Mesh, SocketAddr, Vec<Pod>, Pod)> {
    // Proxies report seldom, except while there are viewers.
    let mesh = Mesh::start_with(&["--dashboard", "127.0.0.1:0", "--load-interval", "30s"])?;
    let address = mesh.dashboard.expect("the ready file has the address");
    mesh.service("cart", "10.96.0.10");
    let carts: Vec<Pod> = ["cart-0", "cart-1"]
        .map(|name| {
            let pod = mesh.pod(name, "cart");
            mesh.endpoint("cart", name, pod.inbound(), "");
            pod
        })
        .into();
    let web = mesh.pod("web-0", "web");
    web.reaches("cart");
    Some((mesh, address, carts, web))
}

#[test]
fn the_graph_follows_the_traffic_while_it_is_watched() {
    let Some((mesh, address, carts, web)) = start() else {
        return;
    };
    let graph = Followed::new(address, "/api/v1/mesh");
    let calls = Calls::start(&web, "cart");
    let edge = |field: &str| graph.number(&format!("/edges/web>shop~1cart/{field}"));
    let named = |field: &str| {
        let owner = graph.number(&format!("/edges/shop~1web-0>shop~1cart/{field}"));
        owner.or_else(|| edge(field))
    };
    for rate in [20_u32, 80] {
        calls.rate.store(rate.into(), Ordering::SeqCst);
        let close = |value: f64| (value / f64::from(rate) - 1.0).abs() < 0.1;
        eventually(TIMEOUT, "the rate is that of the calls", || {
            named("rps").is_some_and(close)
        });
        let begun = Instant::now();
        eventually(TIMEOUT, "the time is that of the calls", || {
            named("mean_ms").is_some_and(|ms| (45.0..75.0).contains(&ms))
        });
        println!("{rate}/s: {:?} after {:?}", named("rps"), begun.elapsed());
        assert_eq!(named("success"), Some(1.0));
    }
    // In flight at the endpoints themselves, by rate and time.
    let service = Followed::new(address, "/api/v1/service?name=shop/cart");
    eventually(TIMEOUT, "each endpoint has its own rate", || {
        let rates = [0, 1].map(|at| service.number(&format!("/endpoints/{at}/rps")));
        rates
            .iter()
            .all(|rate| rate.is_some_and(|rate| rate > 20.0))
    });
    let document = service.0.lock().unwrap().clone();
    assert_eq!(
        document["endpoints"][0]["pod"], "shop/cart-0",
        "{document:#}"
    );
    assert_eq!(document["vertex"]["policy"], "lor(choices=2)");
    assert!(
        !document["routes"].as_array().unwrap().is_empty(),
        "{document:#}"
    );
    // A replica goes.
    eventually(TIMEOUT, "both endpoints serve", || {
        graph.number("/vertices/shop~1cart/ready") == Some(2.0)
    });
    let killed = Instant::now();
    mesh.without_endpoint("cart", "cart-1");
    eventually(TIMEOUT, "one endpoint serves", || {
        graph.number("/vertices/shop~1cart/ready") == Some(1.0)
            && service.number("/endpoints/1/weight").is_none()
    });
    let took = killed.elapsed();
    println!("the killed replica was seen after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop((calls, carts));
}

#[test]
fn receipts_series_and_about_are_those_of_this_controller() {
    let Some((mesh, address, carts, web)) = start() else {
        return;
    };
    mesh.policy(
        "TrafficPolicy",
        "retries",
        "{targetRefs: [{kind: Service, name: cart}], cluster: {policy: 'peak-ewma'}}",
    );
    eventually(TIMEOUT, "the change is acknowledged by the caller", || {
        let receipts = page(address, "/api/v1/receipts");
        let changes = receipts["changes"].as_array().unwrap();
        let of_cart = |change: &&Value| {
            change["kind"] == "cluster" && change["name"].as_str().unwrap().starts_with("cart.shop")
        };
        changes.iter().filter(of_cart).any(|change| {
            let deliveries = change["deliveries"].as_array().unwrap();
            change["took_ms"].is_number()
                && deliveries
                    .iter()
                    .any(|one| one["node"] == "shop/web-0" && one["answered_ms"].is_number())
        })
    });
    eventually(TIMEOUT, "the policy is shown", || {
        let service = page(address, "/api/v1/service?name=shop/cart");
        let policies = service["policies"].as_array().unwrap();
        let named = policies.iter().any(|one| one["name"] == "shop/retries");
        named
            && service["vertex"]["policy"]
                .as_str()
                .is_some_and(|policy| policy.starts_with("peak-ewma"))
    });
    let about = page(address, "/api/v1/about");
    assert_eq!(
        (&about["source"], &about["authentication"]),
        (&"folder".into(), &"none".into())
    );
    assert_eq!(about["tap"]["available"], false, "{about}");
    assert!(
        about["tap"]["reason"]
            .as_str()
            .unwrap()
            .contains("--dashboard-proxy"),
        "{about}"
    );
    assert_eq!(
        page(address, "/api/v1/decisions")["decisions"],
        Value::Array(Vec::new())
    );
    eventually(TIMEOUT, "the history begins", || {
        let series = page(address, "/api/v1/series");
        series["rps"]
            .as_array()
            .is_some_and(|rates| rates.iter().any(Value::is_number))
    });
    for view in ["service", "workload", "node"] {
        let graph = page(address, &format!("/api/v1/mesh?view={view}"));
        assert_eq!(graph["view"], view, "{graph}");
    }
    drop((carts, web));
}
