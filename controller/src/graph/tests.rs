//! From reports to snapshots, with time as an argument.

mod confirmed;
mod silent;

use super::*;
use crate::index::Index;
use crate::index::facts::{Amounts, Object};
use crate::index::topology::{self, Room, Vertex};
use maglor_xds::load::{Range, RoundTrip};

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn graphs() -> Graphs {
    let graphs = Graphs::new(Settings {
        averaging: Averaging::Plain,
        ..Settings::default()
    });
    let mut topology = Topology::default();
    for (pod, vertex) in [
        ("web-0", "shop/web"),
        ("web-1", "shop/web"),
        ("cart-0", "shop/cart"),
    ] {
        topology
            .pods
            .insert(Key::new("shop", pod), vertex.to_owned());
        let vertex = topology
            .vertices
            .entry(vertex.to_owned())
            .or_insert_with(|| Vertex {
                meshed: true,
                ..Vertex::default()
            });
        vertex.replicas += 1;
        *vertex.nodes.entry("n1".to_owned()).or_default() += 1;
    }
    graphs.set_topology(topology);
    graphs
}

fn load(cluster: &str, requests: u64) -> ClusterLoad {
    ClusterLoad {
        name: cluster.into(),
        succeeded: requests - requests / 10,
        failed: requests / 10,
        timed: requests,
        seconds: requests as f64 * 0.005,
        times: [(2500, 0), (5000, requests / 2), (10_000, requests / 2)]
            .map(|(most, count)| Range {
                most_micros: Some(most),
                count,
            })
            .into(),
        bytes: requests * 100,
        opened: requests / 10,
        in_flight: 2,
        ..ClusterLoad::default()
    }
}

fn report(seconds: u64, clusters: Vec<ClusterLoad>) -> LoadReport {
    LoadReport {
        interval: Duration::from_secs(seconds),
        clusters,
        memory: None,
    }
}

fn snapshot(graphs: &Graphs, now: Time) -> Snapshot {
    let state = graphs.state();
    state.snapshot(&graphs.topology(), Timestamp::UNIX_EPOCH, now)
}

const CART: &str = "cart.shop.svc.cluster.local:80";

#[test]
fn reports_of_replicas_become_one_edge() {
    let graphs = graphs();
    for round in 1..=6 {
        graphs.take_at(
            "shop/web-0",
            &report(10, vec![load(CART, 100)]),
            at(round * 10),
        );
        graphs.take_at(
            "shop/web-1",
            &report(10, vec![load(CART, 300)]),
            at(round * 10),
        );
        let own = load("inbound/application", 500);
        graphs.take_at("shop/cart-0", &report(10, vec![own]), at(round * 10));
    }
    let snapshot = snapshot(&graphs, at(60));
    let [edge] = &snapshot.edges[..] else {
        panic!("{snapshot:?}");
    };
    assert_eq!((&*edge.from, &*edge.to), ("shop/web", "shop/cart"));
    assert!((edge.rps - 40.0).abs() < 1e-9, "{edge:?}");
    assert!((edge.latency_ms - 5.0).abs() < 1e-9, "{edge:?}");
    assert!((edge.failures - 4.0).abs() < 1e-9, "{edge:?}");
    assert!((edge.bytes_per_second - 4000.0).abs() < 1e-9, "{edge:?}");
    assert_eq!(edge.in_flight, 4.0);
    assert!((edge.connections_per_second - 4.0).abs() < 1e-9, "{edge:?}");
    // Half of the calls take 2.5 to 5 ms, half 5 to 10 ms; 5 ms in the mean.
    assert!(
        edge.p50_ms.is_some_and(|p50| (p50 - 5.0).abs() < 0.01),
        "{edge:?}"
    );
    assert!(
        edge.p99_ms.is_some_and(|p99| p99 > 5.0 && p99 < 9.9),
        "{edge:?}"
    );
    let names: Vec<_> = snapshot
        .services
        .iter()
        .map(|one| (&*one.name, one.replicas))
        .collect();
    assert_eq!(names, [("shop/cart", 1), ("shop/web", 2)]);
    // Ten calls per second come from outside the mesh.
    let cart = &snapshot.services[0];
    assert!(
        (cart.rps - 50.0).abs() < 1e-9 && cart.pending == 2.0,
        "{cart:?}"
    );
}

