use serde_json::{Value, json};

use super::*;
use crate::index::facts::Object;

fn index(objects: &[Value]) -> Index {
    let mut index = Index::default();
    for object in objects {
        index.apply(Object::read(object).unwrap());
    }
    index.changes();
    index
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
           "spec": {"ports": [{"port": 80}]}})
}

fn pod(name: &str, node: &str, cpu: &str, injected: bool) -> Value {
    let annotations = match injected {
        true => json!({"maglor.dev/injected": "true"}),
        false => json!({}),
    };
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
           "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}})
}

fn slice(service: &str, pods: &[&str]) -> Value {
    let endpoints: Vec<_> = pods
        .iter()
        .enumerate()
        .map(|(i, pod)| {
            json!({"addresses": [format!("10.0.0.{i}")], "targetRef": {"kind": "Pod", "name": pod}})
        })
        .collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
           "metadata": {"name": service, "namespace": "shop",
                        "labels": {"kubernetes.io/service-name": service}},
           "ports": [{"port": 8080}], "endpoints": endpoints})
}

#[test]
fn a_pod_is_of_one_vertex_whatever_services_it_is_behind() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                      "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"}}});
    let index = index(&[
        node,
        service("reviews"),
        service("reviews-v2"),
        service("empty"),
        service("db"),
        slice("reviews", &["r1", "r2"]),
        slice("reviews-v2", &["r2"]),
        slice("db", &["d1"]),
        pod("r1", "n1", "100m", true),
        pod("r2", "n2", "150m", true),
        pod("load", "n1", "1", true),
        pod("d1", "n1", "300m", false),
    ]);
    let topology = index.topology();
    let key = |name: &str| Key::new("shop", name);
    for name in ["reviews", "reviews-v2"] {
        assert_eq!(topology.services[&key(name)], "shop/reviews");
    }
    assert_eq!(topology.services[&key("empty")], "shop/empty");
    let reviews = &topology.vertices["shop/reviews"];
    assert_eq!((reviews.replicas, reviews.meshed), (2, true));
    assert_eq!(reviews.requests.cpu_millis, Some(150));
    assert_eq!(
        reviews.nodes,
        [("n1".to_owned(), 1), ("n2".to_owned(), 1)].into()
    );
    assert!(!topology.vertices["shop/db"].meshed);
    let servers = |name: &str| topology.servers.get(&key(name)).copied();
    let of = |count, meshed| Some(Servers { count, meshed });
    assert_eq!(servers("reviews"), of(2, true));
    assert_eq!(servers("reviews-v2"), of(1, true));
    assert_eq!((servers("db"), servers("empty")), (of(1, false), None));
    let secured = |vertex: &str| topology.secured.get(vertex).copied();
    assert_eq!(secured("shop/reviews"), Some(true));
    assert_eq!(secured("shop/db"), Some(false));
    assert_eq!(secured("shop/load"), None, "no Service");
    assert_eq!(topology.vertex_of_node("shop/load"), "shop/load");
    assert_eq!(topology.vertex_of_node("envoy"), "envoy");
    let vertex = |cluster| topology.vertex_of_cluster(cluster);
    for cluster in [
        "reviews-v2.shop.svc.cluster.local:80",
        "r2.reviews.shop.svc.mesh.example:80",
        "reviews.shop.svc.cluster.local:80/v1",
    ] {
        assert_eq!(
            vertex(cluster).as_deref(),
            Some("shop/reviews"),
            "{cluster}"
        );
    }
    assert_eq!(
        vertex("new.shop.svc.cluster.local:80").as_deref(),
        Some("shop/new")
    );
    assert_eq!(
        port_of_cluster("r2.reviews.shop.svc.mesh.example:80/v1"),
        Some((key("reviews"), 80))
    );
    assert_eq!(topology.maker_of("shop/load"), Some(&key("load")));
    for cluster in ["inbound/application", "svc.:80", ".svc.x:1", ""] {
        assert_eq!(vertex(cluster), None, "{cluster}");
    }
    // The database is not part of the mesh, so its CPU is not available.
    let room = &topology.nodes["n1"];
    assert_eq!((room.left.cpu_millis, room.pods), (Some(1700), Some(109)));
}

/// Ended jobs and evicted pods may exist for a long time, but use no resources of their node.
#[test]
fn pods_that_have_ended_are_no_replicas_and_take_no_room() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                      "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"}}});
    let in_phase = |mut pod: Value, phase: &str| {
        pod["status"] = json!({"phase": phase});
        pod["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet", "name": "web"}]);
        pod
    };
    let mut objects = vec![node, service("web"), slice("web", &["w1"])];
    objects.push(in_phase(pod("w1", "n1", "100m", true), "Running"));
    for (at, phase) in ["Failed", "Succeeded"].into_iter().enumerate() {
        let evicted = pod(&format!("evicted-{at}"), "n1", "100m", true);
        let job = pod(&format!("job-{at}"), "n1", "700m", false);
        objects.extend([evicted, job].map(|pod| in_phase(pod, phase)));
    }
    objects.push(in_phase(pod("agent", "n1", "300m", false), "Running"));
    let topology = index(&objects).topology();
    assert_eq!(topology.vertices["shop/web"].replicas, 1);
    let room = &topology.nodes["n1"];
    assert_eq!((room.left.cpu_millis, room.pods), (Some(1700), Some(109)));
}

