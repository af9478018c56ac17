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
    let proxies = made.is_some();
    set(POD, made);
    let target = api.get_at(TARGET).is_some();
    set(
        &slice("web-target"),
        target.then(|| endpoints("web-target", OWN)),
    );
    let service = api.get_at(SERVICE).unwrap();
    let proxied = service["spec"]["selector"]["app"] == "web.proxy";
    assert!(!proxied || (proxies && target), "{service}");
    set(
        &slice("web"),
        Some(endpoints("web", if proxied { PROXY } else { OWN })),
    );
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

fn operator(api: &FakeApi, term: watch::Receiver<Term>) -> JoinHandle<()> {
    let options = Options {
        client: api.client(),
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
    let begin = move |watches| Operator::new(options.clone(), watches);
    tokio::spawn(async move { reconcile::run(term, begin).await })
}

impl Fixture {
    fn start() -> Self {
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
        let (term, watched) = watch::channel(Term::held());
        Self {
            operator: operator(&api, watched),
            cluster: others,
            term,
            api,
        }
    }

    /// Ends the operator at its current point and starts another one.
    fn crash(&mut self) {
        self.operator.abort();
        self.operator = operator(&self.api, self.term.subscribe());
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

/// The operator ends after each of its writes, and another one starts.
#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_loses_nothing() {
    for at in 1..12 {
        let mut fixture = Fixture::start();
        let begun = |api: &FakeApi| api.written().len() >= at;
        fixture.claim();
        fixture
            .api
            .until("writes", |api| begun(api) || done(api))
            .await;
        fixture.crash();
        fixture.inserted().await;
        fixture.api.requests();
        fixture.unclaim().await;
        let gone = |api: &FakeApi| api.get_at(CLAIM).is_none();
        fixture
            .api
            .until("writes", |api| begun(api) || gone(api))
            .await;
        fixture.crash();
        fixture.withdrawn().await;
    }
}

fn done(api: &FakeApi) -> bool {
    api.get_at(CLAIM)
        .is_some_and(|claim| claim["status"]["conditions"][1]["reason"] == "Inserted")
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
