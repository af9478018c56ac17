//! A model of a cluster with three Services: what an API server, the controllers of Deployments and of
//! EndpointSlices, discovery and users do.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use maglor_controller::proxy_service::{
    Claim, Front, Group, Observed, Progress, Settings, Step, holding, next,
};
use serde_json::{Value, json};

mod pods;
mod steps;

use crate::support::due::due;
use pods::{Endpoint, Pod};

pub(crate) const NAMES: [&str; 3] = ["web", "cart", "db"];
const GROUP: &str = "maglor.dev/proxy-group";
const SERVICE: &str = "maglor.dev/proxy-service";

/// An event. Services are given by their index in [`NAMES`].
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// The operator observes a Service, and remembers its next step.
    Look(usize),
    /// The operator executes the remembered step, however old it is.
    Act,
    /// The operator looks and acts.
    Operate(usize),
    /// The operator forgets everything.
    Crash,
    /// Deployments come one step further.
    Deploy,
    /// Endpoints become known.
    Endpoints,
    /// Proxies get their ports.
    Report,
    /// So many seconds pass.
    Pass(i64),
    /// All proxies fail.
    ProxiesFail,
    /// The Service's manifest is applied again; that of `db` has no target ports.
    ApplyAgain(usize),
    /// The Service has this many additional ports from now on.
    Ports(usize, u16),
    /// The selector gets one label more, or less.
    Select(usize),
    /// A `ProxyService` is created, in the group or alone.
    Claim(usize, bool),
    /// It is deleted.
    Unclaim(usize),
    /// It joins the group, or leaves.
    Group(usize, bool),
    /// The replicas are changed.
    Scale(usize, u32),
    /// The Service of the endpoints is deleted.
    LoseTarget(usize),
}

struct Service {
    name: &'static str,
    live: Option<Value>,
    /// The desired state by users.
    intended: Value,
    endpoints: BTreeSet<Endpoint>,
    behind: BTreeSet<Endpoint>,
    /// Requests fail for an unavoidable reason.
    excused: bool,
}

/// See the module's documentation.
pub(crate) struct Fixture {
    services: Vec<Service>,
    /// The created objects, by kind and name.
    store: BTreeMap<(String, String), Value>,
    claims: Vec<Value>,
    pods: Vec<Pod>,
    wanted: Option<Step>,
    now: i64,
    count: u64,
}

fn intended(name: &str, more: u16) -> Value {
    let (first, target) = match name {
        "db" => (5432, json!(5432)),
        "cart" => (80, json!("http")),
        _ => (80, json!(8080)),
    };
    let port = |i: u16| {
        let target = if i == 0 {
            target.clone()
        } else {
            json!(first + 8000 + i)
        };
        let what = if name == "db" { "tcp" } else { "http" };
        json!({"name": format!("{what}-{i}"), "port": first + i, "targetPort": target, "protocol": "TCP"})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}")},
        "spec": {"clusterIP": "10.96.0.1", "selector": {"app": name},
                 "ports": (0..=more).map(port).collect::<Vec<_>>()},
    })
}

