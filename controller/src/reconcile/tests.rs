//! Tests of the reconciliation loop with a fake API server. The clock only advances when nothing else is left to do.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

use super::cache::key;
use super::*;
use crate::fake_api::{Collection, FakeApi};
use crate::index::facts::Key;

/// Reconciled units with the value of their object at this time; "list" stands for a complete list.
type Seen = Arc<Mutex<Vec<String>>>;

/// An operator that records the units which it reconciles; it fails and pauses as the objects specify.
struct Recorder {
    seen: Seen,
    maps: Cache<ConfigMap>,
    failures: u32,
    _watches: Watches<Key>,
}

impl Reconciler for Recorder {
    type Unit = Key;

    const NAME: &'static str = "test";

    async fn reconcile(&mut self, unit: &Key) -> Result<Again, kube::Error> {
        let object = self.maps.get(unit);
        let field = |name: &str| {
            let data = object.as_ref().and_then(|one| one.data.as_ref());
            data.and_then(|data| data.get(name))
                .cloned()
                .unwrap_or_default()
        };
        let said = format!("{}={}", unit.name, field("value"));
        self.seen.lock().unwrap().push(said);
        if field("value") == "fails" && self.failures < 3 {
            self.failures += 1;
            let status = kube::core::Status::failure("later", "").with_code(503);
            return Err(kube::Error::Api(status.boxed()));
        }
        Ok(field("again").parse().ok().map(Duration::from_secs))
    }
}

fn maps() -> Collection {
    Collection::new("api/v1", Some("shop"), "configmaps")
}

struct Fixture {
    api: FakeApi,
    seen: Seen,
    term: watch::Sender<Term>,
    task: JoinHandle<()>,
}

impl Fixture {
    fn start(api: FakeApi) -> Self {
        let (client, seen) = (api.client(), Seen::default());
        let (term, watched) = watch::channel(Term::held());
        let recorded = Arc::clone(&seen);
        let begin = move |watches: Watches<Key>| {
            let wanted = Watch::<ConfigMap>::new(vec![Api::all(client.clone())]);
            // The object that another one names is reconciled.
            let unit = |map: &ConfigMap| {
                let other = map.labels().get("of").cloned();
                let other = other.map(|name| Key::new("shop", &name));
                vec![other.unwrap_or_else(|| key(map))]
            };
            Recorder {
                seen: Arc::clone(&recorded),
                maps: watches.open(wanted, unit, || vec![Key::new("", "list")]),
                failures: 0,
                _watches: watches,
            }
        };
        let task = tokio::spawn(run(watched, begin));
        Self {
            api,
            seen,
            term,
            task,
        }
    }

    fn put(&self, name: &str, value: &str) {
        let object = json!({"data": {"value": value}});
        self.api.put(&maps(), name, object);
    }

    /// Takes what was reconciled, sorted, when nothing is left to do at this time.
    async fn taken(&self) -> Vec<String> {
        self.after(Duration::from_millis(10)).await
    }

