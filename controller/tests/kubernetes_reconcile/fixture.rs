//! A Kubernetes with an object of each kind that the operators act on, and a controller outside of it, whose requests
//! are recorded.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use maglor_controller::placement::moving::{Ticket, begin};
use maglor_testkit::cluster::Cluster;
use serde_json::{Value, json};

use super::events::Events;
use super::kubelet::{self, NODE};
use super::relay::Relay;
use crate::support::on_cluster;
use crate::support::process::Controller;

/// The objects, in two namespaces.
const OBJECTS: &str = include_str!("objects.yaml");
const SECONDS: Duration = Duration::from_secs(1);

/// Group, version, kind and plural of what is watched and changed.
const KINDS: [(&str, &str, &str, &str); 9] = [
    ("", "v1", "Service", "services"),
    ("", "v1", "Pod", "pods"),
    ("apps", "v1", "Deployment", "deployments"),
    ("maglor.dev", "v1alpha1", "ProxyService", "proxyservices"),
    (
        "maglor.dev",
        "v1alpha1",
        "PlacementPolicy",
        "placementpolicies",
    ),
    ("maglor.dev", "v1alpha1", "TuningPolicy", "tuningpolicies"),
    ("maglor.dev", "v1alpha1", "TrafficPolicy", "trafficpolicies"),
    ("gateway.networking.k8s.io", "v1", "Gateway", "gateways"),
    (
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ),
];

/// See the module's documentation.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) events: Events,
    pub(crate) relay: Relay,
    pub(crate) cluster: Cluster,
    folder: tempfile::TempDir,
    moved: u32,
}

pub(crate) fn resource(plural: &str) -> ApiResource {
    let kind = KINDS.iter().find(|(.., one)| *one == plural);
    let (group, version, kind, _) = kind.unwrap();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

impl Fixture {
    /// Starts all but the controller; `None`, with the printed reason, if that is not possible.
    pub(crate) async fn start(name: &str) -> Option<Self> {
        let cluster = on_cluster::cluster(name)?;
        let kubectl = cluster.kubectl();
        for definition in maglor_testkit::cluster::gateway_definitions().unwrap() {
            kubectl.apply(&definition).unwrap();
        }
        kubectl.run(&["cordon", "node-1"]).unwrap();
        for namespace in ["maglor", "shop", "edge"] {
            kubectl.run(&["create", "namespace", namespace]).unwrap();
        }
        let kubeconfig = Kubeconfig::read_from(kubectl.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let client = Client::try_from(config.unwrap()).unwrap();
        tokio::spawn(kubelet::run(client.clone()));
        // The service account of a new namespace, and definitions, take a moment.
        let mut applied = kubectl.apply(OBJECTS);
        for _ in 0..60 {
            if applied.is_ok() {
                break;
            }
            tokio::time::sleep(SECONDS).await;
            applied = kubectl.apply(OBJECTS);
        }
        applied.unwrap();
        let kinds = KINDS.map(|(.., plural)| resource(plural));
        Some(Self {
            events: Events::watch(&client, &kinds),
            relay: Relay::start(client.clone()).await,
            client,
            cluster,
            folder: tempfile::tempdir().unwrap(),
            moved: 0,
        })
    }

    /// Starts a controller.
    pub(crate) fn controller(&self) -> Controller {
        let at = |name: &str| self.folder.path().join(name);
        self.relay.write_kubeconfig(&at("kubeconfig"));
        let _ = std::fs::remove_file(at("ready.json"));
        let arguments = [
            &[
                "--listen",
                "127.0.0.1:0",
                "--replica",
                "one",
                "--webhook",
                "127.0.0.1:0",
            ][..],
            &[
                "--gateways",
                "--gateway-service-type",
                "ClusterIP",
                "--tuning",
                "--placement",
            ],
            &["--graph-window", "1s"],
        ];
        let kubeconfig = at("kubeconfig");
        let variables = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
        Controller::spawn(&at("ready.json"), &arguments.concat(), &variables)
    }

    pub(crate) fn api(&self, plural: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = resource(plural);
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    pub(crate) async fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.api(plural, namespace).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    /// Merges fields into an object as a user.
    pub(crate) async fn patch(&self, plural: &str, namespace: &str, name: &str, fields: Value) {
        let api = self.api(plural, namespace);
        let params = PatchParams::default();
        api.patch(name, &params, &Patch::Merge(fields))
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let _ = self
            .api(plural, namespace)
            .delete(name, &Default::default())
            .await;
    }

    /// Applies an object of this kind.
    pub(crate) async fn put(&self, plural: &str, namespace: &str, name: &str, spec: Value) {
        let kind = resource(plural);
        let object = json!({"apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("test").force();
        let api = self.api(plural, namespace);
        api.patch(name, &params, &Patch::Apply(object))
            .await
            .unwrap();
    }

    /// Creates a pod that is being moved, although its workload does not exist any more: it is to be evicted. Returns
    /// its name.
    pub(crate) async fn put_moving(&mut self) -> String {
        self.moved += 1;
        let name = format!("moving-{}", self.moved);
        let ticket = Ticket {
            policy: "gone".to_owned(),
            service: "shop/gone".to_owned(),
            to: "elsewhere".to_owned(),
            replica_set: "gone-5d4".to_owned(),
            hash: "5d4".to_owned(),
            ..Ticket::default()
        };
        let mut pod = begin(&ticket);
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = name.clone().into();
        pod["spec"] = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "a", "image": "a"}]});
        let pod = serde_json::from_value(pod).unwrap();
        let api = self.api("pods", "shop");
        api.create(&Default::default(), &pod).await.unwrap();
        name
    }
}