/// Ownership as reported by an API server, as far as it is relevant.
fn bare(value: &Value) -> Value {
    let mut value = value.clone();
    for field in ["managedFields", "resourceVersion"] {
        value["metadata"].as_object_mut().unwrap().remove(field);
    }
    value
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let service = |name: &&'static str| Service {
            name,
            live: Some(intended(name, 0)),
            intended: intended(name, 0),
            endpoints: BTreeSet::new(),
            behind: BTreeSet::new(),
            excused: false,
        };
        let mut fixture = Self {
            services: NAMES.iter().map(service).collect(),
            store: BTreeMap::new(),
            claims: Vec::new(),
            pods: NAMES.iter().flat_map(|name| Pod::own(name)).collect(),
            wanted: None,
            now: 1_800_000_000,
            count: 0,
        };
        let managed = json!([{"manager": "kubectl"}]);
        for at in 0..NAMES.len() {
            let managed = managed.clone();
            fixture.change(at, |service| service["metadata"]["managedFields"] = managed);
        }
        fixture.make(&Move::Endpoints);
        fixture
    }

    pub(crate) fn make(&mut self, one: &Move) {
        match one {
            Move::Look(at) => self.wanted = due(&self.observe(*at)),
            Move::Act => {
                if let Some(step) = self.wanted.take() {
                    self.take(&step);
                }
            }
            Move::Operate(at) => {
                // There is one operator: what an earlier one has not done it never does.
                self.wanted = None;
                if let Some(step) = due(&self.observe(*at)) {
                    self.take(&step);
                }
            }
            Move::Crash => self.wanted = None,
            Move::Deploy => self.deploy(),
            Move::Endpoints => self.know_endpoints(),
            Move::Report => self.report(),
            Move::Pass(seconds) => self.now += seconds,
            Move::ProxiesFail => self.fail(),
            Move::ApplyAgain(at) => self.apply_manifest(*at, true),
            Move::Ports(at, more) => {
                let ports = intended(NAMES[*at], *more)["spec"]["ports"].clone();
                self.services[*at].intended["spec"]["ports"] = ports;
                self.apply_manifest(*at, false);
            }
            Move::Select(at) => {
                let selector = &mut self.services[*at].intended["spec"]["selector"];
                *selector = match selector["version"].is_null() {
                    true => json!({"app": NAMES[*at], "version": "v1"}),
                    false => json!({"app": NAMES[*at]}),
                };
                self.apply_manifest(*at, true);
            }
            Move::Claim(at, grouped) => self.claim(NAMES[*at], *grouped),
            Move::Unclaim(at) => {
                if let Some(claim) = self.claim_of(*at) {
                    claim["metadata"]["deletionTimestamp"] = json!("now");
                }
                self.collect();
            }
            Move::Group(at, grouped) => {
                if let Some(claim) = self.claim_of(*at) {
                    claim["spec"]["group"] = grouped.then_some("low").into();
                }
            }
            Move::Scale(at, count) => {
                if let Some(claim) = self.claim_of(*at) {
                    claim["spec"]["replicas"] = json!(count);
                }
            }
            Move::LoseTarget(at) => {
                let target = ("Service".to_owned(), format!("{}-target", NAMES[*at]));
                self.services[*at].excused |= self.store.remove(&target).is_some();
                // All controllers observe it before the operator executes its remembered step.
                self.wanted = None;
                self.report();
                self.know_endpoints();
            }
        }
    }

    /// The operator's observation of a Service.
    pub(crate) fn observe(&self, at: usize) -> Observed {
        let service = &self.services[at];
        let claims: Vec<Claim> = self.claims.iter().map(Claim::read).collect();
        let held = match &service.live {
            Some(live) => holding(claims.clone(), live, "maglor", false),
            None => claims
                .iter()
                .filter(|one| one.service == service.name)
                .cloned()
                .collect(),
        };
        let there =
            |kind: &str, name: &str| self.store.get(&(kind.to_owned(), name.to_owned())).cloned();
        let behind = format!("{}-target", service.name);
        let target = there("Service", &behind);
        let front = self.front(service, target.as_ref(), &held);
        let (made, label, whose) = match &front {
            Front::Group(group) => (format!("{group}-proxy-group"), GROUP, group.clone()),
            Front::Service(name) => (format!("{name}-proxy-service"), SERVICE, name.clone()),
        };
        let proxies = || self.pods.iter().filter(|pod| pod.labels[label] == *whose);
        let group = matches!(front, Front::Group(_)).then(|| Group {
            listening: proxies()
                .map(|pod| (pod.address.clone(), pod.reported.keys().copied().collect()))
                .collect(),
            ..Group::of(
                service.name,
                &whose,
                claims,
                self.of_groups("Service"),
                proxies()
                    .filter(|pod| pod.ready)
                    .map(|pod| pod.address.clone())
                    .collect(),
            )
        });
        let addresses =
            |all: &BTreeSet<Endpoint>| all.iter().map(|one| one.address.clone()).collect();
        Observed {
            namespace: "shop".into(),
            name: service.name.into(),
            claims: held,
            service: service.live.clone(),
            policy: there("TrafficPolicy", &behind),
            account: there("ServiceAccount", &made),
            autoscaler: there("HorizontalPodAutoscaler", &made),
            deployment: there("Deployment", &made),
            target,
            endpoints: addresses(&service.endpoints),
            target_endpoints: addresses(&service.behind),
            proxies: proxies().map(|pod| pod.address.clone()).collect(),
            front,
            group,
            now: Timestamp::from_second(self.now).unwrap(),
            settings: Settings {
                trust_domain: Some("cluster.local".into()),
                ..Settings::default()
            },
            ..Observed::default()
        }
    }

    /// As the operator finds out whose proxies there are.
    fn front(&self, service: &Service, target: Option<&Value>, held: &[Claim]) -> Front {
        let live = service.live.as_ref();
        let left = || {
            let made = ["Deployment", "ServiceAccount"].map(|kind| self.of_groups(kind));
            Front::left_behind(live?, &made.concat(), &self.of_groups("Service"))
        };
        let claim = held.iter().find(|claim| !claim.deleting);
        let spec = claim.and_then(|claim| claim.spec.as_ref().ok());
        let wanted = spec.map(|spec| Front::of(service.name, spec));
        let found = Front::found(live, target).or_else(left).or(wanted);
        found.unwrap_or_else(|| Front::Service(service.name.into()))
    }

    fn of_groups(&self, kind: &str) -> Vec<Value> {
        let of_kind = self.store.iter().filter(|((of, _), _)| of == kind);
        let grouped = of_kind.filter(|(_, one)| one["metadata"]["labels"][GROUP].is_string());
        grouped.map(|(_, one)| one.clone()).collect()
    }

    /// Runs all controllers until nothing changes; returns the operator's steps.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        self.settle_in([0, 1, 2], usize::MAX)
    }

    /// The same, but the operator restarts after this many steps in total, `before` of which were taken already,
    /// and observes Services in another order from then on; returns the number of steps.
    pub(crate) fn settle_with_crash(&mut self, crash: usize, before: usize) -> usize {
        match crash.checked_sub(before) {
            Some(left) => self.settle_in([0, 1, 2], left).len(),
            None => self.settle_in([2, 1, 0], usize::MAX).len(),
        }
    }

    fn settle_in(&mut self, mut order: [usize; 3], crash: usize) -> Vec<String> {
        let mut steps = Vec::new();
        let mut quiet = 0;
        for _ in 0..2000 {
            quiet += 1;
            for at in order {
                if let Some(step) = due(&self.observe(at)) {
                    steps.push(format!("{}: {}", NAMES[at], steps::reported(&step)));
                    self.take(&step);
                    quiet = 0;
                }
                if steps.len() == crash {
                    order = [2, 1, 0];
                }
                self.check(&Move::Operate(at));
            }
            for one in [Move::Deploy, Move::Endpoints, Move::Report, Move::Pass(5)] {
                self.make(&one);
                self.check(&one);
            }
            self.collect_garbage();
            if quiet > 25 {
                return steps;
            }
        }
        panic!("no end: {steps:?}");
    }

    pub(crate) fn progress(&self, at: usize) -> Progress {
        next(&self.observe(at)).progress
    }

    /// Objects created for proxies, except Services of endpoints and their policies.
    pub(crate) fn made(&self) -> Vec<String> {
        let shared = |(kind, _): &&(String, String)| kind != "Service" && kind != "TrafficPolicy";
        let made = self.store.keys().filter(shared);
        made.map(|(kind, name)| format!("{kind} {name}")).collect()
    }

    pub(crate) fn template(&self) -> Value {
        let key = ("Deployment".to_owned(), "low-proxy-group".to_owned());
        self.store[&key]["spec"]["template"].clone()
    }

    /// The invariants of the final state.
    pub(crate) fn check_end(&self) {
        let leaving = |claim: &&Value| claim["metadata"]["deletionTimestamp"].is_string();
        assert_eq!(self.claims.iter().find(leaving), None);
        for (at, service) in self.services.iter().enumerate() {
            let Some(live) = &service.live else { continue };
            let name = service.name;
            assert!(!service.excused, "{name}");
            let target = self
                .store
                .get(&("Service".to_owned(), format!("{name}-target")));
            match self.progress(at) {
                Progress::Inserted(_) => {
                    let (target, intended) = (target.unwrap(), &service.intended);
                    for field in ["selector", "ports"] {
                        assert_eq!(target["spec"][field], intended["spec"][field], "{name}");
                    }
                    let proxied = |one: &Endpoint| {
                        let mut pods = self.pods.iter();
                        pods.any(|pod| pod.address == one.address && pod.of.is_some())
                    };
                    assert!(service.endpoints.iter().all(proxied), "{name}: {live}");
                }
                Progress::Withdrawn | Progress::Withdrawing | Progress::Refused(_) => {
                    assert_eq!(bare(live), bare(&service.intended));
                    let managed = live["metadata"]["managedFields"].to_string();
                    assert!(!managed.contains("maglor"), "{managed}");
                    assert_eq!(target, None);
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    pub(crate) fn edit(&mut self, at: usize, field: &str, value: &Value) {
        self.services[at].intended["spec"][field] = value.clone();
        self.services[at].excused = true;
        self.change(at, |service| service["spec"][field] = value.clone());
        let labels = value.clone();
        for pod in &mut self.pods {
            if pod.labels["app"] == NAMES[at] {
                pod.labels = labels.clone();
            }
        }
    }

    /// Deletes a Service; its objects are removed some time later.
    pub(crate) fn remove(&mut self, at: usize) {
        self.services[at].live = None;
        self.services[at].endpoints.clear();
    }

    /// Removes objects whose owners were all deleted.
    pub(crate) fn collect_garbage(&mut self) {
        let uids = self.services.iter().filter_map(|one| one.live.as_ref());
        let uids: Vec<Value> = uids.map(|live| live["metadata"]["uid"].clone()).collect();
        self.store.retain(|_, one| {
            let owners = one["metadata"]["ownerReferences"].as_array().unwrap();
            owners.iter().any(|owner| uids.contains(&owner["uid"]))
        });
    }

    /// `kubectl apply`: fields of the manifest that differ; all of it, or its ports only.
    fn apply_manifest(&mut self, at: usize, whole: bool) {
        let silent = NAMES[at] == "db";
        let intended = self.services[at].intended.clone();
        self.services[at].excused = true;
        self.change(at, |live| {
            if whole {
                live["spec"]["selector"] = intended["spec"]["selector"].clone();
            }
            let before = live["spec"]["ports"].clone();
            let mut ports = intended["spec"]["ports"].clone();
            for port in ports.as_array_mut().unwrap() {
                let mut there = before.as_array().unwrap().iter();
                let there = there.find(|there| there["port"] == port["port"]);
                if let Some(there) = there.filter(|_| silent) {
                    port["targetPort"] = there["targetPort"].clone();
                }
            }
            live["spec"]["ports"] = ports;
        });
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Value)) {
        let version = self.number().to_string();
        if let Some(live) = &mut self.services[at].live {
            change(live);
            live["metadata"]["resourceVersion"] = json!(version);
        }
    }

    fn claim_of(&mut self, at: usize) -> Option<&mut Value> {
        let name = format!("claim-{}", NAMES[at]);
        let mut claims = self.claims.iter_mut();
        claims.find(|claim| claim["metadata"]["name"] == name.as_str())
    }

    fn claim(&mut self, name: &str, grouped: bool) {
        let claim = format!("claim-{name}");
        if self
            .claims
            .iter()
            .any(|one| one["metadata"]["name"] == claim.as_str())
        {
            return;
        }
        let number = self.number();
        self.claims.push(json!({
            "metadata": {"name": claim, "namespace": "shop", "uid": format!("u-{number}")},
            "spec": {"targetRef": {"name": name}, "group": grouped.then_some("low")},
        }));
    }

    /// Removes objects that are marked for deletion and have no finalizer.
    fn collect(&mut self) {
        self.claims.retain(|claim| {
            let meta = &claim["metadata"];
            let held = meta["finalizers"].as_array();
            meta["deletionTimestamp"].is_null() || held.is_some_and(|list| !list.is_empty())
        });
    }
}