#[test]
fn who_is_idle_or_reports_nothing_lowers_no_rate_of_others() {
    let graphs = graphs();
    graphs.take_at("shop/web-0", &report(10, vec![load(CART, 100)]), at(10));
    graphs.take_at("shop/web-0", &report(0, Vec::new()), at(20));
    let edges = snapshot(&graphs, at(20)).edges;
    assert!(
        (edges[0].rps - 5.0).abs() < 1e-9,
        "half of the time idle: {edges:?}"
    );
    let unknown = ClusterLoad {
        timed: 0,
        seconds: 0.0,
        ..load(CART, 100)
    };
    graphs.take_at(
        "an-envoy",
        &report(10, vec![unknown, load("other", 5)]),
        at(20),
    );
    let snapshot = snapshot(&graphs, at(20));
    let envoy = snapshot.edges.iter().find(|edge| edge.from == "an-envoy");
    let envoy = envoy.unwrap();
    assert!(
        (envoy.rps - 10.0).abs() < 1e-9 && envoy.latency_ms == 0.0,
        "{envoy:?}"
    );
    assert!(
        snapshot
            .services
            .iter()
            .any(|one| one.name == "an-envoy" && one.replicas == 1)
    );
}

#[test]
fn a_proxy_that_goes_to_another_replica_counts_once() {
    let parts = |graphs: &Graphs, now| -> Vec<Part> {
        let state = graphs.state();
        let parts = state.averages.edges.parts(now);
        parts.map(|part| Part::new(&part, now)).collect()
    };
    let (old, new) = (graphs(), graphs());
    old.take_at("shop/web-0", &report(10, vec![load(CART, 100)]), at(10));
    old.take_at("shop/web-1", &report(10, vec![load(CART, 200)]), at(10));
    new.take_at("shop/web-0", &report(10, vec![load(CART, 120)]), at(20));
    let replicas = [parts(&old, at(20)), parts(&new, at(20))];
    let whole = snapshot(&old, at(20)).with_parts(&replicas);
    assert_eq!(whole.edges.len(), 1);
    assert!((whole.edges[0].rps - 32.0).abs() < 1e-9, "{whole:?}");
    assert!((whole.edges[0].latency_ms - 5.0).abs() < 1e-9, "{whole:?}");
}

#[test]
fn quantiles_of_several_replicas_are_those_of_all_calls() {
    let slow = |load: ClusterLoad| ClusterLoad {
        times: vec![
            Range {
                most_micros: Some(100_000),
                count: 0,
            },
            Range {
                most_micros: Some(250_000),
                count: load.requests(),
            },
        ],
        ..load
    };
    let (one, other) = (graphs(), graphs());
    one.take_at("shop/web-0", &report(10, vec![load(CART, 980)]), at(10));
    other.take_at(
        "shop/web-1",
        &report(10, vec![slow(load(CART, 20))]),
        at(10),
    );
    let parts = |graphs: &Graphs| -> Vec<Part> {
        let state = graphs.state();
        let parts = state.averages.edges.parts(at(10));
        parts.map(|part| Part::new(&part, at(10))).collect()
    };
    let sent = serde_json::to_string(&[parts(&one), parts(&other)]).unwrap();
    let replicas: [Vec<Part>; 2] = serde_json::from_str(&sent).unwrap();
    let edge = &snapshot(&one, at(10)).with_parts(&replicas).edges[0];
    // Two of a hundred are slow, reported by another proxy to another replica.
    assert!(edge.p99_ms.is_some_and(|p99| p99 >= 100.0), "{edge:?}");
    assert!(edge.p50_ms.unwrap() < 6.0, "{edge:?}");
    // A replica of an earlier version does not report the spread of times; its other values are used.
    let old = sent.replace("\"times\":", "\"unknown\":");
    let old: [Vec<Part>; 2] = serde_json::from_str(&old).unwrap();
    let edge = &snapshot(&one, at(10)).with_parts(&old).edges[0];
    assert!((edge.rps - 100.0).abs() < 1e-9 && edge.p99_ms.is_none());
}

