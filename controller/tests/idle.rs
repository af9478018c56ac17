//! A controller with one resource of each operator, and an API server in memory that records requests: what is asked
//! for while nothing changes.

use maglor_testkit::{TIMEOUT, eventually};
use serde_json::{Value, json};

use crate::support::fake_api::FakeApi;
use crate::support::process::Controller;

const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1";
const POLICIES: &str = "/apis/maglor.dev/v1alpha1";
/// Renewals of the Lease, one every four seconds, for which nothing else is asked.
const RENEWALS: usize = 2;

fn condition(api: &FakeApi, path: &str) -> Value {
    let object = api.get_at(path).unwrap();
    object["status"]["conditions"][0]["reason"].clone()
}

#[tokio::test]
async fn an_idle_controller_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let api = FakeApi::start();
    api.define("verticalpodautoscalers.autoscaling.k8s.io", false);
    api.write_kubeconfig(&at("kubeconfig"));
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
    let gateway = json!({"gatewayClassName": "maglor", "listeners": [listener]});
    let ports = json!([{"port": 80, "name": "http", "protocol": "TCP", "targetPort": 8080}]);
    let service = json!({"selector": {"app": "web"}, "ports": ports, "clusterIP": "10.1.0.1"});
    let proxied = format!("{POLICIES}/namespaces/shop/proxyservices/web");
    let placed = format!("{POLICIES}/placementpolicies/all");
    let tuned = format!("{POLICIES}/namespaces/shop/tuningpolicies/all");
    let of_gateway = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web-maglor";
    for (path, spec) in [
        (
            &*format!("{GATEWAYS}/namespaces/shop/gateways/web"),
            gateway,
        ),
        ("/api/v1/namespaces/shop/services/web", service),
        (&proxied, json!({"targetRef": {"name": "web"}})),
        (&placed, json!({"namespaces": ["shop"], "mode": "Apply"})),
        (&tuned, json!({"mode": "Apply"})),
    ] {
        api.put_at(path, json!({"spec": spec}));
    }
    let arguments = [
        &["--listen", "127.0.0.1:0", "--replica", "one"][..],
        &["--plain-text", "--gateways"],
    ];
    let kubeconfig = at("kubeconfig");
    let variables = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let _controller = Controller::spawn(&at("ready.json"), &arguments.concat(), &variables);
    let reason = |path: &str, reason: &str| condition(&api, path) == reason;
    eventually(TIMEOUT, "all are answered", || {
        let answered = reason(&proxied, "Accepted")
            && reason(&placed, "NotEnabled")
            && reason(&tuned, "NotEnabled");
        answered && api.get_at(of_gateway).is_some()
    });
    // The answers are still seen by the watches.
    let mut quiet = 0;
    eventually(TIMEOUT, "nothing is asked for any more", || {
        let all = api.requests();
        let of_lease = |one: &&String| one.starts_with("PUT ") && one.contains("/leases/");
        let renewed = all.iter().filter(of_lease).count();
        let other = all.into_iter().filter(|one| !one.contains("/leases"));
        let other: Vec<String> = other.collect();
        quiet = if other.is_empty() { quiet + renewed } else { 0 };
        quiet >= RENEWALS
    });
}
