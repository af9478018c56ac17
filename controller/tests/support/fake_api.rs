//! As much of an API server as a controller needs to serve: objects in memory, lists, watches, merges, finalizers. It
//! records requests, and fails those that a test chooses. Without schemas, permissions and garbage collection.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

use super::api_port;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The path of definitions of kinds.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Changes that a watch may be behind.
const BEHIND: usize = 4096;

/// A resource without its name: group and version, namespace, plural.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Collection {
    api: String,
    namespace: Option<String>,
    plural: String,
}

impl Collection {
    pub(crate) fn new(api: &str, namespace: Option<&str>, plural: &str) -> Self {
        Self {
            api: api.to_owned(),
            namespace: namespace.map(str::to_owned),
            plural: plural.to_owned(),
        }
    }

    /// Whether a list or watch of `self` includes objects of `other`.
    fn includes(&self, other: &Self) -> bool {
        let same = (&self.api, &self.plural) == (&other.api, &other.plural);
        same && (self.namespace.is_none() || self.namespace == other.namespace)
    }
}

#[derive(Clone, Debug)]
struct Change {
    collection: Collection,
    kind: &'static str,
    before: Option<Value>,
    object: Value,
}

/// The format of a patch.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Patched {
    Applied,
    /// Lists are merged by the names of their items.
    ByName,
    Merged,
}

/// The selectors of a list or a watch.
#[derive(Clone, Default)]
struct Selector {
    name: Option<String>,
    /// Labels, with their values where these are selected.
    labels: Vec<(String, Option<String>)>,
}

impl Selector {
    fn read(query: &str) -> Self {
        let mut selector = Self::default();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_encoding::percent_decode_str(value);
            let value = value.decode_utf8_lossy().into_owned();
            match name {
                "fieldSelector" => {
                    selector.name = value.strip_prefix("metadata.name=").map(str::to_owned);
                }
                "labelSelector" => {
                    let labels = value.split(',').map(|label| match label.split_once('=') {
                        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                        None => (label.to_owned(), None),
                    });
                    selector.labels = labels.collect();
                }
                _ => {}
            }
        }
        selector
    }

    fn selects(&self, object: &Value) -> bool {
        let meta = &object["metadata"];
        let mut labels = self.labels.iter();
        let has = |(name, wanted): &(String, Option<String>)| {
            let label = meta["labels"][name].as_str();
            label.is_some_and(|label| wanted.as_ref().is_none_or(|wanted| label == wanted))
        };
        self.name.as_ref().is_none_or(|name| meta["name"] == **name) && labels.all(has)
    }
}

struct State {
    objects: BTreeMap<(Collection, String), Value>,
    version: u64,
    changes: broadcast::Sender<Change>,
    /// `METHOD path` of all requests but watches.
    requests: Vec<String>,
    /// Beginnings of requests that fail next, with the status and how often.
    failures: Vec<(String, u16, u32)>,
    /// Collections that are not defined.
    undefined: BTreeSet<String>,
}

/// A server on a port of its own; it ends with the process.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

/// A path: `/api/v1/…` or `/apis/GROUP/VERSION/…`.
struct Target {
    collection: Collection,
    name: Option<String>,
    subresource: Option<String>,
}

