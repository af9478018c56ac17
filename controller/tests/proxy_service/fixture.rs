//! A model of a cluster with one Service: what an API server, the controllers of Deployments and of
//! EndpointSlices and users do.

use std::collections::BTreeSet;

use maglor_controller::proxy_service::{
    Advice, Claim, FIELD_MANAGER, Front, Observed, Progress, Settings, Step, holding, next,
};
use maglor_service_graph::policy_choice::Choice;
use serde_json::{Value, json};

mod steps;
mod wide;

use crate::support::due::due;
use steps::reported;

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// The operator observes, and remembers its next step.
    Look,
    /// The operator executes the remembered step, however old it is.
    Act,
    /// The operator looks and acts.
    Operate,
    /// The operator forgets everything.
    Crash,
    /// The Deployment comes one step further.
    Deploy,
    /// Endpoints become known.
    Endpoints,
    /// All proxies fail.
    ProxiesFail,
    /// The selector is changed to other pods.
    Select(u8),
    /// One label of the selector is changed.
    SelectPart,
    /// The Service's manifest is applied again.
    ApplyAgain,
    /// The Service has this many ports from now on.
    Ports(u16),
    /// The Service gets a label.
    Label,
    /// A `ProxyService` is created.
    Claim(u8),
    /// It is deleted.
    Unclaim(u8),
    /// The replicas of the oldest are changed.
    Scale(u32),
    /// The oldest gets an autoscaler.
    Autoscale,
    /// The autoscaler, if there is one, requests this many proxies.
    Load(u32),
    /// The oldest gets `mode: Auto`.
    Auto,
    /// The recommendation of the decision rule.
    Advise(Choice),
    /// Endpoints get sidecars, or lose them.
    Sidecars(bool),
    /// A `ProxyService` for many Services is created: 0 = of the namespace, as a dry run; 1 =
    /// of the namespace; 2 = of the mesh.
    Wide(u8),
    /// It is deleted.
    Unwide(u8),
    /// The Service opts out of these, or no longer.
    OptOut(bool),
    /// The operator observes all Services in one request.
    Round,
}

#[derive(Clone, Debug)]
struct Pod {
    labels: Value,
    address: String,
    ready: bool,
    proxy: bool,
}

/// See the module's documentation.
pub(crate) struct Fixture {
    pub(crate) target: Option<Value>,
    service: Option<Value>,
    pub(crate) policy: Option<Value>,
    account: Option<Value>,
    autoscaler: Option<Value>,
    pub(crate) deployment: Option<Value>,
    claims: Vec<Value>,
    /// Those for many Services.
    wide: Vec<Value>,
    pods: Vec<Pod>,
    endpoints: BTreeSet<String>,
    target_endpoints: BTreeSet<String>,
    /// The Service as desired by users.
    intended: Value,
    wanted: Option<Step>,
    count: u64,
    /// The result of the decision rule, if it is evaluated.
    advised: Option<Choice>,
    sidecar_policy: Option<Value>,
    collaborative: bool,
    /// Endpoints are missing for an unavoidable reason.
    excused: bool,
}

fn selector(which: u8) -> Value {
    match which {
        0 => json!({"app": "web"}),
        1 => json!({"app": "web", "version": "v1"}),
        _ => json!({"app": "web", "version": "v2"}),
    }
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(map) = selector.as_object().filter(|map| !map.is_empty()) else {
        return false;
    };
    map.iter().all(|(key, value)| labels[key] == *value)
}

fn selects_pods(service: &Value) -> bool {
    let spec = &service["spec"];
    spec["type"] != "ExternalName" && spec["selector"].is_object()
}

fn ports(count: u16) -> Value {
    let port = |i| json!({"name": format!("http-{i}"), "port": 80 + i, "targetPort": 8080 + i});
    (0..count).map(port).collect()
}

