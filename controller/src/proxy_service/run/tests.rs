//! Tests of the operator on the reconcile kernel, with a fake API server and the other controllers of a cluster. The
//! clock only advances when nothing else is left to do: a reaction that needs no timer takes no time.

use kube::core::Status;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::fake_api::FakeApi;
use crate::graph::Settings as GraphSettings;
use crate::graph::replicas::Connector;
use crate::proxy_service::LABEL;
use crate::reconcile::Cache;
use crate::reconcile::stops::{Stop, at_each_write, state};

/// Maximum time from a watch event to the reaction.
const REACTION: Duration = Duration::from_millis(100);
const CLAIM: &str = "/apis/maglor.dev/v1alpha1/namespaces/shop/proxyservices/web";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web-proxy-service";
const POD: &str = "/api/v1/namespaces/shop/pods/web-proxy-service-1";
const SERVICE: &str = "/api/v1/namespaces/shop/services/web";
const TARGET: &str = "/api/v1/namespaces/shop/services/web-target";
const OWN: &str = "10.0.0.1";
const PROXY: &str = "10.0.0.9";

fn slice(service: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/{service}-1")
}

/// Simulates the controllers of Deployments and endpoints. Requests are never sent to a proxy without a target.
fn cluster(api: &FakeApi) {
    let set = |path: &str, wanted: Option<Value>| {
        let there = api.get_at(path);
        let part = |one: &Value| [one["endpoints"].clone(), one["status"].clone()];
        match wanted {
            Some(wanted) if there.as_ref().map(part) != Some(part(&wanted)) => {
                api.put_at(path, wanted);
            }
            None if there.is_some() => api.delete_at(path),
            _ => {}
        }
    };
    let endpoints = |service: &str, address: &str| {
        let labels = json!({"kubernetes.io/service-name": service});
        let endpoint = json!({"addresses": [address], "conditions": {"ready": true}});
        json!({"metadata": {"labels": labels}, "addressType": "IPv4", "ports": [],
               "endpoints": [endpoint]})
    };
    let deployment = api.get_at(DEPLOYMENT);
    let made = deployment.map(|mut deployment| {
        let generation = deployment["metadata"]["generation"].clone();
        deployment["status"] = json!({"observedGeneration": generation, "replicas": 1,
            "updatedReplicas": 1, "availableReplicas": 1});
        set(DEPLOYMENT, Some(deployment.clone()));
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let ready = json!([{"type": "Ready", "status": "True"}]);
        json!({"metadata": {"labels": labels}, "spec": {"containers": []},
               "status": {"podIPs": [{"ip": PROXY}], "conditions": ready}})
    });
    set(POD, made);
    let target = api.get_at(TARGET).is_some();
    set(
        &slice("web-target"),
        target.then(|| endpoints("web-target", OWN)),
    );
    assert_eq!(without_path(api), None);
    let address = if is_proxied(api) { PROXY } else { OWN };
    set(&slice("web"), Some(endpoints("web", address)));
}

fn is_proxied(api: &FakeApi) -> bool {
    api.get_at(SERVICE).unwrap()["spec"]["selector"]["app"] == "web.proxy"
}

/// Whenever the Service selects its proxies, they are available and have endpoints to send requests to.
fn without_path(api: &FakeApi) -> Option<String> {
    let [deployment, target, slice] =
        [DEPLOYMENT, TARGET, &slice("web-target")].map(|path| api.get_at(path).unwrap_or_default());
    let available = deployment["status"]["availableReplicas"].as_u64();
    let has_path = available.is_some_and(|count| count > 0)
        && target["spec"]["selector"] == json!({"app": "web"})
        && slice["endpoints"][0]["addresses"][0] == OWN;
    (is_proxied(api) && !has_path).then(|| format!("no path: {deployment} {target} {slice}"))
}

struct Fixture {
    api: FakeApi,
    cluster: JoinHandle<()>,
    operator: JoinHandle<()>,
    term: watch::Sender<Term>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.cluster.abort();
        self.operator.abort();
    }
}

fn operator(api: &FakeApi, term: &watch::Sender<Term>, stop: &Arc<Stop>) -> JoinHandle<()> {
    let term = term.subscribe();
    let options = Options {
        client: stop.client(api),
        root: "maglor".to_owned(),
        replicas: Replicas {
            pods: Cache::empty(),
            replica: "a".to_owned(),
            connector: Connector { port: 1, tls: None },
        },
        graphs: Arc::new(Graphs::new(GraphSettings::default())),
        table: Table::new(false),
        settings: Settings::default(),
        inserts: Scope::Everywhere,
        limits: Limits::default(),
    };
    stop.run(move || {
        let (options, term) = (options.clone(), term.clone());
        async move { reconcile::run(term, |watches| Operator::new(options.clone(), watches)).await }
    })
}

impl Fixture {
    fn start() -> Self {
        Self::with(&Stop::never())
    }

