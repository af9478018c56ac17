//! Facts of pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use maglor_manifests::inject::{INJECTED, SKIP_INBOUND_PORTS, quantity};
use serde::Deserialize;
use serde_json::Value;

use super::{Meta, ReadError, Serving, part};

/// A pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Workload {
    /// Labels, by which policies select pods.
    pub labels: BTreeMap<String, String>,
    /// Service account of the pod's identity.
    pub service_account: String,
    /// Whether the pod has a sidecar that handles incoming connections.
    pub injected: bool,
    /// Ranges of ports (first and last) whose incoming connections bypass the sidecar.
    pub bypassed: Vec<(u16, u16)>,
    /// Whether the pod has a sidecar.
    pub has_sidecar: bool,
    /// Node of the pod; `None` if it is not scheduled yet.
    pub node: Option<String>,
    /// UID of the pod, which distinguishes it from others of the same name; `None` if unknown.
    pub uid: Option<Box<str>>,
    /// Addresses of the pod; empty if unknown, as in a file.
    pub addresses: Box<[IpAddr]>,
    /// Whether the pod is in the host network and therefore has the addresses of its node.
    pub host_network: bool,
    /// Whether all containers have ended (`Succeeded`, `Failed`), so that the pod's addresses may be reused.
    pub has_ended: bool,
    /// State that the pod reports; `None` if unknown, as in a file.
    pub serving: Option<Serving>,
    /// Owner of the pod: a Deployment, not its ReplicaSet; the pod itself if it has no owner.
    pub owner: String,
    /// Resource requests of the pod.
    pub requests: Amounts,
    /// Resource limits of the pod; unknown unless all containers have one.
    pub limits: Amounts,
}

/// CPU and memory of a pod or a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Amounts {
    /// CPU in thousandths of a core, rounded up; `None` if unknown.
    pub cpu_millis: Option<u64>,
    /// Memory in MiB, rounded up; `None` if unknown.
    pub memory_mib: Option<u64>,
}

impl Amounts {
    /// Reads `resources.requests`, `resources.limits` or `status.allocatable`.
    pub(super) fn read(list: &BTreeMap<String, Value>) -> Self {
        let amount = |name: &str, unit: f64| {
            let text = list.get(name)?;
            let text = text
                .as_str()
                .map_or_else(|| text.to_string(), str::to_owned);
            // Amounts beyond those of any machine saturate.
            Some((quantity(&text)? / unit).ceil() as u64)
        };
        Self {
            cpu_millis: amount("cpu", 1e-3),
            memory_mib: amount("memory", 1_048_576.0),
        }
    }

    /// Sums the amounts of several containers; a part is `None` if it is unknown for any of them.
    fn sum_of_all(parts: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> Option<u64>| {
            let amounts: Option<Vec<u64>> = parts.iter().map(of).collect();
            let amounts = amounts.filter(|amounts| !amounts.is_empty())?;
            Some(amounts.into_iter().fold(0, u64::saturating_add))
        };
        Self {
            cpu_millis: sum(|one| one.cpu_millis),
            memory_mib: sum(|one| one.memory_mib),
        }
    }

    /// Sums two amounts; an unknown part counts as 0.
    fn plus(self, other: Self) -> Self {
        self.merge(other, u64::saturating_add)
    }

    /// Returns the greater of the two amounts for each part.
    fn max(self, other: Self) -> Self {
        self.merge(other, u64::max)
    }

    /// Returns this amount, with unknown parts replaced by those of the other.
    fn or(self, other: Self) -> Self {
        self.merge(other, |own, _| own)
    }

