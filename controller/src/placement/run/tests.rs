//! Tests of the operator with a fake API server.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Config;
use maglor_telemetry::Registry;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::graph::Settings;
use crate::graph::replicas::Way;
use crate::placement::moving::{self, Ticket};
use crate::placement::{HASH, MOVING};

/// A pod that was taken out of its ReplicaSet, and whose successor is not ready in time.
fn moving_pod() -> Value {
    let ticket = Ticket {
        policy: "gone".to_owned(),
        service: "shop/web".to_owned(),
        to: "n2".to_owned(),
        replica_set: "web-5d4".to_owned(),
        hash: "5d4".to_owned(),
        deadline: 1,
        ..Ticket::default()
    };
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": "web-5d4-1", "uid": "u1", "resourceVersion": "7",
            "labels": {"app": "web"}, "annotations": {}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let begun = moving::begin(&ticket);
    pod["metadata"]["labels"] = begun["metadata"]["labels"].clone();
    pod["metadata"]["annotations"] = begun["metadata"]["annotations"].clone();
    pod
}

fn found(path: &str) -> Option<Value> {
    let (collection, name) = path.rsplit_once('/')?;
    let list = |items: Value| {
        Some(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
    };
    match (collection.rsplit('/').next()?, name) {
        (_, "pods") => list(json!([moving_pod()])),
        ("replicasets", "web-5d4") | ("deployments", "web") => {
            Some(json!({"metadata": {"name": name}, "spec": {"replicas": 1}}))
        }
        (_, "nodes" | "placementpolicies" | "replicasets") => list(json!([])),
        _ => None,
    }
}

/// Responds, and reports writes.
async fn start() -> (kube::Client, mpsc::UnboundedReceiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (written, input) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let written = written.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let written = written.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let path = head.uri.path().to_owned();
                    let answer = match head.method {
                        Method::GET => found(&path),
                        _ => {
                            let body = serde_json::from_slice(&body).unwrap_or_default();
                            written.send((path, body)).unwrap();
                            Some(moving_pod())
                        }
                    };
                    let (status, body) = match answer {
                        Some(body) => (StatusCode::OK, body),
                        None => (
                            StatusCode::NOT_FOUND,
                            json!({"kind": "Status", "apiVersion": "v1", "code": 404}),
                        ),
                    };
                    let response = Response::builder().status(status);
                    let response = response.header(header::CONTENT_TYPE, "application/json");
                    Ok::<_, Infallible>(
                        response
                            .body(Full::<Bytes>::from(body.to_string()))
                            .unwrap(),
                    )
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    let config = Config::new(format!("http://{address}").parse().unwrap());
    (kube::Client::try_from(config).unwrap(), input)
}

/// Placement is switched off while a pod is on its way, and its policy deleted.
#[tokio::test]
async fn what_is_under_way_is_brought_to_its_end_where_no_pod_may_be_moved_any_more() {
    let (client, mut written) = start().await;
    let (_held, term) = watch::channel(Term::held());
    let replicas = Replicas {
        client: client.clone(),
        namespace: "maglor".to_owned(),
        replica: "a".to_owned(),
        way: Way { port: 1, tls: None },
    };
    let options = Options {
        events: Events::new(client.clone(), "maglor.dev/placement", "a"),
        client: client.clone(),
        replicas,
        graphs: Arc::new(Graphs::new(Settings::default())),
        term,
        metrics: PlacementMetrics::new(&Registry::new(1)),
        moves: Scope::Off,
    };
    let mut operator = Operator {
        options,
        server: Server::new(client),
        governed: BTreeMap::new(),
        under_way: Vec::new(),
        blocked: BTreeSet::new(),
        begun: Instant::now(),
    };
    assert!(
        operator.look().await.unwrap(),
        "it goes on until none is under way"
    );
    let (path, patch) = written.recv().await.unwrap();
    assert_eq!(path, "/api/v1/namespaces/shop/pods/web-5d4-1");
    let meta = &patch["metadata"];
    assert_eq!(
        (&meta["uid"], &meta["resourceVersion"]),
        (&json!("u1"), &json!("7"))
    );
    assert_eq!(meta["labels"][HASH], "5d4", "it is given back: {patch}");
    assert!(
        meta["annotations"][MOVING]
            .as_str()
            .unwrap()
            .contains("\"returned\":true")
    );
}
