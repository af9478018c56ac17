//! Stops an operator at one of its writes, for tests: nothing of it runs after that point, as after a crash.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::fake_api::FakeApi;

/// When an operator is stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum When {
    /// The API server does not receive the write.
    Before,
    /// The write is made, and its response is lost.
    After,
}

/// A point at which the operators of a scenario are stopped, once.
pub(crate) struct Stop {
    /// The number of the write; `None` if no operator is stopped.
    at: Option<(usize, When)>,
    writes: AtomicUsize,
    reached: watch::Sender<bool>,
    check: Check,
    problems: Mutex<Vec<String>>,
}

/// Returns what is wrong with a state that may exist between two writes.
pub(crate) type Check = fn(&FakeApi) -> Option<String>;

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.at).finish()
    }
}

impl Stop {
    fn new(at: Option<(usize, When)>, check: Check) -> Arc<Self> {
        Arc::new(Self {
            at,
            writes: AtomicUsize::new(0),
            reached: watch::Sender::new(false),
            check,
            problems: Mutex::default(),
        })
    }

    /// A point that is never reached.
    pub(crate) fn never() -> Arc<Self> {
        Self::new(None, |_| None)
    }

    /// Returns a client whose writes are counted. After each of them the state is checked; the write at which the
    /// operator is stopped is never answered.
    pub(crate) fn client(self: &Arc<Self>, api: &FakeApi) -> kube::Client {
        let (stop, api) = (Arc::clone(self), api.clone());
        let send = move |request: Request<Body>| {
            let (stop, api) = (Arc::clone(&stop), api.clone());
            async move {
                let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
                let number = match is_write {
                    true => stop.writes.fetch_add(1, Ordering::Relaxed),
                    false => usize::MAX,
                };
                let stopped = stop.at.filter(|(at, _)| *at == number);
                if let Some((_, When::Before)) = stopped {
                    return stop.end().await;
                }
                let answer = api.client().send(request).await;
                if is_write {
                    let problem = (stop.check)(&api);
                    stop.problems.lock().unwrap().extend(problem);
                }
                match stopped {
                    Some(_) => stop.end().await,
                    None => answer,
                }
            }
        };
        kube::Client::new(tower::service_fn(send), "default")
    }

    async fn end<T>(&self) -> T {
        self.reached.send_replace(true);
        std::future::pending().await
    }

    /// Waits until the point is reached.
    pub(crate) async fn reached(&self) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as this borrow.
        let _ = reached.wait_for(|reached| *reached).await;
    }

    /// Runs an operator until it is stopped, and then another one.
    pub(crate) fn run<F>(
        self: &Arc<Self>,
        operator: impl Fn() -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                () = operator() => {}
                () = stop.reached() => {}
            }
            operator().await;
        })
    }
}

/// Runs a scenario without a stop, then with one at each of its writes, before and after it. The results, which are
/// states of the API server, must be the same. `check` is evaluated after each write.
pub(crate) async fn at_each_write<F>(check: Check, scenario: impl Fn(Arc<Stop>) -> F)
where
    F: Future<Output = Vec<Value>>,
{
    let undisturbed = Stop::new(None, check);
    let expected = scenario(Arc::clone(&undisturbed)).await;
    let writes = undisturbed.writes.load(Ordering::Relaxed);
    assert!(writes > 0, "nothing is written");
    assert_eq!(*undisturbed.problems.lock().unwrap(), [""; 0]);
    println!("stopped at each of {writes} writes");
    for at in 0..writes {
        for when in [When::Before, When::After] {
            let stop = Stop::new(Some((at, when)), check);
            let result = scenario(Arc::clone(&stop)).await;
            assert!(
                *stop.reached.borrow(),
                "{stop:?} of {writes} is not reached"
            );
            let problems = stop.problems.lock().unwrap();
            assert_eq!(*problems, [""; 0], "{stop:?} of {writes}");
            assert_eq!(result, expected, "{stop:?} of {writes}");
        }
    }
}

/// Returns all objects of an API server except events, by path, without what identifies a version of an object and
/// without times.
pub(crate) fn state(api: &FakeApi) -> Value {
    let objects = api.all();
    let objects = objects
        .into_iter()
        .filter(|(path, _)| !path.contains("/events/"));
    let bare = objects.map(|(path, object)| (path, without_versions(object)));
    json!(bare.collect::<serde_json::Map<_, _>>())
}

fn without_versions(value: Value) -> Value {
    const VERSIONS: [&str; 5] = [
        "generation",
        "lastTransitionTime",
        "observedGeneration",
        "resourceVersion",
        "uid",
    ];
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter();
            let kept = kept.filter(|(name, _)| !VERSIONS.contains(&&**name));
            Value::Object(
                kept.map(|(name, value)| (name, without_versions(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_versions).collect(),
        other => other,
    }
}