    fn merge(self, other: Self, both: fn(u64, u64) -> u64) -> Self {
        let merge = |own: Option<u64>, other: Option<u64>| match (own, other) {
            (Some(own), Some(other)) => Some(both(own, other)),
            (one, None) | (None, one) => one,
        };
        Self {
            cpu_millis: merge(self.cpu_millis, other.cpu_millis),
            memory_mib: merge(self.memory_mib, other.memory_mib),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    service_account_name: Option<String>,
    node_name: Option<String>,
    host_network: bool,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    /// The overhead of the container runtime, from its RuntimeClass.
    overhead: BTreeMap<String, Value>,
    /// Resources of the pod as a whole (KEP-2837), which replace the sum over its containers.
    resources: Resources,
}

impl Spec {
    /// Returns the amounts that the scheduler reserves for the pod: the sum over its containers and sidecars, or the
    /// maximum during its start if this is greater, plus the overhead of its runtime (KEP-753).
    fn requests(&self) -> Amounts {
        let of = |one: &Container| Amounts::read(&one.resources.requests);
        let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
        for one in &self.init_containers {
            let with = sidecars.plus(of(one));
            if one.is_sidecar() {
                sidecars = with;
            }
            starting = starting.max(with);
        }
        let running = self.containers.iter().map(of).fold(sidecars, Amounts::plus);
        let whole = Amounts::read(&self.resources.requests);
        whole
            .or(running.max(starting))
            .plus(Amounts::read(&self.overhead))
    }

    /// Returns the limits of the started pod; `None` if a container has no limit.
    fn limits(&self) -> Amounts {
        let sidecars = self.init_containers.iter().filter(|one| one.is_sidecar());
        let containers = self.containers.iter().chain(sidecars);
        let limits: Vec<_> = containers
            .map(|one| Amounts::read(&one.resources.limits))
            .collect();
        Amounts::read(&self.resources.limits).or(Amounts::sum_of_all(&limits))
    }
}

impl Container {
    /// Returns whether this is an init container that continues to run with the other containers.
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    /// `Always` for an init container that continues to run with the other containers.
    restart_policy: Option<String>,
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Value>,
    limits: BTreeMap<String, Value>,
}

/// Returns the state of a pod that Kubernetes would report in EndpointSlices.
fn serving(value: &Value) -> Option<Serving> {
    let conditions = value.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
    let ready = ready["status"] == "True";
    let ends = value.pointer("/metadata/deletionTimestamp").is_some();
    Some(Serving::of(ready, ready, ends))
}

/// Returns the addresses of a pod, one for each address family.
fn addresses(value: &Value) -> Box<[IpAddr]> {
    let status = &value["status"];
    let each = status["podIPs"].as_array().into_iter().flatten();
    let each = each.map(|one| &one["ip"]).chain([&status["podIP"]]);
    let mut addresses: Vec<IpAddr> = each.filter_map(|one| one.as_str()?.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}

/// A label of a ReplicaSet's pods; its value is the suffix of the ReplicaSet's name.
const HASH: &str = "pod-template-hash";

/// Returns the owner of a pod.
fn owner(meta: &Meta, value: &Value) -> String {
    let owner = value.pointer("/metadata/ownerReferences/0");
    let text = |name: &str| owner?.get(name)?.as_str();
    let (Some(kind), Some(name)) = (text("kind"), text("name")) else {
        return meta.name.clone();
    };
    let hash = meta.labels.get(HASH).filter(|_| kind == "ReplicaSet");
    let of_deployment = hash.and_then(|hash| name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    of_deployment.unwrap_or(name).to_owned()
}

/// Parses a list of ports. The injector would have rejected a malformed one.
fn bypassed(text: &str) -> Vec<(u16, u16)> {
    let text: String = text.split_whitespace().collect();
    maglor_manifests::inject::ports(&text).unwrap_or_default()
}

impl Workload {
    /// Returns whether an address may belong to the pod: it does, or the pod's addresses are unknown.
    pub(crate) fn may_have(&self, address: IpAddr) -> bool {
        self.addresses.is_empty() || self.addresses.contains(&address)
    }

    /// Returns whether the pod's sidecar handles incoming connections to a port.
    pub(crate) fn takes(&self, port: u16) -> bool {
        let bypassed = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
        self.injected && !self.bypassed.iter().any(bypassed)
    }

    pub(super) fn read(meta: Meta, value: &Value) -> Result<Self, ReadError> {
        let spec: Spec = part(value, "spec")?;
        let injected = meta.annotations.get(INJECTED).map(String::as_str);
        Ok(Self {
            owner: owner(&meta, value),
            uid: value
                .pointer("/metadata/uid")
                .and_then(Value::as_str)
                .map(Box::from),
            addresses: addresses(value),
            has_ended: matches!(
                value["status"]["phase"].as_str(),
                Some("Failed" | "Succeeded")
            ),
            serving: serving(value),
            requests: spec.requests(),
            limits: spec.limits(),
            injected: injected == Some("true"),
            bypassed: meta
                .annotations
                .get(SKIP_INBOUND_PORTS)
                .map_or_else(Vec::new, |text| bypassed(text)),
            has_sidecar: matches!(injected, Some("outbound" | "true")),
            labels: meta.labels,
            service_account: spec
                .service_account_name
                .unwrap_or_else(|| "default".to_owned()),
            node: spec.node_name,
            host_network: spec.host_network,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_says_whether_it_serves() {
        let read = |metadata: Value, status: &str| {
            let conditions = json!([{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": status}]);
            let value = json!({"metadata": metadata, "status": {"conditions": conditions}});
            Workload::read(Meta::default(), &value).unwrap()
        };
        let ends = || json!({"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(read(json!({}), "True").serving, Some(Serving::Yes));
        assert_eq!(read(json!({}), "False").serving, Some(Serving::No));
        assert_eq!(read(ends(), "True").serving, Some(Serving::Draining));
        assert_eq!(read(ends(), "Unknown").serving, Some(Serving::No));
        assert_eq!(read(ends(), "True").uid.as_deref(), Some("u"));
        let silent = json!({"status": {"conditions": null}});
        assert_eq!(
            Workload::read(Meta::default(), &silent).unwrap().serving,
            None
        );
    }

    #[test]
    fn a_pod_has_the_addresses_that_it_says() {
        let read = |status: Value| {
            let value = json!({"status": status});
            Workload::read(Meta::default(), &value).unwrap()
        };
        let [one, other] = ["10.1.0.1", "fd00::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let dual =
            read(json!({"podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}));
        assert_eq!(*dual.addresses, [one, other]);
        let single = read(json!({"podIP": "10.1.0.1"}));
        assert!(single.may_have(one) && !single.may_have(other));
        let silent = read(json!({"podIPs": null}));
        assert!(silent.may_have(one) && silent.may_have(other));
    }

    #[test]
    fn a_sidecar_that_only_calls_takes_nothing() {
        let read = |value: &str| {
            let meta = Meta {
                annotations: [(INJECTED.to_owned(), value.to_owned())].into(),
                ..Meta::default()
            };
            let workload = Workload::read(meta, &json!({})).unwrap();
            (workload.injected, workload.has_sidecar)
        };
        assert_eq!(read("true"), (true, true));
        assert_eq!(read("outbound"), (false, true));
        assert_eq!(read("yes"), (false, false));
    }

    #[test]
    fn a_port_that_is_skipped_is_reached_without_the_sidecar() {
        let read = |injected: &str, skipped: &str| {
            let annotations = [(INJECTED, injected), (SKIP_INBOUND_PORTS, skipped)];
            let meta = Meta {
                annotations: annotations
                    .map(|(name, text)| (name.to_owned(), text.to_owned()))
                    .into(),
                ..Meta::default()
            };
            let workload = Workload::read(meta, &json!({})).unwrap();
            [21, 22, 7999, 8000, 8010, 8011].map(|port| workload.takes(port))
        };
        let expected = [true, false, true, false, false, true];
        assert_eq!(read("true", " 22, 8000-8010"), expected);
        assert_eq!(read("true", ""), [true; 6]);
        assert_eq!(read("outbound", "22"), [false; 6]);
    }

    #[test]
    fn a_pod_takes_what_its_containers_take_together() {
        let pod = json!({
            "metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-7d9f"}]},
            "spec": {
                "containers": [
                    {"resources": {"requests": {"cpu": "250m", "memory": "64Mi"},
                                   "limits": {"cpu": 1, "memory": "128Mi"}}},
                    {"resources": {"requests": {"memory": "1000000"}, "limits": {"memory": "1Gi"}}},
                ],
                "initContainers": [
                    {"resources": {"requests": {"cpu": "4"}}},
                    {"restartPolicy": "Always",
                     "resources": {"requests": {"cpu": "0.05"}, "limits": {"memory": "64Mi"}}},
                ],
            },
        });
        let meta = Meta {
            name: "web-7d9f-x2x".to_owned(),
            labels: [(HASH.to_owned(), "7d9f".to_owned())].into(),
            ..Meta::default()
        };
        let read = Workload::read(meta, &pod).unwrap();
        assert_eq!(read.owner, "web");
        assert_eq!(read.requests.cpu_millis, Some(4000), "while it starts");
        assert_eq!(read.requests.memory_mib, Some(65));
        assert_eq!(read.limits.cpu_millis, None, "one has no limit");
        assert_eq!(read.limits.memory_mib, Some(1216));
        let bare = Workload::read(Meta::default(), &json!({})).unwrap();
        assert_eq!(bare.requests, Amounts::default());
    }

    /// As the scheduler does (KEP-753, KEP-2837).
    #[test]
    fn a_pod_takes_what_the_scheduler_sets_aside() {
        let millis = |spec: Value| {
            let read = Workload::read(Meta::default(), &json!({"spec": spec})).unwrap();
            read.requests.cpu_millis
        };
        let cpu = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |amount: &str| {
            let mut one = cpu(amount);
            one["restartPolicy"] = json!("Always");
            one
        };
        let pod = |init: Value| json!({"containers": [cpu("100m")], "initContainers": init});
        assert_eq!(millis(pod(json!([]))), Some(100));
        assert_eq!(millis(pod(json!([cpu("90m")]))), Some(100));
        assert_eq!(millis(pod(json!([cpu("300m"), cpu("200m")]))), Some(300));
        assert_eq!(millis(pod(json!([sidecar("50m"), cpu("90m")]))), Some(150));
        // A sidecar runs during the init containers after it, not those before it.
        assert_eq!(millis(pod(json!([sidecar("50m"), cpu("300m")]))), Some(350));
        assert_eq!(millis(pod(json!([cpu("300m"), sidecar("50m")]))), Some(300));
        assert_eq!(millis(pod(json!([sidecar("1"), cpu("1")]))), Some(2000));
        let mut with = pod(json!([cpu("300m")]));
        with["overhead"] = json!({"cpu": "20m"});
        assert_eq!(millis(with.clone()), Some(320));
        with["resources"] = json!({"requests": {"cpu": "500m"}});
        assert_eq!(millis(with), Some(520));
        assert_eq!(
            millis(json!({"containers": [{}], "initContainers": [{}]})),
            None
        );
        assert_eq!(
            millis(json!({"containers": [{}], "overhead": {"cpu": "5m"}})),
            Some(5)
        );
    }

    #[test]
    fn a_limit_of_the_whole_pod_counts_more_than_those_of_its_containers() {
        let spec = json!({
            "containers": [{"resources": {"limits": {"cpu": "1"}}}, {}],
            "resources": {"limits": {"cpu": "2"}},
        });
        let read = Workload::read(Meta::default(), &json!({"spec": spec})).unwrap();
        assert_eq!(read.limits.cpu_millis, Some(2000));
    }
}
