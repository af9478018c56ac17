//! Tests of the operator with a fake API server: a service under load gets more replicas, settings
//! for its callers, and other requests; other managers take precedence; worse changes are rolled back, also after a
//! crash.

mod fixture;

use maglor_service_graph::tune::Part;
use serde_json::{Value, json};

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::run;
use crate::fake_api::FakeApi;
use crate::graph::{Graphs, Settings};
use crate::reconcile::stops::{at_each_write, state};
use crate::scope::Scope;
use fixture::{DEPLOYMENT, Fixture, POLICY, generated, options};

/// The spec of a policy with short intervals.
fn eager(mode: &str) -> Value {
    json!({"mode": mode, "observeSeconds": 120, "cooldownSeconds": 60, "guard": {"seconds": 60},
           "scaling": {"cpuPercent": 0, "maxReplicas": 3}})
}

fn replicas(fixture: &Fixture) -> u64 {
    fixture.object(DEPLOYMENT)["spec"]["replicas"]
        .as_u64()
        .unwrap()
}

fn requests(fixture: &Fixture) -> Value {
    let deployment = fixture.object(DEPLOYMENT);
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].clone()
}

#[tokio::test]
async fn a_service_under_load_is_tuned_step_by_step() {
    let mut fixture = Fixture::new(&eager("Apply")).await;
    fixture.round().await;
    // Callers get `slow_start` before a replica is added.
    let first = fixture.written();
    assert_eq!(first, [generated("web"), DEPLOYMENT.to_owned()]);
    let window = &fixture.object(&generated("web"))["spec"]["cluster"]["slow_start"]["window"];
    assert_eq!(*window, "30s");
    assert_eq!(replicas(&fixture), 2);
    assert_eq!(fixture.condition("Settled")["reason"], "Changing");
    fixture.round().await;
    assert_eq!(replicas(&fixture), 2, "the second is not there yet");
    fixture.roll_out();
    fixture.rounds(2).await;
    assert_eq!(replicas(&fixture), 3, "as many as may be");
    fixture.roll_out();

    fixture
        .until("callers are configured", |fixture| {
            !fixture.object(&generated("web"))["spec"]["cluster"]["limits"].is_null()
        })
        .await;
    let meta = &fixture.object(&generated("web"))["metadata"];
    assert_eq!(
        meta["ownerReferences"][0]["uid"], "u-tune",
        "it goes with the policy"
    );
    fixture
        .until("requests follow", |fixture| {
            requests(fixture) != fixture::requests()
        })
        .await;
    // 3 × 35m and 40 MiB are used by three, and 15 % and 10 % are added; the sidecar has another 10m. Quantiles are
    // known to 2 %.
    assert_eq!(requests(&fixture), json!({"cpu": "45m", "memory": "44Mi"}));
    fixture.roll_out();
    fixture
        .until("all is as advised", |fixture| {
            fixture.condition("Settled")["reason"] == "Settled"
        })
        .await;
    let status = fixture.object(POLICY)["status"].clone();
    assert_eq!(
        (&status["takenBack"], &status["requested"]),
        (&json!(0), &status["advised"])
    );
    let web = fixture.service("web");
    let value = |name: &str| {
        let values = web["values"].as_array().unwrap();
        values
            .iter()
            .find(|one| one["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(value("replicas")["value"], "3");
    assert_eq!(value("requests.cpu")["value"], "55m");
    for one in web["values"].as_array().unwrap() {
        assert!(!one["reason"].as_str().unwrap().is_empty(), "{one}");
    }
    let front = fixture.service("front");
    assert!(
        front["held"]
            .to_string()
            .contains("belong to more than one Deployment"),
        "{front}"
    );
}

#[tokio::test]
async fn each_container_gets_requests_of_its_own() {
    let mut spec = eager("Apply");
    spec["scaling"]["maxReplicas"] = json!(1);
    let mut fixture = Fixture::with(&spec, 0.25).await;
    fixture
        .until("requests follow", |fixture| {
            requests(fixture) != fixture::requests()
        })
        .await;
    let deployment = fixture.object(DEPLOYMENT);
    let containers = &deployment["spec"]["template"]["spec"]["containers"];
    let of = |at: usize| containers[at]["resources"]["requests"].clone();
    // 26.25m and 30 MiB, 8.75m and 10 MiB, plus the reserve.
    assert_eq!(of(0), json!({"cpu": "35m", "memory": "33Mi"}));
    assert_eq!(of(1), json!({"cpu": "15m", "memory": "11Mi"}));
    fixture.roll_out();
    fixture
        .until("all is as advised", |fixture| {
            fixture.condition("Settled")["reason"] == "Settled"
        })
        .await;
    let status = fixture.object(POLICY)["status"].clone();
    assert_eq!(
        (&status["requested"], &status["advised"]),
        (&json!("60m, 60Mi"), &json!("60m, 60Mi"))
    );
}

#[tokio::test]
async fn what_is_only_asked_changes_nothing() {
    for mode in ["Observe", "Recommend"] {
        let mut fixture = Fixture::new(&eager(mode)).await;
        fixture.rounds(30).await;
        assert_eq!(fixture.written(), [""; 0], "{mode}");
        assert_eq!(fixture.condition("Settled")["reason"], "Recommended");
        let says = fixture.service("web")["values"].is_array();
        assert_eq!(says, mode == "Recommend");
    }
    let mut fixture = Fixture::new(&eager("Apply")).await;
    fixture.operator.options.permitted = Scope::Off;
    fixture.rounds(3).await;
    assert_eq!(fixture.written(), [""; 0]);
    assert_eq!(fixture.condition("Accepted")["reason"], "NotEnabled");
}

#[tokio::test]
async fn what_others_decide_holds() {
    let mut fixture = Fixture::new(&eager("Apply")).await;
    let autoscaler = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}});
    let path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web";
    fixture.api.put_at(path, autoscaler);
    let own = json!({"metadata": {"name": "web-generated", "namespace": "shop"},
        "spec": {"targetRefs": [{"name": "web"}], "route": {"timeout": "9s"}}});
    fixture.api.put_at(&generated("web"), own);
    fixture
        .until("memory is still ours", |fixture| {
            requests(fixture) != fixture::requests()
        })
        .await;
    assert_eq!(requests(&fixture), json!({"cpu": "100m", "memory": "44Mi"}));
    fixture.roll_out();
    fixture.rounds(10).await;
    assert_eq!(replicas(&fixture), 1);
    assert_eq!(
        fixture.object(&generated("web"))["spec"]["route"]["timeout"],
        "9s"
    );
    let held = fixture.service("web")["held"].to_string();
    for why in [
        "HorizontalPodAutoscaler web",
        "web-generated was created by another writer",
        "sets route.timeout",
    ] {
        assert!(held.contains(why), "{held}");
    }
    // The manifest is applied again, and its values take precedence from now on.
    let mut deployment = fixture.object(DEPLOYMENT);
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] =
        fixture::requests();
    fixture.api.put_at(DEPLOYMENT, deployment);
    fixture.roll_out();
    fixture.rounds(60).await;
    assert_eq!(requests(&fixture), fixture::requests());
    let held = fixture.service("web")["held"].to_string();
    assert!(
        held.contains("another writer changed CPU and memory requests"),
        "{held}"
    );
}

