//! `mode: Auto`: a Service under loads and with replicas that come and go. Proxies are inserted when the decision
//! rule has recommended them for long enough, stay while they pay off, and are withdrawn otherwise; the gain is
//! the predicted one, and no request fails.
//!
//! The endpoints are emulated queues that need no processor, so two cores suffice. An unoptimised build does a
//! quarter of the requests, each of which takes four times as long; then the variance is too large to measure how much
//! is gained. Programs from `MAGLOR_PROGRAMS` (docs/cluster.md) are taken for optimised ones.
//!
//! Not part of `cargo xtask e2e`, since it measures: `cargo test -p maglor-testkit --test measured auto:: -- --ignored`
//! on a quiet machine. The first time it builds Kubernetes. It needs root, and reports when it skips.

mod selector;

use std::net::Ipv4Addr;
use std::time::Duration;

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::support::installed::{Installed, until};
use selector::Watch;

const SHOP: &str = include_str!("auto/shop.yaml");

/// Callers are visible immediately, and the decision window is ten seconds instead of two minutes.
const VALUES: [&str; 2] = [
    "proxyServices.enabled=true",
    "extraArgs={--load-interval=1s,--graph-window=10s,--auto-patience=10s}",
];

/// The pods that the Service selects: its own, or proxies.
const OWN: &str = "details";
const PROXIES: &str = "details.proxy";

const CALLERS: u32 = 12;
const SERVERS: u32 = 8;
const MORE_SERVERS: u32 = 12;
/// Seconds.
const SERVICE_TIME: f64 = 0.012;
/// Requests a second: of a utilization of 0.75, and of 0.02.
const MANY: u32 = 500;
const FEW: u32 = 15;
/// By how much everything is slower where programs are not optimised.
const UNOPTIMISED: u32 = 4;
/// A mean over so long is known to a few percent.
const MEASURED: Duration = Duration::from_secs(70);
/// Maximum relative deviation of the measured gain from the predicted one.
const TOLERANCE: f64 = 0.2;

