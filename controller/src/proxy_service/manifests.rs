//! The resources that are made for a Service: the Service of its endpoints with its policy, and the
//! Deployment of the proxies.

use std::collections::BTreeMap;

use maglor_balance::hash_bytes;
use serde_json::{Value, json};

use super::LABEL;
use super::selector::{Selector, marker};
use crate::crd::{GROUP, ProxyServiceSpec, VERSION};
use crate::index::facts::Protocol;

/// The admin server of a proxy: readiness, liveness, metrics.
pub(super) const ADMIN_PORT: u16 = 15_020;
/// A proxy that is to end goes on taking connections for so long: every node knows by then that it is
/// not to be sent to any more.
const FAREWELL_SECONDS: u32 = 5;
/// Time for what a proxy has begun.
const DRAIN_SECONDS: u32 = 30;
/// The first number for target ports that have a name instead of one.
const NAMED_PORTS: u16 = 20_000;
/// The annotation that says what was applied last, as a hash: what the API server adds is no
/// difference.
const APPLIED: &str = "maglor.dev/applied";
/// The annotation of a Deployment that says which ports its proxies listen on.
const PORTS: &str = "maglor.dev/ports";

/// What holds for the proxies of all Services.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Their image.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`; `None` = as Kubernetes would.
    pub pull_policy: Option<String>,
    /// Where this control plane is, as `NAME:PORT`.
    pub control_plane: String,
    /// Domain of the Services' names.
    pub cluster_domain: String,
    /// This control plane certifies nobody.
    pub plain_text: bool,
}

/// `targetPort` of a Service's port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum TargetPort {
    /// A container's port by its name.
    Name(String),
    /// By number.
    Number(u16),
}

pub(super) fn target_port(port: &Value) -> TargetPort {
    let number = |value: &Value| value.as_u64().and_then(|one| u16::try_from(one).ok());
    if let Some(name) = port["targetPort"].as_str() {
        return TargetPort::Name(name.to_owned());
    }
    let target = number(&port["targetPort"]).filter(|target| *target > 0);
    TargetPort::Number(target.or_else(|| number(&port["port"])).unwrap_or_default())
}

/// The name of the Service of the endpoints.
#[must_use]
pub fn target_name(service: &str) -> String {
    format!("{service}-target")
}

/// The name of the Deployment of the proxies.
pub(super) fn deployment_name(service: &str) -> String {
    format!("{service}-proxy-service")
}

/// The Service whose endpoints are the Service's own.
#[must_use]
pub fn target(service: &Value, own: &Selector) -> Value {
    let spec = &service["spec"];
    let port = |port: &Value| {
        let mut copy = json!({"port": port["port"]});
        for field in ["name", "protocol", "targetPort", "appProtocol"] {
            if !port[field].is_null() {
                copy[field] = port[field].clone();
            }
        }
        copy
    };
    let ports: Vec<Value> = spec["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(port)
        .collect();
    let mut target = of_service(service, "v1", "Service", target_name);
    target["spec"] = json!({"type": "ClusterIP", "selector": own, "ports": ports});
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if !spec[field].is_null() {
            target["spec"][field] = spec[field].clone();
        }
    }
    marked(target)
}

/// The policy by which proxies choose among the endpoints.
#[must_use]
pub fn traffic_policy(service: &Value, claim: &ProxyServiceSpec) -> Value {
    let version = format!("{GROUP}/{VERSION}");
    let mut policy = of_service(service, &version, "TrafficPolicy", target_name);
    let chosen = claim.policy().unwrap_or_default().to_string();
    let name = &policy["metadata"]["name"];
    policy["spec"] = json!({"targetRefs": [{"name": name}], "cluster": {"policy": chosen}});
    marked(policy)
}

/// The Deployment of the proxies. They listen on the Service's target ports, so that its ports stay as
/// they are.
#[must_use]
pub fn deployment(
    service: &Value,
    own: &Selector,
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Value {
    let name = text(&service["metadata"]["name"]);
    let listening = listening(service);
    let mut labels = json!({
        LABEL: name,
        "app.kubernetes.io/part-of": "maglor",
        "maglor.dev/inject": "disabled",
    });
    for key in own.keys() {
        labels[key] = json!(marker(name));
    }
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": FAREWELL_SECONDS + DRAIN_SECONDS + 5,
        "affinity": {"podAffinity": near(own)},
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {LABEL: name}},
        }],
        "containers": [container(service, &listening, claim, settings)],
    });
    if let Some(account) = &claim.service_account_name {
        pod["serviceAccountName"] = json!(account);
    }
    if listening.iter().any(|one| one.number < 1024) {
        // Ports below 1024 without the right to do anything else (a "safe" sysctl).
        let any = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]);
        pod["securityContext"] = json!({"sysctls": any});
    }
    let mut deployment = of_service(service, "apps/v1", "Deployment", deployment_name);
    deployment["metadata"]["annotations"] = json!({PORTS: ports(&listening)});
    deployment["spec"] = json!({
        "replicas": claim.replicas(),
        "selector": {"matchLabels": {LABEL: name}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    });
    marked(deployment)
}

