//! A fake API server with the functions that the operator uses: lists, patches of three kinds, deletions; events are
//! dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::crd::definitions;

/// The objects, by path.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: BTreeMap<String, Value>,
    version: u64,
    /// Number of further patches of Deployments that fail with a conflict.
    pub(super) conflicts: u32,
    /// Paths that were written, in order.
    pub(super) written: Vec<String>,
}

/// A server on a port of its own.
#[derive(Clone, Debug)]
pub(super) struct Api {
    objects: Arc<Mutex<Objects>>,
    address: SocketAddr,
}

/// RFC 7396, with lists merged by name, like Kubernetes merges containers.
fn merge(into: &mut Value, patch: &Value) {
    match (&mut *into, patch) {
        (Value::Array(own), Value::Array(others)) => {
            for other in others {
                match own.iter_mut().find(|one| one["name"] == other["name"]) {
                    Some(one) => merge(one, other),
                    None => own.push(other.clone()),
                }
            }
        }
        (_, Value::Object(patch)) => {
            if !into.is_object() {
                *into = json!({});
            }
            for (name, value) in patch {
                if value.is_null() {
                    into.as_object_mut().unwrap().remove(name);
                } else {
                    merge(&mut into[name], value);
                }
            }
        }
        _ => *into = patch.clone(),
    }
}

/// Whether the definition of `TrafficPolicy` has all fields of a `spec`.
fn declares(spec: &Value) -> bool {
    fn has(schema: &Value, value: &Value) -> bool {
        match (value, &schema["properties"]) {
            (Value::Object(fields), Value::Object(known)) => fields
                .iter()
                .all(|(name, value)| known.get(name).is_some_and(|schema| has(schema, value))),
            (Value::Array(items), _) => items.iter().all(|item| has(&schema["items"], item)),
            (value, _) => !value.is_null(),
        }
    }
    let definitions = definitions().unwrap();
    let mut definitions = definitions.iter();
    let of_kind = definitions
        .find(|one| one.spec.names.kind == "TrafficPolicy")
        .unwrap();
    let schema = of_kind.spec.versions[0].schema.as_ref().unwrap();
    let schema = json!(schema.open_api_v3_schema);
    has(&schema["properties"]["spec"], spec)
}

impl Objects {
    pub(super) fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.all.insert(path.to_owned(), object);
    }

    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.all.get(path)
    }

    pub(super) fn remove(&mut self, path: &str) -> Option<Value> {
        self.all.remove(path)
    }

    /// Objects of a collection.
    pub(super) fn list(&self, path: &str) -> Vec<Value> {
        let all_namespaces = path.ends_with("/tuningpolicies") && !path.contains("/namespaces/");
        let own = self.all.iter().filter(|(one, _)| match all_namespaces {
            true => one.contains("/tuningpolicies/"),
            false => one.strip_prefix(path).is_some_and(|rest| {
                rest.strip_prefix('/')
                    .is_some_and(|name| !name.contains('/'))
            }),
        });
        own.map(|(_, object)| object.clone()).collect()
    }

    fn patch(&mut self, path: &str, kind: &str, patch: &Value) -> (StatusCode, Value) {
        let of_status = path.strip_suffix("/status");
        let path = of_status.unwrap_or(path);
        let known = self.all.get(path).cloned();
        let applied = kind.starts_with("application/apply-patch");
        let Some(mut object) =
            known.or_else(|| (applied && of_status.is_none()).then(|| json!({})))
        else {
            return (StatusCode::NOT_FOUND, json!({}));
        };
        let seen = &patch["metadata"]["resourceVersion"];
        let stale = !seen.is_null() && *seen != object["metadata"]["resourceVersion"];
        if stale {
            return (StatusCode::CONFLICT, json!({}));
        }
        if of_status.is_some() {
            object["status"] = patch["status"].clone();
        } else if applied && !declares(&patch["spec"]) {
            // In the format of a real API server.
            return (StatusCode::INTERNAL_SERVER_ERROR, json!({}));
        } else if applied {
            // There are no other field owners here.
            for (name, value) in patch["metadata"].as_object().into_iter().flatten() {
                object["metadata"][name] = value.clone();
            }
            if patch["metadata"]["annotations"].is_null() {
                object["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("annotations");
            }
            object["spec"] = patch["spec"].clone();
        } else {
            if seen.is_null() || self.conflicts > 0 {
                self.conflicts = self.conflicts.saturating_sub(1);
                return (StatusCode::CONFLICT, json!({}));
            }
            let before = object["spec"].clone();
            merge(&mut object, patch);
            if before != object["spec"] {
                let generation = object["metadata"]["generation"].as_u64().unwrap_or(0);
                object["metadata"]["generation"] = json!(generation + 1);
            }
        }
        if of_status.is_none() {
            self.written.push(path.to_owned());
        }
        self.put(path, object);
        (StatusCode::OK, self.all[path].clone())
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        match *method {
            Method::GET if path.ends_with("/verticalpodautoscalers") => {
                (StatusCode::NOT_FOUND, json!({}))
            }
            Method::GET => match self.all.get(path) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => {
                    let items = self.list(path);
                    let list =
                        json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
                    (StatusCode::OK, list)
                }
            },
            Method::PATCH => self.patch(path, kind, body),
            Method::DELETE => {
                self.written.push(path.to_owned());
                match self.remove(path) {
                    Some(object) => (StatusCode::OK, object),
                    None => (StatusCode::NOT_FOUND, json!({})),
                }
            }
            _ => (StatusCode::CREATED, body.clone()),
        }
    }
}

/// A Kubernetes error status.
fn failure(status: StatusCode) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
           "message": status.to_string(), "reason": ""})
}

async fn serve(
    request: Request<Incoming>,
    objects: Arc<Mutex<Objects>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let kind = head.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, answer) = objects.answer(&head.method, head.uri.path(), kind, &body);
    let answer = match status.is_success() {
        true => answer,
        false => failure(status),
    };
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(answer.to_string()));
    Ok(response.unwrap())
}

impl Api {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = Self {
            objects: Arc::default(),
            address: listener.local_addr().unwrap(),
        };
        let objects = Arc::clone(&api.objects);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let objects = Arc::clone(&objects);
                let service = service_fn(move |request| serve(request, Arc::clone(&objects)));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        api
    }

    pub(super) fn client(&self) -> Client {
        let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    pub(super) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