    fn with(stop: &Arc<Stop>) -> Self {
        let api = FakeApi::within();
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "name": "http",
            "protocol": "TCP", "targetPort": 8080}], "type": "ClusterIP", "clusterIP": "10.1.0.1"});
        api.put_at(
            SERVICE,
            json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}),
        );
        let others = api.clone();
        let others = tokio::spawn(async move {
            loop {
                cluster(&others);
                others.changed().await;
            }
        });
        let term = watch::Sender::new(Term::held());
        Self {
            operator: operator(&api, &term, stop),
            cluster: others,
            term,
            api,
        }
    }

    fn claim(&self) {
        let spec = json!({"targetRef": {"name": "web"}});
        self.api.put_at(CLAIM, json!({"spec": spec}));
    }

    async fn unclaim(&self) {
        let kind = crate::proxy_service::kind::Kind::ProxyService.resource();
        let api: kube::Api<kube::api::DynamicObject> =
            kube::Api::namespaced_with(self.api.client(), "shop", &kind);
        drop(
            api.delete("web", &kube::api::DeleteParams::default())
                .await
                .unwrap(),
        );
    }

    async fn inserted(&self) {
        let inserted = |api: &FakeApi| {
            let claim = api.get_at(CLAIM).unwrap();
            let slice = api.get_at(&slice("web")).unwrap_or_default();
            let ready = claim["status"]["conditions"][1]["reason"] == "Inserted";
            ready && slice["endpoints"][0]["addresses"][0] == PROXY
        };
        self.api.until("proxies are inserted", inserted).await;
    }

    /// Waits until nothing is left to do, and returns the state.
    async fn settled(&self) -> Value {
        sleep(Duration::from_secs(60)).await;
        state(&self.api)
    }

    async fn withdrawn(&self) {
        let withdrawn = |api: &FakeApi| {
            let gone = [CLAIM, TARGET, DEPLOYMENT, POD];
            gone.iter().all(|path| api.get_at(path).is_none())
        };
        self.api.until("proxies are withdrawn", withdrawn).await;
        let service = self.api.get_at(SERVICE).unwrap();
        let meta = &service["metadata"];
        assert_eq!(service["spec"]["selector"], json!({"app": "web"}));
        assert!(
            meta["annotations"].is_null() && meta["labels"][LABEL].is_null(),
            "{meta}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn proxies_come_and_go_without_a_timer_and_then_nothing_is_asked() {
    let fixture = Fixture::start();
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    fixture.claim();
    fixture.inserted().await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
    sleep(Duration::from_secs(1)).await;
    fixture.api.requests();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), [""; 0], "nothing is polled");
    // A change by another client is reverted immediately after the event.
    let mut target = fixture.api.get_at(TARGET).unwrap();
    target["spec"]["ports"][0]["targetPort"] = json!(1);
    fixture.api.put_at(TARGET, target);
    let reverted =
        |api: &FakeApi| api.get_at(TARGET).unwrap()["spec"]["ports"][0]["targetPort"] == 8080;
    fixture.api.until("it is reverted", reverted).await;
    let begun = Instant::now();
    fixture.unclaim().await;
    fixture.withdrawn().await;
    assert!(begun.elapsed() <= REACTION * 2, "{:?}", begun.elapsed());
    sleep(Duration::from_secs(1)).await;
    fixture.api.requests();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), [""; 0], "nothing is polled");
}

/// The operator ends at each of its writes, and another one starts, while proxies come, change and go. Requests never
/// lose their path.
#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_loses_nothing() {
    at_each_write(without_path, async |stop| {
        let fixture = Fixture::with(&stop);
        let mut states = Vec::new();
        fixture.claim();
        fixture.inserted().await;
        states.push(fixture.settled().await);
        let mut service = fixture.api.get_at(SERVICE).unwrap();
        service["spec"]["ports"][0]["targetPort"] = json!(9090);
        fixture.api.put_at(SERVICE, service);
        states.push(fixture.settled().await);
        let mut claim = fixture.api.get_at(CLAIM).unwrap();
        claim["spec"]["autoscaling"] = json!({"maxReplicas": 3});
        fixture.api.put_at(CLAIM, claim);
        states.push(fixture.settled().await);
        fixture.unclaim().await;
        fixture.withdrawn().await;
        states.push(fixture.settled().await);
        states
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_failures_are_retried() {
    let fixture = Fixture::start();
    for (begin, code) in [
        ("PATCH /api/v1/namespaces/shop/services/web-target", 503),
        ("PATCH /apis/apps/v1/namespaces/shop/deployments", 409),
        ("GET /api/v1/namespaces/shop/pods", 503),
        ("PATCH /api/v1/namespaces/shop/services/web", 409),
    ] {
        fixture.api.fail(begin, code, 2);
    }
    fixture.claim();
    fixture.inserted().await;
    // The status reports permanent rejections.
    fixture.api.fail("PUT ", 403, 3);
    fixture.unclaim().await;
    let is_reported = |api: &FakeApi| {
        let claim = api.get_at(CLAIM).unwrap();
        claim["status"]["conditions"][1]["reason"] == "Rejected"
    };
    fixture
        .api
        .until("the status reports it", is_reported)
        .await;
    fixture.withdrawn().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_term_nothing_is_written_and_the_next_one_continues() {
    let fixture = Fixture::start();
    fixture.claim();
    fixture
        .api
        .until("it begins", |api| !api.written().is_empty())
        .await;
    fixture.term.send_replace(Term::default());
    sleep(Duration::from_secs(1)).await;
    fixture.api.requests();
    fixture.unclaim().await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), ["DELETE ".to_owned() + CLAIM]);
    fixture.term.send_replace(Term::held());
    fixture.withdrawn().await;
}

#[test]
fn what_an_api_server_does_not_take_is_said() {
    let deployment = json!({"kind": "Deployment", "metadata": {"name": "web-proxy-service"}});
    let step = Step::Apply(Box::new(deployment));
    let answer = |code, said: &str| {
        let status = Status::failure(said, "").with_code(code);
        rejection(&step, &kube::Error::Api(status.boxed()))
    };
    let quota = answer(403, "exceeded quota");
    let expected = "Deployment web-proxy-service: exceeded quota";
    assert_eq!(quota.as_deref(), Some(expected));
    assert!(answer(422, &"x".repeat(9000)).unwrap().len() < 600);
    // These errors are temporary.
    assert_eq!(
        [429, 500, 504].map(|code| answer(code, "later")),
        [const { None }; 3]
    );
}
