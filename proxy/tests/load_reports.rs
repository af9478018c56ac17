//! Load reports of a proxy to its control plane (LRS).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use maglor_testkit::{Proxy, RawHttp1, RawServer, TIMEOUT, Upstream, eventually};
use maglor_xds::grpc_server::{Node, Peer, Policy, Server, Status};
use maglor_xds::load::{ClusterLoad, LoadReport};
use maglor_xds::server::Scope;

use crate::support::control_plane::ControlPlane;
use crate::support::start;

/// A policy that allows everything to all clients, and requests load reports.
#[derive(Default)]
struct Curious(Mutex<Vec<ClusterLoad>>);

impl Policy for Curious {
    fn authorize(&self, _: &Peer, _: &Node) -> Result<Scope, Status> {
        Ok(Arc::new(|_, name| Some(name.into())))
    }

    fn load_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn load(&self, _: &Peer, _: &Node, report: &LoadReport) -> Result<(), Status> {
        self.0.lock().unwrap().extend(report.clusters.clone());
        Ok(())
    }
}

impl Curious {
    /// Returns the sum of all reports about a cluster, computed by `sum`.
    fn sum(&self, cluster: &str, sum: impl Fn(&ClusterLoad) -> u64) -> u64 {
        let heard = self.0.lock().unwrap();
        let of = heard.iter().filter(|load| *load.name == *cluster);
        of.map(sum).sum()
    }
}

fn proxy(control: SocketAddr) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
outbound_grace: 0s
control_plane: {{cluster: control, node: {{id: shop/web-1}}}}
listeners:
- name: out
  address: 127.0.0.1:0
  proxy_protocol: require
  detection_timeout: 300ms
  outbound: {{discovery: {{namespace: shop, timeout: 5s}}}}
clusters:
- {{name: control, endpoints: ['{control}']}}
"
    ))
}

/// Opens a connection with the original destination `to`.
fn connect(proxy: &Proxy, to: &str) -> RawHttp1 {
    let to: SocketAddr = to.parse().unwrap();
    let mut client = RawHttp1::connect(proxy.listener("out"));
    let (ip, port) = (to.ip(), to.port());
    client.send(format!("PROXY TCP4 192.0.2.1 {ip} 1234 {port}\r\n"));
    client
}

fn fixture() -> (Arc<Curious>, ControlPlane) {
    let curious = Arc::<Curious>::default();
    let policy: Arc<dyn Policy> = Arc::clone(&curious) as _;
    let any = "127.0.0.1:0".parse().unwrap();
    (curious, ControlPlane::at(any, Server::new(policy)))
}

#[test]
fn latencies_and_connect_times_are_reported() {
    let ((curious, control), upstream) = (fixture(), Upstream::start("cart"));
    control.serve("10.96.0.20:80", "cart", &[upstream.address()]);
    let proxy = proxy(control.address);
    let mut client = connect(&proxy, "10.96.0.20:80");
    for _ in 0..10 {
        assert_eq!(client.get("/delay/30ms").status, 200);
    }
    assert_eq!(client.get("/delay/300ms").status, 200);
    let of = |sum: &dyn Fn(&ClusterLoad) -> u64| curious.sum("cart", sum);
    eventually(TIMEOUT, "all are reported", || {
        of(&ClusterLoad::requests) == 11
    });
    let slow = |load: &ClusterLoad| -> u64 {
        let above = |most: Option<u64>| most.is_none_or(|most| most > 250_000);
        let times = load.times.iter();
        times
            .filter(|range| above(range.most_micros))
            .map(|range| range.count)
            .sum()
    };
    let all = |load: &ClusterLoad| load.times.iter().map(|range| range.count).sum();
    assert_eq!((of(&all), of(&slow)), (11, 1));
    // Empty buckets are omitted, except where a range begins.
    let heard = curious.0.lock().unwrap().clone();
    let cart = || heard.iter().filter(|load| *load.name == *"cart");
    for load in cart() {
        let two = load.times.windows(2);
        let useless = two.filter(|two| two[0].count + two[1].count == 0);
        assert_eq!(useless.count(), 0, "{load:?}");
    }
    let far: Vec<_> = cart().flat_map(|load| &load.round_trips).collect();
    let opened: u64 = cart().map(|load| load.opened).sum();
    assert!(!far.is_empty() && far.len() as u64 <= opened, "{far:?}");
    assert_eq!(far[0].address, upstream.address());
    assert!(far[0].time < Duration::from_secs(1), "{far:?}");
}

#[test]
fn open_tcp_connections_are_reported() {
    let (curious, control) = fixture();
    let server = RawServer::start(|connection, _| {
        loop {
            let line = connection.read_until(b"\n")?;
            connection.send(line)?;
        }
    });
    control.serve_bytes("10.96.0.20:5432", "database", &[server.address()]);
    let proxy = proxy(control.address);
    let line = format!("{}\n", "x".repeat(999));
    let mut clients = [(); 3].map(|()| connect(&proxy, "10.96.0.20:5432"));
    for client in &mut clients {
        client.send(&line);
        client.connection().expect(&line).unwrap();
    }
    eventually(TIMEOUT, "both ways, and none is over", || {
        curious.sum("database", |load| load.bytes) == 6000
    });
    assert_eq!(curious.sum("database", |load| load.opened), 3);
    assert_eq!(curious.sum("database", ClusterLoad::requests), 0);
    eventually(TIMEOUT, "they are there", || {
        let heard = curious.0.lock().unwrap();
        let last = heard.iter().rev().find(|load| *load.name == *"database");
        last.is_some_and(|load| load.in_flight == 3)
    });
    drop(clients);
    eventually(TIMEOUT, "and gone", || {
        proxy.metric(
            "maglor_upstream_open_connections",
            &["cluster=\"database\""],
        ) == 0.0
    });
    assert_eq!(curious.sum("database", |load| load.bytes), 6000);
}
