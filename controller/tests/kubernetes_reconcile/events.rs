//! The events of watches, in the order in which they arrive.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_secs(60);
/// Time without an event after which what a change has caused is over.
const QUIET: Duration = Duration::from_millis(200);

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Instant,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) deleted: bool,
    pub(crate) object: Value,
}

impl Event {
    /// The revision of the change: all kinds are numbered by the same etcd.
    pub(crate) fn revision(&self) -> u64 {
        let version = self.object["metadata"]["resourceVersion"].as_str();
        version.unwrap().parse().unwrap()
    }

    pub(crate) fn is(&self, plural: &str, name: &str) -> bool {
        self.plural == plural && self.name == name
    }
}

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct Events {
    all: Arc<Mutex<Vec<Event>>>,
    count: watch::Sender<usize>,
}

impl Events {
    /// Watches all objects of these kinds.
    pub(crate) fn watch(client: &Client, kinds: &[ApiResource]) -> Self {
        let events = Self {
            all: Arc::default(),
            count: watch::Sender::new(0),
        };
        for kind in kinds {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
            tokio::spawn(events.clone().follow(api, kind.plural.clone()));
        }
        events
    }

    async fn follow(self, api: Api<DynamicObject>, plural: String) {
        let mut stream = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = stream.next().await {
            let (object, deleted) = match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    (object, false)
                }
                Ok(watcher::Event::Delete(object)) => (object, true),
                Ok(_) | Err(_) => continue,
            };
            let event = Event {
                at: Instant::now(),
                plural: plural.clone(),
                name: object.metadata.name.clone().unwrap_or_default(),
                deleted,
                object: serde_json::to_value(object).unwrap(),
            };
            let mut all = self.all.lock().unwrap();
            all.push(event);
            self.count.send_replace(all.len());
        }
    }

    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until nothing happens any more.
    pub(crate) async fn quiet(&self) {
        let mut count = usize::MAX;
        while count != self.count() {
            count = self.count();
            tokio::time::sleep(QUIET).await;
        }
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.all.lock().unwrap().clone()
    }

    /// Waits for an event since a number of events.
    pub(crate) async fn since(
        &self,
        count: usize,
        what: &str,
        wanted: impl Fn(&Event) -> bool,
    ) -> Event {
        let mut seen = self.count.subscribe();
        let mut next = count;
        let wait = async {
            loop {
                {
                    let all = self.all.lock().unwrap();
                    if let Some(found) = all.iter().skip(next).find(|event| wanted(event)) {
                        return found.clone();
                    }
                    next = all.len();
                }
                seen.wait_for(|count| *count > next).await.unwrap();
            }
        };
        let found = tokio::time::timeout(LIMIT, wait).await;
        found.unwrap_or_else(|_| panic!("{what}: no such event"))
    }
}
