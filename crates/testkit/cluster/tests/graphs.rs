//! Fig. 7 of the paper on LOR (papers/001, IV) on a cluster: applications of four services, hub-and-spoke and chain,
//! with R replicas of each, at the same load of each replica. `lor(choices=2)` in the sidecars of callers, then with
//! a `ProxyService` for each service that is called.
//!
//! Requests come to random ones of the first service's replicas, as from the paper's ingress gateway. So at that
//! service there is nothing to be gained; at the other three R balancers choose among R replicas.
//!
//! Requests that fail are listed with the causes that the proxies have kept (`maglor why`). A machine whose processors are
//! overloaded fails them by the client's limit of 10 s.
//!
//! An experiment of a quarter of an hour for a machine that does nothing else, with optimised programs:
//! `MAGLOR_PROGRAMS=DIR cargo test -p maglor-testkit --test measured graphs:: -- --ignored --nocapture`, with
//! `REPLICAS=2,5,10`. It needs root, and reports when it skips.

use std::net::Ipv4Addr;
use std::time::Duration;

use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};

use crate::arrivals::Arrivals;
use crate::support::installed::{Installed, until};

const SERVICE: &str = include_str!("graphs/service.yaml");

const SERVICES: usize = 4;
/// Seconds, exponential: long enough that two processors bear the requests of ten replicas of each service.
const SERVICE_TIME: f64 = 0.04;
const RHO: f64 = 2.0 / 3.0;
const SETTLING: Duration = Duration::from_secs(8);
const MEASURED: Duration = Duration::from_secs(45);
/// With many replicas a Proxy-Service has at most this share of the latency without it; the simulator predicts 0.8.
const GAIN: f64 = 0.9;

/// The calls between services.
#[derive(Clone, Copy, Debug)]
enum Form {
    Chain,
    Hub,
}

impl Form {
    /// Also of its namespace.
    fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Hub => "hub",
        }
    }

    fn callees(self, service: usize) -> Vec<String> {
        let callees = match self {
            Self::Chain => service + 1..(service + 2).min(SERVICES),
            Self::Hub if service == 0 => 1..SERVICES,
            Self::Hub => 0..0,
        };
        callees.map(name).collect()
    }

    fn workmodel(self) -> Value {
        let service = |index: usize| {
            let callees = self.callees(index);
            let groups = match callees.len() {
                0 => json!([]),
                count => json!([{"seq_len": count, "services": callees}]),
            };
            let queue = json!({"service_time": SERVICE_TIME, "workers": 1});
            let value = json!({"internal_service": {"queue": queue}, "external_services": groups});
            (name(index), value)
        };
        (0..SERVICES).map(service).collect()
    }

    fn address(self, service: usize) -> Ipv4Addr {
        let first = match self {
            Self::Chain => 110,
            Self::Hub => 120,
        };
        Ipv4Addr::new(10, 96, 0, first + u8::try_from(service).unwrap())
    }

    /// The machine of one service's instances, remote from those of the others.
    fn deployment(self, own: usize) -> Value {
        let instance = |index: usize| match index == own {
            true => json!({"host": name(index), "listen": "0.0.0.0:9080"}),
            false => {
                let listen = format!("{}:9080", self.address(index));
                json!({"host": name(index), "listen": listen, "remote": true})
            }
        };
        json!({"instances": (0..SERVICES).map(instance).collect::<Vec<_>>()})
    }

    fn manifests(self, replicas: u32) -> String {
        let mut files = serde_json::Map::new();
        files.insert("workmodel.json".into(), self.workmodel().to_string().into());
        for index in 0..SERVICES {
            let file = format!("{}.json", name(index));
            files.insert(file, self.deployment(index).to_string().into());
        }
        let graph = self.name();
        let metadata = json!({"name": "graph", "namespace": graph});
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files});
        let services = (0..SERVICES).map(|index| {
            let calls = !self.callees(index).is_empty();
            let inject = if calls { "enabled" } else { "disabled" };
            let service = SERVICE
                .replace("NAME", &name(index))
                .replace("GRAPH", graph)
                .replace("ADDRESS", &self.address(index).to_string());
            service
                .replace("REPLICAS", &replicas.to_string())
                .replace("INJECT", inject)
        });
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {graph}}}}}\n---\n{config}\n{}",
            services.collect::<String>()
        )
    }
}

fn name(service: usize) -> String {
    format!("s{service}")
}

/// A graph with this many replicas: mean latencies in milliseconds.
#[derive(Debug)]
struct Point {
    form: Form,
    replicas: u32,
    without: f64,
    with: f64,
}

