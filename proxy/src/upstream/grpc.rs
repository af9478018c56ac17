//! gRPC client of the proxy itself (`PROTOCOL-HTTP2.md`), for the control plane and for probes of the application.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use maglor_identity::TrustBundle;
use maglor_xds::frame::Deframer;

use crate::net::io::Io;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Body;
use crate::upstream::{Answer, Cluster, Http2, Target, connect_for_control, connect_to_enrol};

/// Reason why a call has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("cannot connect in time")]
    ConnectTimeout,
    #[error("no endpoint is available")]
    NoServer,
    #[error("{0}")]
    Call(#[source] Box<ProxyError>),
    #[error("HTTP/2: {0}")]
    Http2(#[from] h2::Error),
    #[error("unexpected status {0}")]
    Refused(String),
    /// Status 16: the server does not accept the identity, or none was presented.
    #[error("unexpected status {0}")]
    Unauthenticated(String),
    #[error("{0}")]
    Frame(#[from] maglor_xds::frame::FrameError),
}

/// A connection to one server, which is closed after its last call.
pub(crate) struct Connection {
    http2: Http2,
    authority: String,
}

impl Connection {
    pub(crate) async fn open(cluster: &Cluster, target: &Target) -> Result<Self, CallError> {
        let connecting = connect_for_control(cluster, target);
        Self::over(in_time(cluster, connecting).await?, target.authority()).await
    }

    /// Connects without an identity, for enrolment, to a server verified with `roots`.
    pub(crate) async fn open_to_enrol(
        cluster: &Cluster,
        target: &Target,
        roots: TrustBundle,
    ) -> Result<Self, CallError> {
        let connecting = connect_to_enrol(cluster, target, roots);
        Self::over(in_time(cluster, connecting).await?, target.authority()).await
    }

    /// Creates a connection over an existing byte stream.
    pub(crate) async fn over(io: Io, authority: String) -> Result<Self, CallError> {
        let http2 = Http2::for_calls(io).await?;
        Ok(Self { http2, authority })
    }

    /// Calls a method. Returns its answer unless the call is rejected immediately.
    pub(crate) async fn call(&self, path: &str, body: Body) -> Result<Answer, CallError> {
        let request = Request::post(format!("http://{}{path}", self.authority))
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(());
        let request = request.map_err(|error| CallError::Refused(error.to_string()))?;
        let called = self.http2.call(request, body).await;
        let (head, answer) = called.map_err(|error| match error {
            ProxyError::UpstreamHttp2(error) => CallError::Http2(error),
            error => CallError::Call(Box::new(error)),
        })?;
        if head.status != StatusCode::OK {
            return Err(CallError::Refused(head.status.to_string()));
        }
        match refusal(&head.headers) {
            Some(refused) => Err(refused),
            None => Ok(answer),
        }
    }

    /// Calls a method with a single response message of at most `longest` bytes.
    pub(crate) async fn ask(
        &self,
        path: &str,
        message: Bytes,
        longest: usize,
    ) -> Result<Bytes, CallError> {
        let mut body = self.call(path, Body::full(message)).await?;
        let mut deframer = Deframer::new(longest);
        while let Some(part) = body.frame().await {
            match part?.into_data() {
                Ok(data) => deframer.put(&data),
                Err(part) => {
                    let trailers = part.into_trailers().unwrap_or_default();
                    if let Some(refused) = refusal(&trailers) {
                        return Err(refused);
                    }
                }
            }
            if let Some(message) = deframer.message()? {
                return Ok(message);
            }
        }
        Err(CallError::Refused("nothing".to_owned()))
    }
}

async fn in_time(
    cluster: &Cluster,
    connecting: impl Future<Output = io::Result<Io>>,
) -> Result<Io, CallError> {
    let limit = cluster.config().connect_timeout;
    let io = tokio::time::timeout(limit, connecting).await;
    io.map_err(|_| CallError::ConnectTimeout)?
        .map_err(CallError::Connect)
}

/// Returns the error for a gRPC status other than OK.
pub(crate) fn refusal(fields: &HeaderMap) -> Option<CallError> {
    let text = |name| {
        fields
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok())
    };
    let code = text("grpc-status").filter(|code| *code != "0")?;
    let message = text("grpc-message").unwrap_or_default();
    let said = format!("gRPC status {code} {message}");
    Some(match code {
        "16" => CallError::Unauthenticated(said),
        _ => CallError::Refused(said),
    })
}
