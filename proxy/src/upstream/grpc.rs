//! gRPC client of the proxy itself (`PROTOCOL-HTTP2.md`), for the control plane and for probes of the application.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use http_body::Frame;
use maglor_identity::TrustBundle;
use maglor_xds::frame::Deframer;

use crate::net::io::Io;
use crate::protocol::error::{ProxyError, Unanswered};
use crate::protocol::fields::{Fields, Known};
use crate::protocol::http1::Target as RequestTarget;
use crate::protocol::http2::client::{Answered, Client, Outgoing, Terms};
use crate::protocol::http2::{Http2, Owner};
use crate::protocol::message::{Body, Request, Source as _};
use crate::protocol::streams::Incoming;
use crate::upstream::{Cluster, Target, connect_for_control, connect_to_enrol};

/// Reason why a call has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("cannot connect: timeout")]
    ConnectTimeout,
    #[error("no endpoint is available")]
    NoServer,
    #[error("{0}")]
    Call(#[source] Box<ProxyError>),
    #[error("unexpected status {0}")]
    Refused(String),
    /// Status 16: the server does not accept the identity, or none was presented.
    #[error("unexpected status {0}")]
    Unauthenticated(String),
    #[error("{0}")]
    Frame(#[from] maglor_xds::frame::FrameError),
}

impl From<ProxyError> for CallError {
    fn from(error: ProxyError) -> Self {
        Self::Call(Box::new(error))
    }
}

/// Parameters of connections for calls. An answer may have several megabytes and a long network path.
const CALLS: Terms = Terms {
    window: 2 * 1024 * 1024,
    keepalive: Duration::from_secs(7),
};

/// Body of an answer; `None` if it is empty. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Answer(Option<(Incoming<Http2>, Owner)>);

impl Answer {
    /// Returns the next frame; an error if the call ends early.
    pub(crate) async fn frame(&mut self) -> Option<Result<Frame<Bytes>, CallError>> {
        let (incoming, _) = self.0.as_mut()?;
        let frame = poll_fn(|cx| incoming.poll_frame(cx)).await?;
        Some(frame.map_err(CallError::from))
    }
}

/// A connection to one server, which is closed after its last call.
pub(crate) struct Connection {
    client: Client,
    authority: String,
}

impl Connection {
    pub(crate) async fn open(cluster: &Cluster, target: &Target) -> Result<Self, CallError> {
        let connecting = connect_for_control(cluster, target);
        let io = in_time(cluster, connecting).await?;
        Ok(Self::over(io, target.authority()))
    }

    /// Connects without an identity, for enrolment, to a server verified with `roots`.
    pub(crate) async fn open_to_enrol(
        cluster: &Cluster,
        target: &Target,
        roots: TrustBundle,
    ) -> Result<Self, CallError> {
        let connecting = connect_to_enrol(cluster, target, roots);
        let io = in_time(cluster, connecting).await?;
        Ok(Self::over(io, target.authority()))
    }

    /// Creates a connection over an existing byte stream.
    pub(crate) fn over(io: Io, authority: String) -> Self {
        let client = Client::start(io, CALLS);
        Self { client, authority }
    }

    /// Calls a method. Returns its answer unless the call is rejected immediately.
    pub(crate) async fn call(&self, path: &str, mut body: Body) -> Result<Answer, CallError> {
        let mut fields = Fields::default();
        let target = fields.add_text(path.as_bytes());
        fields.push(Known::Host, self.authority.as_bytes());
        fields.push(Known::ContentType, b"application/grpc");
        fields.push(Known::Te, b"trailers");
        let request = Request {
            method: Method::POST,
            target: RequestTarget::origin(path.as_bytes(), target.start as usize),
            version: Version::HTTP_2,
            fields,
        };
        let outgoing = Outgoing {
            request: &request,
            https: false,
            marks_http1: false,
        };
        let called = self.client.round_trip(outgoing, &mut body, None).await;
        let Answered { head, body } = called.map_err(|unanswered| match unanswered {
            Unanswered::Failed(error) => CallError::from(error),
            Unanswered::NotSent => ProxyError::UpstreamClosed { reused: false }.into(),
        })?;
        if head.status != StatusCode::OK {
            return Err(CallError::Refused(head.status.to_string()));
        }
        let text = |known| head.fields.get(known);
        match refused(text(Known::GrpcStatus), text(Known::GrpcMessage)) {
            Some(refused) => Err(refused),
            None => Ok(Answer(body)),
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

/// Returns the error for trailers with a gRPC status other than OK.
pub(crate) fn refusal(trailers: &HeaderMap) -> Option<CallError> {
    let text = |name| trailers.get(name).map(http::HeaderValue::as_bytes);
    refused(text("grpc-status"), text("grpc-message"))
}

fn refused(status: Option<&[u8]>, message: Option<&[u8]>) -> Option<CallError> {
    let code = str::from_utf8(status?).ok().filter(|code| *code != "0")?;
    let message = message.and_then(|message| str::from_utf8(message).ok());
    let message = message.unwrap_or_default();
    let said = format!("gRPC status {code} {message}");
    Some(match code {
        "16" => CallError::Unauthenticated(said),
        _ => CallError::Refused(said),
    })
}