/// Whether a resource is as it was made.
pub(super) fn is_current(there: &Value, wanted: &Value) -> bool {
    let applied = |value: &Value| value["metadata"]["annotations"][APPLIED].clone();
    let spec = |field: &str| {
        let wanted = &wanted["spec"][field];
        wanted.is_null() || there["spec"][field] == *wanted
    };
    // Fields that decide who gets requests are looked at themselves.
    applied(there) == applied(wanted) && spec("replicas") && spec("selector")
}

/// Whether two Deployments' proxies listen on the same ports.
pub(super) fn same_ports(one: &Value, other: &Value) -> bool {
    let ports = |value: &Value| value["metadata"]["annotations"][PORTS].clone();
    ports(one) == ports(other)
}

/// A port that proxies listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Listening {
    number: u16,
    /// The name that the Service calls it by.
    name: Option<String>,
    protocol: Protocol,
    /// The port of the target that it stands for.
    service_port: u64,
}

/// Each target port once; ports of the Service that share one have the same endpoints anyway.
fn listening(service: &Value) -> Vec<Listening> {
    let mut found: BTreeMap<TargetPort, Listening> = BTreeMap::new();
    let ports = || service["spec"]["ports"].as_array().into_iter().flatten();
    let numbers: Vec<TargetPort> = ports().map(target_port).collect();
    let mut next = NAMED_PORTS;
    for port in ports() {
        let target = target_port(port);
        let (number, name) = match &target {
            TargetPort::Number(number) => (*number, None),
            TargetPort::Name(name) => {
                while numbers.contains(&TargetPort::Number(next)) {
                    next += 1;
                }
                next += 1;
                (next - 1, Some(name.clone()))
            }
        };
        let protocol = Protocol::declared(port["appProtocol"].as_str(), port["name"].as_str());
        found.entry(target).or_insert(Listening {
            number,
            name,
            protocol,
            service_port: port["port"].as_u64().unwrap_or_default(),
        });
    }
    found.into_values().collect()
}

fn ports(listening: &[Listening]) -> String {
    let one = |one: &Listening| {
        let name = one.name.as_deref().unwrap_or_default();
        format!(
            "{name}={}/{}>{}",
            one.number,
            word(one.protocol),
            one.service_port
        )
    };
    listening.iter().map(one).collect::<Vec<_>>().join(",")
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Auto => "auto",
        Protocol::Http => "http",
        Protocol::Http2 => "http2",
        Protocol::Tcp => "tcp",
        Protocol::Tls => "tls",
    }
}

fn container(
    service: &Value,
    listening: &[Listening],
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Value {
    let meta = &service["metadata"];
    let (name, namespace) = (text(&meta["name"]), text(&meta["namespace"]));
    let host = format!(
        "{}.{namespace}.svc.{}",
        target_name(name),
        settings.cluster_domain
    );
    let mut args = vec![
        "service".to_owned(),
        format!("--control-plane={}", settings.control_plane),
        "--plain-text".to_owned(),
        format!("--admin-port={ADMIN_PORT}"),
        format!("--drain-timeout={DRAIN_SECONDS}s"),
    ];
    args.extend(listening.iter().map(|one| {
        let (number, protocol) = (one.number, word(one.protocol));
        format!("--forward={number}={protocol}/{host}:{}", one.service_port)
    }));
    let port = |one: &Listening| {
        let mut port = json!({"containerPort": one.number});
        if let Some(name) = &one.name {
            port["name"] = json!(name);
        }
        port
    };
    let variable = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": ADMIN_PORT},
            "periodSeconds": period,
            "failureThreshold": failures,
        })
    };
    let mut container = json!({
        "name": "maglor-proxy",
        "image": settings.image,
        "args": args,
        "env": [
            variable("POD_NAME", "metadata.name"),
            variable("POD_NAMESPACE", "metadata.namespace"),
            variable("POD_IPS", "status.podIPs"),
        ],
        "ports": listening.iter().map(port).collect::<Vec<_>>(),
        "resources": resources(claim),
        "readinessProbe": probe("/ready", 1, 2),
        "livenessProbe": probe("/live", 10, 3),
        "lifecycle": {"preStop": {"sleep": {"seconds": FAREWELL_SECONDS}}},
        "securityContext": {
            "runAsUser": 2102,
            "runAsNonRoot": true,
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    if let Some(policy) = &settings.pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}

fn resources(claim: &ProxyServiceSpec) -> Value {
    let mut resources = json!({
        "requests": {"cpu": "100m", "memory": "16Mi"},
        "limits": {"memory": "128Mi"},
    });
    let wanted = claim.resources.clone().unwrap_or_default();
    for (kind, amounts) in [("requests", wanted.requests), ("limits", wanted.limits)] {
        for (name, amount) in amounts {
            resources[kind][name] = json!(amount);
        }
    }
    resources
}

/// Next to the endpoints, where there is room.
fn near(own: &Selector) -> Value {
    json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 50,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": own},
        },
    }]})
}

