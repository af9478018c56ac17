//! The operator ends at each of its writes while pods are moved: a simulated cluster of two nodes, in which a caller on
//! one calls a service on the other.

use std::collections::BTreeSet;

use maglor_xds::load::{ClusterLoad, LoadReport};

use super::*;
use crate::index::facts::Amounts;
use crate::index::topology::{Room, Topology, Vertex};
use crate::placement::DELETION_COST;
use crate::reconcile::stops::{Stop, at_each_write, state};

const PODS: &str = "/api/v1/namespaces/shop/pods";
/// Interval of the caller's reports.
const REPORTS: Duration = Duration::from_secs(5);

fn pods(api: &FakeApi) -> Vec<(String, Value)> {
    let pods = api.all().into_iter();
    let pods = pods
        .filter(|(path, pod)| path.starts_with(PODS) && pod["metadata"]["labels"]["app"] == "web");
    pods.collect()
}

fn is_owned(pod: &Value) -> bool {
    pod["metadata"]["ownerReferences"][0]["name"] == "web-5d4"
}

fn ready() -> Value {
    json!([{"type": "Ready", "status": "True"}])
}

/// A pod of the ReplicaSet.
fn pod(node: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4", "uid": "r",
        "controller": true});
    json!({
        "metadata": {"labels": {"app": "web", HASH: "5d4"}, "annotations": {},
            "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": []},
        "status": {"conditions": ready()},
    })
}

/// Simulates the controller of ReplicaSets, with new pods on `node`. Returns whether something was to be done.
fn replicate(api: &FakeApi, node: &str) -> bool {
    let all = pods(api);
    for (path, one) in &all {
        let belongs = one["metadata"]["labels"][HASH] == "5d4";
        if belongs != is_owned(one) {
            let mut changed = one.clone();
            changed["metadata"]["ownerReferences"] = match belongs {
                true => pod(node)["metadata"]["ownerReferences"].clone(),
                false => json!([]),
            };
            api.put_at(path, changed);
            return true;
        }
    }
    let owned: Vec<_> = all.iter().filter(|(_, pod)| is_owned(pod)).collect();
    let cheapest =
        |one: &&&(String, Value)| !one.1["metadata"]["annotations"][DELETION_COST].is_null();
    match owned.as_slice() {
        [] => {
            let free = |number: &u32| api.get_at(&format!("{PODS}/web-5d4-{number}")).is_none();
            let number = (1..).find(free).unwrap();
            api.put_at(&format!("{PODS}/web-5d4-{number}"), pod(node));
            true
        }
        [_] => false,
        several => {
            let (path, _) = several.iter().find(cheapest).unwrap_or(&several[0]);
            api.delete_at(path);
            true
        }
    }
}

fn topology(api: &FakeApi) -> Topology {
    let mut topology = Topology::default();
    let amounts = |cpu_millis, memory_mib| Amounts {
        cpu_millis: Some(cpu_millis),
        memory_mib: Some(memory_mib),
    };
    let mut add = |name: &str, pods: &[(String, String)]| {
        let vertex = format!("shop/{name}");
        let mut nodes = BTreeMap::new();
        for (pod, node) in pods {
            topology.pods.insert(Key::new("shop", pod), vertex.clone());
            *nodes.entry(node.clone()).or_default() += 1;
        }
        let service = Key::new("shop", name);
        topology.services.insert(service, vertex.clone());
        let found = Vertex {
            replicas: u32::try_from(pods.len()).unwrap(),
            meshed: true,
            requests: amounts(100, 64),
            nodes,
            ..Vertex::default()
        };
        topology.vertices.insert(vertex, found);
    };
    add("front", &[("front-0".to_owned(), "n1".to_owned())]);
    let own = pods(api).into_iter().map(|(path, pod)| {
        let (_, name) = path.rsplit_once('/').unwrap();
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        (name.to_owned(), node.to_owned())
    });
    add("web", &own.collect::<Vec<_>>());
    for node in ["n1", "n2"] {
        let room = Room {
            left: amounts(4000, 4096),
            pods: Some(110),
            ..Room::default()
        };
        topology.nodes.insert(node.to_owned(), room);
    }
    topology
}

