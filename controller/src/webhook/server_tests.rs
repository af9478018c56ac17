//! The maintained suite of hostile requests against the webhooks: each case of `maglor_testkit::hostile::webhook` has
//! its expected outcome, and the API server gets requests only for namespaces.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use http_body_util::BodyExt as _;
use kube::Config;
use maglor_testkit::hostile::{self, Case, Port};
use serde_json::json;

use super::*;

type Asked = Arc<Mutex<Vec<String>>>;

/// An API server that has the namespace `default`, and records requests.
async fn api_server(asked: &Asked) -> SocketAddr {
    let asked = Arc::clone(asked);
    let answer = move |request: Request<hyper::body::Incoming>| {
        let target = request.uri().to_string();
        let (status, body) = match target.as_str() {
            "/api/v1/namespaces/default" => (200, json!({"metadata": {"name": "default"}})),
            _ => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": "no", "reason": "NotFound", "code": 404}),
            ),
        };
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(format!("{} {target}", request.method()));
        let response = Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body.to_string()));
        std::future::ready(response.unwrap())
    };
    crate::api_port::start(answer).await
}

async fn service(asked: &Asked) -> Service {
    let address = api_server(asked).await;
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    Service {
        events: Events::new(client.clone(), "maglor.dev/webhook", "test"),
        client,
        namespace: "maglor".to_owned(),
        settings: Settings::default(),
        metrics: Arc::new(Metrics::new()),
        wanted_nodes: WantedNodes::default(),
    }
}

/// Returns the response to a case as seen by a client; `None` if the case is about bytes below HTTP.
async fn ask(service: &Service, case: &Case) -> Option<Port> {
    let (path, body) = hostile::api::review_parts(case)?;
    let request = Request::post(path).body(Bytes::from(body)).unwrap();
    let (head, body) = service.handle(request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Some(Port {
        statuses: vec![head.status.as_u16()],
        body,
        ..Port::default()
    })
}

#[tokio::test]
async fn hostile_reviews() {
    let cases = hostile::webhook();
    assert!(cases.len() > 100, "{}", cases.len());
    let asked = Asked::default();
    let service = service(&asked).await;
    let mut failed = Vec::new();
    for case in &cases {
        if let Some(seen) = ask(&service, case).await {
            failed.extend(hostile::check_port(case, &seen).err());
        }
    }
    let count = failed.len();
    assert!(failed.is_empty(), "{count} cases:\n{}", failed.join("\n"));
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    for request in &*asked {
        let name = request.strip_prefix("GET /api/v1/namespaces/");
        assert!(name.is_some_and(is_label), "{request}");
    }
}
