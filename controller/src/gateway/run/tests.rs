//! Tests of the operator on the reconcile kernel, with a fake API server. Its clock only advances when nothing else is
//! left to do: a reaction that needs no timer takes no time.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::fake_api::{Collection, FakeApi};
use crate::reconcile::stops::{Stop, at_each_write, state};

/// Maximum time from a watch event to the reaction.
const REACTION: Duration = Duration::from_millis(100);

fn of(api: &str, plural: &str) -> Collection {
    Collection::new(api, Some("edge"), plural)
}

fn classes() -> Collection {
    Collection::new("apis/gateway.networking.k8s.io/v1", None, "gatewayclasses")
}

fn gateways() -> Collection {
    of("apis/gateway.networking.k8s.io/v1", "gateways")
}

fn made() -> [Collection; 4] {
    [
        of("api/v1", "serviceaccounts"),
        of("apis/apps/v1", "deployments"),
        of("api/v1", "services"),
        of("apis/policy/v1", "poddisruptionbudgets"),
    ]
}

/// The operator, its API server, and its term.
struct Fixture {
    api: FakeApi,
    term: watch::Sender<Term>,
    task: JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fixture {
    fn start(api: FakeApi) -> Self {
        Self::with(api, &Stop::never())
    }

    fn with(api: FakeApi, stop: &Arc<Stop>) -> Self {
        let client = stop.client(&api);
        let (term, watched) = watch::channel(Term::held());
        let options = Options {
            scope: Scope::Everywhere,
            service_type: "ClusterIP".to_owned(),
            ..Options::default()
        };
        let events = Events::new(api.client(), "maglor.dev/gateway", "test");
        let task = stop.run(move || {
            let (client, options, events) = (client.clone(), options.clone(), events.clone());
            let begin = move |watches| {
                Operator::new(client.clone(), options.clone(), events.clone(), &watches)
            };
            reconcile::run(watched.clone(), begin)
        });
        Self { api, term, task }
    }

    fn put(&self, name: &str, class: &str, port: u16) {
        let listener = json!({"name": "http", "port": port, "protocol": "HTTP"});
        let spec = json!({"gatewayClassName": class, "listeners": [listener]});
        self.api.put(
            &gateways(),
            name,
            json!({"metadata": {"uid": name}, "spec": spec}),
        );
    }

    fn names(&self) -> Vec<String> {
        let all = made();
        let all = all.iter().flat_map(|kind| self.api.list(kind));
        all.map(|(name, _)| name).collect()
    }

    fn port(&self, name: &str) -> Value {
        let service = self.api.get(&made()[2], name).unwrap_or_default();
        service["spec"]["ports"][0]["port"].clone()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        self.api.until(what, |_| holds(self)).await;
    }

    /// Waits until the operator is done.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.api.requests();
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_gets_its_objects_without_a_timer_and_then_nothing_is_asked() {
    let fixture = Fixture::start(FakeApi::within());
    let class = |fixture: &Fixture| fixture.api.get(&classes(), CLASS).is_some();
    fixture.until("the class is made", class).await;
    let begun = Instant::now();
    fixture.put("web", CLASS, 80);
    fixture
        .until("it has objects", |fixture| fixture.names().len() == 4)
        .await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
    fixture.settle().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), [""; 0], "nothing is polled");
    let begun = Instant::now();
    fixture.put("web", CLASS, 81);
    fixture
        .until("it has another port", |fixture| {
            fixture.port("web-maglor") == 81
        })
        .await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
    fixture.settle().await;
    // A change by another client is reverted by one write, immediately after the event.
    let services = &made()[2];
    let mut service = fixture.api.get(services, "web-maglor").unwrap();
    service["spec"]["ports"] = json!([]);
    fixture.api.put(services, "web-maglor", service);
    fixture
        .until("it is as applied", |fixture| {
            fixture.port("web-maglor") == 81
        })
        .await;
    fixture.settle().await;
    // A deletion is reverted, too.
    fixture.api.delete(&made()[3], "web-maglor");
    fixture
        .until("it is there again", |fixture| fixture.names().len() == 4)
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_one_gateway_keeps_no_other_from_its_proxies() {
    let api = FakeApi::within();
    api.fail(
        "PATCH /api/v1/namespaces/edge/services/a.web-maglor",
        422,
        u32::MAX,
    );
    let broken = "PATCH /api/v1/namespaces/edge/serviceaccounts/broken-maglor";
    api.fail(broken, 500, 3);
    let fixture = Fixture::start(api);
    for name in ["a.web", "broken", "web"] {
        fixture.put(name, CLASS, 80);
    }
    let mut expected = vec![
        "a.web-maglor",
        "web-maglor",
        "a.web-maglor",
        "web-maglor",
        "web-maglor",
        "a.web-maglor",
        "web-maglor",
    ];
    fixture
        .until("others have objects", |fixture| fixture.names() == expected)
        .await;
    // A failure is retried with back-off; a rejection is retried rarely.
    let begun = Instant::now();
    for at in [1, 4, 7, 10] {
        expected.insert(at, "broken-maglor");
    }
    expected.sort();
    let sorted = |fixture: &Fixture| {
        let mut names = fixture.names();
        names.sort();
        names
    };
    fixture
        .until("it is retried", |fixture| sorted(fixture).len() == 11)
        .await;
    assert_eq!(sorted(&fixture), expected);
    assert!(begun.elapsed() < REJECTED, "{:?}", begun.elapsed());
    fixture.settle().await;
    tokio::time::sleep(REJECTED * 10).await;
    let writes = fixture.api.writes();
    assert!(
        writes
            .iter()
            .all(|write| !write.contains("/broken-") && !write.contains("/web-"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_client_is_left_alone() {
    let api = FakeApi::within();
    let theirs = json!({"metadata": {"labels": {"app": "theirs"}}, "spec": {"type": "NodePort"}});
    api.put(&made()[2], "web-maglor", theirs);
    let fixture = Fixture::start(api);
    fixture.put("web", CLASS, 80);
    fixture
        .until("the others are made", |fixture| fixture.names().len() == 4)
        .await;
    fixture.settle().await;
    assert_eq!(fixture.port("web-maglor"), Value::Null);
    fixture.api.delete(&made()[2], "web-maglor");
    fixture
        .until("it is ours", |fixture| fixture.port("web-maglor") == 80)
        .await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_former_class_go_when_the_new_ones_serve() {
    let fixture = Fixture::start(FakeApi::within());
    let spec = json!({"spec": {"controllerName": GATEWAY_CONTROLLER}});
    fixture.api.put(&classes(), "ours", spec);
    fixture.put("web", CLASS, 80);
    fixture
        .until("it has objects", |fixture| fixture.names().len() == 4)
        .await;
    fixture.put("web", "ours", 80);
    fixture
        .until("it has two", |fixture| fixture.names().len() == 8)
        .await;
    let mut deployment = fixture.api.get(&made()[1], "web-ours").unwrap();
    deployment["status"] = json!({"availableReplicas": 1});
    let begun = Instant::now();
    fixture.api.put(&made()[1], "web-ours", deployment);
    fixture
        .until("the old ones go", |fixture| {
            fixture.names() == ["web-ours"; 4]
        })
        .await;
    assert!(begun.elapsed() <= REACTION, "{:?}", begun.elapsed());
}

/// An operator ends with its term, and the next term starts with the existing state.
#[tokio::test(start_paused = true)]
async fn another_term_continues_where_one_has_ended() {
    let api = FakeApi::within();
    let made_next = "POST /apis/apps/v1/namespaces/edge/deployments";
    api.fail(made_next, 503, u32::MAX);
    let fixture = Fixture::start(api);
    fixture.put("web", CLASS, 80);
    let account = |fixture: &Fixture| fixture.names() == ["web-maglor"];
    fixture.until("the first object is made", account).await;
    fixture.term.send_replace(Term::default());
    fixture.settle().await;
    fixture.api.recover();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.api.requests(), [""; 0]);
    assert!(account(&fixture), "{:?}", fixture.names());
    fixture.term.send_replace(Term::held());
    let whole = |fixture: &Fixture| fixture.names().len() == 4;
    fixture.until("the rest is made", whole).await;
}

/// The operator ends at each of its writes, and another one starts, while a Gateway comes, changes and gets another
/// class. Until the proxies of the new class serve, those of the former one do.
#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_write_loses_nothing() {
    let unserved = |api: &FakeApi| {
        let serves = |class: &str| {
            let deployment = api.get(&made()[1], &format!("web-{class}"));
            let available = deployment.unwrap_or_default()["status"]["availableReplicas"].clone();
            available == 1 && api.get(&made()[2], &format!("web-{class}")).is_some()
        };
        let begun = api
            .get(&gateways(), "web")
            .is_some_and(|one| one["metadata"]["labels"] == json!({"serves": ""}));
        (begun && !serves(CLASS) && !serves("ours")).then(|| "no proxies serve".to_owned())
    };
    at_each_write(unserved, async |stop| {
        let fixture = Fixture::with(FakeApi::within(), &stop);
        let spec = json!({"spec": {"controllerName": GATEWAY_CONTROLLER}});
        fixture.api.put(&classes(), "ours", spec);
        let mut states = Vec::new();
        for (class, port) in [(CLASS, 80), (CLASS, 81), ("ours", 81)] {
            fixture.put("web", class, port);
            if !states.is_empty() {
                let mut gateway = fixture.api.get(&gateways(), "web").unwrap();
                gateway["metadata"]["labels"] = json!({"serves": ""});
                fixture.api.put(&gateways(), "web", gateway);
            }
            fixture.settle().await;
            // The proxies become available.
            let name = format!("web-{class}");
            let mut deployment = fixture.api.get(&made()[1], &name).unwrap();
            deployment["status"] = json!({"availableReplicas": 1});
            fixture.api.put(&made()[1], &name, deployment);
            fixture.settle().await;
            states.push(state(&fixture.api));
        }
        assert_eq!(fixture.names(), ["web-ours"; 4]);
        states
    })
    .await;
}
