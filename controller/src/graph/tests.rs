//! From reports to snapshots, with time as an argument.

use super::*;
use crate::index::Index;
use crate::index::facts::Object;
use crate::index::topology::Vertex;

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
        bytes: requests * 100,
        in_flight: 2,
        ..ClusterLoad::default()
    }
}

fn report(seconds: u64, clusters: Vec<ClusterLoad>) -> LoadReport {
    LoadReport {
        interval: Duration::from_secs(seconds),
        clusters,
    }
}

fn snapshot(graphs: &Graphs, now: Time) -> Snapshot {
    let state = graphs.state();
    let edges: Vec<_> = state.edges.edges(now).collect();
    let taken = state
        .taken
        .edges(now)
        .map(|(name, _, traffic)| (name, traffic));
    let builder = snapshot::Builder {
        window: state.edges.window(),
        topology: &graphs.topology(),
        usage: &state.usage,
    };
    builder.build(Timestamp::UNIX_EPOCH, &edges, &taken.collect())
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
    let names: Vec<_> = snapshot
        .services
        .iter()
        .map(|one| (&*one.name, one.replicas))
        .collect();
    assert_eq!(names, [("shop/cart", 1), ("shop/web", 2)]);
    // Ten a second come from outside the mesh.
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
        let parts = state.edges.parts(now);
        parts.map(|part| Part::new(&part, now, false)).collect()
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
fn what_pods_use_is_put_together() {
    let graphs = graphs();
    let usage = |cpu_millis, memory_mib| Usage {
        cpu_millis,
        memory_mib,
    };
    graphs.set_usage(HashMap::from([
        (Key::new("shop", "web-0"), usage(10.0, 30.0)),
        (Key::new("shop", "web-1"), usage(20.0, 20.0)),
        (Key::new("shop", "nobody"), usage(1000.0, 1000.0)),
    ]));
    let services = snapshot(&graphs, at(1)).services;
    assert_eq!(services[1].cpu_used_millis, Some(15.0));
    assert_eq!(services[1].memory_used_mib, Some(30.0));
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
    let graph = maglor_mcg::file::graph(&snapshot.graph_file()).unwrap();
    assert_eq!(graph.services().len(), 2);
    assert!((graph.edges()[0].rps - 10.0).abs() < 1e-9);
    let nodes = maglor_mcg::file::nodes(&snapshot.nodes_file()).unwrap();
    assert_eq!(nodes.all()[0].cpu_millis, 2000);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
}
