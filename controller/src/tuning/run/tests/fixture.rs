//! A namespace with a service `web` of a Deployment, `front` that calls it, and an operator.

use std::collections::HashMap;

use maglor_service_graph::Averaging;
use maglor_xds::load::{ClusterLoad, LoadReport};
use tokio::time::Instant;

use super::super::*;
use super::api::Api;
use super::{Value, json};
use crate::graph::{Settings, Usage};
use crate::index::facts::{Amounts, Key};
use crate::index::topology::{Room, Topology, Vertex};
use crate::metrics::Metrics;

pub(super) const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
pub(super) const POLICY: &str = "/apis/maglor.dev/v1alpha1/namespaces/shop/tuningpolicies/tune";
const PODS: &str = "/api/v1/namespaces/shop/pods";
/// T, which is lived through in real time where the load changes.
const WINDOW: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(30);

pub(super) fn generated(service: &str) -> String {
    format!("/apis/maglor.dev/v1alpha1/namespaces/shop/trafficpolicies/{service}-generated")
}

/// The initial requests of the Deployment's container.
pub(super) fn requests() -> Value {
    json!({"cpu": "100m", "memory": "64Mi"})
}

pub(super) struct Fixture {
    pub(super) api: Api,
    pub(super) operator: Operator,
    /// Calls a second.
    pub(super) rate: f64,
    pub(super) latency_ms: f64,
    graphs: Arc<Graphs>,
    now: Time,
    beside: f64,
}

fn operator(api: &Api, graphs: &Arc<Graphs>, now: Time) -> Operator {
    let client = api.client();
    let options = Options {
        client: client.clone(),
        replicas: Replicas {
            client: client.clone(),
            namespace: "maglor".to_owned(),
            replica: "r0".to_owned(),
            way: crate::graph::replicas::Way { port: 0, tls: None },
        },
        graphs: Arc::clone(graphs),
        term: watch::channel(Term::held()).1,
        events: Events::new(client, "maglor.dev/tuning", "r0"),
        metrics: Metrics::new().tuning.clone(),
        tunes: Scope::Everywhere,
    };
    Operator::new(options, now)
}

impl Fixture {
    pub(super) async fn new(spec: &Value) -> Self {
        Self::with(spec, 0.0).await
    }

    /// With a second container `log`, which uses this share of the CPU and memory of each pod, 0–1; 0 = none.
    pub(super) async fn with(spec: &Value, beside: f64) -> Self {
        let api = Api::start().await;
        let graphs = Arc::new(Graphs::new(Settings {
            window: WINDOW,
            averaging: Averaging::Plain,
            ..Settings::default()
        }));
        let now = epoch::now();
        let mut fixture = Self {
            operator: operator(&api, &graphs, now),
            api,
            rate: 200.0,
            latency_ms: 10.0,
            graphs,
            now,
            beside,
        };
        {
            let mut objects = fixture.api.objects();
            let meta =
                json!({"name": "tune", "namespace": "shop", "uid": "u-tune", "generation": 1});
            objects.put(POLICY, json!({"metadata": meta, "spec": spec}));
            let container = json!({"name": "app", "resources": {"requests": requests()}});
            let mut containers = vec![container];
            if beside > 0.0 {
                let requests = json!({"cpu": "10m", "memory": "16Mi"});
                containers.push(json!({"name": "log", "resources": {"requests": requests}}));
            }
            let meta = json!({"name": "web", "namespace": "shop", "uid": "u-web", "generation": 1});
            let template = json!({"spec": {"containers": containers}});
            objects.put(
                DEPLOYMENT,
                json!({"metadata": meta, "spec": {"replicas": 1, "template": template}}),
            );
            let front = json!({"metadata": {"name": "front-0", "namespace": "shop"}, "spec": {}});
            objects.put(&format!("{PODS}/front-0"), front);
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let node =
                json!({"metadata": {"name": "n1"}, "spec": {}, "status": {"conditions": ready}});
            objects.put("/api/v1/nodes/n1", node);
        }
        fixture.roll_out();
        fixture.now = now + WINDOW;
        fixture
    }

    pub(super) fn object(&self, path: &str) -> Value {
        self.api.objects().get(path).cloned().unwrap_or_default()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.api.objects().get(path).is_some()
    }

    pub(super) fn written(&self) -> Vec<String> {
        self.api.objects().written.clone()
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
        // It has received reports for long enough.
        let begun = Time::from_nanos(self.now.as_nanos().saturating_sub(WINDOW.as_nanos() as u64));
        self.operator = operator(&self.api, &self.graphs, begun);
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
        let mut objects = self.api.objects();
        for path in (0..10).map(|at| format!("{PODS}/web-h1-{at}")) {
            drop(objects.remove(&path));
        }
        for at in 0..count {
            let meta = json!({"name": format!("web-h1-{at}"), "namespace": "shop",
                "labels": {"pod-template-hash": "h1"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-h1", "controller": true}]});
            objects.put(
                &format!("{PODS}/web-h1-{at}"),
                json!({"metadata": meta, "spec": spec}),
            );
        }
        objects.put(DEPLOYMENT, deployment);
        drop(objects);
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
        self.operator.look_at(self.now).await.unwrap();
        self.now = self.now + PERIOD;
    }

    pub(super) async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.round().await;
        }
    }

    /// Goes on until a condition holds.
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
