//! A `TuningPolicy` on a real Kubernetes, under load: a service gets more replicas, settings for its callers, and
//! requests by the usage of its pods; another one opts out; without the policy the settings are
//! removed. No request fails.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};

use crate::support::installed::{Installed, until};
use crate::support::load::Load;
use crate::support::shop::lasting;

const SHOP: &str = include_str!("placement/shop.yaml");
const SERVICE: &str = include_str!("placement/service.yaml");
const METRICS: &str = include_str!("tuning/metrics.yaml");

/// A second container of details, which is not called; its configuration.
const BESIDE: &str = "      - name: beside
        image: maglor-app:e2e
        imagePullPolicy: Never
        args: [--workmodel=/etc/shop/workmodel.json, --deployment=/etc/beside/deployment.json]
        resources: {requests: {cpu: 10m, memory: 16Mi}}
        volumeMounts: [{name: shop, mountPath: /etc/shop}, {name: beside, mountPath: /etc/beside}]
";
const BESIDE_VOLUME: &str = "{name: beside, configMap: {name: beside}}, ";
const BESIDE_CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: beside, namespace: shop}, \
    data: {deployment.json: '{\"instances\": [{\"host\": \"details\", \"listen\": \"127.0.0.1:9099\"}, \
    {\"host\": \"users\", \"listen\": \"10.96.0.99:9080\", \"remote\": true}]}'}}";

/// Services, their addresses, ports that are not redirected: users take requests from outside, and call details.
const SERVICES: [(&str, &str, &str); 2] = [
    ("users", "10.96.0.99", "9080"),
    ("details", "10.96.0.101", ""),
];

/// Requests a second.
const RATE: u32 = 50;

/// Load reports take effect immediately, with a short averaging window.
const VALUES: [&str; 2] = [
    "tuning.enabled=true",
    "extraArgs={--load-interval=1s,--graph-window=5s}",
];

/// By the load alone, as in the paper; response times of a busy machine are no reason for a rollback.
fn policy(mode: &str) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: TuningPolicy, metadata: {{name: shop, namespace: shop}}, \
         spec: {{mode: {mode}, roundSeconds: 5, observeSeconds: 20, cooldownSeconds: 10, readySeconds: 80, \
         scaling: {{cpuPercent: 0, maxReplicas: 3, slowStartSeconds: 5}}, \
         guard: {{seconds: 10, latencyPercent: 1000}}}}}}"
    )
}

/// A replacement of metrics-server: every pod of details has this usage.
struct Meter<'a> {
    kubectl: &'a Kubectl,
    known: RefCell<BTreeSet<String>>,
}

