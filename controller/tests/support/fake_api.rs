//! As much of an API server as a controller needs to serve: objects in memory, lists, watches, merges. Without
//! schemas, permissions and garbage collection.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

type Body = UnsyncBoxBody<Bytes, Infallible>;

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
    object: Value,
}

struct State {
    objects: BTreeMap<(Collection, String), Value>,
    version: u64,
    changes: broadcast::Sender<Change>,
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
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let api = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(Mutex::new(State {
                objects: BTreeMap::new(),
                version: 1,
                changes: broadcast::channel(BEHIND).0,
            })),
        };
        let served = api.clone();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(served.serve(listener));
        });
        api
    }

    /// Writes a kubeconfig that leads to it.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        let server = format!("http://{}", self.address);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        std::fs::write(path, text.to_string()).unwrap();
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

    async fn serve(self, listener: std::net::TcpListener) {
        let listener = TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let api = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let api = api.clone();
                    async move { Ok::<_, Infallible>(api.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                let _ = connection.await;
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = head.uri.query().unwrap_or_default();
        let Some(target) = Target::read(head.uri.path()) else {
            return failure(403);
        };
        if query.contains("watch=true") {
            return self.watch(target.collection, named(query));
        }
        let body = serde_json::from_slice(&body).unwrap_or_default();
        self.state()
            .answer(&head.method, target, body, named(query).as_deref())
    }

    /// Changes from now on. Between a list and its watch none is lost: a watch begins with all that there is.
    fn watch(&self, collection: Collection, name: Option<String>) -> Response<Body> {
        let state = self.state();
        let is_wanted = move |one: &Collection, object: &Value| {
            collection.includes(one)
                && name
                    .as_ref()
                    .is_none_or(|name| object["metadata"]["name"] == **name)
        };
        let present = state.objects.iter();
        let present = present.filter(|((one, _), object)| is_wanted(one, object));
        let lines: Vec<_> = present
            .map(|(_, object)| line("MODIFIED", object))
            .collect();
        let changes = state.changes.subscribe();
        let begin = futures_util::stream::iter(lines);
        let stream = futures_util::stream::unfold(
            (changes, is_wanted),
            |(mut changes, is_wanted)| async move {
                loop {
                    let change = changes.recv().await.ok()?;
                    if is_wanted(&change.collection, &change.object) {
                        let line = line(change.kind, &change.object);
                        return Some((line, (changes, is_wanted)));
                    }
                }
            },
        );
        let stream = futures_util::StreamExt::chain(begin, stream);
        let frames = futures_util::StreamExt::map(stream, |line| {
            Ok::<_, Infallible>(Frame::data(Bytes::from(line)))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

impl State {
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
        let before = self.objects.insert(key, object.clone());
        self.notify(collection, before.map_or("ADDED", |_| "MODIFIED"), &object);
        object
    }

    fn delete(&mut self, collection: &Collection, name: &str) -> Option<Value> {
        let removed = self
            .objects
            .remove(&(collection.clone(), name.to_owned()))?;
        self.notify(collection, "DELETED", &removed);
        Some(removed)
    }

    fn notify(&self, collection: &Collection, kind: &'static str, object: &Value) {
        let _ = self.changes.send(Change {
            collection: collection.clone(),
            kind,
            object: object.clone(),
        });
    }

    fn answer(
        &mut self,
        method: &Method,
        target: Target,
        body: Value,
        only: Option<&str>,
    ) -> Response<Body> {
        let collection = target.collection;
        let Some(name) = target.name else {
            return match *method {
                Method::GET => self.list(&collection, only),
                Method::POST => self.create(&collection, body),
                _ => failure(405),
            };
        };
        let key = (collection.clone(), name.clone());
        let there = self.objects.get(&key).cloned();
        let version = &body["metadata"]["resourceVersion"];
        let is_behind =
            |there: &Value| !version.is_null() && *version != there["metadata"]["resourceVersion"];
        match (method.clone(), there) {
            (Method::GET, Some(there)) => answer(200, &there),
            (Method::DELETE, Some(_)) => match self.delete(&collection, &name) {
                Some(removed) => answer(200, &removed),
                None => failure(404),
            },
            (Method::PUT | Method::PATCH, Some(there)) if is_behind(&there) => failure(409),
            (Method::PUT, Some(mut there)) => {
                match target.subresource {
                    // Of these only the status is taken.
                    Some(_) => there["status"] = body["status"].clone(),
                    None => there = body,
                }
                answer(200, &self.put(&collection, &name, there))
            }
            (Method::PATCH, there) => {
                let mut object = there.unwrap_or_default();
                merge(&mut object, &body);
                answer(200, &self.put(&collection, &name, object))
            }
            _ => failure(404),
        }
    }

    fn list(&self, collection: &Collection, only: Option<&str>) -> Response<Body> {
        let found = self.objects.iter().filter(|((one, name), _)| {
            collection.includes(one) && only.is_none_or(|only| only == name)
        });
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

/// The name in a field selector.
fn named(query: &str) -> Option<String> {
    let (_, rest) = query.split_once("metadata.name%3D")?;
    Some(rest.split('&').next()?.to_owned())
}

/// RFC 7396.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        return *into = patch.clone();
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in patch {
        match value.is_null() {
            true => drop(into.as_object_mut().unwrap().remove(name)),
            false => merge(&mut into[name], value),
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
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": "Fake", "message": format!("status {code}"), "metadata": {},
    });
    answer(code, &status)
}
