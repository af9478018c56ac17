//! The application in its cluster, while its steps are followed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Kubectl, gateway_definitions};
use serde_json::Value;

use crate::application::Application;
use crate::findings::Findings;
use crate::installed::{Installed, until};
use crate::page::{Browser, Page, Reviews};

/// The sample's Gateway refers to the class `istio`; here it is one of Maglor's. Istio's namespace is the root of its
/// configuration, also for Maglor.
const SURROUNDINGS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: maglor.dev/gateway}
---
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
";

/// The time limit for the application to start, of which the reviews take most.
const START: Duration = Duration::from_secs(400);
/// The time limit for a change to reach the proxies.
const PROPAGATION: Duration = Duration::from_secs(60);

/// A page with a delay takes longer than this.
const SLOW: Duration = Duration::from_secs(2);

/// See the module's documentation.
pub(crate) struct Run {
    pub(crate) installed: Installed,
    pub(crate) application: Application,
    pub(crate) findings: Findings,
    pub(crate) gateway: Ipv4Addr,
}

impl Run {
    /// Deploys the application with sidecars, and its Gateway.
    pub(crate) fn start(installed: Installed, application: Application) -> Self {
        let kubectl = &installed.kubectl().clone();
        application.load(&installed.cluster);
        application.define(kubectl);
        for definition in gateway_definitions().unwrap() {
            kubectl.apply(&definition).unwrap();
        }
        kubectl.apply(SURROUNDINGS).unwrap();
        kubectl
            .run(&["label", "namespace", "default", "maglor.dev/inject=enabled"])
            .unwrap();
        application.apply(kubectl, "platform/kube/bookinfo.yaml");
        rolled_out(kubectl);
        application.apply(kubectl, "gateway-api/bookinfo-gateway.yaml");
        until("the gateway is programmed", || {
            let gateway = kubectl.json(&["get", "gateway", "bookinfo-gateway"]);
            holds(&gateway.unwrap(), "Programmed", "True")
        });
        let label = "gateway.networking.k8s.io/gateway-name=bookinfo-gateway";
        let gateway = addresses(kubectl, label)[0];
        let mut run = Self {
            installed,
            application,
            findings: Findings::default(),
            gateway,
        };
        run.is_there();
        run
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        self.installed.kubectl()
    }

    /// Applies a file of the sample as it is.
    pub(crate) fn apply(&self, file: &str) {
        self.application.apply(self.kubectl(), file);
    }

