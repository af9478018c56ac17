//! Builds the objects for a Service with proxies: the target Service and its policy, and the Deployment of the
//! proxies.

use maglor_balance::hash_bytes;
use serde_json::{Value, json};

use super::LABEL;
use super::container::container;
use super::fields::text;
use super::front::{Front, Selector};
use super::listening::{listening, written as written_ports};
use super::ports::{Shared, written};
use crate::crd::{GROUP, ProxyServiceSpec, VERSION};
use crate::index::facts::service::{PROXY_ACCOUNT, PROXY_GROUP, PROXY_PORTS};
use crate::index::target_name;
use crate::proxy_pod::{self, Settings};

/// The annotation that contains a hash of the object as it was last applied, so that additions of the API server do
/// not count as differences.
const APPLIED: &str = maglor_manifests::inject::keys::APPLIED;
/// The annotation of a Deployment that contains the ports on which its proxies listen.
const PORTS: &str = maglor_manifests::inject::keys::PORTS;

/// The owner of the proxies' objects: a Service, or a group.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) front: Front,
    pub(super) namespace: Value,
    /// The `ownerReferences`: an object is deleted with the last of its owners.
    pub(super) owners: Vec<Value>,
}

impl Owned {
    /// Returns the ownership for a single Service.
    pub(super) fn by_service(front: Front, service: &Value) -> Self {
        let meta = &service["metadata"];
        let owner = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "name": meta["name"],
            "uid": meta["uid"],
        });
        Self {
            front,
            namespace: meta["namespace"].clone(),
            owners: vec![owner],
        }
    }

    /// Returns an object with the common name of the proxies' objects.
    pub(super) fn resource(&self, api_version: &str, kind: &str) -> Value {
        let (label, whose) = self.front.label();
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": self.front.name(),
                "namespace": self.namespace,
                "labels": {label: whose, "app.kubernetes.io/part-of": "maglor"},
                "ownerReferences": self.owners,
            },
        })
    }
}

/// Returns the name of the proxies' service account; `None` for the namespace's default account, in plain text.
///
/// Pods with this account are trusted to report their clients, so no other pod should use it.
pub(super) fn account_name(
    front: &Front,
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Option<String> {
    let own = || settings.trust_domain.is_some().then(|| front.name());
    claim.service_account_name.clone().or_else(own)
}

/// Returns the service account of the proxies, if they have a dedicated one.
pub(super) fn account(
    owned: &Owned,
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Option<Value> {
    if settings.trust_domain.is_none() || claim.service_account_name.is_some() {
        return None;
    }
    Some(marked(owned.resource("v1", "ServiceAccount")))
}

/// Returns the target Service, which selects the Service's own endpoints. `service` has its own selector and ports.
/// Annotations contain the service account of the proxies and, if they are shared, their ports for this Service.
pub(super) fn target(
    service: &Value,
    front: &Front,
    shared: &Shared,
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Value {
    let mut target = of_service(service, "v1", "Service", target_name);
    target["spec"] = selecting(&service["spec"]);
    if let Some(group) = front.group() {
        target["metadata"]["labels"][PROXY_GROUP] = json!(group);
        target["metadata"]["annotations"][PROXY_PORTS] = json!(written(shared));
    }
    if settings.trust_domain.is_some() {
        let account = account_name(front, claim, settings);
        target["metadata"]["annotations"][PROXY_ACCOUNT] = json!(account);
    }
    marked(target)
}

/// Returns the applied fields of a target Service, without its hash.
pub(super) fn of_target(target: &Value) -> Value {
    let mut meta = json!({});
    for field in [
        "name",
        "namespace",
        "labels",
        "annotations",
        "ownerReferences",
    ] {
        meta[field] = target["metadata"][field].clone();
    }
    if let Some(annotations) = meta["annotations"].as_object_mut() {
        annotations.remove(APPLIED);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": selecting(&target["spec"]),
    })
}

/// Returns the `spec` of a Service that selects the same pods, but only inside the cluster.
fn selecting(spec: &Value) -> Value {
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
    let mut selecting = json!({"type": "ClusterIP", "selector": spec["selector"], "ports": ports});
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if !spec[field].is_null() {
            selecting[field] = spec[field].clone();
        }
    }
    selecting
}

/// Returns the policy by which proxies choose among the endpoints.
pub(super) fn traffic_policy(service: &Value, claim: &ProxyServiceSpec) -> Value {
    let version = format!("{GROUP}/{VERSION}");
    let mut policy = of_service(service, &version, "TrafficPolicy", target_name);
    let chosen = claim.policy().unwrap_or_default().to_string();
    let name = &policy["metadata"]["name"];
    policy["spec"] = json!({"targetRefs": [{"name": name}], "cluster": {"policy": chosen}});
    marked(policy)
}

/// Returns the labels of proxy pods: each label key that Services select by, with the marker as its value.
pub(super) fn pod_labels<'a>(front: &Front, selected: impl IntoIterator<Item = &'a str>) -> Value {
    let (label, name) = front.label();
    let mut labels = json!({
        label: name,
        "app.kubernetes.io/part-of": "maglor",
        maglor_manifests::inject::INJECT: "disabled",
    });
    for key in selected {
        labels[key] = json!(front.marker());
    }
    labels
}

