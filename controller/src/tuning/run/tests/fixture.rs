//! A namespace with a service `web` that has a Deployment, a service `front` that calls it, and an operator.

use std::collections::HashMap;

use maglor_service_graph::Averaging;
use maglor_xds::load::{ClusterLoad, LoadReport};
use tokio::time::Instant;

use super::super::*;
use super::{Value, json};
use crate::crd::definitions;
use crate::fake_api::{Collection, FakeApi};
use crate::graph::{Settings, Usage};
use crate::index::facts::{Amounts, Key};
use crate::index::topology::{Room, Topology, Vertex};
use crate::metrics::Metrics;
use crate::reconcile::cache::driven;

pub(super) const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
pub(super) const POLICY: &str = "/apis/maglor.dev/v1alpha1/namespaces/shop/tuningpolicies/tune";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const TRAFFIC: (&str, &str) = ("apis/maglor.dev/v1alpha1", "trafficpolicies");
const AUTOSCALERS: (&str, &str) = ("apis/autoscaling/v2", "horizontalpodautoscalers");
/// The window T. Tests wait for it in real time when the load changes.
const WINDOW: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(30);

fn of((api, plural): (&str, &str)) -> Collection {
    Collection::new(api, Some("shop"), plural)
}

pub(super) fn generated(service: &str) -> String {
    format!("/apis/maglor.dev/v1alpha1/namespaces/shop/trafficpolicies/{service}-generated")
}

/// The initial requests of the Deployment's container.
pub(super) fn requests() -> Value {
    json!({"cpu": "100m", "memory": "64Mi"})
}

pub(super) struct Fixture {
    pub(super) api: FakeApi,
    watching: tokio::task::JoinHandle<()>,
    pub(super) operator: Operator,
    /// Calls per second.
    pub(super) rate: f64,
    pub(super) latency_ms: f64,
    graphs: Arc<Graphs>,
    now: Time,
    beside: f64,
}

pub(super) fn options(api: &FakeApi, graphs: &Arc<Graphs>) -> Options {
    let client = api.client();
    Options {
        client: client.clone(),
        replicas: Replicas {
            pods: Cache::empty(),
            replica: "r0".to_owned(),
            connector: crate::graph::replicas::Connector { port: 0, tls: None },
        },
        graphs: Arc::clone(graphs),
        term: watch::channel(Term::held()).1,
        events: Events::new(client, "maglor.dev/tuning", "r0"),
        metrics: Metrics::new().tuning.clone(),
        tunes: Scope::Everywhere,
    }
}

/// An operator, and the task of its watches.
fn operator(
    api: &FakeApi,
    graphs: &Arc<Graphs>,
    now: Time,
) -> (Operator, tokio::task::JoinHandle<()>) {
    let (watches, _, watching) = driven();
    (Operator::new(options(api, graphs), watches, now), watching)
}

/// Whether the definition of `TrafficPolicy` has all fields of a `spec`.
fn declares(spec: &Value) -> bool {
    fn has(schema: &Value, value: &Value) -> bool {
        match (value, &schema["properties"]) {
            (Value::Object(fields), Value::Object(known)) => fields
                .iter()
                .all(|(name, value)| known.get(name).is_some_and(|schema| has(schema, value))),
            (Value::Array(items), _) => items.iter().all(|item| has(&schema["items"], item)),
            (value, _) => !value.is_null(),
        }
    }
    let definitions = definitions().unwrap();
    let mut definitions = definitions.iter();
    let of_kind = definitions
        .find(|one| one.spec.names.kind == "TrafficPolicy")
        .unwrap();
    let schema = of_kind.spec.versions[0].schema.as_ref().unwrap();
    let schema = json!(schema.open_api_v3_schema);
    has(&schema["properties"]["spec"], spec)
}

/// Returns whether a cache has the same objects as the API server.
fn is_current<K: reconcile::cache::Watched + serde::Serialize>(
    cache: &Cache<K>,
    api: &FakeApi,
    collection: &Collection,
) -> bool {
    let versions = |objects: Vec<Value>| -> BTreeMap<String, String> {
        let version = |one: &Value| {
            let text = |field: &str| one["metadata"][field].as_str().unwrap().to_owned();
            (text("name"), text("resourceVersion"))
        };
        objects.iter().map(version).collect()
    };
    let there = api.list(collection).into_iter().map(|(_, object)| object);
    cache.is_complete() && versions(cache.json()) == versions(there.collect())
}

impl Fixture {
    pub(super) async fn new(spec: &Value) -> Self {
        Self::with(spec, 0.0).await
    }

