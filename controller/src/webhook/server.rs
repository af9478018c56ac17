//! The HTTP handler of the webhooks: reads requests, dispatches them, and writes responses.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use maglor_manifests::inject::keys::REVISION;
use maglor_manifests::inject::review::{Review, Verdict};
use maglor_manifests::inject::{Namespace, Settings};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::REST;
use super::admission::{self, Decision};
use crate::api_server;
use crate::events::Events;
use crate::https::{LONGEST, refuse};
use crate::metrics::Metrics;
use crate::names::is_label;
use crate::placement::wanted_nodes::WantedNodes;
use crate::revision::Revision;

/// The dependencies of the request handlers.
pub(super) struct Service {
    pub(super) client: Client,
    /// The namespace of the controller.
    pub(super) namespace: String,
    pub(super) events: Events,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<Metrics>,
    pub(super) wanted_nodes: WantedNodes,
}

/// The type of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Question {
    /// A pod in a namespace that requests sidecars. The API server's selector has matched the label of the namespace.
    InjectNamespace,
    /// A pod that requests a sidecar itself.
    InjectPod,
    /// An object with labels or annotations of the mesh.
    Keys,
    Validate,
}

impl Question {
    /// Returns whether the request is about a pod.
    fn is_of_pods(self) -> bool {
        matches!(self, Self::InjectNamespace | Self::InjectPod)
    }

    /// Returns the name of the webhook in metrics and logs.
    fn word(self) -> &'static str {
        match self {
            Self::InjectNamespace | Self::InjectPod => "inject",
            Self::Keys => "keys",
            Self::Validate => "validate",
        }
    }
}

impl Service {
    pub(super) async fn handle(&self, request: Request<Bytes>) -> Response<Full<Bytes>> {
        let question = match request.uri().path() {
            "/inject/namespace" => Question::InjectNamespace,
            "/inject/pod" => Question::InjectPod,
            "/keys" => Question::Keys,
            "/validate" => Question::Validate,
            _ => {
                return refuse(
                    StatusCode::NOT_FOUND,
                    "unknown path; expected POST /inject/namespace, /inject/pod, /keys or /validate",
                );
            }
        };
        if request.method() != Method::POST {
            return refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "method not allowed; expected POST with an AdmissionReview",
            );
        }
        let body = request.into_body();
        let review = match Review::read(&body) {
            Ok(review) => review,
            Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        // The namespace becomes part of an API server path, and any client of this port can send it.
        if question.is_of_pods() && !is_label(&review.namespace) {
            return refuse(
                StatusCode::BAD_REQUEST,
                "request.namespace: invalid name of a namespace",
            );
        }
        let webhook = question.word();
        match self.decide(question, &review).await {
            Ok(decision) => {
                self.metrics.admissions.count(webhook, decision.word);
                say(webhook, &review, &decision);
                if webhook == "inject"
                    && let Some((owner, reason, why)) = admission::event(&review, &decision)
                {
                    self.events.warn(owner, reason, "Inject", why);
                }
                answer(&review, decision)
            }
            Err(error) => {
                self.metrics.admissions.count(webhook, "failed");
                tracing::warn!(webhook, namespace = review.namespace, %error, "cannot process an admission review");
                refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
            }
        }
    }

    async fn decide(&self, question: Question, review: &Review) -> Result<Decision, kube::Error> {
        match question {
            Question::InjectNamespace | Question::InjectPod => {}
            Question::Keys => {
                let mut decision = admission::keys(review);
                if let Some(revision) = admission::new_revision(review) {
                    self.warn_unless_running(&revision, &mut decision).await;
                }
                return Ok(decision);
            }
            Question::Validate => return Ok(admission::validate(review)),
        }
        let api: Api<core::Namespace> = Api::all(self.client.clone());
        let found = timeout(LONGEST / 2, metadata(&api, &review.namespace)).await;
        let found = found.unwrap_or_else(|_| Err(kube::Error::Service("timeout".into())))?;
        let metadata = serde_json::json!({"metadata": found.metadata});
        let namespace = Namespace::read(&metadata).map(|mut namespace| {
            // The API server's selector may have matched a newer or older label than the one read now.
            if question == Question::InjectNamespace {
                namespace.enabled = Some(true);
            }
            namespace
        });
        // Without a readable label, the namespace requests nothing; a pod that requests a sidecar itself still gets
        // one.
        let namespace = namespace.unwrap_or_default();
        let place = self
            .wanted_nodes
            .place(&self.client, &review.namespace, &review.object);
        let place = place.await;
        Ok(admission::inject(
            review,
            &namespace,
            &self.settings,
            place.as_ref(),
        ))
    }
}

impl Service {
    /// Warns about a revision without a leader, because nothing injects sidecars into the namespaces that name it.
    async fn warn_unless_running(&self, revision: &Revision, decision: &mut Decision) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = revision.lease();
        let found = timeout(LONGEST / 2, leases.get_opt(&name)).await;
        if let (Ok(Ok(None)), Verdict::Allowed { warnings, .. }) = (found, &mut decision.verdict) {
            warnings.push(format!(
                "metadata.labels.{REVISION}: no control plane of revision `{revision}` runs in namespace {}; pods get no sidecars until it does",
                self.namespace
            ));
            decision.word = "warned";
        }
    }
}

/// Reads the metadata of a namespace. Retries if the API server is overloaded.
async fn metadata(
    api: &Api<core::Namespace>,
    name: &str,
) -> Result<PartialObjectMeta<core::Namespace>, kube::Error> {
    loop {
        match api.get_metadata(name).await {
            Err(error)
                if [429, 503, 504]
                    .iter()
                    .any(|code| api_server::is(&error, *code)) =>
            {
                sleep(REST).await;
            }
            outcome => return outcome,
        }
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

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