#[test]
#[ignore = "an experiment of a quarter of an hour, and builds Kubernetes the first time"]
fn latency_does_not_grow_with_replicas_behind_proxies() {
    let Some(installed) = Installed::start("graphs", &["proxyServices.enabled=true"]) else {
        return;
    };
    let replicas = std::env::var("REPLICAS").unwrap_or_else(|_| "2,5,10".into());
    let replicas: Vec<u32> = replicas
        .split(',')
        .map(|one| one.parse().unwrap())
        .collect();
    let mut points = Vec::new();
    for form in [Form::Hub, Form::Chain] {
        for &replicas in &replicas {
            points.push(measured(&installed, form, replicas));
        }
        let gone = ["delete", "namespace", form.name(), "--timeout=180s"];
        installed.kubectl().run(&gone).unwrap();
    }
    println!(
        "| graph | R | lor(choices=2) ms | Proxy-Service ms | ratio |\n| --- | --: | --: | --: | --: |"
    );
    for Point {
        form,
        replicas,
        without,
        with,
    } in &points
    {
        let ratio = with / without;
        println!(
            "| {} | {replicas} | {without:.1} | {with:.1} | {ratio:.3} |",
            form.name()
        );
    }
    let most = replicas.iter().max();
    for last in points.iter().filter(|one| Some(&one.replicas) == most) {
        assert!(last.with <= GAIN * last.without, "{last:?}");
    }
    for form in points.chunks(replicas.len()) {
        let (first, last) = (&form[0], &form[form.len() - 1]);
        assert!(last.with <= 1.05 * first.with, "{first:?} {last:?}");
        let ratio = |one: &Point| one.with / one.without;
        assert!(ratio(last) <= 1.02 * ratio(first), "{first:?} {last:?}");
    }
    installed.stop();
}

fn measured(installed: &Installed, form: Form, replicas: u32) -> Point {
    let kubectl = installed.kubectl();
    kubectl.apply(&form.manifests(replicas)).unwrap();
    for index in 0..SERVICES {
        let set = format!("statefulset/{}", name(index));
        let wait = [
            "rollout",
            "status",
            &set,
            "-n",
            form.name(),
            "--timeout=300s",
        ];
        kubectl.run(&wait).unwrap();
    }
    let what = format!("{}, R = {replicas}", form.name());
    let rate = (f64::from(replicas) * RHO / SERVICE_TIME).round();
    let doors = pods(kubectl, form, "app=s0");
    let arrivals = Arrivals::start(&installed.cluster, &doors, rate as u32, 1);
    arrivals.during(&format!("{what}, settling"), SETTLING);
    let without = arrivals.during(&format!("{what}, lor(choices=2)"), MEASURED);
    for index in 1..SERVICES {
        kubectl.apply(&proxy_service(form, &name(index))).unwrap();
    }
    let ready = [
        "wait",
        "proxyservice",
        "--all",
        "--for=condition=Ready",
        "-n",
        form.name(),
        "--timeout=300s",
    ];
    kubectl.run(&ready).unwrap();
    arrivals.during(&format!("{what}, the change"), SETTLING);
    let with = arrivals.during(&format!("{what}, Proxy-Service"), MEASURED);
    let gone = ["delete", "proxyservice", "--all", "-n", form.name()];
    kubectl.run(&gone).unwrap();
    until("the proxies are gone", || {
        pods(kubectl, form, "maglor.dev/proxy-service").is_empty()
    });
    let (sent, failed) = arrivals.stop();
    println!("{what}: {sent} sent, {} failed", failed.len());
    if !failed.is_empty() {
        print_causes(installed, form);
    }
    assert!(failed.is_empty(), "{failed:#?}");
    Point {
        form,
        replicas,
        without,
        with,
    }
}

/// Prints what the proxies have kept of failed requests.
fn print_causes(installed: &Installed, form: Form) {
    let kubeconfig = installed.cluster.kubeconfig().display().to_string();
    let proxies = ["-n", form.name(), "--kubeconfig", &kubeconfig];
    let arguments = [
        &["why", "--recent", "--limit=200", "-o", "wide"],
        &proxies[..],
    ]
    .concat();
    println!("{}", installed.maglor(&arguments));
}

fn proxy_service(form: Form, service: &str) -> String {
    format!(
        "{{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {{name: {service}, namespace: {}}}, \
         spec: {{targetRef: {{name: {service}}}}}}}",
        form.name()
    )
}

fn pods(kubectl: &Kubectl, form: Form, selector: &str) -> Vec<Ipv4Addr> {
    let pods = kubectl.json(&["get", "pods", "-n", form.name(), "--selector", selector]);
    let pods = pods.unwrap()["items"].take();
    let address = |pod: &Value| pod["status"]["podIP"].as_str()?.parse().ok();
    let pods = pods.as_array().into_iter().flatten();
    pods.filter_map(address).collect()
}