impl Meter<'_> {
    fn measure(&self) {
        for pod in lasting(self.kubectl, "details") {
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            if self.known.borrow_mut().insert(name.clone()) {
                let used = |name: &str, cpu: &str, memory: &str| json!({"name": name, "usage": {"cpu": cpu, "memory": memory}});
                let metrics = json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
                    "metadata": {"name": name, "namespace": "shop"},
                    "containers": [used("app", "120m", "40Mi"), used("beside", "30m", "20Mi"),
                        used("maglor-proxy", "5m", "10Mi")]});
                self.kubectl.apply(&metrics.to_string()).unwrap();
            }
        }
    }

    /// Waits for a condition; on the way, what is done with details is printed.
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let mut before = Value::Null;
        until(what, || {
            self.measure();
            let mut details = service_of(self.kubectl, "details");
            let changes = details["changes"].take();
            let now = json!([details["state"], details["reason"], changes]);
            if now != before {
                println!("{now}");
                before = now;
            }
            holds()
        });
    }
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn a_service_gets_what_it_needs_and_no_request_fails() {
    let Some(installed) = Installed::start("tuning", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    kubectl.apply(METRICS).unwrap();
    kubectl.apply(SHOP).unwrap();
    kubectl.apply(BESIDE_CONFIG).unwrap();
    for (name, address, skipped) in SERVICES {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        let service = service
            .replace("REPLICAS", "1")
            .replace("PLACEMENT", "enabled");
        let service = match name {
            "details" => service.replace(
                "      volumes: [",
                &format!("{BESIDE}      volumes: [{BESIDE_VOLUME}"),
            ),
            _ => service,
        };
        kubectl.apply(&service.replace("SKIPPED", skipped)).unwrap();
    }
    let alone = [
        "annotate",
        "deployment",
        "users",
        "-n",
        "shop",
        "maglor.dev/tuning=disabled",
    ];
    kubectl.run(&alone).unwrap();
    for (name, ..) in SERVICES {
        let deployment = format!("deployment/{name}");
        kubectl
            .run(&["rollout", "status", &deployment, "-n", "shop"])
            .unwrap();
    }
    let users: Ipv4Addr = lasting(kubectl, "users")[0]["status"]["podIP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let load = Load::start(&installed.cluster, SocketAddr::from((users, 9080)), RATE);
    let meter = Meter {
        kubectl,
        known: RefCell::default(),
    };

    assert!(
        kubectl.apply(&policy("Perhaps")).is_err(),
        "there is no such mode"
    );
    kubectl.apply(&policy("Recommend")).unwrap();
    meter.until("it is recommended", || {
        reason(kubectl) == "Recommended" && !service_of(kubectl, "details")["values"].is_null()
    });
    println!("{:#}", status(kubectl));
    assert_eq!(replicas(kubectl), 1, "nothing changes");
    it_is_applied(kubectl, &meter);
    load.go_on(u64::from(RATE) * 5);
    let (sent, failed) = load.stop();
    println!("{sent} sent while it was tuned, {failed:?} failed");
    assert!(failed.is_empty(), "{failed:?}");
    it_is_withdrawn(kubectl);
    installed.stop();
}

/// Replicas first, then settings for callers, then requests.
fn it_is_applied(kubectl: &Kubectl, meter: &Meter<'_>) {
    let before = requests(kubectl);
    kubectl.apply(&policy("Apply")).unwrap();
    meter.until("there are as many as may be", || replicas(kubectl) == 3);
    let generated = traffic_policy(kubectl).unwrap();
    assert_eq!(generated["spec"]["cluster"]["slow_start"]["window"], "5s");
    meter.until("all of them are ready", || {
        let ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        lasting(kubectl, "details").iter().filter(ready).count() == 3
    });
    meter.until("callers are configured", || {
        let generated = traffic_policy(kubectl).unwrap_or_default();
        generated["spec"]["cluster"]["limits"]["max_requests"].is_u64()
    });
    meter.until("requests follow", || requests(kubectl) != before);
    meter.until("all is as advised", || reason(kubectl) == "Settled");
    let status = status(kubectl);
    println!("{status:#}");
    assert_eq!((replicas(kubectl), &status["takenBack"]), (3, &json!(0)));
    // 15 % and 10 % are added to what each container uses; the sidecar keeps its own.
    let requested = requests(kubectl);
    let amount = |at: usize, name: &str, unit: &str| -> u64 {
        let text = requested[at][name].as_str().unwrap();
        text.strip_suffix(unit).unwrap().parse().unwrap()
    };
    let of = |at: usize| (amount(at, "cpu", "m"), amount(at, "memory", "Mi"));
    let near = |(cpu, memory): (u64, u64), (least_cpu, least_memory): (u64, u64)| {
        (least_cpu..=least_cpu + 10).contains(&cpu)
            && (least_memory..=least_memory + 3).contains(&memory)
    };
    assert!(near(of(0), (138, 44)), "{requested}");
    assert!(near(of(1), (34, 22)), "{requested}");
    let held = service_of(kubectl, "users")["held"].to_string();
    assert!(held.contains("maglor.dev/tuning: disabled"), "{held}");
    let generated = traffic_policy(kubectl).unwrap();
    let accepted = &generated["status"]["conditions"][0];
    assert_eq!(
        (&accepted["type"], &accepted["status"]),
        (&json!("Accepted"), &json!("True"))
    );
}

/// The callers' settings are removed with the policy; the Deployment is not changed, and its annotation has the
/// original values.
fn it_is_withdrawn(kubectl: &Kubectl) {
    let delete = ["delete", "tuningpolicy", "shop", "-n", "shop"];
    kubectl.run(&delete).unwrap();
    until("its settings are gone", || {
        traffic_policy(kubectl).is_none()
    });
    assert_eq!(replicas(kubectl), 3);
    let annotation = &deployment(kubectl)["metadata"]["annotations"]["maglor.dev/tuned"];
    let ticket: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    assert_eq!(ticket["replicas"]["original"], 1);
    let original = &ticket["containers"]["original"]["app"];
    assert_eq!(
        (&original["cpu"], &original["memory"]),
        (&json!("10m"), &json!("16Mi"))
    );
}

fn deployment(kubectl: &Kubectl) -> Value {
    let get = ["get", "deployment", "details", "-n", "shop"];
    kubectl.json(&get).unwrap()
}

fn replicas(kubectl: &Kubectl) -> u64 {
    deployment(kubectl)["spec"]["replicas"].as_u64().unwrap()
}

fn requests(kubectl: &Kubectl) -> Value {
    let deployment = deployment(kubectl);
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let requests = containers.into_iter().flatten();
    requests
        .map(|one| one["resources"]["requests"].clone())
        .collect()
}

fn traffic_policy(kubectl: &Kubectl) -> Option<Value> {
    let get = ["get", "trafficpolicies", "-n", "shop"];
    let list = kubectl.json(&get).unwrap();
    let mut all = list["items"].as_array().unwrap().iter();
    all.find(|one| one["metadata"]["name"] == "details-generated")
        .cloned()
}

fn status(kubectl: &Kubectl) -> Value {
    let get = ["get", "tuningpolicy", "shop", "-n", "shop"];
    kubectl.json(&get).unwrap()["status"].clone()
}

/// Why nothing is done, or what.
fn reason(kubectl: &Kubectl) -> String {
    let status = status(kubectl);
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let settled = conditions.find(|one| one["type"] == "Settled");
    settled
        .and_then(|one| one["reason"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn service_of(kubectl: &Kubectl, name: &str) -> Value {
    let status = status(kubectl);
    let name = format!("shop/{name}");
    let services = status["services"].as_array();
    let mut services = services.into_iter().flatten();
    let found = services.find(|one| one["name"] == name.as_str());
    found.cloned().unwrap_or_default()
}
