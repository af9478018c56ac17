//! Watched objects in memory.

use std::collections::HashSet;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::api_server::is;
use crate::index::facts::Key;
use crate::missing_kind;

/// First pause after a failed watch. Each further failure doubles the pause.
const REST: Duration = Duration::from_millis(500);
/// Maximum pause while the API server fails, which is also the maximum delay until changes are noticed afterwards.
const MOST_REST: Duration = Duration::from_secs(4);

/// A kind whose objects can be watched.
pub(crate) trait Watched:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Specifies which objects of a kind are watched, and which of their fields are kept.
pub(crate) struct Watch<K: Watched> {
    apis: Vec<Api<K>>,
    kind: K::DynamicType,
    config: watcher::Config,
    keep: fn(&mut K),
    may_be_forbidden: bool,
}

impl<K: Watched> Watch<K> {
    /// Watches all objects of these clients, without the managers of their fields.
    pub(crate) fn new(apis: Vec<Api<K>>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::of(apis, K::DynamicType::default())
    }

    /// Like [`Watch::new`], for a kind that has no Rust type.
    pub(crate) fn of(apis: Vec<Api<K>>, kind: K::DynamicType) -> Self {
        Self {
            apis,
            kind,
            config: watcher::Config::default(),
            keep: |object| object.managed_fields_mut().clear(),
            may_be_forbidden: false,
        }
    }

    /// Restricts the watch to objects with these labels.
    pub(crate) fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Removes fields that are not needed, to save memory.
    pub(crate) fn keep(mut self, keep: fn(&mut K)) -> Self {
        self.keep = keep;
        self
    }

    /// Treats a kind that may not be read, such as one of an add-on, as not defined.
    pub(crate) fn may_be_forbidden(mut self) -> Self {
        self.may_be_forbidden = true;
        self
    }

    fn is_absent(&self, error: &watcher::Error) -> bool {
        match error {
            watcher::Error::InitialListFailed(error) => {
                is(error, 404) || (self.may_be_forbidden && is(error, 403))
            }
            _ => false,
        }
    }
}

/// Opens watches for an operator. A watch ends when its cache is dropped.
pub(crate) struct Watches<U> {
    heard: mpsc::UnboundedSender<U>,
    opened: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    /// Number of watches without a complete list.
    missing: watch::Sender<usize>,
}

impl<U: Send + 'static> Watches<U> {
    /// Returns the watches and the future that runs them.
    pub(super) fn new(
        heard: mpsc::UnboundedSender<U>,
    ) -> (Self, impl Future<Output = ()> + use<U>) {
        let (opened, mut begin) = mpsc::unbounded_channel();
        let watches = Self {
            heard,
            opened,
            missing: watch::Sender::new(0),
        };
        let followed = async move {
            let mut running = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some(one) = begin.recv() => running.push(one),
                    Some(()) = running.next() => {}
                    else => std::future::pending().await,
                }
            }
        };
        (watches, followed)
    }

    /// Waits until the caches of all watches opened so far are complete.
    pub(super) fn complete(&self) -> impl Future<Output = ()> + use<U> {
        let mut missing = self.missing.subscribe();
        async move {
            // An error means that all watches are closed.
            let _ = missing.wait_for(|missing| *missing == 0).await;
        }
    }

    /// Queues a unit, unless it is already queued.
    pub(crate) fn reconcile(&self, unit: U) {
        // The receiver ends with the operator.
        let _ = self.heard.send(unit);
    }

    /// Opens a watch of objects whose changes do not cause a reconciliation. The units of `listed` are reconciled
    /// after each complete list.
    pub(crate) fn hold<K: Watched>(
        &self,
        wanted: Watch<K>,
        listed: impl Fn() -> Vec<U> + Send + Sync + 'static,
    ) -> Cache<K> {
        self.open(wanted, |_| Vec::new(), listed)
    }

    /// Opens a watch. `units` returns the units that an object affects; when an object changes, it is called with the
    /// old and the new version. The units of `listed` are reconciled after each complete list.
    pub(crate) fn open<K: Watched>(
        &self,
        wanted: Watch<K>,
        units: impl Fn(&K) -> Vec<U> + Send + Sync + 'static,
        listed: impl Fn() -> Vec<U> + Send + Sync + 'static,
    ) -> Cache<K> {
        let wanted = Arc::new(wanted);
        let concern = Arc::new((units, listed));
        let mut cache = Cache {
            stores: Vec::new(),
            kind: wanted.kind.clone(),
            open: Arc::default(),
        };
        let mut ends = Vec::new();
        for api in wanted.apis.clone() {
            let writer = Writer::new(wanted.kind.clone());
            cache.stores.push(writer.as_reader());
            let (wanted, concern) = (Arc::clone(&wanted), Arc::clone(&concern));
            let (heard, missing) = (self.heard.clone(), self.missing.clone());
            missing.send_modify(|missing| *missing += 1);
            let followed = async move {
                let notify = |touched: &[&K], complete: bool| {
                    let units = touched.iter().flat_map(|object| concern.0(object));
                    let listed = complete.then(|| concern.1()).into_iter().flatten();
                    // The receiver ends with the operator.
                    units.chain(listed).for_each(|unit| drop(heard.send(unit)));
                };
                let follower = Follower {
                    wanted: &wanted,
                    store: writer.as_reader(),
                    writer,
                    missing: &missing,
                    complete: false,
                    notify,
                };
                follow(follower, api).await;
            };
            let (end, ended) = AbortHandle::new_pair();
            ends.push(End(end));
            let followed = Abortable::new(followed, ended).map(drop);
            // The receiver ends with the operator.
            let _ = self.opened.send(followed.boxed());
        }
        cache.open = Arc::new(ends);
        cache
    }
}