fn auto(dry_run: bool) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {{name: details, namespace: shop}}, \
         spec: {{targetRef: {{name: details}}, mode: Auto, dryRun: {dry_run}}}}}"
    )
}

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn proxies_come_while_they_pay_and_go_when_they_do_not() {
    let Some(installed) = Installed::start("auto", &VALUES) else {
        return;
    };
    let kubectl = installed.kubectl();
    let optimised = std::env::var_os("MAGLOR_PROGRAMS").is_some();
    let slower = if optimised { 1 } else { UNOPTIMISED };
    let (few, many) = (FEW, MANY / slower);
    deploy(kubectl, SERVICE_TIME * f64::from(slower));
    let before = kept(kubectl);
    let watch = Watch::start(kubectl);
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("repeat with SEED={seed}");
    let arrivals = Arrivals::start(&installed.cluster, &callers(kubectl), few, seed);

    kubectl.apply(&auto(false)).unwrap();
    until("few requests are seen", || {
        seen(kubectl).is_some_and(|seen| seen.utilization < 0.2)
    });
    arrivals.during("few requests", Duration::from_secs(20));
    assert_eq!(watch.seen(), [OWN], "proxies would not reduce latency");

    kubectl.apply(&auto(true)).unwrap();
    arrivals.at_rate(many);
    until("many are seen", || {
        seen(kubectl).is_some_and(|seen| seen.utilization > 0.5)
    });
    let local = arrivals.during("many requests, without proxies", MEASURED);
    assert_eq!(watch.seen(), [OWN], "it is only asked");
    let predicted = seen(kubectl).unwrap();

    kubectl.apply(&auto(false)).unwrap();
    until("proxies are inserted", || is_ready(kubectl));
    arrivals.during("the change", Duration::from_secs(5));
    let proxied = arrivals.during("many requests, with proxies", MEASURED);
    let gain = 1.0 - proxied / local;
    let expected = 1.0 - predicted.proxied / predicted.local;
    println!("gain {gain:.3}, predicted {expected:.3}: {predicted:?}");

    let scale = format!("--replicas={MORE_SERVERS}");
    let more = ["scale", "statefulset/details", "-n", "shop", &scale];
    kubectl.run(&more).unwrap();
    rolled_out(kubectl, "statefulset/details");
    until("more endpoints are seen", || {
        seen(kubectl).is_some_and(|seen| seen.utilization < 0.6)
    });
    arrivals.during("more endpoints", Duration::from_secs(20));
    assert_eq!(watch.seen(), [OWN, PROXIES], "they still pay");

    arrivals.at_rate(few);
    until("proxies are withdrawn", || {
        watch.seen() == [OWN, PROXIES, OWN] && proxies(kubectl).is_empty()
    });
    arrivals.during("few requests again", Duration::from_secs(15));
    assert_eq!(watch.seen(), [OWN, PROXIES, OWN], "it does not flap");
    assert_eq!(kept(kubectl).to_string(), before.to_string());
    let (sent, failed) = arrivals.stop();
    println!("{sent} sent, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
    let tolerance = if optimised {
        TOLERANCE * expected
    } else {
        expected
    };
    assert!(
        (gain - expected).abs() <= tolerance,
        "gain {gain:.3}, predicted {expected:.3}"
    );
    installed.stop();
}

fn deploy(kubectl: &Kubectl, service_time: f64) {
    let shop = SHOP.replace("SERVICE_TIME", &service_time.to_string());
    let shop = shop.replace("CALLERS", &CALLERS.to_string());
    kubectl
        .apply(&shop.replace("SERVERS", &SERVERS.to_string()))
        .unwrap();
    rolled_out(kubectl, "statefulset/details");
    rolled_out(kubectl, "deployment/users");
}

fn rolled_out(kubectl: &Kubectl, name: &str) {
    let wait = ["rollout", "status", name, "-n", "shop", "--timeout=120s"];
    kubectl.run(&wait).unwrap();
}

/// The controller's recommendation for the Service, times in milliseconds.
#[derive(Debug)]
struct Seen {
    utilization: f64,
    local: f64,
    proxied: f64,
}

fn seen(kubectl: &Kubectl) -> Option<Seen> {
    let status = status(kubectl);
    let auto = &status["auto"];
    Some(Seen {
        utilization: auto["utilization"].as_f64()?,
        local: auto["localMilliseconds"].as_f64()?,
        proxied: auto["proxiedMilliseconds"].as_f64()?,
    })
}

fn status(kubectl: &Kubectl) -> Value {
    let get = ["get", "proxyservice", "details", "-n", "shop"];
    kubectl.json(&get).unwrap()["status"].take()
}

fn is_ready(kubectl: &Kubectl) -> bool {
    let status = status(kubectl);
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn pods(kubectl: &Kubectl, selector: &str) -> Vec<Ipv4Addr> {
    let pods = kubectl.json(&["get", "pods", "-n", "shop", "--selector", selector]);
    let pods = pods.unwrap()["items"].take();
    let address = |pod: &Value| pod["status"]["podIP"].as_str()?.parse().ok();
    let pods = pods.as_array().into_iter().flatten();
    pods.filter_map(address).collect()
}

fn callers(kubectl: &Kubectl) -> Vec<Ipv4Addr> {
    let callers = pods(kubectl, "app=users");
    assert_eq!(callers.len(), CALLERS as usize);
    callers
}

fn proxies(kubectl: &Kubectl) -> Vec<Ipv4Addr> {
    pods(kubectl, "maglor.dev/proxy-service=details")
}

/// The Service, but for its resource version.
fn kept(kubectl: &Kubectl) -> Value {
    let service = ["service", "details", "-n", "shop"];
    kubectl.as_kept(&service, "maglor-proxy-service").unwrap()
}
