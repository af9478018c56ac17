//! Pods of the fixture: which are selected, their ports, and which Services they serve.

use std::collections::{BTreeMap, BTreeSet};

use maglor_controller::index::facts::service::proxy_ports;
use serde_json::{Value, json};

use super::{Fixture, GROUP, Move, SERVICE};

/// An endpoint of a Service's port.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Endpoint {
    pub(super) address: String,
    /// The port of the Service.
    pub(super) port: u64,
    /// The name of the pod.
    pub(super) target: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) labels: Value,
    pub(super) address: String,
    pub(super) ready: bool,
    /// Its Deployment, and the template; `None` = one of a Service's own.
    pub(super) of: Option<(String, Value)>,
    /// Numbers of ports that have names.
    named: BTreeMap<String, u16>,
    /// For a proxy: its listening ports, and the Service and port of each.
    pub(super) reported: BTreeMap<u16, (String, u64)>,
}

impl Pod {
    /// Two of a Service's own.
    pub(super) fn own(name: &str) -> Vec<Self> {
        let own = |i: u8| Self {
            labels: json!({"app": name, "version": "v1"}),
            address: format!("{name}-{i}"),
            ready: true,
            of: None,
            named: BTreeMap::from([("http".to_owned(), 8080)]),
            reported: BTreeMap::new(),
        };
        vec![own(0), own(1)]
    }

    fn number(&self, target: &Value) -> Option<u16> {
        match target.as_str() {
            Some(name) => self.named.get(name).copied(),
            None => u16::try_from(target.as_u64()?).ok(),
        }
    }
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(map) = selector.as_object().filter(|map| !map.is_empty()) else {
        return false;
    };
    map.iter().all(|(key, value)| labels[key] == *value)
}

impl Fixture {
    /// The endpoints that a Service has now.
    fn of(&self, service: Option<&Value>) -> BTreeSet<Endpoint> {
        let spec = service
            .map(|service| service["spec"].clone())
            .unwrap_or_default();
        let selected = |pod: &&Pod| pod.ready && selects(&spec["selector"], &pod.labels);
        let mut found = BTreeSet::new();
        for pod in self.pods.iter().filter(selected) {
            for port in spec["ports"].as_array().into_iter().flatten() {
                if let Some(target) = pod.number(&port["targetPort"]) {
                    let (address, port) = (pod.address.clone(), port["port"].as_u64().unwrap());
                    found.insert(Endpoint {
                        address,
                        port,
                        target,
                    });
                }
            }
        }
        found
    }

    pub(super) fn know_endpoints(&mut self) {
        for at in 0..self.services.len() {
            let service = &self.services[at];
            let target = ("Service".to_owned(), format!("{}-target", service.name));
            let endpoints = self.of(service.live.as_ref());
            let behind = self.of(self.store.get(&target));
            let service = &mut self.services[at];
            (service.endpoints, service.behind) = (endpoints, behind);
        }
    }

    /// The shared ports as published by discovery: of two Services with the same port, the first by name.
    fn forwards(&self, group: &Value) -> BTreeMap<u16, (String, u64)> {
        let mut found = BTreeMap::new();
        for target in self.of_groups("Service") {
            let meta = &target["metadata"];
            if meta["labels"][GROUP] != *group {
                continue;
            }
            let ports = meta["annotations"]["maglor.dev/proxy-ports"].as_str();
            for (port, shared) in proxy_ports(ports.unwrap_or_default()) {
                let of = meta["labels"][SERVICE].as_str().unwrap().to_owned();
                found.entry(shared).or_insert((of, u64::from(port)));
            }
        }
        found
    }

    pub(super) fn report(&mut self) {
        for at in 0..self.pods.len() {
            let group = self.pods[at].labels[GROUP].clone();
            if group.is_string() {
                self.pods[at].reported = self.forwards(&group);
            }
        }
    }

    pub(super) fn fail(&mut self) {
        for pod in self.pods.iter_mut().filter(|pod| pod.of.is_some()) {
            pod.ready = false;
        }
        for service in &mut self.services {
            service.excused = true;
        }
        // Proxies that fail between an observation and the following write are not noticed.
        self.wanted = None;
        self.count_available();
        self.know_endpoints();
    }

    /// One step of each rollout: a pod starts, one becomes ready, or an old one goes.
    pub(super) fn deploy(&mut self) {
        let there: Vec<(String, Value)> = self
            .store
            .iter()
            .filter(|((kind, _), _)| kind == "Deployment")
            .map(|((_, name), one)| (name.clone(), one["spec"].clone()))
            .collect();
        let gone = |pod: &Pod| {
            let of = pod.of.as_ref();
            of.is_some_and(|(of, _)| !there.iter().any(|(name, _)| name == of))
        };
        if let Some(at) = self.pods.iter().position(gone) {
            self.pods.remove(at);
        }
        for (name, spec) in &there {
            self.roll(name, spec);
        }
        self.count_available();
    }