/// Ends a watch on drop.
#[derive(Debug)]
struct End(AbortHandle);

impl Drop for End {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a cache up to date.
async fn follow<K: Watched>(mut follower: Follower<'_, K, impl Fn(&[&K], bool)>, api: Api<K>) {
    let client = api.clone().into_client();
    let mut stream = pin!(watcher(api, follower.wanted.config.clone()));
    let mut rest = REST;
    while let Some(event) = stream.next().await {
        let error = match event {
            Ok(event) => {
                // A list that has begun may fail, too.
                if !matches!(event, Event::Init) {
                    rest = REST;
                }
                follower.take(&kept(event, follower.wanted.keep));
                continue;
            }
            Err(error) => error,
        };
        let kind = K::kind(&follower.wanted.kind).into_owned();
        if follower.wanted.is_absent(&error) {
            if !follower.complete {
                tracing::debug!(kind, "kind is not served; retrying");
                follower.take(&Event::Init);
                follower.take(&Event::InitDone);
            }
            let (plural, group) = (
                K::plural(&follower.wanted.kind),
                K::group(&follower.wanted.kind),
            );
            missing_kind::wait(client.clone(), &format!("{plural}.{group}")).await;
        } else {
            tracing::debug!(kind, %error, "watch failed; retrying");
            sleep(rest).await;
            rest = (rest * 2).min(MOST_REST);
        }
    }
}

/// A cache, and the function that is notified of its changes.
struct Follower<'a, K: Watched, N> {
    wanted: &'a Watch<K>,
    writer: Writer<K>,
    store: Store<K>,
    missing: &'a watch::Sender<usize>,
    complete: bool,
    notify: N,
}

impl<K: Watched, N: Fn(&[&K], bool)> Follower<'_, K, N> {
    /// Applies an event, and then notifies of the changed objects.
    fn take(&mut self, event: &Event<K>) {
        let before = match event {
            Event::Apply(object) | Event::Delete(object) => {
                let object = ObjectRef::from_obj_with(object, self.wanted.kind.clone());
                self.store.get(&object).into_iter().collect()
            }
            Event::InitDone => self.store.state(),
            Event::Init | Event::InitApply(_) => Vec::new(),
        };
        self.writer.apply_watcher_event(event);
        let before: Vec<&K> = before.iter().map(|one| &**one).collect();
        match event {
            Event::Apply(object) => {
                let known = before.first();
                if known.is_none_or(|known| version(*known) != version(object)) {
                    (self.notify)(&[&before[..], &[object]].concat(), false);
                }
            }
            Event::Delete(object) => (self.notify)(&[&before[..], &[object]].concat(), false),
            Event::InitDone => {
                let after = self.store.state();
                let after: Vec<&K> = after.iter().map(|one| &**one).collect();
                (self.notify)(&differing(&before, &after), true);
                if !std::mem::replace(&mut self.complete, true) {
                    self.missing.send_modify(|missing| *missing -= 1);
                }
            }
            Event::Init | Event::InitApply(_) => {}
        }
    }
}

