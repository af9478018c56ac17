//! Tests of the operator with a fake API server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Config;
use tokio::net::TcpListener;

use super::*;

/// Accepted writes by path, with their count.
type Applied = Arc<Mutex<BTreeMap<String, (Value, u32)>>>;

fn listed(path: &str) -> Value {
    let gateway = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "edge", "uid": name},
            "spec": {"gatewayClassName": CLASS, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
        })
    };
    let items = match path.rsplit('/').next() {
        Some("gatewayclasses") => json!([{
            "metadata": {"name": CLASS}, "spec": {"controllerName": GATEWAY_CONTROLLER},
        }]),
        Some("gateways") => json!([gateway("a.web"), gateway("broken"), gateway("web")]),
        _ => json!([]),
    };
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// Refuses the Service of one Gateway for its name, and fails at all that is another's.
fn answer(method: &Method, path: &str, body: Value, applied: &Applied) -> (StatusCode, Value) {
    let (collection, name) = path.rsplit_once('/').unwrap_or_default();
    let refusal = match name {
        "a.web-maglor" if collection.ends_with("/services") => {
            Some(StatusCode::UNPROCESSABLE_ENTITY)
        }
        "broken-maglor" => Some(StatusCode::INTERNAL_SERVER_ERROR),
        _ => None,
    };
    match (method, refusal) {
        (&Method::GET, _) if name.ends_with("-maglor") => match applied.lock().unwrap().get(path) {
            Some((there, _)) => (StatusCode::OK, there.clone()),
            None => (StatusCode::NOT_FOUND, json!({})),
        },
        (&Method::GET, _) => (StatusCode::OK, listed(path)),
        (&Method::PATCH, Some(status)) => (status, json!({})),
        (&Method::PATCH, None) => {
            let mut applied = applied.lock().unwrap();
            let entry = applied.entry(path.to_owned()).or_default();
            let seen = &body["metadata"]["resourceVersion"];
            let there = json!(entry.1.to_string());
            if !seen.is_null() && *seen != there {
                return (StatusCode::CONFLICT, json!({}));
            }
            let count = entry.1 + 1;
            let mut object = body;
            object["metadata"]["resourceVersion"] = json!(count.to_string());
            // As an API server does: fields with defaults.
            object["spec"]["sessionAffinity"] = json!("None");
            *entry = (object.clone(), count);
            (StatusCode::OK, object)
        }
        _ => (StatusCode::CREATED, json!({})),
    }
}

async fn response(request: Request<Incoming>, applied: Applied) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let (status, mut body) = answer(&head.method, head.uri.path(), body, &applied);
    if !status.is_success() {
        let reason = match status {
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            _ => "InternalError",
        };
        body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
                      "message": status.to_string(), "reason": reason});
    }
    let response = Response::builder().status(status);
    let response = response.header(header::CONTENT_TYPE, "application/json");
    response.body(Full::from(body.to_string())).unwrap()
}

async fn start(applied: &Applied) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let applied = Arc::clone(applied);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let applied = Arc::clone(&applied);
            let service = service_fn(move |request| {
                let response = response(request, Arc::clone(&applied));
                async move { Ok::<_, Infallible>(response.await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn operator(applied: &Applied) -> Operator {
    let client = start(applied).await;
    Operator {
        client: client.clone(),
        options: Options {
            scope: Scope::Everywhere,
            ..Options::default()
        },
        events: Events::new(client, "maglor.dev/gateway", "test"),
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_gateway_keeps_no_other_from_its_proxies() {
    let applied = Applied::default();
    let operator = operator(&applied).await;
    let (_held, term) = watch::channel(Term::held());
    let failed = operator.apply_all(&term).await;
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("500"), "failures are retried: {error}");
    let applied = applied.lock().unwrap().clone();
    let names: Vec<&str> = applied
        .keys()
        .map(|path| path.rsplit('/').next().unwrap_or_default())
        .collect();
    assert_eq!(
        names,
        [
            "a.web-maglor",
            "web-maglor",
            "web-maglor",
            "a.web-maglor",
            "web-maglor",
            "a.web-maglor",
            "web-maglor",
        ],
        "{applied:?}"
    );
}

/// Every new watch lists all objects, and every half minute all are checked.
#[tokio::test]
async fn what_is_as_it_was_applied_is_not_written_again() {
    let applied = Applied::default();
    let operator = operator(&applied).await;
    let (_held, term) = watch::channel(Term::held());
    let counts = || {
        let applied = applied.lock().unwrap();
        applied
            .values()
            .map(|(_, count)| *count)
            .collect::<Vec<_>>()
    };
    for _ in 0..3 {
        let _ = operator.apply_all(&term).await;
        assert_eq!(counts(), [1; 7]);
    }
    // A change by another client is reverted in the next round, by one write.
    for (there, _) in applied.lock().unwrap().values_mut() {
        if there["kind"] == "Service" {
            there["spec"]["ports"] = json!([]);
        }
    }
    for _ in 0..2 {
        let _ = operator.apply_all(&term).await;
        let written = counts();
        assert_eq!(
            written.iter().filter(|count| **count == 2).count(),
            1,
            "{written:?}"
        );
    }
}
