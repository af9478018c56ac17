//! The operator beside an API server that is as real as it asks: a service under load gets more replicas, settings for
//! its callers, and other requests; what others want holds; what is worse goes back, also after a crash.

mod api;
mod world;

use maglor_mcg::tune::Part;
use serde_json::{Value, json};

use super::Scope;
use world::{DEPLOYMENT, POLICY, World, generated};

/// What a policy says that decides soon.
fn eager(mode: &str) -> Value {
    json!({"mode": mode, "observeSeconds": 120, "cooldownSeconds": 60, "guard": {"seconds": 60},
           "scaling": {"cpuPercent": 0, "maxReplicas": 3}})
}

fn replicas(world: &World) -> u64 {
    world.object(DEPLOYMENT)["spec"]["replicas"]
        .as_u64()
        .unwrap()
}

fn requests(world: &World) -> Value {
    let deployment = world.object(DEPLOYMENT);
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].clone()
}

#[tokio::test]
async fn a_service_under_load_is_tuned_step_by_step() {
    let mut world = World::new(&eager("Apply")).await;
    world.round().await;
    // Callers know that a new one's share grows before there is one.
    let first = world.written();
    assert_eq!(first, [generated("web"), DEPLOYMENT.to_owned()]);
    let window = &world.object(&generated("web"))["spec"]["cluster"]["slow_start"]["window"];
    assert_eq!(*window, "30s");
    assert_eq!(replicas(&world), 2);
    assert_eq!(world.condition("Settled")["reason"], "Changing");
    world.round().await;
    assert_eq!(replicas(&world), 2, "the second is not there yet");
    world.roll_out();
    world.rounds(2).await;
    assert_eq!(replicas(&world), 3, "as many as may be");
    world.roll_out();

    world
        .until("callers are told", |world| {
            !world.object(&generated("web"))["spec"]["cluster"]["limits"].is_null()
        })
        .await;
    let meta = &world.object(&generated("web"))["metadata"];
    assert_eq!(
        meta["ownerReferences"][0]["uid"], "u-tune",
        "it goes with the policy"
    );
    world
        .until("requests follow", |world| {
            requests(world) != world::requests()
        })
        .await;
    // 3 × 35m and 40 MiB are used by three, and 15 % and 10 % are added; the sidecar has 10m beside it. Quantiles are known
    // to 2 %.
    assert_eq!(requests(&world), json!({"cpu": "45m", "memory": "44Mi"}));
    world.roll_out();
    world
        .until("all is as advised", |world| {
            world.condition("Settled")["reason"] == "Settled"
        })
        .await;
    let status = world.object(POLICY)["status"].clone();
    assert_eq!(
        (&status["takenBack"], &status["requested"]),
        (&json!(0), &status["advised"])
    );
    let web = world.service("web");
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
    let front = world.service("front");
    assert!(
        front["held"]
            .to_string()
            .contains("not all of one Deployment"),
        "{front}"
    );
}

#[tokio::test]
async fn each_container_gets_requests_of_its_own() {
    let mut spec = eager("Apply");
    spec["scaling"]["maxReplicas"] = json!(1);
    let mut world = World::with(&spec, 0.25).await;
    world
        .until("requests follow", |world| {
            requests(world) != world::requests()
        })
        .await;
    let deployment = world.object(DEPLOYMENT);
    let containers = &deployment["spec"]["template"]["spec"]["containers"];
    let of = |at: usize| containers[at]["resources"]["requests"].clone();
    // 26.25m and 30 MiB, 8.75m and 10 MiB, and what is added.
    assert_eq!(of(0), json!({"cpu": "35m", "memory": "33Mi"}));
    assert_eq!(of(1), json!({"cpu": "15m", "memory": "11Mi"}));
    world.roll_out();
    world
        .until("all is as advised", |world| {
            world.condition("Settled")["reason"] == "Settled"
        })
        .await;
    let status = world.object(POLICY)["status"].clone();
    assert_eq!(
        (&status["requested"], &status["advised"]),
        (&json!("60m, 60Mi"), &json!("60m, 60Mi"))
    );
}