/// The simulated cluster, which ends on drop.
struct Cluster {
    api: FakeApi,
    tasks: [JoinHandle<()>; 3],
    _term: watch::Sender<Term>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Cluster {
    /// Starts a cluster whose scheduler assigns new pods to `node`.
    fn start(api: FakeApi, stop: &Arc<Stop>, node: &'static str) -> Self {
        workload(&api, 1);
        for node in ["n1", "n2"] {
            let status = json!({"conditions": ready()});
            api.put_at(
                &format!("/api/v1/nodes/{node}"),
                json!({"spec": {}, "status": status}),
            );
        }
        let front = json!({"spec": {"nodeName": "n1", "containers": []}, "status": {"conditions": ready()}});
        api.put_at(&format!("{PODS}/front-0"), front);
        let graphs = Arc::new(Graphs::new(Settings::default()));
        let (others, seen) = (api.clone(), Arc::clone(&graphs));
        let replicated = tokio::spawn(async move {
            loop {
                while replicate(&others, node) {}
                seen.set_topology(topology(&others));
                others.changed().await;
            }
        });
        let seen = Arc::clone(&graphs);
        let reported = tokio::spawn(async move {
            let load = ClusterLoad {
                name: "web.shop.svc.cluster.local:80".into(),
                succeeded: 500,
                timed: 500,
                seconds: 5.0,
                ..ClusterLoad::default()
            };
            let report = LoadReport {
                interval: REPORTS,
                clusters: vec![load],
                memory: None,
            };
            loop {
                seen.take("shop/front-0", &report);
                tokio::time::sleep(REPORTS).await;
            }
        });
        let (sender, term) = watch::channel(Term::held());
        let mut options = options(&api, Scope::Everywhere, term);
        (options.client, options.graphs) = (stop.client(&api), graphs);
        let operator = stop.run(move || run(options.clone()));
        Self {
            api,
            tasks: [replicated, reported, operator],
            _term: sender,
        }
    }

    /// Waits until nothing is left to do, and returns the state of the pods, and the decisions in the status of the
    /// policy.
    async fn settled(&self, what: &str, holds: fn(&FakeApi) -> bool) -> Value {
        // Each operator first waits for the window of the averages.
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(holds(&self.api), "{what}: {:#}", state(&self.api));
        let mut state = state(&self.api);
        for (_, policy) in state
            .as_object_mut()
            .unwrap()
            .iter_mut()
            .filter(|(path, _)| path.contains("/placementpolicies/"))
        {
            let status = &policy["status"];
            let services = status["services"].as_array().into_iter().flatten();
            let services: Vec<_> = services
                .map(|one| [&one["name"], &one["nodes"], &one["wanted"]])
                .collect();
            policy["status"] = json!([status["conditions"], services]);
        }
        state
    }
}

/// Some pod always serves.
fn unserved(api: &FakeApi) -> Option<String> {
    let pods = pods(api);
    pods.is_empty().then(|| "no pod serves".to_owned())
}

fn is_moving(api: &FakeApi) -> bool {
    let pods = pods(api);
    pods.iter()
        .any(|(_, pod)| !pod["metadata"]["labels"][MOVING].is_null())
}

fn nodes(api: &FakeApi) -> BTreeSet<String> {
    let pods = pods(api).into_iter();
    pods.map(|(_, pod)| pod["spec"]["nodeName"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_of_a_move_loses_nothing() {
    at_each_write(unserved, async |stop| {
        let api = FakeApi::within();
        api.put_at(&format!("{PODS}/web-5d4-0"), pod("n2"));
        api.put(&policies(), "p", json!({"metadata": {"uid": "p"}, "spec": {"namespaces": ["shop"], "mode": "Apply", "windows": 1, "roundSeconds": 5}}));
        let cluster = Cluster::start(api, &stop, "n1");
        let moved = |api: &FakeApi| nodes(api) == BTreeSet::from(["n1".to_owned()]) && !is_moving(api);
        vec![cluster.settled("it is moved", moved).await]
    })
    .await;
}

/// The replacement is assigned to another node than the policy wants: the pod stays.
#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_of_an_abandoned_move_loses_nothing() {
    at_each_write(unserved, async |stop| {
        let api = FakeApi::within();
        let mut pod = moving_pod();
        pod["metadata"]["labels"][HASH] = json!("5d4-moving");
        api.put_at(POD, pod);
        let cluster = Cluster::start(api, &stop, "n1");
        let back = |api: &FakeApi| {
            let pods = pods(api);
            pods.len() == 1 && pods[0].0 == POD && is_owned(&pods[0].1) && !is_moving(api)
        };
        vec![cluster.settled("it is given back", back).await]
    })
    .await;
}
