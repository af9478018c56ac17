//! Bookinfo, emulated: users call productpage, which calls details and then reviews; reviews calls
//! ratings.
//!
//! Its entry service, `users`, stays on one node, as a gateway at a site's uplink does; everything
//! else may run anywhere. The CPU requests of replicas are a fraction of a node, so that the
//! application takes half of three nodes, whatever their size.

use serde_json::{Value, json};

/// The application's namespace.
pub(super) const NAMESPACE: &str = "shop";
/// The entry service.
pub(super) const ENTRY: &str = "users";
pub(super) const ENTRY_NODE: &str = "node-1";
/// The port of the instances' counters.
pub(super) const CONTROL_PORT: u16 = 9100;
pub(super) const PORT: u16 = 9080;
/// The application's image.
pub(super) const IMAGE: &str = "maglor-app:bench";

/// A service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) name: &'static str,
    pub(super) replicas: u32,
    /// The CPU request of a replica, in thousandths of a node's CPU.
    pub(super) share: u64,
    /// The mean size of its answers in kB: the paper's payloads are 1 to 15.
    size_kb: f64,
    /// Its own work, of constant length.
    milliseconds: f64,
    calls: &'static [&'static str],
}

/// All services; their addresses are numbered in this order.
pub(super) const SERVICES: [Service; 5] = [
    Service {
        name: ENTRY,
        replicas: 1,
        share: 100,
        size_kb: 1.0,
        milliseconds: 0.0,
        calls: &["productpage"],
    },
    Service {
        name: "productpage",
        replicas: 2,
        share: 200,
        size_kb: 5.0,
        milliseconds: 2.0,
        calls: &["details", "reviews"],
    },
    Service {
        name: "details",
        replicas: 2,
        share: 100,
        size_kb: 2.0,
        milliseconds: 1.0,
        calls: &[],
    },
    Service {
        name: "reviews",
        replicas: 4,
        share: 125,
        size_kb: 3.0,
        milliseconds: 1.0,
        calls: &["ratings"],
    },
    Service {
        name: "ratings",
        replicas: 2,
        share: 125,
        size_kb: 1.0,
        milliseconds: 1.0,
        calls: &[],
    },
];

/// Returns the total number of pods.
pub(super) fn replicas() -> u32 {
    SERVICES.iter().map(|service| service.replicas).sum()
}

/// Returns the edges, from caller to callee; each has as many calls as clients send requests.
pub(super) fn edges() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |service: &'static Service| service.calls.iter().map(|to| (service.name, *to));
    SERVICES.iter().flat_map(of)
}

fn address(index: usize) -> String {
    format!("10.96.0.{}", 100 + index)
}

/// Returns all manifests but the pods.
pub(super) fn surroundings() -> Value {
    let mut items = vec![
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"maglor.dev/inject": "enabled"}},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "bookinfo", "namespace": NAMESPACE},
            "data": files(),
        }),
    ];
    for (index, service) in SERVICES.iter().enumerate() {
        let metadata = json!({"name": service.name, "namespace": NAMESPACE});
        items.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        items.push(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": address(index),
                "selector": {"app": service.name},
                "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
            },
        }));
    }
    list(&items)
}

/// Returns the work model, and the addresses of all services for each service.
fn files() -> Value {
    let model: serde_json::Map<_, _> = SERVICES.iter().map(described).collect();
    let mut files = json!({"workmodel.json": Value::Object(model).to_string()});
    for own in &SERVICES {
        let instances = SERVICES.iter().enumerate().map(|(index, other)| {
            if other.name == own.name {
                return json!({"host": own.name, "listen": format!("0.0.0.0:{PORT}")});
            }
            let listen = format!("{}:{PORT}", address(index));
            json!({"host": other.name, "listen": listen, "remote": true})
        });
        let instances: Vec<_> = instances.collect();
        let text = json!({"instances": instances}).to_string();
        files[format!("{}.json", own.name)] = text.into();
    }
    files
}

fn described(service: &Service) -> (String, Value) {
    let mut described = json!({"internal_service": {"queue": {
        "service_time": service.milliseconds / 1e3,
        "distribution": "deterministic",
        "workers": 64,
        "mean_response_size": service.size_kb,
    }}});
    if !service.calls.is_empty() {
        // One group: the calls are sequential, as in productpage.
        let group = json!({"seq_len": service.calls.len(), "services": service.calls});
        described["external_services"] = json!([group]);
    }
    (service.name.to_owned(), described)
}

/// Returns the Deployments without placement, for the scheduler; `node_millis` is the CPU of a
/// node.
pub(super) fn deployments(node_millis: u64) -> Value {
    let items: Vec<_> = SERVICES
        .iter()
        .map(|service| deployment(service, node_millis))
        .collect();
    list(&items)
}

fn deployment(service: &Service, node_millis: u64) -> Value {
    let entry = service.name == ENTRY;
    // Clients and the harness are outside of the mesh.
    let open = match entry {
        true => format!("{PORT},{CONTROL_PORT}"),
        false => CONTROL_PORT.to_string(),
    };
    let cpu = format!("{}m", service.share * node_millis / 1000);
    let mut pod = json!({
        "serviceAccountName": service.name,
        "terminationGracePeriodSeconds": 15,
        "containers": [{
            "name": "app",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": [
                "--workmodel=/etc/shop/workmodel.json",
                format!("--deployment=/etc/shop/{}.json", service.name),
                format!("--control=0.0.0.0:{CONTROL_PORT}"),
                "--node=$(NODE)",
            ],
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "ports": [{"name": "http", "containerPort": PORT}],
            "resources": {"requests": {"cpu": cpu, "memory": "32Mi"}},
            // Not the service's path, which would cause requests to all services behind it.
            "readinessProbe": {"httpGet": {"path": "/counts", "port": CONTROL_PORT}, "periodSeconds": 1},
            "volumeMounts": [{"name": "shop", "mountPath": "/etc/shop"}],
        }],
        "volumes": [{"name": "shop", "configMap": {"name": "bookinfo"}}],
    });
    if entry {
        pod["nodeSelector"] = json!({"kubernetes.io/hostname": ENTRY_NODE});
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": {"app": service.name}},
            // `maxUnavailable` is 1 too: on a full node, an old pod has to leave before a new one
            // fits.
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "template": {
                "metadata": {
                    "labels": {"app": service.name},
                    "annotations": {"maglor.dev/skip-inbound-ports": open},
                },
                "spec": pod,
            },
        },
    })
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[cfg(test)]
mod tests {
    use maglor_testkit::app::{Deployment, WorkModel};

    use super::*;

    #[test]
    fn the_application_reads_its_files() {
        let files = files();
        let text = |name: &str| files[name].as_str().unwrap().to_owned();
        let model = WorkModel::parse(&text("workmodel.json")).unwrap();
        for service in &SERVICES {
            let deployment = text(&format!("{}.json", service.name));
            let deployment = Deployment::parse(&deployment, &model).unwrap();
            let own = deployment.instances.iter().filter(|one| !one.remote);
            assert!(own.map(|one| &*one.host).eq([service.name]));
        }
        assert_eq!(edges().count(), 4);
    }

    #[test]
    fn it_fits_two_nodes_and_not_one() {
        let shares = SERVICES
            .iter()
            .map(|one| one.share * u64::from(one.replicas));
        let all: u64 = shares.sum();
        assert!((1200..1700).contains(&all), "{all} thousandths of a node");
        assert_eq!(replicas(), 11);
    }
}
