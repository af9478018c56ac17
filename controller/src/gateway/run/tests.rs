//! The operator beside as much of an API server as it asks.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Config;
use tokio::net::TcpListener;

use super::*;

/// Paths that were applied, and were not refused.
type Applied = Arc<Mutex<BTreeSet<String>>>;

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
fn answer(method: &Method, path: &str, applied: &Applied) -> (StatusCode, Value) {
    let (collection, name) = path.rsplit_once('/').unwrap_or_default();
    let refusal = match name {
        "a.web-maglor" if collection.ends_with("/services") => {
            Some(StatusCode::UNPROCESSABLE_ENTITY)
        }
        "broken-maglor" => Some(StatusCode::INTERNAL_SERVER_ERROR),
        _ => None,
    };
    match (method, refusal) {
        (&Method::GET, _) if name.ends_with("-maglor") => (StatusCode::NOT_FOUND, json!({})),
        (&Method::GET, _) => (StatusCode::OK, listed(path)),
        (&Method::PATCH, Some(status)) => (status, json!({})),
        (&Method::PATCH, None) => {
            applied.lock().unwrap().insert(path.to_owned());
            let object = json!({"metadata": {"name": name}});
            (StatusCode::OK, object)
        }
        _ => (StatusCode::CREATED, json!({})),
    }
}

fn response(request: &Request<Incoming>, applied: &Applied) -> Response<Full<Bytes>> {
    let (status, mut body) = answer(request.method(), request.uri().path(), applied);
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
                let response = response(&request, &applied);
                async move { Ok::<_, Infallible>(response) }
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

#[tokio::test]
async fn what_is_wrong_with_one_gateway_keeps_no_other_from_its_proxies() {
    let applied = Applied::default();
    let client = start(&applied).await;
    let operator = Operator {
        client: client.clone(),
        options: Options {
            scope: Scope::Everywhere,
            ..Options::default()
        },
        events: Events::new(client, "maglor.dev/gateway", "test"),
    };
    let (_held, term) = watch::channel(Term::held());
    let failed = operator.apply_all(&term).await;
    let error = failed.unwrap_err().to_string();
    assert!(
        error.contains("500"),
        "what has failed is tried again: {error}"
    );
    let applied = applied.lock().unwrap().clone();
    let names: Vec<&str> = applied
        .iter()
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
        ],
        "{applied:?}"
    );
}