#[test]
fn nodes_that_take_no_new_pods_are_known() {
    let node = |name: &str, spec: Value, ready: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec,
               "status": {"allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": ready}]}})
    };
    let taint = |effect: &str| json!({"taints": [{"key": "a", "effect": effect}]});
    let objects = [
        node("open", json!({}), "True"),
        node("cordoned", json!({"unschedulable": true}), "True"),
        node("gone", json!({}), "Unknown"),
        node("control", taint("NoSchedule"), "True"),
        node("tolerated", taint("NoSchedule"), "True"),
        node("preferred", taint("PreferNoSchedule"), "True"),
        pod("web", "tolerated", "100m", true),
    ];
    let nodes = index(&objects).topology().nodes;
    let closed = nodes.iter().filter(|(_, room)| room.closed);
    let closed: Vec<&str> = closed.map(|(name, _)| &**name).collect();
    assert_eq!(closed, ["control", "cordoned", "gone"]);
}

fn versioned(name: &str, version: &str) -> Value {
    let mut pod = pod(name, "n1", "100m", true);
    pod["metadata"]["labels"] = json!({"version": version});
    pod
}

#[test]
fn versions_are_known_by_the_routes_that_divide_among_them() {
    let route = |rules: Value| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
               "metadata": {"name": "reviews", "namespace": "shop"},
               "spec": {"parentRefs": [{"group": "", "kind": "Service", "name": "reviews"}], "rules": rules}})
    };
    let backend = |name: &str, weight: u32| json!({"name": name, "port": 80, "weight": weight});
    let objects = [
        service("reviews"),
        service("reviews-v1"),
        service("reviews-v2"),
        slice("reviews", &["r1", "r2", "r3"]),
        slice("reviews-v1", &["r1", "r2"]),
        slice("reviews-v2", &["r3"]),
        versioned("r1", "v1"),
        versioned("r2", "v1"),
        versioned("r3", "v2"),
    ];
    let mut index = index(&objects);
    assert!(index.topology().splits.is_empty());
    // The one for everything, not the one for some.
    let rules = json!([
        {"matches": [{"path": {"value": "/new"}}], "backendRefs": [backend("reviews-v1", 1), backend("reviews-v2", 9)]},
        {"backendRefs": [backend("reviews-v1", 90), backend("reviews-v2", 10)]},
    ]);
    index.apply(Object::read(&route(rules)).unwrap());
    let split = index.topology().splits.remove("shop/reviews").unwrap();
    let cluster = |name: &str| format!("{name}.shop.svc.cluster.local:80");
    let version = |name: &str, weight, replicas, subset| Version {
        name: name.to_owned(),
        subset,
        weight,
        replicas,
    };
    let expected = [
        (cluster("reviews-v1"), version("reviews-v1", 90, 2, false)),
        (cluster("reviews-v2"), version("reviews-v2", 10, 1, false)),
    ];
    assert_eq!((split.port, split.versions), (80, expected.into()));
    let whole = json!([{"backendRefs": [backend("reviews-v1", 1)]}]);
    index.apply(Object::read(&route(whole)).unwrap());
    assert!(index.topology().splits.is_empty(), "nothing is divided");
}

#[test]
fn subsets_of_a_service_are_versions_too() {
    let destination = |subset: &str| json!({"host": "reviews", "subset": subset});
    let index = index(&[
        service("reviews"),
        slice("reviews", &["r1", "r2", "r3"]),
        versioned("r1", "v1"),
        versioned("r2", "v1"),
        versioned("r3", "v2"),
        json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
               "metadata": {"name": "reviews", "namespace": "shop"},
               "spec": {"hosts": ["reviews"], "http": [{"route": [
                   {"destination": destination("v1"), "weight": 70},
                   {"destination": destination("v2"), "weight": 30}]}]}}),
    ]);
    let split = index.topology().splits.remove("shop/reviews").unwrap();
    let versions = split.versions.iter();
    let versions: Vec<_> = versions
        .map(|(cluster, one)| (&**cluster, &*one.name, one.subset, one.weight, one.replicas))
        .collect();
    let cluster = "reviews.shop.svc.cluster.local:80";
    let expected = [
        (&*format!("{cluster}/v1"), "v1", true, 70, 2),
        (&*format!("{cluster}/v2"), "v2", true, 30, 1),
    ];
    assert_eq!(versions, expected);
}

/// Clients of a headless Service call its pods by their addresses.
#[test]
fn calls_by_address_are_of_the_headless_services_vertex() {
    let mut headless = service("db");
    headless["spec"]["clusterIP"] = json!("None");
    let index = index(&[
        headless,
        slice("db", &["db-0", "db-1"]),
        pod("db-0", "n1", "100m", true),
        pod("db-1", "n1", "100m", false),
    ]);
    let topology = index.topology();
    let vertex = |cluster| topology.vertex_of_cluster(cluster);
    for address in ["10.0.0.0:8080", "10.0.0.1:8080"] {
        assert_eq!(vertex(address).as_deref(), Some("shop/db"));
    }
    assert_eq!(vertex("10.0.0.2:8080"), None);
}