    pub(crate) fn browser(&self) -> Browser<'_> {
        Browser::new(&self.installed.cluster, self.gateway)
    }

    pub(crate) fn browser_of(&self, user: &str) -> Browser<'_> {
        Browser::of_user(&self.installed.cluster, self.gateway, user)
    }

    /// The output of a command in the container of the ratings, a client inside the mesh.
    pub(crate) fn inside(&self, command: &[&str]) -> String {
        let exec = ["exec", "deployment/ratings-v1", "-c", "ratings", "--"];
        self.kubectl().run(&[&exec[..], command].concat()).unwrap()
    }

    /// Adds a step in which each of some pages shows the same, without a delay.
    pub(crate) fn all_show(
        &mut self,
        task: &'static str,
        step: (&str, &str),
        pages: &[Page],
        reviews: Reviews,
    ) {
        let holds = pages
            .iter()
            .all(|page| page.shows(reviews) && page.time < SLOW);
        self.findings.add(task, step, summary(pages), holds);
    }

    /// Adds a step in which a page shows something after a time.
    pub(crate) fn shows_after(
        &mut self,
        task: &'static str,
        step: (&str, &str),
        page: &Page,
        (reviews, from, to): (Reviews, f64, f64),
    ) {
        let within =
            (Duration::from_secs_f64(from)..Duration::from_secs_f64(to)).contains(&page.time);
        self.findings
            .add(task, step, page.to_string(), page.shows(reviews) && within);
    }

    /// Istio's resources have no field without effect.
    pub(crate) fn resources_are_accepted(&mut self) {
        let kinds = "destinationrules.networking.istio.io,virtualservices.networking.istio.io";
        let found = self
            .kubectl()
            .json(&["get", kinds, "--all-namespaces"])
            .unwrap();
        let resources = found["items"].as_array().unwrap();
        let accepted = |one: &&Value| one["status"]["conditions"][0]["reason"] == "Accepted";
        let count = resources.iter().filter(accepted).count();
        let seen = format!("{count} of {} have the reason `Accepted`", resources.len());
        let step = (
            "status of DestinationRules and VirtualServices",
            "all fields are in force",
        );
        let holds = count == resources.len() && count > 0;
        self.findings.add("-", step, seen, holds);
    }

    /// Prints all findings, and stops the cluster.
    pub(crate) fn finish(self) {
        self.findings.finish();
        self.installed.stop();
    }

    /// The steps that show that the application runs.
    fn is_there(&mut self) {
        const TASK: &str = "examples/bookinfo";
        let started = within(START, "the page has reviews and details", || {
            let pages = self.browser().pages(6);
            pages.iter().all(Page::is_whole)
        });
        assert!(started, "see the logs of the pods");
        let pods = self
            .kubectl()
            .json(&["get", "pods", "-l", "version"])
            .unwrap();
        let pods = pods["items"].as_array().unwrap();
        let injected =
            |pod: &&Value| pod["metadata"]["annotations"]["maglor.dev/injected"] == "true";
        let injected = pods.iter().filter(injected).count();
        let step = (
            "`platform/kube/bookinfo.yaml`",
            "6 pods, each with a sidecar",
        );
        let seen = format!("{} pods, {injected} with a sidecar", pods.len());
        self.findings
            .add(TASK, step, seen, pods.len() == 6 && injected == 6);

        let body = self.inside(&["curl", "-sS", "productpage:9080/productpage"]);
        let title = "<title>Simple Bookstore App</title>";
        let step = (
            "`curl productpage:9080/productpage` in the ratings' container",
            "the title of the page",
        );
        let seen = format!("{} bytes, title: {}", body.len(), body.contains(title));
        self.findings.add(TASK, step, seen, body.contains(title));

        let other = self.browser().get("");
        let step = (
            "`gateway-api/bookinfo-gateway.yaml`, path `/`",
            "no route of the gateway: 404",
        );
        self.findings
            .add(TASK, step, other.to_string(), other.status == Some(404));
    }
}

/// How many pages show what, and their longest time.
fn summary(pages: &[Page]) -> String {
    let mut counts = BTreeMap::new();
    for page in pages {
        let details = if page.details { "" } else { " without details" };
        let status = page.status.filter(|status| *status != 200);
        let status = status.map_or(String::new(), |status| format!(" ({status})"));
        *counts
            .entry(format!("{}{details}{status}", page.reviews))
            .or_insert(0) += 1;
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    let longest = pages.iter().map(|page| page.time).max().unwrap_or_default();
    format!(
        "{}; at most {:.2} s",
        counts.join(", "),
        longest.as_secs_f64()
    )
}

/// Waits until a change has reached the proxies. If that takes too long, the step that follows shows the difference.
pub(crate) fn settle(what: &str, holds: impl FnMut() -> bool) {
    within(PROPAGATION, what, holds);
}

/// Waits for a condition; whether it holds within the limit.
fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > limit {
            println!("{what}: not within {limit:?}");
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{what} after {:?}", begun.elapsed());
    true
}

fn holds(resource: &Value, kind: &str, status: &str) -> bool {
    let conditions = resource["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == status)
}

/// The addresses of pods that do not end.
pub(crate) fn addresses(kubectl: &Kubectl, selector: &str) -> Vec<Ipv4Addr> {
    let pods = kubectl.json(&["get", "pods", "-l", selector]).unwrap();
    let pods = pods["items"].as_array().unwrap().iter();
    let lasting = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let address = |pod: &Value| pod["status"]["podIP"].as_str()?.parse().ok();
    lasting.filter_map(address).collect()
}

/// Waits until all pods of the application are ready.
pub(crate) fn rolled_out(kubectl: &Kubectl) {
    for name in [
        "details-v1",
        "ratings-v1",
        "reviews-v1",
        "reviews-v2",
        "reviews-v3",
        "productpage-v1",
    ] {
        let deployment = format!("deployment/{name}");
        if let Err(error) = kubectl.run(&["rollout", "status", &deployment, "--timeout=180s"]) {
            let pods = kubectl.run(&["describe", "pods"]).unwrap_or_default();
            panic!("{error}\n{pods}");
        }
    }
}