/// Versions are one vertex, and each is identified by its cluster.
#[test]
fn versions_are_known_each() {
    let with_versions = || {
        let graphs = graphs();
        let mut topology = (*graphs.topology()).clone();
        let version = |name: &str, weight| topology::Version {
            name: name.to_owned(),
            weight,
            replicas: 1,
            ..topology::Version::default()
        };
        let versions = [
            (V1.to_owned(), version("cart-v1", 80)),
            (V2.to_owned(), version("cart-v2", 20)),
        ];
        let split = topology::Split {
            port: 80,
            versions: versions.into(),
        };
        topology.splits.insert("shop/cart".to_owned(), split);
        for name in ["cart-v1", "cart-v2"] {
            let vertex = "shop/cart".to_owned();
            topology.services.insert(Key::new("shop", name), vertex);
        }
        graphs.set_topology(topology);
        graphs
    };
    const V1: &str = "cart-v1.shop.svc.cluster.local:80";
    const V2: &str = "cart-v2.shop.svc.cluster.local:80";
    let (one, other) = (with_versions(), with_versions());
    let calls = |first, second| report(10, vec![load(V1, first), load(V2, second)]);
    one.take_at("shop/web-0", &calls(800, 200), at(10));
    other.take_at("shop/web-1", &calls(0, 100), at(10));
    let own = snapshot(&one, at(10));
    let rates = |snapshot: &Snapshot| -> Vec<(String, f64, f64)> {
        let versions = snapshot.splits[0].versions.iter();
        versions
            .map(|one| (one.name.clone(), one.rps.round(), one.failures.round()))
            .collect()
    };
    let expected = |v1: f64, v2: f64| {
        [("cart-v1", v1), ("cart-v2", v2)].map(|(name, rps)| (name.to_owned(), rps, rps / 10.0))
    };
    assert_eq!(rates(&own), expected(80.0, 20.0));
    assert!((own.splits[0].versions[0].latency_ms - 5.0).abs() < 1e-9);
    assert_eq!((own.edges.len(), own.edges[0].rps.round()), (1, 100.0));
    let parts = |graphs: &Graphs| graphs.state().averages.parts(at(10)).collect::<Vec<_>>();
    let all = serde_json::to_string(&[parts(&one), parts(&other)]).unwrap();
    let all: [Vec<Part>; 2] = serde_json::from_str(&all).unwrap();
    let whole = own.with_parts(&all);
    assert_eq!(rates(&whole), expected(80.0, 30.0));
    assert_eq!((whole.edges.len(), whole.edges[0].rps.round()), (1, 110.0));
    let text = serde_json::to_string(&whole).unwrap();
    assert!(maglor_service_graph::file::graph(&text).is_ok());
    let read = maglor_service_graph::file::snapshots(&text).unwrap();
    let split = &read[0].1.splits[0];
    assert_eq!(
        (&*split.service, split.versions[1].weight),
        ("shop/cart", 20)
    );
}

#[test]
fn connections_of_bytes_are_an_edge_without_calls() {
    let graphs = graphs();
    let bytes = ClusterLoad {
        name: CART.into(),
        bytes: 5000,
        opened: 3,
        in_flight: 1,
        ..ClusterLoad::default()
    };
    graphs.take_at("shop/web-0", &report(10, vec![bytes]), at(10));
    let snapshot = snapshot(&graphs, at(10));
    let edge = &snapshot.edges[0];
    assert_eq!((edge.rps, edge.in_flight, edge.p99_ms), (0.0, 1.0, None));
    assert!((edge.bytes_per_second - 500.0).abs() < 1e-9, "{edge:?}");
    assert!((edge.connections_per_second - 0.3).abs() < 1e-9, "{edge:?}");
    // Only bytes connect the services.
    let graph = maglor_service_graph::file::graph(&snapshot.graph_file()).unwrap();
    assert!((graph.edges()[0].bytes_per_second - 500.0).abs() < 1e-9);
}

#[test]
fn nodes_are_as_far_apart_as_proxies_have_measured() {
    let graphs = graphs();
    let mut topology = (*graphs.topology()).clone();
    for (pod, node, address) in [
        ("web-0", "n1", "10.0.0.1"),
        ("web-1", "n2", "10.0.0.2"),
        ("cart-0", "n3", "10.0.0.3"),
    ] {
        let key = Key::new("shop", pod);
        topology.places.insert(key, node.to_owned());
        let address = address.parse().unwrap();
        topology.addresses.insert(address, node.to_owned());
        topology.nodes.insert(node.to_owned(), Room::default());
    }
    graphs.set_topology(topology);
    let far = |millis, address: &str| RoundTrip {
        address: address.parse().unwrap(),
        time: Duration::from_millis(millis),
    };
    let cart = ClusterLoad {
        round_trips: vec![far(10, "10.0.0.3:8080"), far(7, "192.0.2.1:80")],
        ..load(CART, 10)
    };
    graphs.take_at("shop/web-0", &report(10, vec![cart.clone()]), at(10));
    // A report without a pod is on no node.
    graphs.take_at("an-envoy", &report(10, vec![cart]), at(10));
    let mut snapshot = snapshot(&graphs, at(10));
    let delay = |from: &str, to: &str, ms| Delay {
        from: from.to_owned(),
        to: to.to_owned(),
        ms,
    };
    assert_eq!(snapshot.delays, [delay("n1", "n3", 5.0)]);
    // Another replica has measured another pair.
    snapshot = snapshot.with_delays(vec![vec![delay("n1", "n2", 1.0), delay("n1", "n3", 6.0)]]);
    assert_eq!(snapshot.delays.len(), 2);
    // The partitioner gets all pairs.
    let nodes = maglor_service_graph::file::nodes(&snapshot.nodes_file()).unwrap();
    let of = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| nodes.node(name).unwrap());
        nodes.delays_ms()[from * 3 + to]
    };
    assert_eq!(
        (of("n1", "n3"), of("n2", "n1"), of("n2", "n3")),
        (5.0, 1.0, 5.0)
    );
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    assert!(maglor_service_graph::file::graph(&text).is_ok());
    assert!(maglor_service_graph::file::snapshots(&text).is_ok());
}