/// A resource that belongs to a Service.
fn of_service(
    service: &Value,
    api_version: &str,
    kind: &str,
    name: impl Fn(&str) -> String,
) -> Value {
    let meta = &service["metadata"];
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name(text(&meta["name"])),
            "namespace": meta["namespace"],
            "labels": {LABEL: meta["name"], "app.kubernetes.io/part-of": "maglor"},
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Service",
                "name": meta["name"],
                "uid": meta["uid"],
            }],
        },
    })
}

/// With what it is, so that a difference is seen.
fn marked(mut resource: Value) -> Value {
    let hash = format!("{:016x}", hash_bytes(resource.to_string().as_bytes()));
    resource["metadata"]["annotations"][APPLIED] = json!(hash);
    resource
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(ports: &str) -> Value {
        let text = format!(
            "{{metadata: {{name: web, namespace: shop, uid: u1}},
               spec: {{selector: {{app: web}}, ports: {ports}}}}}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn made(ports: &str, claim: &str) -> Value {
        let settings = Settings {
            image: "maglor-proxy:dev".into(),
            pull_policy: None,
            control_plane: "maglor-controller.maglor.svc:15010".into(),
            cluster_domain: "cluster.local".into(),
            plain_text: true,
        };
        let service = service(ports);
        let own = super::super::selector::of(&service);
        let claim = serde_yaml::from_str(claim).unwrap();
        deployment(&service, &own, &claim, &settings)
    }

    const CLAIM: &str = "{targetRef: {name: web}}";

    #[test]
    fn proxies_listen_where_the_services_pods_do() {
        let made = made(
            "[{port: 80, name: http, targetPort: 8080}, {port: 81, name: http-2, targetPort: 8080},
              {port: 90, name: grpc, targetPort: api}, {port: 5432, name: tcp-db}]",
            CLAIM,
        );
        let container = &made["spec"]["template"]["spec"]["containers"][0];
        let args: Vec<&str> = container["args"].as_array().unwrap()[5..]
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let target = "web-target.shop.svc.cluster.local";
        let expected = [
            format!("--forward=20000=http2/{target}:90"),
            format!("--forward=5432=tcp/{target}:5432"),
            format!("--forward=8080=http/{target}:80"),
        ];
        assert_eq!(args, expected);
        assert_eq!(
            container["ports"][0],
            json!({"containerPort": 20000, "name": "api"})
        );
        assert_eq!(
            made["spec"]["template"]["metadata"]["labels"]["app"],
            "web.proxy"
        );
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert!(made["spec"]["template"]["spec"]["securityContext"].is_null());
    }

    #[test]
    fn what_is_asked_for_is_said() {
        let claim = "{targetRef: {name: web}, replicas: 3, serviceAccountName: edge,
                      resources: {requests: {cpu: 250m}, limits: {cpu: '1'}}}";
        let made = made("[{port: 80}]", claim);
        assert_eq!(made["spec"]["replicas"], 3);
        let pod = &made["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], "edge");
        let resources = json!({
            "requests": {"cpu": "250m", "memory": "16Mi"},
            "limits": {"cpu": "1", "memory": "128Mi"},
        });
        assert_eq!(pod["containers"][0]["resources"], resources);
        assert!(pod["securityContext"]["sysctls"].is_array(), "port 80");
    }

    #[test]
    fn a_difference_is_seen() {
        let one = made("[{port: 80}]", CLAIM);
        assert!(is_current(&one, &one));
        let other = made("[{port: 80}, {port: 81}]", CLAIM);
        assert!(!is_current(&one, &other) && !same_ports(&one, &other));
        let more = made("[{port: 80}]", "{targetRef: {name: web}, replicas: 2}");
        assert!(!is_current(&one, &more) && same_ports(&one, &more));
        let mut scaled = one.clone();
        scaled["spec"]["replicas"] = json!(0);
        assert!(!is_current(&scaled, &one));
    }

    #[test]
    fn the_target_has_the_services_own_ports_and_selector() {
        let service = service("[{port: 80, name: http, targetPort: web, nodePort: 30080}]");
        let own = super::super::selector::of(&service);
        let made = target(&service, &own);
        assert_eq!(made["metadata"]["name"], "web-target");
        let ports = json!([{"port": 80, "name": "http", "targetPort": "web"}]);
        assert_eq!(made["spec"]["ports"], ports);
        assert_eq!(made["spec"]["selector"], json!({"app": "web"}));
    }
}