/// As after a kubectl apply; ownership as reported by an API server, as far as it is relevant.
fn bare(value: &Value) -> Value {
    let mut value = value.clone();
    for field in ["managedFields", "resourceVersion"] {
        value["metadata"].as_object_mut().unwrap().remove(field);
    }
    value
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let intended = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-web"},
            "spec": {"clusterIP": "10.96.0.1", "selector": selector(0), "ports": ports(1)},
        });
        let own = |version: &str, i: u8| Pod {
            labels: json!({"app": "web", "version": version}),
            address: format!("10.0.0.{i}"),
            ready: true,
            proxy: false,
        };
        let mut fixture = Self {
            service: Some(intended.clone()),
            intended,
            target: None,
            policy: None,
            account: None,
            autoscaler: None,
            deployment: None,
            claims: Vec::new(),
            wide: Vec::new(),
            pods: vec![own("v1", 1), own("v2", 2)],
            endpoints: BTreeSet::new(),
            target_endpoints: BTreeSet::new(),
            wanted: None,
            count: 0,
            advised: None,
            sidecar_policy: None,
            collaborative: false,
            excused: false,
        };
        let managed = json!([{"manager": "kubectl"}]);
        fixture.change_service(|service| service["metadata"]["managedFields"] = managed);
        fixture.make(&Move::Endpoints);
        fixture
    }

    pub(crate) fn make(&mut self, one: &Move) {
        match one {
            Move::Look => self.wanted = due(&self.observe()),
            Move::Act => {
                if let Some(step) = self.wanted.take() {
                    self.take(&step);
                }
            }
            Move::Operate => {
                // There is one operator: what an earlier one has not done it never does.
                self.wanted = None;
                if let Some(step) = due(&self.observe()) {
                    self.take(&step);
                }
            }
            Move::Crash => self.wanted = None,
            Move::Deploy => self.deploy(),
            Move::Endpoints => {
                // Kubernetes leaves the endpoints of a Service without a selector unchanged.
                if self.service.as_ref().is_none_or(selects_pods) {
                    self.endpoints = self.of(self.service.as_ref());
                }
                self.target_endpoints = self.of(self.target.as_ref());
            }
            Move::ProxiesFail => {
                let mut proxies = self.pods.iter_mut().filter(|pod| pod.proxy);
                self.excused |= proxies.any(|pod| pod.ready);
                for pod in self.pods.iter_mut().filter(|pod| pod.proxy) {
                    pod.ready = false;
                }
                self.count_available();
                // Proxies that fail between an observation and the following write are not noticed.
                self.wanted = None;
                // Kubernetes sees it at the same time.
                self.make(&Move::Endpoints);
            }
            Move::Select(which) => {
                self.intended["spec"]["selector"] = selector(*which);
                self.apply_intended();
            }
            Move::SelectPart => self.select_part(),
            Move::ApplyAgain => self.apply_intended(),
            Move::Ports(count) => {
                self.intended["spec"]["ports"] = ports(*count);
                let ports = ports(*count);
                self.change_service(|service| service["spec"]["ports"] = ports);
            }
            Move::Label => {
                let labels = json!({"team": "shop"});
                self.intended["metadata"]["labels"] = labels.clone();
                self.change_service(|service| service["metadata"]["labels"] = labels);
            }
            Move::Claim(name) => self.claim(*name),
            Move::Unclaim(name) => self.unclaim(*name),
            Move::Scale(replicas) => {
                if let Some(claim) = self.claims.first_mut() {
                    claim["spec"]["replicas"] = json!(replicas);
                    claim["spec"].as_object_mut().unwrap().remove("autoscaling");
                }
            }
            Move::Autoscale => {
                if let Some(claim) = self.claims.first_mut() {
                    claim["spec"]["autoscaling"] = json!({"maxReplicas": 3});
                    claim["spec"].as_object_mut().unwrap().remove("replicas");
                }
            }
            Move::Auto => {
                if let Some(claim) = self.claims.first_mut() {
                    claim["spec"]["mode"] = json!("Auto");
                    claim["spec"]["dryRun"] = json!(false);
                    claim["spec"]["sidecarPolicies"] = json!(true);
                }
            }
            Move::Advise(choice) => self.advised = Some(*choice),
            Move::Sidecars(there) => self.collaborative = *there,
            Move::Wide(which) => self.claim_all(*which),
            Move::Unwide(which) => self.unclaim_all(*which),
            Move::OptOut(out) => self.opt_out(*out),
            Move::Round => self.look_around(),
            Move::Load(replicas) => {
                if let (Some(_), Some(deployment)) = (&self.autoscaler, &mut self.deployment) {
                    deployment["spec"]["replicas"] = json!(replicas);
                }
            }
        }
    }

    /// The claims that hold for the Service.
    fn holding(&self) -> Vec<Claim> {
        let claims = self.claims.iter().chain(&self.wide).map(Claim::read);
        match &self.service {
            Some(service) => holding(claims.collect(), service, wide::ROOT, false),
            None => claims.filter(|claim| !claim.is_wide).collect(),
        }
    }

    /// The operator's observation.
    pub(crate) fn observe(&self) -> Observed {
        Observed {
            namespace: "shop".into(),
            name: "web".into(),
            claims: self.holding(),
            service: self.service.clone(),
            target: self.target.clone(),
            policy: self.policy.clone(),
            deployment: self.deployment.clone(),
            endpoints: self.endpoints.clone(),
            target_endpoints: self.target_endpoints.clone(),
            proxies: self
                .pods
                .iter()
                .filter(|pod| pod.proxy)
                .map(|pod| pod.address.clone())
                .collect(),
            account: self.account.clone(),
            autoscaler: self.autoscaler.clone(),
            sidecar_policy: self.sidecar_policy.clone(),
            collaborative: self.collaborative,
            advice: self.advised.map(|choice| Advice { choice, view: None }),
            front: Front::Service("web".into()),
            settings: Settings {
                trust_domain: Some("cluster.local".into()),
                ..Settings::default()
            },
            ..Observed::default()
        }
    }

    /// Runs all controllers until nothing changes; returns the operator's steps.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        let mut steps = Vec::new();
        let mut quiet = 0;
        for _ in 0..1000 {
            quiet += 1;
            if let Some(step) = due(&self.observe()) {
                steps.push(reported(&step));
                self.take(&step);
                quiet = 0;
            }
            self.check(&Move::Operate);
            self.make(&Move::Round);
            self.make(&Move::Deploy);
            self.check(&Move::Deploy);
            self.make(&Move::Endpoints);
            self.check(&Move::Endpoints);
            if quiet > 40 {
                return steps;
            }
        }
        panic!("no end: {steps:?}");
    }

    /// The invariants at any time.
    pub(crate) fn check(&mut self, after: &Move) {
        if self.service.is_none() {
            return;
        }
        let found: Vec<&Pod> = self
            .pods
            .iter()
            .filter(|pod| pod.ready && self.endpoints.contains(&pod.address))
            .collect();
        if found.is_empty() {
            assert!(self.excused, "no endpoint after {after:?}");
            return;
        }
        // The excuse holds until there are endpoints again.
        let now = self.of(self.service.as_ref());
        if !now.is_empty() && now == self.endpoints {
            self.excused = false;
        }
        let sends = self
            .pods
            .iter()
            .any(|pod| pod.ready && !pod.proxy && self.target_endpoints.contains(&pod.address));
        let proxied = found.iter().any(|pod| pod.proxy);
        assert!(
            !proxied || sends,
            "proxies without endpoints after {after:?}"
        );
    }

    /// The invariants of the final state.
    pub(crate) fn check_end(&self) {
        let leaving = |claim: &&Value| claim["metadata"]["deletionTimestamp"].is_string();
        assert_eq!(self.wide.iter().find(leaving), None);
        if self.holding().iter().all(|claim| claim.deleting) {
            assert!(self.claims.is_empty(), "{:?}", self.claims);
            self.check_restored();
            return;
        }
        let progress = next(&self.observe()).progress;
        if progress == Progress::NotAdvised {
            self.check_restored();
            return;
        }
        if let Progress::Collaborating(choice) = progress {
            let policy = self.sidecar_policy.as_ref().unwrap();
            assert_eq!(policy["spec"]["cluster"]["policy"], choice.policy());
            assert!(self.collaborative);
            self.check_without_proxies();
            return;
        }
        assert_eq!(self.sidecar_policy, None);
        assert!(matches!(progress, Progress::Inserted(_)), "{progress:?}");
        let target = self.target.as_ref().unwrap();
        assert_eq!(
            target["spec"]["selector"],
            self.intended["spec"]["selector"]
        );
        assert_eq!(target["spec"]["ports"], self.intended["spec"]["ports"]);
        let proxies: Vec<&Pod> = self.pods.iter().filter(|pod| pod.proxy).collect();
        let addresses: BTreeSet<String> = proxies.iter().map(|pod| pod.address.clone()).collect();
        assert_eq!(self.endpoints, addresses);
        assert_eq!(self.target_endpoints, self.of(Some(&self.intended)));
    }

    /// The Service is as desired by users, and none of our objects is left.
    pub(crate) fn check_restored(&self) {
        self.check_without_proxies();
        assert_eq!(self.sidecar_policy, None);
    }

    /// The Service is as desired by users, and no object of the proxies is left.
    fn check_without_proxies(&self) {
        let service = self.service.as_ref().unwrap();
        assert_eq!(bare(service), bare(&self.intended));
        let managed = service["metadata"]["managedFields"].as_array().unwrap();
        assert!(
            managed
                .iter()
                .all(|entry| entry["manager"] != FIELD_MANAGER)
        );
        let made = [
            &self.target,
            &self.policy,
            &self.account,
            &self.autoscaler,
            &self.deployment,
        ];
        assert!(made.iter().all(|one| one.is_none()), "{made:?}");
        assert!(self.pods.iter().all(|pod| !pod.proxy));
    }

    pub(crate) fn edit_spec(&mut self, field: &str, value: &Value) {
        self.intended["spec"][field] = value.clone();
        self.excused = true;
        self.change_service(|service| service["spec"][field] = value.clone());
    }

    /// Other endpoints are written for a Service without a selector.
    pub(crate) fn write_endpoints(&mut self) {
        self.endpoints = ["10.9.0.1".to_owned()].into();
    }

    pub(crate) fn remove_service(&mut self) {
        self.service = None;
    }

    pub(crate) fn own_by_controller(&mut self) {
        let owners = json!([{"kind": "Route", "name": "web", "controller": true}]);
        self.change_service(|service| service["metadata"]["ownerReferences"] = owners);
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn change_service(&mut self, change: impl FnOnce(&mut Value)) {
        let version = self.number().to_string();
        if let Some(service) = &mut self.service {
            change(service);
            service["metadata"]["resourceVersion"] = json!(version);
        }
    }

    fn apply_intended(&mut self) {
        let selector = self.intended["spec"]["selector"].clone();
        self.change_service(|service| service["spec"]["selector"] = selector);
    }

    /// `kubectl patch` of one label, regardless of the selected pods.
    fn select_part(&mut self) {
        self.intended["spec"]["selector"]["version"] = json!("v1");
        // Until the operator has seen it, no pod may have all of the labels.
        self.excused = true;
        self.change_service(|service| service["spec"]["selector"]["version"] = json!("v1"));
    }

    fn claim(&mut self, name: u8) {
        let name = format!("claim-{name}");
        if self
            .claims
            .iter()
            .any(|claim| claim["metadata"]["name"] == name.as_str())
        {
            return;
        }
        let number = self.number();
        self.claims.push(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{number}"), "generation": 1},
            "spec": {"targetRef": {"name": "web"}},
        }));
    }

    fn unclaim(&mut self, name: u8) {
        let name = format!("claim-{name}");
        for claim in &mut self.claims {
            if claim["metadata"]["name"] == name.as_str() {
                claim["metadata"]["deletionTimestamp"] = json!("now");
            }
        }
        self.collect();
    }

    /// Removes objects that are marked for deletion and have no finalizer.
    fn collect(&mut self) {
        let stays = |claim: &Value| {
            let meta = &claim["metadata"];
            let held = meta["finalizers"].as_array();
            meta["deletionTimestamp"].is_null() || held.is_some_and(|list| !list.is_empty())
        };
        self.claims.retain(stays);
        self.wide.retain(stays);
    }

    /// Ready pods that a Service selects.
    fn of(&self, service: Option<&Value>) -> BTreeSet<String> {
        let selector = service.map(|service| service["spec"]["selector"].clone());
        let selector = selector.unwrap_or_default();
        let selected = |pod: &&Pod| pod.ready && selects(&selector, &pod.labels);
        self.pods
            .iter()
            .filter(selected)
            .map(|pod| pod.address.clone())
            .collect()
    }

    /// One step of a rollout: a pod starts, one becomes ready, or an old one goes.
    fn deploy(&mut self) {
        let Some(mut deployment) = self.deployment.take() else {
            let at = self.pods.iter().position(|pod| pod.proxy);
            at.map(|at| self.pods.remove(at));
            return;
        };
        deployment["status"]["observedGeneration"] = deployment["metadata"]["generation"].clone();
        let labels = deployment["spec"]["template"]["metadata"]["labels"].clone();
        let version = deployment["spec"]["template"].to_string();
        let mut labels = labels;
        labels["template"] = json!(version);
        let wanted = deployment["spec"]["replicas"].as_u64().unwrap() as usize;
        let new = self
            .pods
            .iter()
            .filter(|pod| pod.proxy && pod.labels == labels)
            .count();
        if let Some(pod) = self.pods.iter_mut().find(|pod| pod.proxy && !pod.ready) {
            pod.ready = true;
        } else if new < wanted {
            let number = self.number();
            self.pods.push(Pod {
                labels,
                address: format!("10.1.0.{number}"),
                ready: false,
                proxy: true,
            });
        } else if let Some(old) = self
            .pods
            .iter()
            .position(|pod| pod.proxy && (pod.labels != labels || new > wanted))
        {
            self.pods.remove(old);
            // A pod that ends is no endpoint from then on.
            self.deployment = Some(deployment);
            self.make(&Move::Endpoints);
            self.count_available();
            return;
        }
        self.deployment = Some(deployment);
        self.count_available();
    }

    fn count_available(&mut self) {
        let Some(deployment) = &mut self.deployment else {
            return;
        };
        let version = deployment["spec"]["template"].to_string();
        let proxies = || self.pods.iter().filter(|pod| pod.proxy);
        let new = proxies().filter(|pod| pod.labels["template"] == version.as_str());
        deployment["status"]["updatedReplicas"] = json!(new.count());
        deployment["status"]["replicas"] = json!(proxies().count());
        deployment["status"]["availableReplicas"] =
            json!(proxies().filter(|pod| pod.ready).count());
    }
}