#[test]
fn what_pods_use_is_put_together() {
    let graphs = graphs();
    let usage = |cpu_millis: f64, memory_mib: f64| Usage {
        containers: vec![("app".into(), cpu_millis - 5.0, memory_mib - 8.0)],
        cpu_millis,
        memory_mib,
    };
    graphs.set_usage(HashMap::from([
        (Key::new("shop", "web-0"), usage(10.0, 30.0)),
        (Key::new("shop", "web-1"), usage(20.0, 20.0)),
        (Key::new("shop", "unknown"), usage(1000.0, 1000.0)),
    ]));
    let services = snapshot(&graphs, at(1)).services;
    assert_eq!(services[1].cpu_used_millis, Some(15.0));
    assert_eq!(services[1].memory_used_mib, Some(30.0));
    let app = &services[1].containers[0];
    assert_eq!((app.cpu_used_millis, app.memory_used_mib), (10.0, 22.0));
    assert_eq!(services[0].cpu_used_millis, None);
}

#[test]
fn what_is_shown_is_a_graph_that_can_be_partitioned() {
    let graphs = graphs();
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
    let mut index = Index::default();
    index.apply(Object::read(&node).unwrap());
    let nodes = index.topology().nodes;
    let topology = Topology {
        nodes,
        ..(*graphs.topology()).clone()
    };
    graphs.set_topology(topology);
    graphs.take_at("shop/web-0", &report(10, vec![load(CART, 100)]), at(10));
    let snapshot = snapshot(&graphs, at(10));
    let graph = maglor_service_graph::file::graph(&snapshot.graph_file()).unwrap();
    assert_eq!(graph.services().len(), 2);
    assert!((graph.edges()[0].rps - 10.0).abs() < 1e-9);
    let nodes = maglor_service_graph::file::nodes(&snapshot.nodes_file()).unwrap();
    assert_eq!(nodes.all()[0].cpu_millis, 2000);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
}

/// No move to a node where no pod would be started; running pods may stay.
#[test]
fn closed_nodes_have_room_for_what_they_run() {
    let graphs = graphs();
    let mut topology = (*graphs.topology()).clone();
    let room = |closed| Room {
        left: Amounts {
            cpu_millis: Some(4000),
            memory_mib: Some(4096),
        },
        pods: Some(110),
        zone: None,
        closed,
    };
    topology.nodes.insert("n1".to_owned(), room(true));
    topology.nodes.insert("n2".to_owned(), room(true));
    topology.nodes.insert("n3".to_owned(), room(false));
    let meshed = topology.vertices.values_mut().filter(|one| one.meshed);
    let mut pods = 0;
    for vertex in meshed {
        vertex.requests.cpu_millis = Some(100);
        pods += u64::from(vertex.nodes["n1"]);
    }
    graphs.set_topology(topology);
    let nodes = snapshot(&graphs, at(10)).nodes;
    let of = |at: usize| (nodes[at].cpu_millis, nodes[at].pods);
    assert!(pods > 0);
    assert_eq!(of(0), (100 * pods, Some(pods)));
    assert_eq!(of(1), (0, Some(0)));
    assert_eq!(of(2), (4000, Some(110)));
}

/// A proxy with impossible counts does not make the graph unreadable.
#[test]
fn nonsense_stays_within_what_a_graph_takes() {
    let graphs = graphs();
    let mut odd = load(CART, 100);
    odd.succeeded = u64::MAX;
    odd.seconds = 1e300;
    (odd.bytes, odd.in_flight, odd.opened) = (u64::MAX, u64::MAX, u64::MAX);
    graphs.take_at("shop/web-0", &report(1, vec![odd]), at(10));
    let good = ClusterLoad {
        name: "web.shop.svc.cluster.local:80".into(),
        ..load(CART, 100)
    };
    graphs.take_at("shop/cart-0", &report(10, vec![good]), at(10));
    let snapshot = snapshot(&graphs, at(10));
    let graph = maglor_service_graph::file::graph(&snapshot.graph_file()).unwrap();
    assert_eq!(graph.edges().len(), 2);
    let observed = serde_json::to_string(&snapshot).unwrap();
    assert!(maglor_service_graph::file::snapshots(&observed).is_ok());
}