fn kept<K>(mut event: Event<K>, keep: fn(&mut K)) -> Event<K> {
    if let Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) = &mut event {
        keep(object);
    }
    event
}

fn version<K: Resource>(object: &K) -> Option<&String> {
    object.meta().resource_version.as_ref()
}

/// Returns the old and new versions of the objects that differ between two lists.
fn differing<'a, K: Resource>(before: &[&'a K], after: &[&'a K]) -> Vec<&'a K> {
    let identity = |one: &&'a K| (one.meta().uid.as_ref(), version(*one));
    let of = |objects: &[&'a K]| -> HashSet<_> { objects.iter().map(identity).collect() };
    let (old, new) = (of(before), of(after));
    let gone = before.iter().filter(|one| !new.contains(&identity(one)));
    let come = after.iter().filter(|one| !old.contains(&identity(one)));
    gone.chain(come).copied().collect()
}

/// The objects of a watch, as of the last event.
#[derive(Clone, Debug)]
pub(crate) struct Cache<K: Watched> {
    stores: Vec<Store<K>>,
    kind: K::DynamicType,
    open: Arc<Vec<End>>,
}

/// Returns watches that run until the task is aborted, and the units that they queue; for tests of operators without
/// a queue.
#[cfg(test)]
pub(crate) fn driven<U: Send + 'static>() -> (
    Watches<U>,
    mpsc::UnboundedReceiver<U>,
    tokio::task::JoinHandle<()>,
) {
    let (heard, units) = mpsc::unbounded_channel();
    let (watches, followed) = Watches::new(heard);
    (watches, units, tokio::spawn(followed))
}

/// Opens a watch outside of an operator. The returned future keeps the cache up to date.
pub(crate) fn alone<K: Watched>(wanted: Watch<K>) -> (Cache<K>, impl Future<Output = ()> + use<K>) {
    let (heard, _) = mpsc::unbounded_channel::<()>();
    let (watches, followed) = Watches::new(heard);
    let cache = watches.open(wanted, |_| Vec::new(), Vec::new);
    (cache, followed)
}

impl<K: Watched> Cache<K> {
    /// Returns a cache without a watch, for tests.
    #[cfg(test)]
    pub(crate) fn empty() -> Self
    where
        K::DynamicType: Default,
    {
        alone(Watch::new(Vec::new())).0
    }

    /// Returns whether all objects were listed.
    pub(crate) fn is_complete(&self) -> bool {
        let complete = |store: &Store<K>| store.wait_until_ready().now_or_never().is_some();
        self.stores.iter().all(complete)
    }

    /// Returns an object; `None` if there is none with this key.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        let mut object = ObjectRef::new_with(&key.name, self.kind.clone());
        if !key.namespace.is_empty() {
            object = object.within(&key.namespace);
        }
        self.stores.iter().find_map(|store| store.get(&object))
    }

    /// Returns the objects for which `wanted` is true.
    pub(crate) fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let stores = self.stores.iter();
        stores
            .flat_map(|store| store.state_filter(&wanted))
            .collect()
    }

    /// Returns all objects as JSON.
    pub(crate) fn json(&self) -> Vec<Value>
    where
        K: Serialize,
    {
        self.values(&|_| true)
    }

    /// Returns all objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.stores.iter().flat_map(Store::state).collect()
    }
}

/// A cache of any kind whose objects are read as JSON.
pub(crate) trait Lookup: Send + Sync {
    /// Returns an object; `None` if there is none with this key.
    fn value(&self, key: &Key) -> Option<Value>;

    /// Returns the objects for which `wanted` is true.
    fn values(&self, wanted: &dyn Fn(&ObjectMeta) -> bool) -> Vec<Value>;
}

impl<K: Watched + Serialize> Lookup for Cache<K> {
    fn value(&self, key: &Key) -> Option<Value> {
        serde_json::to_value(&*self.get(key)?).ok()
    }

    fn values(&self, wanted: &dyn Fn(&ObjectMeta) -> bool) -> Vec<Value> {
        let found = self.filter(|object| wanted(object.meta()));
        let values = found.iter().map(|one| serde_json::to_value(&**one));
        values.filter_map(Result::ok).collect()
    }
}

/// Returns the namespace and name of an object.
pub(crate) fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Key::new(&text(&meta.namespace), &text(&meta.name))
}