#[tokio::test]
async fn what_is_worse_goes_back_also_after_a_crash() {
    let mut spec = eager("Apply");
    spec["scaling"]["maxReplicas"] = json!(2);
    let mut fixture = Fixture::new(&spec).await;
    fixture.rate = 1.0;
    fixture.rounds(2).await;
    fixture.rate = 200.0;
    fixture.api.fail(&format!("PATCH {DEPLOYMENT}"), 409, 1);
    fixture
        .until("there are more", |fixture| replicas(fixture) == 2)
        .await;
    assert_eq!(fixture.condition("Settled")["reason"], "Changing");
    fixture.roll_out();
    fixture.round().await;
    // The next operator restores it from the status alone.
    fixture.crash();
    fixture.latency_ms = 90.0;
    // A conflict occurs during the rollback.
    fixture.api.fail(&format!("PATCH {DEPLOYMENT}"), 409, 1);
    fixture
        .until("it is taken back", |fixture| replicas(fixture) == 1)
        .await;
    let change = fixture.service("web")["changes"][0].clone();
    assert_eq!(
        (&change["part"], &change["stage"]),
        (&json!("Replicas"), &json!("TakenBack"))
    );
    assert!(
        change["reason"]
            .as_str()
            .unwrap()
            .contains("response times"),
        "{change}"
    );
    assert!(change["restsUntil"].is_string());
    fixture.roll_out();
    fixture.crash();
    fixture.rounds(40).await;
    assert_eq!(replicas(&fixture), 1, "it rests");
    assert_eq!(fixture.object(POLICY)["status"]["takenBack"], 1);
    let of = ("shop/web".to_owned(), Part::Replicas);
    let governed = fixture.operator.governed.values().next().unwrap();
    assert_eq!(governed.tuning.records()[&of].trial.failed(), 1);
}

