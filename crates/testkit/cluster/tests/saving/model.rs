//! The application: services that call each other in a tree, as µBench generates them, and as their manifests for
//! Kubernetes with them.

use std::net::Ipv4Addr;

use maglor_balance::Rng;
use serde_json::{Map, Value, json};

const SERVICE: &str = include_str!("service.yaml");

/// The CPU capacity of a replica, in thousandths of a core: it processes one request after another, and to work all
/// the time is a "core". Emulated work needs no processor, so this much is requested where µBench's examples request
/// 1000m: then the nodes of a small machine have room for all.
pub(crate) const CORE: u64 = 100;
/// The ingress service; it is neither scaled nor counted.
pub(crate) const USERS: &str = "users";
/// Its pods.
pub(crate) const DOORS: u32 = 4;

/// A service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Mean time of a request, in seconds; exponential.
    work: f64,
    /// Memory of a replica in MiB, the mean.
    pub(crate) memory_mib: f64,
    /// The services that it calls concurrently, with probabilities.
    calls: Vec<(usize, f64)>,
}

/// Services; the first one takes what users send.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    services: Vec<Service>,
}

pub(crate) fn name(service: usize) -> String {
    format!("s{service:02}")
}

impl Model {
    /// As `maglor_lab::autoscale::Application::random` draws them, with five times the work: each service is called
    /// by one before it, the more probably the more that one calls (Barabási and Albert).
    pub(crate) fn random(services: usize, seed: u64) -> Self {
        let mut rng = Rng::seed(seed);
        let mut all: Vec<Service> = Vec::new();
        let mut ends = vec![0];
        for index in 0..services {
            if index > 0 {
                let parent: usize = ends[rng.below(u32::try_from(ends.len()).unwrap()) as usize];
                let probability = 0.4 + 0.6 * rng.unit();
                all[parent].calls.push((index, probability));
                ends.extend([parent, index]);
            }
            all.push(Service {
                work: 0.005 + 0.02 * rng.unit(),
                memory_mib: 45.0 + 50.0 * rng.unit(),
                calls: Vec::new(),
            });
        }
        Self { services: all }
    }

    pub(crate) fn len(&self) -> usize {
        self.services.len()
    }

    /// The service that is called so.
    pub(crate) fn service(&self, wanted: &str) -> Option<&Service> {
        let mut all = self.services.iter().enumerate();
        all.find(|(index, _)| name(*index) == wanted)
            .map(|(_, service)| service)
    }

    /// Calls of all services for a request of a user, and how many replicas they keep busy at one a second.
    pub(crate) fn calls(&self) -> (f64, f64) {
        let mut requests = vec![0.0; self.len()];
        requests[0] = 1.0;
        for (at, service) in self.services.iter().enumerate() {
            for (to, probability) in &service.calls {
                requests[*to] += requests[at] * probability;
            }
        }
        let busy = requests.iter().zip(&self.services);
        let busy = busy
            .map(|(requests, service)| requests * service.work)
            .sum();
        (requests.iter().sum(), busy)
    }

    fn workmodel(&self) -> Value {
        let mut all = Map::new();
        for (index, service) in self.services.iter().enumerate() {
            let groups = service.calls.iter().map(|(to, probability)| {
                let to = name(*to);
                json!({"seq_len": 1, "services": [to], "probabilities": {to: probability}})
            });
            let queue = json!({"service_time": service.work, "workers": 1});
            let value = json!({"internal_service": {"queue": queue},
                "external_services": groups.collect::<Vec<_>>()});
            all.insert(name(index), value);
        }
        let first = json!([{"seq_len": 1, "services": [name(0)]}]);
        all.insert(USERS.into(), json!({"external_services": first}));
        all.into()
    }

    /// All that runs, each service with one replica.
    pub(crate) fn manifests(&self) -> String {
        let names: Vec<String> = (0..self.len()).map(name).chain([USERS.into()]).collect();
        let address = |index: usize| Ipv4Addr::new(10, 96, 1, u8::try_from(index + 1).unwrap());
        let mut files = Map::new();
        files.insert("workmodel.json".into(), self.workmodel().to_string().into());
        for own in &names {
            let instances = names
                .iter()
                .enumerate()
                .map(|(index, host)| match host == own {
                    true => json!({"host": host, "listen": "0.0.0.0:9080"}),
                    false => {
                        let listen = format!("{}:9080", address(index));
                        json!({"host": host, "listen": listen, "remote": true})
                    }
                });
            let file = json!({"instances": instances.collect::<Vec<_>>()});
            files.insert(format!("{own}.json"), file.to_string().into());
        }
        let metadata = json!({"name": "saving", "namespace": "saving"});
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files});
        let services = names.iter().enumerate().map(|(index, one)| {
            let users = one == USERS;
            SERVICE
                .replace("NAME", one)
                .replace("ADDRESS", &address(index).to_string())
                .replace("TUNING", if users { "disabled" } else { "enabled" })
                .replace("REPLICAS", &if users { DOORS } else { 1 }.to_string())
                .replace("CORE", &CORE.to_string())
        });
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: saving, labels: {{maglor.dev/inject: enabled}}}}}}\n\
             ---\n{config}\n{}",
            services.collect::<String>()
        )
    }

    /// A HorizontalPodAutoscaler for each service, with its defaults, except the usual target.
    pub(crate) fn autoscalers(&self) -> String {
        let one = |index| {
            let name = name(index);
            let target = json!({"type": "Utilization", "averageUtilization": 70});
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name, "namespace": "saving"},
                "spec": {"minReplicas": 1, "maxReplicas": 10,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}})
        };
        let items: Vec<_> = (0..self.len()).map(one).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    }
}