/// Returns the Deployment of dedicated proxies, which listen on the Service's target ports so that the Service's
/// ports need not change.
pub(super) fn deployment(
    owned: &Owned,
    service: &Value,
    own: &Selector,
    claim: &ProxyServiceSpec,
    settings: &Settings,
) -> Value {
    let name = text(&service["metadata"]["name"]);
    let listening = listening(service);
    let labels = pod_labels(&owned.front, own.keys().map(String::as_str));
    let proxies = json!({LABEL: name});
    let container = container(service, &listening, claim, settings);
    let mut pod = proxy_pod::pod(&proxies, claim.drain_seconds(), &container);
    pod["affinity"] = json!({"podAffinity": near(own)});
    if let Some(account) = account_name(&owned.front, claim, settings) {
        pod["serviceAccountName"] = json!(account);
    }
    let mut meta = json!({"labels": labels});
    if settings.trust_domain.is_some() {
        pod["volumes"] = json!(maglor_manifests::inject::volumes());
        // The pod accepts mutual TLS.
        meta["annotations"] = json!({maglor_manifests::inject::INJECTED: "true"});
    }
    if listening.iter().any(|one| one.number < 1024) {
        pod["securityContext"] = proxy_pod::low_ports();
    }
    let mut deployment = owned.resource("apps/v1", "Deployment");
    deployment["metadata"]["annotations"] = json!({PORTS: written_ports(&listening)});
    deployment["spec"] = proxy_pod::rollout(&proxies, &meta, &pod, settings);
    if claim.autoscaling.is_none() {
        deployment["spec"]["replicas"] = json!(claim.replicas());
    }
    marked(deployment)
}

/// Fields of a `spec`, in addition to the selector, that determine where requests are sent and how they are balanced.
const DECIDING: [&str; 7] = [
    "/cluster",
    "/maxReplicas",
    "/minReplicas",
    "/ports",
    "/replicas",
    "/targetRefs",
    "/template/metadata/labels",
];

/// Returns whether an object is as it was applied.
pub(super) fn is_current(there: &Value, wanted: &Value) -> bool {
    let applied = |value: &Value| value["metadata"]["annotations"][APPLIED].clone();
    let selector = &wanted["spec"]["selector"];
    let selects = selector.is_null() || there["spec"]["selector"] == *selector;
    let same = |field: &str| {
        let wanted = wanted["spec"].pointer(field).filter(|one| !one.is_null());
        let there = there["spec"].pointer(field).unwrap_or(&Value::Null);
        wanted.is_none_or(|wanted| has(there, wanted))
    };
    // Fields that determine the target of requests are compared directly, because another writer may have changed
    // them.
    applied(there) == applied(wanted) && selects && DECIDING.into_iter().all(same)
}

/// Returns whether all applied fields of an object are unchanged, so that applying it again would have no effect.
pub(crate) fn is_as_applied(there: &Value, wanted: &Value) -> bool {
    let applied = |value: &Value| value["metadata"]["annotations"][APPLIED].clone();
    applied(there) == applied(wanted) && has(there, wanted)
}

/// Returns whether all of `wanted` is present. The API server adds defaults, and other clients add their own fields.
fn has(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            let has = |(name, wanted)| there.get(name).is_some_and(|there| has(there, wanted));
            wanted.iter().all(has)
        }
        (Value::Array(there), Value::Array(wanted)) => {
            let has = |wanted| there.iter().any(|there| has(there, wanted));
            wanted.iter().all(has)
        }
        (there, wanted) => there == wanted,
    }
}

/// Returns whether the proxies of two Deployments listen on the same ports.
pub(super) fn same_ports(one: &Value, other: &Value) -> bool {
    let ports = |value: &Value| value["metadata"]["annotations"][PORTS].clone();
    ports(one) == ports(other)
}

/// Returns the affinity that prefers the nodes of the endpoints.
fn near(own: &Selector) -> Value {
    json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 50,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": own},
        },
    }]})
}

/// Returns an object that belongs to a Service.
pub(super) fn of_service(
    service: &Value,
    api_version: &str,
    kind: &str,
    name: impl Fn(&str) -> String,
) -> Value {
    let meta = &service["metadata"];
    let own = Front::Service(text(&meta["name"]).to_owned());
    let mut resource = Owned::by_service(own, service).resource(api_version, kind);
    resource["metadata"]["name"] = json!(name(text(&meta["name"])));
    resource
}