#[tokio::test]
async fn settings_for_callers_go_with_what_wanted_them() {
    let spec = json!({"mode": "Apply", "parts": ["Traffic"], "observeSeconds": 60});
    let mut fixture = Fixture::new(&spec).await;
    fixture
        .until("callers are configured", |fixture| {
            fixture.has(&generated("web"))
        })
        .await;
    assert_eq!(replicas(&fixture), 1);
    let mut policy = fixture.object(POLICY);
    policy["spec"] = json!({"mode": "Recommend"});
    fixture.api.put_at(POLICY, policy);
    fixture
        .until("no longer wanted", |fixture| {
            !fixture.has(&generated("web"))
        })
        .await;
    assert!(
        fixture
            .written()
            .iter()
            .all(|path| *path == generated("web"))
    );
}

/// Returns the state without measured values: the names of the callers' settings, and the policy's conditions.
fn decisions(fixture: &Fixture) -> Value {
    fn names(settings: &Value) -> Value {
        let fields = settings.as_object();
        let named = |(name, value): (&String, &Value)| (name.clone(), names(value));
        fields.map_or(Value::Null, |fields| fields.iter().map(named).collect())
    }
    let mut state = state(&fixture.api);
    if let Some(generated) = state.get_mut(generated("web")) {
        *generated = names(&generated["spec"]);
    }
    let status = &mut state[POLICY]["status"];
    *status = json!([status["conditions"], status["requested"], status["advised"]]);
    state
}

fn without_replicas(api: &FakeApi) -> Option<String> {
    let deployment = api.get_at(DEPLOYMENT)?;
    (deployment["spec"]["replicas"].as_u64() == Some(0)).then(|| deployment.to_string())
}

/// The operator ends at each of its writes while a service is tuned, and another one starts.
#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_loses_nothing() {
    at_each_write(without_replicas, async |stop| {
        let mut spec = eager("Apply");
        spec["scaling"]["maxReplicas"] = json!(2);
        let mut fixture = Fixture::stopping(&spec, 0.0, &stop).await;
        while replicas(&fixture) < 2
            || requests(&fixture) == fixture::requests()
            || fixture.condition("Settled")["reason"] != "Settled"
        {
            fixture.round().await;
            fixture.roll_out();
        }
        vec![decisions(&fixture)]
    })
    .await;
}

/// The same while a change is made that proves worse, and is rolled back.
#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_of_a_rollback_loses_nothing() {
    at_each_write(without_replicas, async |stop| {
        let mut spec = eager("Apply");
        spec["parts"] = json!(["Replicas"]);
        spec["scaling"]["maxReplicas"] = json!(2);
        let mut fixture = Fixture::stopping(&spec, 0.0, &stop).await;
        fixture.rate = 1.0;
        fixture.rounds(2).await;
        fixture.rate = 200.0;
        // A rollback that is not recorded yet is forgotten: the change is repeated, and rolled back again.
        while replicas(&fixture) > 1 || fixture.object(POLICY)["status"]["takenBack"] != 1 {
            fixture.latency_ms = if replicas(&fixture) > 1 { 90.0 } else { 10.0 };
            fixture.round().await;
            fixture.roll_out();
        }
        vec![decisions(&fixture)]
    })
    .await;
}

/// Runs in the reconciliation loop. The clock only advances when nothing else is left to do: a reaction that needs no
/// timer takes no time.
#[tokio::test(start_paused = true)]
async fn a_policy_is_answered_without_a_timer_and_then_nothing_is_asked() {
    let api = FakeApi::within();
    let graphs = Arc::new(Graphs::new(Settings {
        window: Duration::ZERO,
        ..Settings::default()
    }));
    let mut options = options(&api, &graphs);
    options.permitted = Scope::Off;
    let task = tokio::spawn(run(options));
    sleep(Duration::from_secs(1)).await;
    for (mode, expected) in [("Apply", "NotEnabled"), ("Recommend", "NoServices")] {
        let mut policy = api.get_at(POLICY).unwrap_or_default();
        policy["spec"] = json!({"mode": mode});
        let begun = Instant::now();
        api.put_at(POLICY, policy);
        let answered = |api: &FakeApi| {
            let policy = api.get_at(POLICY).unwrap();
            policy["status"]["conditions"][0]["reason"] == expected
        };
        api.until(expected, answered).await;
        assert!(
            begun.elapsed() <= Duration::from_millis(100),
            "{:?}",
            begun.elapsed()
        );
        sleep(Duration::from_secs(1)).await;
        api.requests();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(api.requests(), [""; 0], "nothing is polled");
    }
    task.abort();
}