    /// Adds a second container `log` that uses this share (0 to 1) of the CPU and memory of each pod; 0 for none.
    pub(super) async fn with(spec: &Value, beside: f64) -> Self {
        let api = FakeApi::within();
        api.define("verticalpodautoscalers.autoscaling.k8s.io", false);
        let graphs = Arc::new(Graphs::new(Settings {
            window: WINDOW,
            averaging: Averaging::Plain,
            ..Settings::default()
        }));
        let now = wall_clock::now();
        let (operator, watching) = operator(&api, &graphs, now);
        let mut fixture = Self {
            operator,
            watching,
            api,
            rate: 200.0,
            latency_ms: 10.0,
            graphs,
            now,
            beside,
        };
        {
            let objects = &fixture.api;
            let meta =
                json!({"name": "tune", "namespace": "shop", "uid": "u-tune", "generation": 1});
            objects.put_at(POLICY, json!({"metadata": meta, "spec": spec}));
            let container = json!({"name": "app", "resources": {"requests": requests()}});
            let mut containers = vec![container];
            if beside > 0.0 {
                let requests = json!({"cpu": "10m", "memory": "16Mi"});
                containers.push(json!({"name": "log", "resources": {"requests": requests}}));
            }
            let meta = json!({"name": "web", "namespace": "shop", "uid": "u-web", "generation": 1});
            let template = json!({"spec": {"containers": containers}});
            objects.put_at(
                DEPLOYMENT,
                json!({"metadata": meta, "spec": {"replicas": 1, "template": template}}),
            );
            let front = json!({"metadata": {"name": "front-0", "namespace": "shop"}, "spec": {}});
            objects.put_at(&format!("{PODS}/front-0"), front);
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let node =
                json!({"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": ready}});
            objects.put_at("/api/v1/nodes/n1", node);
        }
        fixture.roll_out();
        fixture.now = now + WINDOW;
        fixture
    }

    pub(super) fn object(&self, path: &str) -> Value {
        self.api.get_at(path).unwrap_or_default()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.api.get_at(path).is_some()
    }

    pub(super) fn written(&self) -> Vec<String> {
        self.api.written()
    }

    pub(super) fn condition(&self, kind: &str) -> Value {
        let policy = self.object(POLICY);
        let conditions = policy["status"]["conditions"].as_array().unwrap();
        conditions
            .iter()
            .find(|one| one["type"] == kind)
            .unwrap()
            .clone()
    }

    pub(super) fn service(&self, name: &str) -> Value {
        let policy = self.object(POLICY);
        let services = policy["status"]["services"].as_array().unwrap().clone();
        let name = format!("shop/{name}");
        services
            .into_iter()
            .find(|one| one["name"] == *name)
            .unwrap()
    }

    /// Starts another operator, which has only the state in the cluster.
    pub(super) fn crash(&mut self) {
        // Load reports have been received for long enough.
        let begun = Time::from_nanos(self.now.as_nanos().saturating_sub(WINDOW.as_nanos() as u64));
        self.watching.abort();
        (self.operator, self.watching) = operator(&self.api, &self.graphs, begun);
    }

    /// Completes the rollout: all pods of the Deployment are up to date and ready.
    pub(super) fn roll_out(&mut self) {
        let mut deployment = self.object(DEPLOYMENT);
        let count = deployment["spec"]["replicas"].as_u64().unwrap();
        let generation = &deployment["metadata"]["generation"];
        deployment["status"] = json!({"observedGeneration": generation, "replicas": count,
            "updatedReplicas": count, "availableReplicas": count});
        let mut spec = deployment["spec"]["template"]["spec"].clone();
        let sidecar = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
        let sidecar =
            json!({"name": "maglor-proxy", "restartPolicy": "Always", "resources": sidecar});
        spec["initContainers"] = json!([sidecar]);
        spec["nodeName"] = json!("n1");
        let objects = &self.api;
        for path in (0..10).map(|at| format!("{PODS}/web-h1-{at}")) {
            objects.delete_at(&path);
        }
        for at in 0..count {
            let meta = json!({"name": format!("web-h1-{at}"), "namespace": "shop",
                "labels": {"pod-template-hash": "h1"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-h1", "controller": true}]});
            objects.put_at(
                &format!("{PODS}/web-h1-{at}"),
                json!({"metadata": meta, "spec": spec}),
            );
        }
        objects.put_at(DEPLOYMENT, deployment);
        self.graphs.set_topology(topology(count));
        let (cpu, memory) = (40.0, 50.0);
        let (beside, own) = (self.beside, 1.0 - self.beside);
        let of = |name: &str, part: f64| (name.into(), 35.0 * part, 40.0 * part);
        let mut containers = vec![of("app", own), ("maglor-proxy".into(), 5.0, 10.0)];
        if beside > 0.0 {
            containers.push(of("log", beside));
        }
        let usage = Usage {
            cpu_millis: cpu,
            memory_mib: memory,
            containers,
        };
        let used = (0..count).map(|at| (Key::new("shop", &format!("web-h1-{at}")), usage.clone()));
        self.graphs.set_usage(used.collect::<HashMap<_, _>>());
    }

    /// The proxy of `front` reports its calls, and the operator evaluates them.
    pub(super) async fn round(&mut self) {
        let requests = self.rate.round() as u64;
        let load = ClusterLoad {
            name: "web.shop.svc.cluster.local:80".into(),
            succeeded: requests,
            timed: requests,
            seconds: requests as f64 * self.latency_ms / 1000.0,
            ..ClusterLoad::default()
        };
        let report = LoadReport {
            interval: WINDOW,
            clusters: vec![load],
            memory: None,
        };
        // Until earlier values no longer affect the average.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.graphs.take("shop/front-0", &report);
            let snapshot = self.graphs.snapshot();
            let edge = snapshot.edges.first();
            let (rps, ms) = edge.map_or((0.0, 0.0), |edge| (edge.rps, edge.latency_ms));
            let near = |value: f64, wanted: f64| (value - wanted).abs() < 0.01 * wanted;
            let same = near(rps, self.rate) && near(ms, self.latency_ms);
            if same {
                break;
            }
            assert!(Instant::now() < deadline, "{edge:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The first one opens the watches of the namespace.
        let policy = Key::new("shop", "tune");
        while !self.is_watched() {
            if !self.operator.objects.contains_key("shop") {
                self.operator.look(self.now, &policy).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        self.operator.look(self.now, &policy).await.unwrap();
        let (_, generated) = self.api.list(&of(TRAFFIC)).pop().unwrap_or_default();
        assert!(
            generated.is_null() || declares(&generated["spec"]),
            "{generated}"
        );
        self.now = self.now + PERIOD;
    }

    /// Returns whether the operator has seen all changes.
    fn is_watched(&self) -> bool {
        let (operator, api) = (&self.operator, &self.api);
        let policies = of(("apis/maglor.dev/v1alpha1", "tuningpolicies"));
        if !is_current(&operator.policies, api, &policies) {
            return false;
        }
        let Some(objects) = operator.objects.get("shop") else {
            // Nothing is watched for a policy that is not in force.
            let policies = operator.policies.all();
            return policies.iter().all(|one| operator.problem(one).is_some());
        };
        is_current(
            &operator.policies,
            api,
            &of(("apis/maglor.dev/v1alpha1", "tuningpolicies")),
        ) && is_current(
            &operator.nodes,
            api,
            &Collection::new("api/v1", None, "nodes"),
        ) && is_current(&objects.pods, api, &of(("api/v1", "pods")))
            && is_current(
                &objects.deployments,
                api,
                &of(("apis/apps/v1", "deployments")),
            )
            && is_current(&objects.horizontal, api, &of(AUTOSCALERS))
            && objects.vertical.is_complete()
            && is_current(&objects.traffic, api, &of(TRAFFIC))
    }

    pub(super) async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.round().await;
        }
    }

    /// Runs rounds until a condition holds.
    pub(super) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..100 {
            if holds(self) {
                return;
            }
            self.round().await;
        }
        panic!("{what}: {:#}", self.object(POLICY));
    }
}

fn topology(count: u64) -> Topology {
    let mut topology = Topology::default();
    let amounts = |cpu_millis, memory_mib| Amounts {
        cpu_millis: Some(cpu_millis),
        memory_mib: Some(memory_mib),
    };
    let mut add = |name: &str, pods: &[String]| {
        let vertex = format!("shop/{name}");
        for pod in pods {
            topology.pods.insert(Key::new("shop", pod), vertex.clone());
        }
        let replicas = u32::try_from(pods.len()).unwrap();
        topology
            .services
            .insert(Key::new("shop", name), vertex.clone());
        topology.vertices.insert(
            vertex,
            Vertex {
                replicas,
                meshed: true,
                requests: amounts(110, 80),
                nodes: [("n1".to_owned(), replicas)].into(),
                ..Vertex::default()
            },
        );
    };
    add("front", &["front-0".to_owned()]);
    let pods: Vec<String> = (0..count).map(|at| format!("web-h1-{at}")).collect();
    add("web", &pods);
    let room = Room {
        left: amounts(4000, 4096),
        pods: Some(110),
        ..Room::default()
    };
    topology.nodes.insert("n1".to_owned(), room);
    topology
}
