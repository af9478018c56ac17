//! Requests that the control thread sends itself, to endpoints of a cluster: health checks, and batches of spans.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, Version};
use http_body::Body as _;
use maglor_balance::guard::GrpcStatus;
use tokio::time::Instant;

use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::http1::Target as RequestTarget;
use crate::protocol::message::{Request, Response};
use crate::upstream::{Cluster, Pools, Sender, Target};

/// Returns a sender that is not subject to the limits of the cluster.
pub(super) fn sender<'a>(
    cluster: &'a Arc<Cluster>,
    target: &'a Arc<Target>,
    pools: &'a Pools,
) -> Sender<'a> {
    Sender {
        cluster,
        target,
        pools,
        now: Instant::now(),
        ends: None,
        interim: None,
        noted: None,
    }
}

/// Creates a request; `fill` adds its header fields.
pub(super) fn request(
    method: Method,
    version: Version,
    path: &str,
    fill: impl FnOnce(&mut Fields),
) -> Request {
    let mut fields = Fields::default();
    fill(&mut fields);
    let mut request = Request {
        method,
        target: RequestTarget::default(),
        version,
        fields,
    };
    request.set_path_and_query(path.as_bytes());
    request
}

/// A response that has been read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The status of a gRPC call, from the header or the trailers; `None` if there is none.
    pub(super) grpc: Option<GrpcStatus>,
    pub(super) data: Vec<u8>,
}

/// Reads a response's body until it has more than `most` bytes, and its trailers.
pub(super) async fn read(response: Response, most: usize) -> Result<Answer, ProxyError> {
    let early = response.fields.get(Known::GrpcStatus);
    let early = early.map(GrpcStatus::parse);
    let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
    let mut body = response.body;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(piece) => data.extend_from_slice(&piece),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
        if data.len() > most {
            break;
        }
    }
    let late = trailers.get(Known::GrpcStatus.as_str());
    Ok(Answer {
        status: response.status,
        grpc: early.or_else(|| late.map(|value| GrpcStatus::parse(value.as_bytes()))),
        data,
    })
}
