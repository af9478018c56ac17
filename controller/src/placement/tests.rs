//! Tests of the inputs and the status of a relocation.

use std::collections::BTreeMap;
use std::time::Duration;

use maglor_service_graph::Routing;
use maglor_service_graph::relocate::{Reason, Relocation, Stage, View};
use serde_json::{Value, json};

use super::inputs::{InputError, Inputs, Sources, inputs, params};
use super::pod::{Node, Pod};
use super::status::{Done, StatusInput, reasons, records, refreshed, status};
use crate::crd::{PlacementMode, PlacementPolicySpec, PlacementPolicyStatus};
use crate::graph::delays::Delay;
use crate::graph::{Edge, Service, Snapshot};
use crate::index::facts::{Amounts, Key};
use crate::index::topology::{Room, Topology, Vertex};

fn pod(app: &str, number: u32, node: &str, spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec["nodeName"] = json!(node);
    Pod::read(&json!({
        "metadata": {"namespace": "shop", "name": format!("{app}-5d4-{number}"), "uid": format!("{app}{number}"),
            "labels": {"app": app, "pod-template-hash": "5d4"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": format!("{app}-5d4"), "controller": true}]},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn node(name: &str, unschedulable: bool) -> Node {
    Node::read(&json!({
        "metadata": {"name": name}, "spec": {"unschedulable": unschedulable},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

/// `web` on n1 calls `cart` on n2. `web` is called by `far/way` in another namespace.
struct Shop {
    topology: Topology,
    snapshot: Snapshot,
    pods: Vec<Pod>,
    nodes: Vec<Node>,
    spec: PlacementPolicySpec,
    taken: BTreeMap<String, String>,
}

impl Shop {
    fn new(cart: &Value) -> Self {
        let mut pods = vec![
            pod("web", 0, "n1", &json!({})),
            pod("web", 1, "n1", &json!({})),
        ];
        pods.extend([pod("cart", 0, "n2", cart), pod("cart", 1, "n2", cart)]);
        let mut topology = Topology::default();
        for pod in &pods {
            let vertex = format!("shop/{}", pod.labels["app"]);
            topology.pods.insert(pod.key.clone(), vertex);
        }
        for (name, on) in [("shop/web", "n1"), ("shop/cart", "n2"), ("far/way", "n1")] {
            let vertex = Vertex {
                replicas: 2,
                meshed: true,
                requests: Amounts {
                    cpu_millis: Some(100),
                    memory_mib: Some(64),
                },
                nodes: [(on.to_owned(), 2)].into(),
                ..Vertex::default()
            };
            topology.vertices.insert(name.to_owned(), vertex);
        }
        for name in ["n1", "n2"] {
            let left = Amounts {
                cpu_millis: Some(1000),
                memory_mib: Some(1024),
            };
            let room = Room {
                left,
                pods: Some(110),
                ..Room::default()
            };
            topology.nodes.insert(name.to_owned(), room);
        }
        let edge = |from: &str, to: &str, rps| Edge {
            from: from.to_owned(),
            to: to.to_owned(),
            rps,
            latency_ms: 4.0,
            failures: rps / 10.0,
            ..Edge::default()
        };
        Self {
            topology,
            snapshot: Snapshot {
                edges: vec![
                    edge("shop/web", "shop/cart", 50.0),
                    edge("far/way", "shop/web", 1.0),
                ],
                ..Snapshot::default()
            },
            pods,
            nodes: vec![node("n1", false), node("n2", false)],
            spec: serde_json::from_value(
                json!({"namespaces": ["shop"], "mode": "Apply", "windows": 1,
                "movesPerRound": 9}),
            )
            .unwrap(),
            taken: BTreeMap::new(),
        }
    }

    fn inputs(&self) -> Result<Inputs, InputError> {
        inputs(&Sources {
            snapshot: &self.snapshot,
            topology: &self.topology,
            pods: &self.pods,
            nodes: &self.nodes,
            spec: &self.spec,
            taken: &self.taken,
        })
    }

    /// Which services may move where.
    fn free(&self) -> Vec<String> {
        let inputs = self.inputs().unwrap();
        let mut free = Vec::new();
        for (index, service) in inputs.graph.services().iter().enumerate() {
            for (at, node) in inputs.nodes.all().iter().enumerate() {
                if !inputs.bars.is_barred(index, at) {
                    free.push(format!("{} {}", service.name, node.name));
                }
            }
        }
        free
    }

    fn fixed(&self, name: &str) -> Option<String> {
        let inputs = self.inputs().unwrap();
        let selected = inputs.selected.get(&inputs.graph.service(name)?)?;
        selected.fixed.clone()
    }

    fn round(&self, relocation: &mut Relocation) -> PlacementPolicyStatus {
        let inputs = self.inputs().unwrap();
        let view = View {
            graph: &inputs.graph,
            nodes: &inputs.nodes,
            present: &inputs.present,
            bars: &inputs.bars,
            measured: &inputs.measured,
            busy: false,
            apply: self.spec.mode() == PlacementMode::Apply,
        };
        let round = relocation.round(crate::wall_clock::now(), &view).unwrap();
        let input = StatusInput {
            inputs: &inputs,
            round: &round,
            relocation,
            mode: self.spec.mode(),
            done: Done::default(),
            why: &BTreeMap::new(),
        };
        status(&input, Some(3))
    }
}

#[test]
fn services_of_others_are_seen_and_stay() {
    let shop = Shop::new(&json!({}));
    assert_eq!(
        shop.free(),
        ["shop/cart n1", "shop/cart n2", "shop/web n1", "shop/web n2"]
    );
    let inputs = shop.inputs().unwrap();
    assert_eq!(inputs.present.cut(&inputs.graph), 50.0);
    let web = inputs.measured[inputs.graph.service("shop/web").unwrap()];
    assert_eq!(web.rps, 51.0);
    assert!(
        (web.failures - 0.1).abs() < 1e-9 && (web.remote - 50.0 / 51.0).abs() < 1e-9,
        "{web:?}"
    );
    assert_eq!(inputs.selected.len(), 2);
}

#[test]
fn a_service_that_cannot_move_stays_and_gets_the_reason() {
    let volume = json!({"volumes": [{"name": "a", "hostPath": {"path": "/a"}}]});
    let shop = Shop::new(&volume);
    assert_eq!(shop.free(), ["shop/web n1", "shop/web n2"]);
    assert!(shop.fixed("shop/cart").unwrap().contains("hostPath"));
    let mut shop = Shop::new(&json!({}));
    shop.taken
        .insert("shop/cart".to_owned(), "older".to_owned());
    assert!(
        shop.fixed("shop/cart")
            .unwrap()
            .contains("the older PlacementPolicy older")
    );
    let mut shop = Shop::new(&json!({}));
    shop.spec.selector = serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap();
    assert_eq!(shop.free(), ["shop/web n1", "shop/web n2"]);
    assert_eq!(shop.fixed("shop/cart"), None, "it is none of the policy's");
    let mut shop = Shop::new(&json!({}));
    shop.nodes[0].closed = true;
    assert_eq!(shop.free(), ["shop/cart n2", "shop/web n2"]);
}

/// A single caller with false reports does not move other services.
#[test]
fn what_callers_say_against_a_services_own_sidecars_moves_it_nowhere() {
    let mut shop = Shop::new(&json!({}));
    shop.snapshot.services.push(Service {
        name: "shop/cart".to_owned(),
        contradicted: true,
        ..Service::default()
    });
    assert_eq!(shop.free(), ["shop/web n1", "shop/web n2"]);
    assert!(shop.fixed("shop/cart").unwrap().contains("confirm"));
    shop.snapshot.services[0].contradicted = false;
    assert_eq!(shop.free().len(), 4, "they agree again");
}

#[test]
fn pods_that_have_just_come_count_and_those_that_go_do_not() {
    let mut shop = Shop::new(&json!({}));
    let mut new = pod("cart", 2, "n1", &json!({}));
    shop.pods.push(new.clone());
    new.key = Key::new("shop", "cart-5d4-3");
    new.ends = true;
    shop.pods.push(new.clone());
    new.ends = false;
    new.labels
        .insert(super::MOVING.to_owned(), "true".to_owned());
    shop.pods.push(new);
    let inputs = shop.inputs().unwrap();
    let cart = inputs.graph.service("shop/cart").unwrap();
    assert_eq!(inputs.present.service(cart), [1, 2]);
    assert_eq!(inputs.graph.services()[cart].replicas.get(), 3);
}

/// The status of other nodes does not change when a node is removed.
#[test]
fn delays_between_nodes_that_there_are_not_are_named() {
    let mut shop = Shop::new(&json!({}));
    shop.spec.objective = serde_json::from_value(json!("Latency")).unwrap();
    shop.spec.delays = serde_json::from_value(json!([
        {"from": "n1", "to": "n9", "milliseconds": 1},
        {"from": "n1", "to": "n2", "milliseconds": 3},
    ]))
    .unwrap();
    let inputs = shop.inputs().unwrap();
    assert_eq!(inputs.nodes.delays_ms(), [0.0, 3.0, 3.0, 0.0]);
    let mut relocation = Relocation::new(params(&shop.spec, Duration::from_secs(60)));
    let input = shop.round(&mut relocation);
    assert_eq!(
        input.conditions[0].message,
        "accepted; spec.delays: there is no node n9"
    );
    assert!(input.is_accepted() && input.planned_moves > 0, "{input:?}");
}

#[test]
fn measured_delays_apply_unless_configured() {
    let delay = |from: &str, to: &str, ms| Delay {
        from: from.to_owned(),
        to: to.to_owned(),
        ms,
    };
    let mut shop = Shop::new(&json!({}));
    shop.spec.objective = serde_json::from_value(json!("Latency")).unwrap();
    assert!(
        shop.inputs().unwrap().nodes.delays_ms().is_empty(),
        "a call is a call"
    );
    let known = ["n1", "n2", "n9"].map(|name| crate::graph::Node {
        name: name.to_owned(),
        ..crate::graph::Node::default()
    });
    shop.snapshot.nodes = known.into();
    // The snapshot contains a node that was removed since.
    shop.snapshot.delays = vec![delay("n1", "n2", 2.5), delay("n1", "n9", 7.0)];
    assert_eq!(
        shop.inputs().unwrap().nodes.delays_ms(),
        [0.0, 2.5, 2.5, 0.0]
    );
    shop.spec.delays =
        serde_json::from_value(json!([{"from": "n2", "to": "n1", "milliseconds": 4}])).unwrap();
    assert_eq!(
        shop.inputs().unwrap().nodes.delays_ms(),
        [0.0, 4.0, 4.0, 0.0]
    );
}

/// A leader that takes over during a move reports the number of moves, what a move waits for as soon as this is
/// known, and why services were not moved before.
#[test]
fn moves_count_however_they_end() {
    let shop = Shop::new(&json!({}));
    let mut relocation = Relocation::new(params(&shop.spec, Duration::from_secs(60)));
    let mut input = shop.round(&mut relocation);
    (input.moves_done, input.moves_failed) = (3, 1);
    let moving = input.services.iter().position(|one| one.state == "Moving");
    let name = input.services[moving.unwrap()].name.clone();
    // The next leader starts from the stored state.
    let (_, _, mut done) = records(&input);
    let mut why = reasons(&input);
    assert_eq!((done.moves, why.len()), (3, 0));
    done.moves += 1;
    why.insert(name.clone(), "a PodDisruptionBudget".to_owned());
    let said = refreshed(&input, done, &why);
    assert_eq!((said.moves_done, said.moves_failed), (4, 1));
    let of = |status: &PlacementPolicyStatus| {
        let found = status.services.iter().find(|one| one.name == name);
        found.unwrap().reason.clone()
    };
    assert_eq!(of(&said), "a PodDisruptionBudget");
    assert_eq!(reasons(&said), why, "and the one after it");
    why.clear();
    let over = refreshed(&said, done, &why);
    assert_eq!(of(&over), "");
    // All other fields are those of the round, and the reasons that keep services in place stay.
    let (_, _, before) = records(&input);
    assert_eq!(refreshed(&over, before, &why), input);
    let mut fixed = input.clone();
    fixed.services[0].state = "Fixed".to_owned();
    fixed.services[0].reason = "its data".to_owned();
    assert_eq!(refreshed(&fixed, before, &why), fixed);
    assert!(reasons(&fixed).is_empty());
}

/// The status contains all state that the next leader needs.
#[test]
fn a_status_remembers() {
    let shop = Shop::new(&json!({}));
    let settle = Duration::from_secs(60);
    let mut relocation = Relocation::new(params(&shop.spec, settle));
    let input = shop.round(&mut relocation);
    assert_eq!(input.conditions[1].reason, "Moving");
    assert_eq!(
        (input.cross_node_calls_per_second, input.planned_moves),
        (50.0, 2)
    );
    assert_eq!(input.predicted_cross_node_calls_per_second, 0.0);
    let moving = input
        .services
        .iter()
        .find(|one| one.state == "Moving")
        .unwrap();
    assert_eq!(moving.deployments.len(), 1);
    assert_ne!(moving.wanted, moving.nodes);
    assert_eq!(moving.former, moving.nodes);
    let written = serde_json::to_value(&input).unwrap();
    let read: PlacementPolicyStatus = serde_json::from_value(written).unwrap();
    let (remembered, judged_since, _) = records(&read);
    assert_eq!(judged_since, None);
    assert_eq!(remembered.len(), 1);
    let (name, record) = remembered.iter().next().unwrap();
    let own = &relocation.records()[name];
    assert_eq!((record.stage, own.stage), (Stage::Moving, Stage::Moving));
    assert_eq!((&record.wanted, &record.former), (&own.wanted, &own.former));
    assert!((record.before.unwrap().rps - own.before.unwrap().rps).abs() < 1e-3);
}

#[test]
fn what_is_only_observed_names_no_places() {
    for (mode, state) in [("Observe", "Free"), ("Recommend", "Planned")] {
        let mut shop = Shop::new(&json!({}));
        shop.spec.mode = serde_json::from_value(json!(mode)).unwrap();
        let mut relocation = Relocation::new(params(&shop.spec, Duration::ZERO));
        let input = shop.round(&mut relocation);
        assert_eq!(input.conditions[1].reason, Reason::Advised.word());
        assert_eq!(input.services[0].state, state, "{mode}");
        assert!(relocation.records().is_empty());
    }
}

#[test]
fn plans_count_on_local_calls_where_most_calls_are() {
    let mut shop = Shop::new(&json!({}));
    assert_eq!(shop.inputs().unwrap().routing, Routing::Even);
    let cart = shop.topology.vertices.get_mut("shop/cart").unwrap();
    cart.local_first = true;
    assert_eq!(shop.inputs().unwrap().routing, Routing::LocalFirst);
}
