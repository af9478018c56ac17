//! The dispatch of a call by its method.

use std::sync::Arc;
use std::time::Duration;

use crate::Message as _;
use crate::frame::{Deframer, frame};
use crate::load;
use crate::server::Protocol;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::grpc_server::body::Answer;
use crate::grpc_server::state::State;
use crate::grpc_server::{CertifyRequest, Code, Peer, Status, loads, stream};

/// The paths of the supported methods.
const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const WHOLE: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const CERTIFY: &str = "/maglor.identity.v1.Identity/Certify";

/// The maximum size of a signing request with its token, in bytes.
const CERTIFY_LIMIT: usize = 16 << 10;
/// The timeout for receiving a signing request.
const CERTIFY_TIME: Duration = Duration::from_secs(10);

/// Returns the response to a call; failures are responses, too.
pub(crate) async fn answer(
    server: Arc<State>,
    peer: Peer,
    request: Request<Incoming>,
) -> Response<Answer> {
    let kind = request.headers().get(CONTENT_TYPE);
    let grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let failed = |code, message: String| Answer::Once(Some(Err(Status::new(code, message))));
    let body = if !grpc || request.method() != Method::POST {
        let message = "this port serves gRPC: POST with content-type application/grpc";
        failed(Code::InvalidArgument, message.to_owned())
    } else {
        match request.uri().path() {
            CERTIFY => Answer::Once(Some(certify(&server, &peer, request.into_body()).await)),
            path @ (DELTA | WHOLE | load::PATH) => match (server.policy.admit(&peer), path) {
                (Err(status), _) => Answer::Once(Some(Err(status))),
                (Ok(()), DELTA) => stream::open(server, peer, request.into_body(), Protocol::Delta),
                (Ok(()), WHOLE) => {
                    stream::open(server, peer, request.into_body(), Protocol::StateOfTheWorld)
                }
                (Ok(()), _) => loads::open(server, peer, request.into_body()),
            },
            other => failed(Code::Unimplemented, format!("unknown method {other}")),
        }
    };
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn certify(server: &State, peer: &Peer, body: Incoming) -> Result<Bytes, Status> {
    let received = tokio::time::timeout(CERTIFY_TIME, signing_request(body)).await;
    let late = |_| Status::new(Code::InvalidArgument, "timeout while reading the message");
    let request = received.map_err(late)??;
    let response = server.policy.certify(peer, request).await?;
    Ok(frame(&response))
}

async fn signing_request(mut body: Incoming) -> Result<CertifyRequest, Status> {
    let mut deframer = Deframer::new(CERTIFY_LIMIT);
    let invalid =
        |error: &dyn std::fmt::Display| Status::new(Code::InvalidArgument, error.to_string());
    loop {
        if let Some(message) = deframer.message().map_err(|error| invalid(&error))? {
            return CertifyRequest::decode(message).map_err(|error| invalid(&error));
        }
        match body.frame().await {
            Some(Ok(part)) => deframer.put(part.data_ref().map_or(&[], |data| data)),
            Some(Err(error)) => return Err(invalid(&error)),
            None => return Err(Status::new(Code::InvalidArgument, "missing message")),
        }
    }
}