    async fn after(&self, time: Duration) -> Vec<String> {
        sleep(time).await;
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        seen.sort();
        seen
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_reconciled_at_once_and_once() {
    let api = FakeApi::within();
    api.put(&maps(), "a", json!({"data": {"value": "1"}}));
    let fixture = Fixture::start(api);
    assert_eq!(fixture.taken().await, ["a=1", "list="]);
    fixture.put("a", "2");
    fixture.put("a", "3");
    assert_eq!(fixture.taken().await, ["a=3"]);
    fixture.api.delete(&maps(), "a");
    assert_eq!(fixture.taken().await, ["a="], "a unit needs no object");
    fixture.api.requests();
    assert_eq!(fixture.after(Duration::from_secs(3600)).await, [""; 0]);
    assert_eq!(fixture.api.requests(), [""; 0], "nothing is polled");
}

#[tokio::test(start_paused = true)]
async fn an_object_concerns_what_it_names_and_what_it_named_before() {
    let fixture = Fixture::start(FakeApi::within());
    let named = |name: &str| json!({"metadata": {"labels": {"of": name}}});
    fixture.api.put(&maps(), "a", named("x"));
    assert_eq!(fixture.taken().await, ["list=", "x="]);
    fixture.api.put(&maps(), "a", named("y"));
    assert_eq!(fixture.taken().await, ["x=", "y="]);
}

#[tokio::test(start_paused = true)]
async fn only_what_differs_is_reconciled_after_a_watch_was_lost() {
    let fixture = Fixture::start(FakeApi::within());
    for name in ["a", "b", "c"] {
        fixture.put(name, "1");
    }
    fixture.taken().await;
    // 410: changes since the last event are unknown, so all objects are listed again.
    fixture.api.fail("GET /api/v1/configmaps", 503, 2);
    fixture.api.expire();
    fixture.put("b", "2");
    fixture.api.delete(&maps(), "c");
    let seen = fixture.after(MOST_REST).await;
    assert_eq!(seen, ["b=2", "c=", "list="]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_defined_has_no_objects_until_it_is() {
    let api = FakeApi::within();
    api.define("configmaps.", false);
    let fixture = Fixture::start(api);
    assert_eq!(fixture.taken().await, ["list="]);
    fixture.put("a", "1");
    assert_eq!(fixture.after(MOST_REST).await, [""; 0]);
    fixture.api.define("configmaps.", true);
    let seen = fixture.after(Duration::from_millis(100)).await;
    assert_eq!(seen, ["a=1", "list="]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_retried_with_back_off_and_a_pause_is_kept() {
    let fixture = Fixture::start(FakeApi::within());
    fixture.taken().await;
    fixture.put("a", "fails");
    assert_eq!(fixture.taken().await, ["a=fails"]);
    assert_eq!(fixture.after(REST).await, ["a=fails"]);
    assert_eq!(
        fixture.after(REST).await,
        [""; 0],
        "the next pause is longer"
    );
    assert_eq!(fixture.after(REST * 10).await, ["a=fails"; 2]);
    assert_eq!(fixture.after(MOST_REST * 10).await, [""; 0]);
    let object = json!({"data": {"value": "b", "again": "60"}});
    fixture.api.put(&maps(), "b", object);
    assert_eq!(fixture.taken().await, ["b=b"]);
    assert_eq!(fixture.after(Duration::from_secs(61)).await, ["b=b"]);
    // An event comes first, and the pause starts again.
    let object = json!({"data": {"value": "c", "again": "60"}});
    fixture.api.put(&maps(), "b", object);
    assert_eq!(fixture.after(Duration::from_secs(59)).await, ["b=c"]);
    assert_eq!(fixture.after(Duration::from_secs(2)).await, ["b=c"]);
}

#[tokio::test(start_paused = true)]
async fn each_term_begins_with_all_objects_and_none_is_seen_without_one() {
    let fixture = Fixture::start(FakeApi::within());
    fixture.put("a", "1");
    fixture.taken().await;
    fixture.term.send_replace(Term::default());
    fixture.put("a", "2");
    assert_eq!(fixture.after(Duration::from_secs(60)).await, [""; 0]);
    fixture.term.send_replace(Term::of_seconds(60));
    assert_eq!(fixture.taken().await, ["a=2", "list="]);
    // A term that is not renewed ends by itself.
    fixture.after(Duration::from_secs(60)).await;
    fixture.put("a", "3");
    assert_eq!(fixture.after(Duration::from_secs(60)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_the_lists_are_complete() {
    let api = FakeApi::within();
    api.fail("GET /api/v1/configmaps", 503, 2);
    let fixture = Fixture::start(api);
    fixture.put("a", "1");
    assert_eq!(fixture.taken().await, [""; 0]);
    assert_eq!(fixture.after(MOST_REST).await, ["a=1", "list="]);
}
