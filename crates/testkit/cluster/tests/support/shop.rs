//! The objects in the namespace `shop`, which the tests of Services use.

use std::net::{Ipv4Addr, SocketAddr};

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use super::installed::Installed;
use super::load;

const SHOP: &str = include_str!("../placement/shop.yaml");
const SERVICE: &str = include_str!("../placement/service.yaml");

/// Deploys users, whose port takes requests from outside the mesh, and three replicas of the details that they call;
/// `placement`: `enabled` or `disabled`.
pub(crate) fn deploy_users_and_details(kubectl: &Kubectl, placement: &str) {
    kubectl.apply(SHOP).unwrap();
    let services = [
        ("users", "10.96.0.99", "1", "9080"),
        ("details", "10.96.0.101", "3", ""),
    ];
    for (name, address, replicas, skipped) in services {
        let service = SERVICE.replace("NAME", name).replace("ADDRESS", address);
        let service = service.replace("REPLICAS", replicas);
        let service = service.replace("PLACEMENT", placement);
        kubectl.apply(&service.replace("SKIPPED", skipped)).unwrap();
    }
    for (name, ..) in services {
        rolled_out(kubectl, name);
    }
}

pub(crate) fn rolled_out(kubectl: &Kubectl, name: &str) {
    let deployment = format!("deployment/{name}");
    let wait = [
        "rollout",
        "status",
        &deployment,
        "-n",
        "shop",
        "--timeout=180s",
    ];
    kubectl.run(&wait).unwrap();
}

pub(crate) fn pods(kubectl: &Kubectl, selector: &str) -> Vec<Value> {
    let get = ["get", "pods", "-n", "shop", "--selector", selector];
    let pods = kubectl.json(&get).unwrap();
    pods["items"].as_array().unwrap().clone()
}

/// The pods of a service that do not end.
pub(crate) fn lasting(kubectl: &Kubectl, app: &str) -> Vec<Value> {
    let mut pods = pods(kubectl, &format!("app={app}"));
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

pub(crate) fn ip(pod: &Value) -> Option<Ipv4Addr> {
    pod["status"]["podIP"].as_str()?.parse().ok()
}

pub(crate) fn addresses(kubectl: &Kubectl, selector: &str) -> Vec<Ipv4Addr> {
    pods(kubectl, selector).iter().filter_map(ip).collect()
}

pub(crate) fn address(kubectl: &Kubectl, app: &str) -> Ipv4Addr {
    addresses(kubectl, &format!("app={app}"))[0]
}

/// The status of one request that a caller passes on.
pub(crate) fn call(installed: &Installed, caller: Ipv4Addr) -> Option<u16> {
    let caller = SocketAddr::from((caller, 9080));
    let direct = move || load::body(caller, "/direct");
    let response = installed.cluster.in_network(direct).unwrap()?;
    response.split(' ').nth(1)?.parse().ok()
}

/// Whether a `ProxyService` is.
pub(crate) fn is_ready(kubectl: &Kubectl, name: &str) -> bool {
    let get = ["get", "proxyservice", name, "-n", "shop"];
    let status = kubectl.json(&get).unwrap_or_default();
    let conditions = status["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// A Service, but for its resource version.
pub(crate) fn service(kubectl: &Kubectl, name: &str) -> Value {
    let service = ["service", name, "-n", "shop"];
    kubectl.as_kept(&service, "maglor-proxy-service").unwrap()
}
