//! Tests of the operator on the reconcile kernel, with a fake API server. Its clock only advances when nothing else is
//! left to do: a reaction that needs no timer takes no time.

mod stops;

use std::sync::Arc;

use maglor_telemetry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::events::Events;
use crate::fake_api::{Collection, FakeApi};
use crate::graph::replicas::{Connector, Replicas};
use crate::graph::{Graphs, Settings};
use crate::lease::Term;
use crate::placement::HASH;
use crate::placement::moving::{self, Ticket};
use crate::scope::Scope;

/// Maximum time from a watch event to the reaction.
const REACTION: Duration = Duration::from_millis(100);
const POD: &str = "/api/v1/namespaces/shop/pods/web-5d4-1";

/// A pod that was taken out of its ReplicaSet, and whose successor is not ready in time.
fn moving_pod() -> Value {
    let ticket = Ticket {
        policy: "gone".to_owned(),
        service: "shop/web".to_owned(),
        to: "n2".to_owned(),
        replica_set: "web-5d4".to_owned(),
        hash: "5d4".to_owned(),
        deadline: 1,
        ..Ticket::default()
    };
    let mut pod = json!({
        "metadata": {"uid": "u1", "labels": {"app": "web"}, "annotations": {}},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let begun = moving::begin(&ticket);
    for (name, value) in begun["metadata"]["labels"].as_object().unwrap() {
        pod["metadata"]["labels"][name] = value.clone();
    }
    pod["metadata"]["annotations"] = begun["metadata"]["annotations"].clone();
    pod
}

fn policies() -> Collection {
    Collection::new("apis/maglor.dev/v1alpha1", None, "placementpolicies")
}

fn options(api: &FakeApi, moves: Scope, term: watch::Receiver<Term>) -> Options {
    let client = api.client();
    Options {
        events: Events::new(client.clone(), "maglor.dev/placement", "a"),
        client,
        replicas: Replicas {
            pods: Cache::empty(),
            replica: "a".to_owned(),
            connector: Connector { port: 1, tls: None },
        },
        graphs: Arc::new(Graphs::new(Settings::default())),
        term,
        metrics: PlacementMetrics::new(&Registry::new(1)),
        permitted: moves,
    }
}

struct Fixture {
    api: FakeApi,
    term: watch::Sender<Term>,
    task: JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fixture {
    fn start(api: FakeApi, moves: Scope) -> Self {
        let (sender, term) = watch::channel(Term::held());
        let task = tokio::spawn(run(options(&api, moves, term)));
        Self {
            api,
            term: sender,
            task,
        }
    }

    fn put(&self, spec: &Value) {
        let mut policy = self.api.get(&policies(), "p").unwrap_or_default();
        policy["spec"] = spec.clone();
        self.api.put(&policies(), "p", policy);
    }

    fn condition(&self) -> Value {
        let policy = self.api.get(&policies(), "p").unwrap_or_default();
        policy["status"]["conditions"][0].clone()
    }
}

fn workload(api: &FakeApi, replicas: u32) {
    let object = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {}, "template": {}}})
    };
    let mut set = object("web-5d4");
    set["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d"}]);
    api.put_at(
        "/apis/apps/v1/namespaces/shop/deployments/web",
        object("web"),
    );
    api.put_at("/apis/apps/v1/namespaces/shop/replicasets/web-5d4", set);
}

/// Placement is disabled and the policy is deleted while a pod is moving.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_brought_to_its_end_where_no_pod_may_be_moved_any_more() {
    let api = FakeApi::within();
    workload(&api, 1);
    api.put_at(POD, moving_pod());
    api.fail(&format!("PATCH {POD}"), 409, 1);
    api.fail(&format!("PATCH {POD}"), 503, 1);
    let fixture = Fixture::start(api, Scope::Off);
    let label =
        |api: &FakeApi, name: &str| api.get_at(POD).unwrap()["metadata"]["labels"][name].clone();
    let back = |api: &FakeApi| label(api, HASH) == "5d4";
    // After a conflict the next version is awaited; an error is retried.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut pod = fixture.api.get_at(POD).unwrap();
    pod["metadata"]["annotations"]["note"] = json!("changed");
    fixture.api.put_at(POD, pod);
    fixture.api.until("it is given back", back).await;
    let pod = fixture.api.get_at(POD).unwrap();
    let ticket = pod["metadata"]["annotations"][MOVING].as_str().unwrap();
    assert!(ticket.contains("\"returned\":true"), "{ticket}");
    // The ReplicaSet adopts the pod again.
    let mut adopted = pod.clone();
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4", "uid": "r", "controller": true});
    adopted["metadata"]["ownerReferences"] = json!([owner]);
    let begun = Instant::now();
    fixture.api.put_at(POD, adopted);
    let cleared = |api: &FakeApi| label(api, MOVING).is_null();
    fixture
        .api
        .until("nothing is left of the move", cleared)
        .await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.api.requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), [""; 0], "nothing is polled");
}

/// An eviction that a budget blocks is retried, and one that is no longer needed is not.
#[tokio::test(start_paused = true)]
async fn a_blocked_eviction_is_retried() {
    let api = FakeApi::within();
    workload(&api, 0);
    api.put_at(POD, moving_pod());
    api.fail(&format!("POST {POD}/eviction"), 429, 3);
    let fixture = Fixture::start(api, Scope::Everywhere);
    let gone = |api: &FakeApi| api.get_at(POD).is_none();
    fixture.api.until("it is evicted", gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_answered_without_a_timer_and_then_nothing_is_asked() {
    let api = FakeApi::within();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    api.put_at(
        "/api/v1/nodes/n1",
        json!({"spec": {}, "status": {"conditions": ready}}),
    );
    let fixture = Fixture::start(api, Scope::Off);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let spec = json!({"namespaces": ["shop"], "mode": "Apply"});
    let begun = Instant::now();
    fixture.put(&spec);
    let reason = |reason: &'static str| {
        move |api: &FakeApi| {
            let policy = api.get(&policies(), "p").unwrap();
            policy["status"]["conditions"][0]["reason"] == reason
        }
    };
    fixture
        .api
        .until("it is not enabled", reason("NotEnabled"))
        .await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
    // Averages over less than the window are incomplete; afterwards each change of the policy is a reason to plan.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let begun = Instant::now();
    fixture.put(&json!({"namespaces": ["shop"], "mode": "Recommend"}));
    fixture
        .api
        .until("it is evaluated", reason("Invalid"))
        .await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.api.requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), [""; 0], "nothing is polled");
    // Another replica becomes the leader.
    fixture.term.send_replace(Term::default());
    fixture.put(&json!({"namespaces": ["shop"], "mode": "Apply"}));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.api.requests(), [""; 0]);
    assert_eq!(fixture.condition()["reason"], "Invalid");
    fixture.term.send_replace(Term::held());
    fixture
        .api
        .until("the next term", reason("NotEnabled"))
        .await;
}