    fn roll(&mut self, name: &str, spec: &Value) {
        let wanted = spec["replicas"].as_u64().unwrap_or(1) as usize;
        let of = |pod: &Pod| pod.of.as_ref().is_some_and(|(of, _)| of == name);
        let new = |pod: &Pod| {
            pod.of
                .as_ref()
                .is_some_and(|(_, one)| *one == spec["template"])
        };
        let count = self.pods.iter().filter(|pod| of(pod) && new(pod)).count();
        if let Some(at) = self.pods.iter().position(|pod| of(pod) && !pod.ready) {
            // It is ready when it has its configuration.
            let group = self.pods[at].labels[GROUP].clone();
            if group.is_string() {
                self.pods[at].reported = self.forwards(&group);
            }
            self.pods[at].ready = true;
        } else if count < wanted {
            let number = self.number();
            self.pods.push(proxy(name, &spec["template"], number));
        } else if let Some(old) = self
            .pods
            .iter()
            .position(|pod| of(pod) && (!new(pod) || count > wanted))
        {
            self.pods.remove(old);
            // A pod that ends is no endpoint from then on.
            self.know_endpoints();
        }
    }

    fn count_available(&mut self) {
        for ((kind, name), deployment) in &mut self.store {
            if kind != "Deployment" {
                continue;
            }
            let template = &deployment["spec"]["template"];
            let of = |pod: &&Pod| pod.of.as_ref().is_some_and(|(of, _)| of == name);
            let pods = || self.pods.iter().filter(of);
            let new = pods().filter(|pod| pod.of.as_ref().is_some_and(|(_, one)| one == template));
            deployment["status"] = json!({
                "observedGeneration": deployment["metadata"]["generation"],
                "updatedReplicas": new.count(),
                "replicas": pods().count(),
                "availableReplicas": pods().filter(|pod| pod.ready).count(),
            });
        }
    }

    /// The invariant at any time: each port of each Service has endpoints, all of which serve it.
    pub(crate) fn check(&mut self, after: &Move) {
        for at in 0..self.services.len() {
            let service = &self.services[at];
            let Some(live) = &service.live else { continue };
            let wrong = self.wrong(at);
            let fresh = self.of(Some(live)) == service.endpoints;
            let service = &mut self.services[at];
            match wrong {
                Some(wrong) => {
                    assert!(service.excused, "{}: {wrong} after {after:?}", service.name);
                }
                // Exceptions last until everything is healthy again, and observed.
                None => service.excused &= !fresh,
            }
        }
    }

    fn wrong(&self, at: usize) -> Option<String> {
        let service = &self.services[at];
        for port in service.live.as_ref()?["spec"]["ports"].as_array()? {
            let mut some = false;
            for endpoint in service
                .endpoints
                .iter()
                .filter(|one| port["port"] == one.port)
            {
                let mut pods = self.pods.iter();
                let pod = pods.find(|pod| pod.address == endpoint.address && pod.ready);
                let Some(pod) = pod else { continue };
                some = true;
                let answers = match &pod.of {
                    None => endpoint.target < 20_000 && pod.address.starts_with(service.name),
                    Some(_) => {
                        let reported = pod.reported.get(&endpoint.target);
                        let own = reported
                            .is_some_and(|(of, port)| of == service.name && *port == endpoint.port);
                        own && !service.behind.is_empty()
                    }
                };
                if !answers {
                    return Some(format!("{endpoint:?} does not answer for it: {pod:?}"));
                }
            }
            if !some {
                return Some(format!("no listener at port {}", port["port"]));
            }
        }
        None
    }
}

/// One that starts.
fn proxy(deployment: &str, template: &Value, number: u64) -> Pod {
    let container = &template["spec"]["containers"][0];
    let (mut named, mut reported) = (BTreeMap::new(), BTreeMap::new());
    for port in container["ports"].as_array().into_iter().flatten() {
        if let Some(name) = port["name"].as_str() {
            let number = port["containerPort"].as_u64().unwrap();
            named.insert(name.to_owned(), u16::try_from(number).unwrap());
        }
    }
    for argument in container["args"].as_array().unwrap() {
        let forward = argument.as_str().unwrap().strip_prefix("--forward=");
        let Some((listen, host)) = forward.and_then(|text| text.split_once('=')) else {
            continue;
        };
        let of = host
            .split('/')
            .nth(1)
            .unwrap()
            .split("-target")
            .next()
            .unwrap();
        let port = host.rsplit(':').next().unwrap().parse().unwrap();
        reported.insert(listen.parse().unwrap(), (of.to_owned(), port));
    }
    Pod {
        labels: template["metadata"]["labels"].clone(),
        address: format!("proxy-{number}"),
        ready: false,
        of: Some((deployment.to_owned(), template.clone())),
        named,
        reported,
    }
}
