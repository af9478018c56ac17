//! One export request: over gRPC, or over HTTP with a protobuf body (OTLP 1.x).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_balance::{Rng, Time};
use maglor_config::{OtlpTransport, Tracing};
use maglor_telemetry::otlp::partial_success;
use maglor_xds::frame::{PREFIX, frame_encoded};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::control::own_request;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Body, Message};
use crate::upstream::{Cluster, Pools, Sender, Target};

const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Maximum number of bytes read of a response.
const LONGEST: usize = 64 << 10;
/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(10);

/// Why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{0}")]
    Http(#[from] ProxyError),
    #[error("gRPC status {}", .0.name())]
    GrpcStatus(GrpcStatus),
    #[error("no gRPC status")]
    NoGrpcStatus,
    #[error("the cluster `{0}` does not exist")]
    NoCluster(Arc<str>),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("timeout")]
    Timeout,
}

impl CallError {
    /// Returns whether the same batch may be accepted later (OTLP, "Failures").
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Http(_) | Self::NoGrpcStatus | Self::NoCluster(_) | Self::Timeout => true,
            // ABORTED and OUT_OF_RANGE have no names here.
            Self::GrpcStatus(status) => matches!(status.code(), 1 | 4 | 8 | 10 | 11 | 14 | 15),
            Self::Status(status) => matches!(status.as_u16(), 429 | 502..=504),
        }
    }
}

/// Where batches are sent, and how.
#[derive(Debug)]
pub(super) struct Call {
    cluster: Arc<str>,
    transport: OtlpTransport,
    clusters: watch::Receiver<Vec<Arc<Cluster>>>,
    /// Endpoint of the last request, if it has failed: another one is preferred.
    failed: Option<u64>,
}

impl Call {
    pub(super) fn new(settings: &Tracing, clusters: watch::Receiver<Vec<Arc<Cluster>>>) -> Self {
        Self {
            cluster: Arc::clone(&settings.cluster),
            transport: settings.transport.clone(),
            clusters,
            failed: None,
        }
    }

    /// Sends an `ExportTraceServiceRequest`. Returns the number of spans that the collector rejected.
    pub(super) async fn send(
        &mut self,
        message: &[u8],
        pools: &Pools,
        now: Time,
        rng: &mut Rng,
    ) -> Result<u64, CallError> {
        let named = |cluster: &&Arc<Cluster>| *cluster.name() == self.cluster;
        let cluster = self.clusters.borrow().iter().find(named).cloned();
        let cluster = cluster.ok_or_else(|| CallError::NoCluster(Arc::clone(&self.cluster)))?;
        let picked = cluster.pick(now, None, self.failed.as_slice(), rng)?;
        let sender = own_request::sender(&cluster, &picked.target, pools);
        let request = self.request(message, &picked.target);
        let sent = timeout(LIMIT, Box::pin(self.ask(sender, request))).await;
        let result = sent.unwrap_or(Err(CallError::Timeout));
        self.failed = result.is_err().then_some(picked.target.id);
        result
    }

    fn request(&self, message: &[u8], target: &Target) -> Message {
        let (path, version, content_type) = match &self.transport {
            OtlpTransport::Grpc => (GRPC_PATH, Version::HTTP_2, "application/grpc"),
            OtlpTransport::Http { path } => {
                (path.as_str(), Version::HTTP_11, "application/x-protobuf")
            }
        };
        let request = own_request::request(Method::POST, version, path, |fields| {
            fields.push(Known::Host, target.authority().as_bytes());
            fields.push(Known::ContentType, content_type.as_bytes());
            fields.push(Known::UserAgent, b"maglor-proxy");
            match &self.transport {
                OtlpTransport::Grpc => fields.push(Known::Te, b"trailers"),
                OtlpTransport::Http { .. } => {
                    let mut digits = itoa::Buffer::new();
                    let length = digits.format(message.len());
                    fields.push(Known::ContentLength, length.as_bytes());
                }
            }
        });
        let body = match &self.transport {
            OtlpTransport::Grpc => frame_encoded(message),
            OtlpTransport::Http { .. } => Bytes::copy_from_slice(message),
        };
        Message {
            request,
            body: Body::full(body),
        }
    }

    async fn ask(&self, sender: Sender<'_>, mut request: Message) -> Result<u64, CallError> {
        let response = sender.send(&mut request).await?;
        // Read to the end, so that the connection can be reused.
        let answer = own_request::read(response, LONGEST).await?;
        if !answer.status.is_success() {
            return Err(CallError::Status(answer.status));
        }
        let message = match (&self.transport, answer.grpc) {
            (OtlpTransport::Http { .. }, _) => answer.data.as_slice(),
            (OtlpTransport::Grpc, Some(GrpcStatus::OK)) => {
                answer.data.get(PREFIX..).unwrap_or_default()
            }
            (OtlpTransport::Grpc, Some(status)) => return Err(CallError::GrpcStatus(status)),
            (OtlpTransport::Grpc, None) => return Err(CallError::NoGrpcStatus),
        };
        let partial = partial_success(message);
        if !partial.message.is_empty() {
            tracing::debug!(
                rejected_spans = partial.rejected,
                reason = partial.message,
                "trace export: the collector reported a partial success"
            );
        }
        Ok(partial.rejected)
    }
}