impl Target {
    fn read(path: &str) -> Option<Self> {
        let mut parts = path.trim_start_matches('/').split('/');
        let api = match parts.next()? {
            "api" => format!("api/{}", parts.next()?),
            "apis" => format!("apis/{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let text = |at: usize| rest.get(at).map(|text| (*text).to_owned());
        Some(Self {
            collection: Collection::new(&api, namespace, rest.first()?),
            name: text(1),
            subresource: text(2),
        })
    }
}

impl FakeApi {
    /// Starts a server with a port.
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let api = Self::at(listener.local_addr().unwrap());
        let served = api.clone();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let answer = move |request| {
                    let api = served.clone();
                    async move { api.answer(request).await }
                };
                api_port::serve(listener, answer).await;
            });
        });
        api
    }

    /// Returns a server without a port: requests of its [`FakeApi::client`] are answered in the caller's runtime,
    /// whose clock may stand still.
    pub(crate) fn within() -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn at(address: SocketAddr) -> Self {
        Self {
            address,
            state: Arc::new(Mutex::new(State {
                objects: BTreeMap::new(),
                version: 1,
                changes: broadcast::channel(BEHIND).0,
                requests: Vec::new(),
                failures: Vec::new(),
                undefined: BTreeSet::new(),
            })),
        }
    }

    /// Returns a client without a connection.
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let answer = move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        };
        kube::Client::new(tower::service_fn(answer), "default")
    }

    /// Takes the requests so far, without watches.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    /// Takes those of the requests so far that change something.
    pub(crate) fn writes(&self) -> Vec<String> {
        let mut requests = self.requests();
        requests.retain(|request| !request.starts_with("GET "));
        requests
    }

    /// Returns the paths of all writes so far, in order, without those of statuses and events.
    pub(crate) fn written(&self) -> Vec<String> {
        let state = self.state();
        let writes = state
            .requests
            .iter()
            .filter_map(|request| request.split_once(' '));
        let writes = writes.filter(|(method, path)| {
            *method != "GET" && !path.ends_with("/status") && !path.ends_with("/events")
        });
        writes.map(|(_, path)| path.to_owned()).collect()
    }

    /// Puts an object at its path in place of another one.
    pub(crate) fn put_at(&self, path: &str, object: Value) {
        let target = Target::read(path).unwrap();
        self.put(&target.collection, &target.name.unwrap(), object);
    }

    /// Returns the object at a path.
    pub(crate) fn get_at(&self, path: &str) -> Option<Value> {
        let target = Target::read(path).unwrap();
        self.get(&target.collection, &target.name.unwrap())
    }

    /// Deletes the object at a path.
    pub(crate) fn delete_at(&self, path: &str) {
        let target = Target::read(path).unwrap();
        self.delete(&target.collection, &target.name.unwrap());
    }

    /// Fails the next requests that begin with `METHOD path`.
    pub(crate) fn fail(&self, begin: &str, code: u16, times: u32) {
        self.state().failures.push((begin.to_owned(), code, times));
    }

    /// Answers all requests from now on.
    pub(crate) fn recover(&self) {
        self.state().failures.clear();
    }

    /// Ends all watches: what has happened since their last events is not known any more.
    pub(crate) fn expire(&self) {
        self.state().changes = broadcast::channel(BEHIND).0;
    }

    /// Removes a kind, or defines it again, by the name of its definition, `gateways.gateway.networking.k8s.io`.
    pub(crate) fn define(&self, definition: &str, defined: bool) {
        let plural = definition.split('.').next().unwrap();
        let path = format!("{DEFINITIONS}/{definition}");
        match defined {
            true => {
                self.state().undefined.remove(plural);
                let established = json!({"type": "Established", "status": "True"});
                self.put_at(&path, json!({"spec": {"group": "", "names": {"kind": "", "plural": plural}, "scope": "Namespaced", "versions": []}, "status": {"acceptedNames": {"kind": "", "plural": plural}, "conditions": [established], "storedVersions": []}}));
            }
            false => {
                self.state().undefined.insert(plural.to_owned());
                self.delete_at(&path);
            }
        }
    }

    /// Returns an object.
    pub(crate) fn get(&self, collection: &Collection, name: &str) -> Option<Value> {
        let key = (collection.clone(), name.to_owned());
        self.state().objects.get(&key).cloned()
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&self) {
        let mut changes = self.state().changes.subscribe();
        let _ = changes.recv().await;
    }

    /// Waits until a condition holds; it is evaluated after each change.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changes = self.state().changes.subscribe();
        let wait = async {
            while !holds(self) {
                if changes.recv().await.is_err() {
                    changes = self.state().changes.subscribe();
                }
            }
        };
        let limit = std::time::Duration::from_secs(120);
        let reached = tokio::time::timeout(limit, wait).await;
        assert!(reached.is_ok(), "{what}: {:#?}", self.state().requests);
    }

    /// Writes a kubeconfig that leads to it.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        api_port::write_kubeconfig(path, self.address);
    }

    /// Objects of a collection, by name.
    pub(crate) fn list(&self, collection: &Collection) -> Vec<(String, Value)> {
        let state = self.state();
        let found = state.objects.iter();
        let found = found.filter(|((one, _), _)| collection.includes(one));
        found
            .map(|((_, name), object)| (name.clone(), object.clone()))
            .collect()
    }

    /// Returns all objects, by path.
    pub(crate) fn all(&self) -> Vec<(String, Value)> {
        let state = self.state();
        let path = |((collection, name), object): (&(Collection, String), &Value)| {
            let namespace = collection.namespace.as_ref();
            let namespace = namespace.map(|name| format!("/namespaces/{name}"));
            let (api, within) = (&collection.api, namespace.unwrap_or_default());
            let path = format!("/{api}{within}/{}/{name}", collection.plural);
            (path, object.clone())
        };
        state.objects.iter().map(path).collect()
    }

    /// Puts an object in place of another one of its name.
    pub(crate) fn put(&self, collection: &Collection, name: &str, object: Value) {
        self.state().put(collection, name, object);
    }

    pub(crate) fn delete(&self, collection: &Collection, name: &str) {
        self.state().delete(collection, name);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Error: std::fmt::Debug>,
    {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = head.uri.query().unwrap_or_default();
        let Some(target) = Target::read(head.uri.path()) else {
            return failure(403);
        };
        let selector = Selector::read(query);
        let watches = query.contains("watch=true");
        let mut state = self.state();
        let said = format!("{} {}", head.method, head.uri.path());
        if let Some(code) = state.failure(&said) {
            return failure(code);
        }
        if state.undefined.contains(&target.collection.plural) {
            return failure(404);
        }
        if watches {
            return state.watch(target.collection, selector);
        }
        state.requests.push(said);
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let format = head.headers.get(http::header::CONTENT_TYPE);
        let format = format.and_then(|format| format.to_str().ok());
        let patched = match format.unwrap_or_default() {
            "application/apply-patch+yaml" => Patched::Applied,
            "application/strategic-merge-patch+json" => Patched::ByName,
            _ => Patched::Merged,
        };
        state.answer(&head.method, target, (body, patched), &selector)
    }
}