#[tokio::test]
async fn what_is_only_asked_changes_nothing() {
    for mode in ["Observe", "Recommend"] {
        let mut world = World::new(&eager(mode)).await;
        world.rounds(30).await;
        assert_eq!(world.written(), [""; 0], "{mode}");
        assert_eq!(world.condition("Settled")["reason"], "Recommended");
        let says = world.service("web")["values"].is_array();
        assert_eq!(says, mode == "Recommend");
    }
    let mut world = World::new(&eager("Apply")).await;
    world.operator.options.tunes = Scope::Off;
    world.rounds(3).await;
    assert_eq!(world.written(), [""; 0]);
    assert_eq!(world.condition("Accepted")["reason"], "NotEnabled");
}

#[tokio::test]
async fn what_others_decide_holds() {
    let mut world = World::new(&eager("Apply")).await;
    let autoscaler = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}});
    let path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web";
    world.api.objects().put(path, autoscaler);
    let own = json!({"metadata": {"name": "web-generated", "namespace": "shop"},
        "spec": {"targetRefs": [{"name": "web"}], "route": {"timeout": "9s"}}});
    world.api.objects().put(&generated("web"), own);
    world
        .until("memory is still ours", |world| {
            requests(world) != world::requests()
        })
        .await;
    assert_eq!(requests(&world), json!({"cpu": "100m", "memory": "44Mi"}));
    world.roll_out();
    world.rounds(10).await;
    assert_eq!(replicas(&world), 1);
    assert_eq!(
        world.object(&generated("web"))["spec"]["route"]["timeout"],
        "9s"
    );
    let held = world.service("web")["held"].to_string();
    for why in [
        "HorizontalPodAutoscaler web",
        "web-generated is somebody else's",
        "says route.timeout",
    ] {
        assert!(held.contains(why), "{held}");
    }
    // Somebody applies the manifest again: that holds from now on.
    let mut deployment = world.object(DEPLOYMENT);
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] =
        world::requests();
    world.api.objects().put(DEPLOYMENT, deployment);
    world.roll_out();
    world.rounds(60).await;
    assert_eq!(requests(&world), world::requests());
    let held = world.service("web")["held"].to_string();
    assert!(
        held.contains("somebody else has changed what they request"),
        "{held}"
    );
}

#[tokio::test]
async fn what_is_worse_goes_back_also_after_a_crash() {
    let mut spec = eager("Apply");
    spec["scaling"]["maxReplicas"] = json!(2);
    let mut world = World::new(&spec).await;
    world.rate = 1.0;
    world.rounds(2).await;
    world.rate = 200.0;
    world.api.objects().conflicts = 1;
    world
        .until("there are more", |world| replicas(world) == 2)
        .await;
    assert_eq!(world.condition("Settled")["reason"], "Changing");
    world.roll_out();
    world.round().await;
    // The next one knows it by the status alone.
    world.crash();
    world.latency_ms = 90.0;
    // Somebody else is faster when it is to be taken back.
    world.api.objects().conflicts = 1;
    world
        .until("it is taken back", |world| replicas(world) == 1)
        .await;
    let change = world.service("web")["changes"][0].clone();
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
    world.roll_out();
    world.crash();
    world.rounds(40).await;
    assert_eq!(replicas(&world), 1, "it rests");
    assert_eq!(world.object(POLICY)["status"]["takenBack"], 1);
    let of = ("shop/web".to_owned(), Part::Replicas);
    let governed = world.operator.governed.values().next().unwrap();
    assert_eq!(governed.tuning.records()[&of].trial.failed(), 1);
}

#[tokio::test]
async fn settings_for_callers_go_with_what_wanted_them() {
    let spec = json!({"mode": "Apply", "parts": ["Traffic"], "observeSeconds": 60});
    let mut world = World::new(&spec).await;
    world
        .until("callers are told", |world| world.has(&generated("web")))
        .await;
    assert_eq!(replicas(&world), 1);
    let mut policy = world.object(POLICY);
    policy["spec"] = json!({"mode": "Recommend"});
    world.api.objects().put(POLICY, policy);
    world
        .until("nobody wants it", |world| !world.has(&generated("web")))
        .await;
    assert!(world.written().iter().all(|path| *path == generated("web")));
}
