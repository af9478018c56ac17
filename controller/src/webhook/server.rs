//! HTTPS: connections, bodies, and which question it is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use maglor_inject::review::{Review, Verdict};
use maglor_inject::{Namespace, Settings};
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::decide::{self, Decision};
use crate::metrics::Metrics;

/// An object that etcd takes is 1.5 MB; a question holds it twice.
const LARGEST: usize = 4 << 20;
/// The API server waits for ten seconds by default.
const LONGEST: Duration = Duration::from_secs(10);
/// Connections at a time; an API server keeps a few.
const CONNECTIONS: usize = 256;

/// What answers are made of.
pub(super) struct Service {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<Metrics>,
}

/// Answers as long as it is polled; waits for a certificate first.
pub(super) async fn serve(
    socket: TcpListener,
    mut certificates: watch::Receiver<Option<Arc<ServerConfig>>>,
    service: Arc<Service>,
) {
    if certificates.wait_for(Option::is_some).await.is_err() {
        return;
    }
    tracing::info!(listen = ?socket.local_addr().ok(), "the webhook answers");
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let tcp = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    tracing::warn!(%error, "webhook: accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let Some(config) = certificates.borrow().clone() else {
            continue;
        };
        let service = Arc::clone(&service);
        connections.spawn(async move {
            connection(tcp, config, service).await;
            drop(place);
        });
    }
}

async fn connection(tcp: TcpStream, config: Arc<ServerConfig>, service: Arc<Service>) {
    let tls = match timeout(LONGEST, TlsAcceptor::from(config).accept(tcp)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return tracing::debug!(%error, "webhook: handshake failed"),
        Err(_) => return,
    };
    let handle = service_fn(|request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.handle(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // Also how long a connection may say nothing between two questions.
        .header_read_timeout(9 * LONGEST)
        .serve_connection(TokioIo::new(tls), handle);
    if let Err(error) = served.await {
        tracing::debug!(%error, "webhook: connection failed");
    }
}

/// Which question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Question {
    /// A pod of a namespace whose pods want sidecars: the API server has looked at its label.
    InjectNamespace,
    /// A pod that wants one itself.
    InjectPod,
    Validate,
}

impl Service {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let question = match request.uri().path() {
            "/inject/namespace" => Question::InjectNamespace,
            "/inject/pod" => Question::InjectPod,
            "/validate" => Question::Validate,
            _ => {
                return refuse(
                    StatusCode::NOT_FOUND,
                    "POST /inject/namespace, /inject/pod or /validate",
                );
            }
        };
        if request.method() != Method::POST {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "POST an AdmissionReview");
        }
        let body = Limited::new(request.into_body(), LARGEST).collect();
        let body = match timeout(LONGEST, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return refuse(StatusCode::PAYLOAD_TOO_LARGE, "more than 4 MiB");
            }
            Ok(Err(error)) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
            Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come"),
        };
        let review = match Review::read(&body) {
            Ok(review) => review,
            Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let webhook = match question {
            Question::Validate => "validate",
            Question::InjectNamespace | Question::InjectPod => "inject",
        };
        match self.decide(question, &review).await {
            Ok(decision) => {
                self.metrics.admitted(webhook, decision.word);
                say(webhook, &review, &decision);
                answer(&review, decision)
            }
            Err(error) => {
                self.metrics.admitted(webhook, "failed");
                tracing::warn!(webhook, namespace = review.namespace, %error, "nothing can be decided");
                refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
            }
        }
    }

    async fn decide(&self, question: Question, review: &Review) -> Result<Decision, kube::Error> {
        if question == Question::Validate {
            return Ok(decide::validate(review));
        }
        let api: Api<core::Namespace> = Api::all(self.client.clone());
        let found = timeout(LONGEST / 2, api.get_metadata(&review.namespace)).await;
        let found =
            found.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())))?;
        let metadata = serde_json::json!({"metadata": found.metadata});
        let namespace = Namespace::read(&metadata).map(|mut namespace| {
            // What the API server's selector saw may be newer, or older, than what was read now.
            if question == Question::InjectNamespace {
                namespace.enabled = Some(true);
            }
            namespace
        });
        // A label that cannot be read asks for nothing; a pod that wants a sidecar itself still gets one.
        let namespace = namespace.unwrap_or_default();
        Ok(decide::inject(review, &namespace, &self.settings))
    }
}

fn say(webhook: &'static str, review: &Review, decision: &Decision) {
    let metadata = &review.object["metadata"];
    let name = match review.name.as_str() {
        "" => metadata["generateName"].as_str().unwrap_or_default(),
        name => name,
    };
    let namespace = &review.namespace;
    match &decision.verdict {
        Verdict::Denied { reason } => {
            tracing::info!(
                webhook,
                namespace,
                name,
                decision = decision.word,
                reason,
                "admission"
            );
        }
        Verdict::Allowed { .. } => {
            tracing::info!(
                webhook,
                namespace,
                name,
                decision = decision.word,
                "admission"
            );
        }
    }
}

fn answer(review: &Review, decision: Decision) -> Response<Full<Bytes>> {
    let base64 = |bytes| serde_json::to_value(ByteString(bytes)).unwrap_or(Value::Null);
    let body = review.answer(decision.verdict, base64).to_string();
    let mut response = Response::new(Full::from(body));
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn refuse(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{why}\n")));
    *response.status_mut() = status;
    response
}