impl State {
    fn failure(&mut self, request: &str) -> Option<u16> {
        let mut failures = self.failures.iter_mut();
        let (_, code, times) =
            failures.find(|(begin, _, times)| *times > 0 && request.starts_with(begin.as_str()))?;
        *times -= 1;
        Some(*code)
    }

    /// Changes from now on. Between a list and its watch none is lost: a watch begins with all that there is.
    fn watch(&self, collection: Collection, selector: Selector) -> Response<Body> {
        let is_wanted = move |one: &Collection, object: &Value| {
            collection.includes(one) && selector.selects(object)
        };
        let present = self.objects.iter();
        let present = present.filter(|((one, _), object)| is_wanted(one, object));
        let lines: Vec<_> = present
            .map(|(_, object)| line("MODIFIED", object))
            .collect();
        let changes = self.changes.subscribe();
        let begin = futures_util::stream::iter(lines);
        let stream = futures_util::stream::unfold(
            (Some(changes), is_wanted),
            |(changes, is_wanted)| async move {
                let mut changes = changes?;
                loop {
                    let Ok(change) = changes.recv().await else {
                        let gone = json!({"kind": "Status", "code": 410, "reason": "Expired",
                                          "message": "too old resource version"});
                        return Some((line("ERROR", &gone), (None, is_wanted)));
                    };
                    let is = |object: &Value| is_wanted(&change.collection, object);
                    let was = change.before.as_ref().is_some_and(is);
                    // An object that is not selected any more is deleted for this watch.
                    let kind = match (was, is(&change.object)) {
                        (_, true) => change.kind,
                        (true, false) => "DELETED",
                        (false, false) => continue,
                    };
                    return Some((line(kind, &change.object), (Some(changes), is_wanted)));
                }
            },
        );
        let stream = futures_util::StreamExt::chain(begin, stream);
        let frames = futures_util::StreamExt::map(stream, |line| {
            Ok::<_, Infallible>(Frame::data(Bytes::from(line)))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn put(&mut self, collection: &Collection, name: &str, mut object: Value) -> Value {
        self.version += 1;
        let meta = &mut object["metadata"];
        meta["name"] = name.into();
        meta["resourceVersion"] = self.version.to_string().into();
        if let Some(namespace) = &collection.namespace {
            meta["namespace"] = namespace.as_str().into();
        }
        if meta["uid"].is_null() {
            meta["uid"] = format!("uid-{}", self.version).into();
        }
        let key = (collection.clone(), name.to_owned());
        let before = self.objects.get(&key);
        let generation =
            before.map_or(0, |one| one["metadata"]["generation"].as_u64().unwrap_or(0));
        let same = before.is_some_and(|before| before["spec"] == object["spec"]);
        object["metadata"]["generation"] = (generation + u64::from(!same)).into();
        let before = self.objects.insert(key, object.clone());
        let kind = before.as_ref().map_or("ADDED", |_| "MODIFIED");
        self.notify(collection, kind, before, &object);
        object
    }

    /// Deletes an object, or marks it as deleted if it has finalizers.
    fn end(&mut self, collection: &Collection, name: &str, mut there: Value) -> Value {
        let meta = &mut there["metadata"];
        if meta["finalizers"].as_array().is_none_or(Vec::is_empty) {
            drop(self.delete(collection, name));
            return there;
        }
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        self.put(collection, name, there)
    }

    /// Writes an object, and deletes it if that waits for no finalizer any more.
    fn write(&mut self, collection: &Collection, name: &str, object: Value) -> Response<Body> {
        let written = self.put(collection, name, object);
        let meta = &written["metadata"];
        let held = meta["finalizers"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        if !meta["deletionTimestamp"].is_null() && !held {
            drop(self.delete(collection, name));
        }
        answer(200, &written)
    }

    fn delete(&mut self, collection: &Collection, name: &str) -> Option<Value> {
        let removed = self
            .objects
            .remove(&(collection.clone(), name.to_owned()))?;
        self.notify(collection, "DELETED", None, &removed);
        Some(removed)
    }

    fn notify(
        &self,
        collection: &Collection,
        kind: &'static str,
        before: Option<Value>,
        object: &Value,
    ) {
        let _ = self.changes.send(Change {
            collection: collection.clone(),
            kind,
            before,
            object: object.clone(),
        });
    }

    fn answer(
        &mut self,
        method: &Method,
        target: Target,
        (body, patched): (Value, Patched),
        selector: &Selector,
    ) -> Response<Body> {
        let collection = target.collection;
        let Some(name) = target.name else {
            return match *method {
                Method::GET => self.list(&collection, selector),
                Method::POST => self.create(&collection, body),
                _ => failure(405),
            };
        };
        let key = (collection.clone(), name.clone());
        let there = self.objects.get(&key).cloned();
        // Of a deletion or an eviction these are preconditions.
        let seen = match body["deleteOptions"].is_object() {
            true => &body["deleteOptions"]["preconditions"],
            false if body["preconditions"].is_object() => &body["preconditions"],
            false => &body["metadata"],
        };
        let is_behind = |there: &Value| {
            let differs =
                |name: &str| !seen[name].is_null() && seen[name] != there["metadata"][name];
            differs("uid") || differs("resourceVersion")
        };
        match (method.clone(), there) {
            (Method::GET, Some(there)) => answer(200, &there),
            (_, Some(there)) if is_behind(&there) => failure(409),
            (Method::PATCH, None) if !seen["resourceVersion"].is_null() => failure(409),
            (Method::PATCH, None) if patched != Patched::Applied => failure(404),
            (Method::DELETE, Some(there)) => answer(200, &self.end(&collection, &name, there)),
            (Method::PUT, Some(mut there)) => {
                match target.subresource {
                    // Of these only the status is taken.
                    Some(_) => there["status"] = body["status"].clone(),
                    None => there = body,
                }
                self.write(&collection, &name, there)
            }
            (Method::PATCH, there) => {
                let mut object = there.unwrap_or_default();
                if target.subresource.is_some() {
                    // An apply replaces the status.
                    object["status"] = body["status"].clone();
                } else {
                    if body["kind"] == "TrafficPolicy" {
                        // Its only writer applies all of it.
                        object["spec"] = Value::Null;
                        object["metadata"]["annotations"] = Value::Null;
                    }
                    merge(&mut object, &body, patched);
                }
                self.write(&collection, &name, object)
            }
            (Method::POST, Some(there)) if target.subresource.as_deref() == Some("eviction") => {
                self.delete(&collection, &name);
                answer(201, &there)
            }
            _ => failure(404),
        }
    }

    fn list(&self, collection: &Collection, selector: &Selector) -> Response<Body> {
        let found = self.objects.iter();
        let found =
            found.filter(|((one, _), object)| collection.includes(one) && selector.selects(object));
        let items: Vec<_> = found.map(|(_, object)| object).collect();
        let version = self.version.to_string();
        answer(
            200,
            &json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    fn create(&mut self, collection: &Collection, body: Value) -> Response<Body> {
        let meta = &body["metadata"];
        let name = match meta["generateName"].as_str() {
            Some(start) => format!("{start}{}", self.version),
            None => meta["name"].as_str().unwrap_or("unnamed").to_owned(),
        };
        let key = (collection.clone(), name.clone());
        match self.objects.contains_key(&key) {
            true => failure(409),
            false => answer(201, &self.put(collection, &name, body)),
        }
    }
}

/// RFC 7396, or with lists merged by name.
fn merge(into: &mut Value, patch: &Value, patched: Patched) {
    if let (Value::Array(own), Value::Array(others), Patched::ByName) = (&mut *into, patch, patched)
    {
        for other in others {
            match own.iter_mut().find(|one| one["name"] == other["name"]) {
                Some(one) => merge(one, other, patched),
                None => own.push(other.clone()),
            }
        }
        return;
    }
    let Value::Object(patch) = patch else {
        return *into = patch.clone();
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in patch {
        match value.is_null() {
            true => drop(into.as_object_mut().unwrap().remove(name)),
            false => merge(&mut into[name], value, patched),
        }
    }
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn answer(code: u16, object: &Value) -> Response<Body> {
    let mut response = Response::new(Full::from(object.to_string()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn failure(code: u16) -> Response<Body> {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Fake",
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": reason, "message": format!("status {code}"), "metadata": {},
    });
    answer(code, &status)
}