/// Adds the hash of an object, by which differences are detected.
pub(crate) fn marked(mut resource: Value) -> Value {
    let hash = format!("{:016x}", hash_bytes(resource.to_string().as_bytes()));
    resource["metadata"]["annotations"][APPLIED] = json!(hash);
    resource
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

    fn settings(trust_domain: Option<&str>) -> Settings {
        Settings {
            image: "maglor-proxy:dev".into(),
            pull_policy: None,
            control_plane: "maglor-controller.maglor.svc:15010".into(),
            cluster_domain: "cluster.local".into(),
            trust_domain: trust_domain.map(str::to_owned),
            sleeps: true,
            prometheus_annotations: false,
        }
    }

    fn made(ports: &str, claim: &str) -> Value {
        let settings = settings(None);
        let service = service(ports);
        let own = super::super::selector::of(&service);
        let claim = serde_yaml::from_str(claim).unwrap();
        deployment(&owned(&service), &service, &own, &claim, &settings)
    }

    fn owned(service: &Value) -> Owned {
        Owned::by_service(front(), service)
    }

    fn front() -> Front {
        Front::Service("web".into())
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
        let args: Vec<&str> = container["args"].as_array().unwrap()[6..]
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
        let mut hidden = one.clone();
        let labels = &mut hidden["spec"]["template"]["metadata"]["labels"];
        labels.as_object_mut().unwrap().remove("app");
        assert!(!is_current(&hidden, &one), "they would not be selected");
    }

    /// Changes of applied fields are detected; defaults of the API server and fields of other writers are ignored.
    #[test]
    fn a_change_by_others_is_seen() {
        let service = service("[{port: 80, name: http, targetPort: 8080}]");
        let claim = serde_yaml::from_str(CLAIM).unwrap();
        let behind = target(&service, &front(), &Shared::new(), &claim, &settings(None));
        let mut there = behind.clone();
        there["spec"]["ports"][0]["protocol"] = json!("TCP");
        there["spec"]["ports"]
            .as_array_mut()
            .unwrap()
            .push(json!({"port": 81}));
        assert!(is_current(&there, &behind));
        there["spec"]["ports"][0]["targetPort"] = json!(9090);
        assert!(!is_current(&there, &behind));
        let mut there = behind.clone();
        there["spec"]["selector"]["version"] = json!("v1");
        assert!(!is_current(&there, &behind));
        let policy = traffic_policy(&service, &claim);
        let mut there = policy.clone();
        there["spec"]["cluster"]["limits"] = json!({"max_requests": 9});
        assert!(is_current(&there, &policy));
        there["spec"]["cluster"]["policy"] = json!("random");
        assert!(!is_current(&there, &policy));
    }

    #[test]
    fn the_target_has_the_services_own_ports_and_selector() {
        let service = service("[{port: 80, name: http, targetPort: web, nodePort: 30080}]");
        let claim = serde_yaml::from_str(CLAIM).unwrap();
        let made = target(&service, &front(), &Shared::new(), &claim, &settings(None));
        assert_eq!(made["metadata"]["name"], "web-target");
        let ports = json!([{"port": 80, "name": "http", "targetPort": "web"}]);
        assert_eq!(made["spec"]["ports"], ports);
        assert_eq!(made["spec"]["selector"], json!({"app": "web"}));
        assert!(made["metadata"]["annotations"][PROXY_ACCOUNT].is_null());
        assert!(made["metadata"]["annotations"][PROXY_PORTS].is_null());
        let (group, shared) = (Front::Group("low".into()), Shared::from([(80, 20_001)]));
        let made = target(&service, &group, &shared, &claim, &settings(None));
        assert_eq!(made["metadata"]["labels"][PROXY_GROUP], "low");
        assert_eq!(made["metadata"]["annotations"][PROXY_PORTS], "80=20001");
        assert_eq!(marked(of_target(&made)), made);
    }

    #[test]
    fn members_of_the_mesh_have_an_account_of_their_own() {
        let (service, settings) = (
            service("[{port: 80, name: http}]"),
            settings(Some("mesh.example")),
        );
        let own = super::super::selector::of(&service);
        let claim = |text: &str| serde_yaml::from_str::<ProxyServiceSpec>(text).unwrap();
        let theirs = claim("{targetRef: {name: web}, serviceAccountName: edge}");
        for (claim, expected) in [(claim(CLAIM), "web-proxy-service"), (theirs, "edge")] {
            let target = target(&service, &front(), &Shared::new(), &claim, &settings);
            assert_eq!(target["metadata"]["annotations"][PROXY_ACCOUNT], expected);
            let made = deployment(&owned(&service), &service, &own, &claim, &settings);
            let template = &made["spec"]["template"];
            assert_eq!(template["spec"]["serviceAccountName"], expected);
            assert_eq!(
                template["metadata"]["annotations"][maglor_manifests::inject::INJECTED],
                "true"
            );
            let args = template["spec"]["containers"][0]["args"].to_string();
            assert!(args.contains("--trust-domain=mesh.example"), "{args}");
            assert!(!args.contains("--plain-text"), "{args}");
            let account = account(&owned(&service), &claim, &settings);
            assert_eq!(account.is_some(), expected != "edge");
        }
    }
}
